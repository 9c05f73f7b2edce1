"""From a name to a folder that is there: here, in the package, in the clone."""

from __future__ import annotations

import sys

import pytest

from npgpt.files import hub as hub_module
from npgpt.files.hub import find_model
from tests.files.hub.stand_in import refusal


def test_an_existing_folder_is_taken_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "home" / "model").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    assert find_model(tmp_path / "home") == tmp_path / "home"
    assert find_model("~/model") == tmp_path / "home" / "model"
    monkeypatch.chdir(tmp_path)
    assert find_model("./home/model").samefile(tmp_path / "home" / "model")


@pytest.mark.parametrize("name", ["tiny", "weights/tiny"])
@pytest.mark.parametrize("root", ["here/weights", "clone/npgpt/weights", "clone/weights"])
def test_weights_are_found_here_in_the_package_and_in_the_clone(tmp_path, monkeypatch, root, name):
    (tmp_path / root / "tiny").mkdir(parents=True)
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(hub_module, "PACKAGE", tmp_path / "clone" / "npgpt")
    assert find_model(name).samefile(tmp_path / root / "tiny")


def test_a_revision_of_a_folder_is_ignored_aloud(tmp_path):
    with pytest.warns(UserWarning, match="revision 'v1' is ignored"):
        assert find_model(tmp_path, "v1") == tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "./none",
        "../none",
        "/none/at/all",
        "~/none",
        "~nobody/none",
        "weights/none",
        "a/b/none",
        "my none",
        "none\\at",
        ".none",
        "none:1",
        "no--ne",
        "no..ne",
        "none.git",
        "none-",
        "/none",
        "o/" + 97 * "n",
    ],
)
def test_a_path_that_leads_nowhere_is_not_asked_of_the_hub(environment, hub, name):
    text = refusal(FileNotFoundError, name)
    assert repr(name) in text
    assert "looked for the folder" in text
    assert not hub.log


def test_every_place_that_was_looked_at_is_named():
    text = refusal(FileNotFoundError, "weights/none")
    package = hub_module.PACKAGE
    for place in ("weights/none", package / "weights/none", package.parent / "weights/none"):
        assert str(place) in text


def test_a_file_or_an_empty_name_is_refused(tmp_path):
    (tmp_path / "model.safetensors").touch()
    assert "name the folder" in refusal(ValueError, str(tmp_path / "model.safetensors"))
    assert "is empty" in refusal(ValueError, "")


def test_without_huggingface_hub_folders_still_work(environment, tmp_path, monkeypatch):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "huggingface_hub", None)
        assert find_model(tmp_path) == tmp_path
        with pytest.raises(ImportError, match="pip install huggingface_hub"):
            find_model("small")
