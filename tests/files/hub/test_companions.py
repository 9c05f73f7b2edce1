"""A model from the hub is saved with its vocabulary, even if only the weights were downloaded."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import npgpt
from npgpt.files.checkpoint import COMPANIONS
from npgpt.files.hub import find_model
from tests.files.hub.stand_in import VOCABULARY

EXTRAS = {"generation_config.json": b'{"eos_token_id": [1, 2]}', "target_vocab.json": b"{}"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_was_not_downloaded_is_fetched_at_the_same_commit(environment, hub, whole, tmp_path):
    repository = hub.add("owner/small", {**whole, **EXTRAS})
    model = npgpt.from_pretrained("owner/small")
    assert model.source.name == repository.revisions["main"]
    later = "c" * 40
    repository.files[later] = {**whole, "vocab.json": b'{"later": 0}'}
    repository.revisions.update({"main": later, later: later})
    model.save_pretrained(tmp_path / "new")
    wanted = {**VOCABULARY, **EXTRAS}
    assert names(tmp_path / "new") == {"config.json", "model.safetensors", *wanted}
    for name, content in wanted.items():
        assert (tmp_path / "new" / name).read_bytes() == content
    hub.log.clear()
    model.save_pretrained(tmp_path / "new")
    assert not hub.log  # what the commit has and lacks is known by now


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:1"}, r"did not give it \(.*refused"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
def test_without_a_network_what_is_missing_is_said(
    environment, hub, whole, tmp_path, variables, reason
):
    hub.add("owner/small", whole)
    find_model("owner/small")
    environment(**variables)
    model = npgpt.from_pretrained("owner/small")
    missing = r"tokenizer\.json, vocab\.json, merges\.txt, vocab\.txt, .* and \d more"
    says = rf"saved without {missing}, should 'owner/small' have them: .*{reason}"
    with pytest.warns(UserWarning, match=says) as caught:
        model.save_pretrained(tmp_path / "new")
    assert caught[0].filename == __file__
    assert names(tmp_path / "new") == {"config.json", "model.safetensors"}


def test_a_token_that_is_no_longer_good_keeps_no_one_from_saving(environment, hub, whole, tmp_path):
    hub.add("owner/small", whole)
    model = npgpt.from_pretrained("owner/small")
    hub.repositories["owner/small"].access = "gated"
    with pytest.warns(UserWarning, match="saved without .*'owner/small' is gated"):
        model.save_pretrained(tmp_path / "new")


def test_a_repository_without_a_vocabulary_is_saved_without_a_word(
    environment, hub, whole, tmp_path
):
    bare = {name: data for name, data in whole.items() if name not in VOCABULARY}
    hub.add("owner/small", bare)
    model = npgpt.from_pretrained("owner/small")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save_pretrained(tmp_path / "new")
    assert not names(tmp_path / "new") & {*COMPANIONS}
