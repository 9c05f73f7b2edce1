"""From a name to a folder in the cache: only what is needed, once, and as the variables say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

import npgpt
from npgpt.files.hub import find_model
from npgpt.models.gpt2.checkpoint import load_checkpoint
from tests.builders.checkpoints import assert_same, random_params
from tests.files.hub.stand_in import INDEX, SHARDS, TOKEN, VOCABULARY, refusal


def test_a_model_is_downloaded_with_nothing_it_does_not_need(environment, hub, whole, tmp_path):
    hub.add("owner/small", whole)
    folder = find_model("owner/small")
    assert_same(load_checkpoint(folder)[1], random_params())
    assert hub.asked("GET") == ["config.json"]
    assert hub.asked("HEAD") == ["config.json", "model.safetensors", "generation_config.json"]
    assert folder.is_relative_to(tmp_path / "home" / "hub" / "models--owner--small" / "snapshots")
    assert (folder / "model.safetensors").is_symlink()


def test_the_hub_is_asked_once_before_the_first_download(environment, hub, whole):
    hub.add("small", whole)
    find_model("small")
    heads = [r.path.rpartition("/")[2] for r in hub.log if r.method == "HEAD"]
    assert heads == ["config.json", *hub.asked("HEAD")]
    assert heads[1:] == ["config.json", "model.safetensors", "generation_config.json"]


def test_the_second_time_nothing_is_downloaded(environment, hub, whole):
    hub.add("small", whole)
    folder = find_model("small")
    hub.log.clear()
    assert find_model("small") == folder
    assert [(r.method, r.path) for r in hub.log] == [("HEAD", "/small/resolve/main/config.json")]


def test_offline_the_cache_is_enough(environment, hub, whole):
    hub.add("small", whole)
    folders = find_model("small"), find_model("small", files=("tokenizer",))
    hub.log.clear()
    environment(HF_HUB_OFFLINE="1")
    assert (find_model("small"), find_model("small", files=("tokenizer",))) == folders
    assert not hub.log


def test_without_a_network_the_cache_is_enough_at_once(
    environment, hub, whole, sharded, monkeypatch
):
    hub.add("small", whole)
    hub.add("sharded", sharded)
    folders = find_model("small"), find_model("small", files=("tokenizer",)), find_model("sharded")
    environment(HF_ENDPOINT="http://127.0.0.1:1")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited for a network"))
    again = find_model("small"), find_model("small", files=("tokenizer",)), find_model("sharded")
    assert again == folders


def test_a_sharded_model_is_downloaded_whole(environment, hub, sharded):
    hub.add("sharded", {**sharded, "consolidated.safetensors": b"not of the index"})
    assert_same(load_checkpoint(find_model("sharded"))[1], random_params())
    files = ["config.json", "model.safetensors", INDEX, *SHARDS, "generation_config.json"]
    assert hub.asked("HEAD") == files


def test_generation_settings_are_downloaded_and_followed(environment, hub, whole):
    settings = b'{"eos_token_id": [4, 7], "max_new_tokens": 3}'
    hub.add("owner/small", {**whole, "generation_config.json": settings})
    model = npgpt.from_pretrained("owner/small")
    assert (model.generation.eos_token_id, model.generation.max_new_tokens) == ([4, 7], 3)
    assert (model.source / "generation_config.json").read_bytes() == settings


@pytest.mark.parametrize("offline", [True, False])
def test_generation_settings_that_may_be_missing_are_said(environment, hub, whole, offline):
    """Such as after a download by an older npgpt, which did not ask for them."""
    hub.add("owner/small", {**whole, "generation_config.json": b"{}"})
    folder = find_model("owner/small")
    (folder / "generation_config.json").unlink()
    environment(**({"HF_HUB_OFFLINE": "1"} if offline else {"HF_ENDPOINT": "http://127.0.0.1:1"}))
    says = (
        r"loaded without generation_config\.json, should 'owner/small' have one: .* is not in the"
    )
    with pytest.warns(UserWarning, match=says) as caught:
        assert find_model("owner/small") == folder
    assert caught[0].filename == __file__


def test_a_shard_the_repository_lacks_is_named(environment, hub, sharded):
    hub.add("sharded", {name: data for name, data in sharded.items() if name != SHARDS[1]})
    assert f"'sharded' has no {SHARDS[1]}" in refusal(FileNotFoundError, "sharded")


def test_marians_vocabulary_is_downloaded_alone(environment, hub, whole):
    spm = {"source.spm": b"a", "target.spm": b"b", "vocab.json": b"{}"}
    hub.add("owner/marian", {**whole, **spm})
    folder = find_model("owner/marian", files=("spm",))
    assert {path.name for path in folder.iterdir()} == {*spm, "config.json"}
    hub.add("owner/half", {**whole, "source.spm": b"a"})
    with pytest.raises(FileNotFoundError, match=r"'owner/half' has no target\.spm"):
        find_model("owner/half", files=("spm",))


@pytest.mark.parametrize("shared", [True, False])
def test_a_target_that_is_numbered_apart_is_downloaded_too(environment, hub, shared):
    files = dict.fromkeys(["source.spm", "target.spm"], b"a")
    files |= dict.fromkeys(["vocab.json", "target_vocab.json"], b"{}")
    config = json.dumps({"share_encoder_decoder_embeddings": shared}).encode()
    hub.add("owner/marian", {**files, "config.json": config})
    folder = find_model("owner/marian", files=("spm",))
    assert (folder / "target_vocab.json").is_file() is not shared
    del files["target_vocab.json"]
    hub.add("owner/one", {**files, "config.json": config})
    assert find_model("owner/one", files=("spm",)).is_dir()


def test_a_vocabulary_is_downloaded_alone(environment, hub, whole):
    hub.add("small", {**whole, "tokenizer_config.json": b"{}"})
    folder = find_model("small", files=("tokenizer",))
    found = {path.name for path in folder.iterdir()}
    assert found == {"vocab.json", "merges.txt", "tokenizer_config.json"}
    extras = ["tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"]
    asked = ["tokenizer.json", *VOCABULARY, "vocab.txt", *extras]
    assert hub.asked("HEAD") == asked


def test_a_configuration_is_downloaded_alone(environment, hub, whole):
    hub.add("small", whole)
    folder = find_model("small", files=("config",))
    assert (folder / "config.json").read_bytes() == whole["config.json"]
    assert hub.asked("HEAD") == hub.asked("GET") == ["config.json"]


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_one_file_alone_is_a_vocabulary(environment, hub, name):
    hub.add("small", {name: b"{}"})
    assert [p.name for p in find_model("small", files=("tokenizer",)).iterdir()] == [name]


@pytest.mark.parametrize("files", [{}, {"vocab.json": b"{}"}, {"tokenizer_config.json": b"{}"}])
def test_a_repository_without_a_vocabulary_is_refused(environment, hub, files):
    hub.add("small", files)
    assert "'small' has no vocabulary" in refusal(FileNotFoundError, "small", files=("tokenizer",))


def test_a_revision_is_a_branch_or_a_commit_and_all_files_are_of_one(environment, hub, whole):
    repository = hub.add("small", whole)
    old, new = repository.revisions["main"], "b" * 40
    repository.files[new] = {**whole, "config.json": whole["config.json"] + b"\n"}
    repository.revisions.update({"trial": new, new: new})
    assert find_model("small").name == old
    assert find_model("small", "trial").name == new
    assert find_model("small", new).name == new
    assert {r.path.split("/")[3] for r in hub.log if "model.safetensors" in r.path} == {old, new}


def test_the_token_goes_to_the_hub_and_not_beyond(environment, hub, whole):
    hub.add("secret", whole, access="private")
    assert "set HF_TOKEN if it is private" in refusal(FileNotFoundError, "secret")
    environment(HF_TOKEN=TOKEN)
    hub.log.clear()
    assert_same(load_checkpoint(find_model("secret"))[1], random_params())
    assert {r.token for r in hub.log if r.host == "127.0.0.1"} == {TOKEN}
    assert {r.token for r in hub.log if r.host == "localhost"} == {None}


def test_the_token_stays_at_the_hub_where_only_the_weights_are_missing(environment, hub, whole):
    hub.add("secret", whole, access="private")
    environment(HF_TOKEN=TOKEN)
    find_model("secret", files=("config",))
    environment(HF_TOKEN=TOKEN)
    hub.log.clear()
    find_model("secret", hub.repositories["secret"].revisions["main"])
    assert {r.token for r in hub.log if r.host == "127.0.0.1"} == {TOKEN}
    assert {r.token for r in hub.log if r.host == "localhost"} == {None}


def test_a_cache_that_cannot_be_written_is_enough_when_full(environment, hub, whole, tmp_path):
    hub.add("small", whole)
    folder = find_model("small")
    everything = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    for path in everything:
        if not path.is_symlink():
            path.chmod(0o555)
    before = {path: path.lstat().st_mtime_ns for path in everything}
    try:
        environment()
        assert find_model("small") == folder
        assert {path: path.lstat().st_mtime_ns for path in everything} == before
        assert len(list((tmp_path / "home").rglob("*"))) + 1 == len(everything)
    finally:
        for path in everything:
            if not path.is_symlink():
                path.chmod(0o755)


def test_everything_in_the_cache_can_be_elsewhere(environment, hub, whole, tmp_path):
    hub.add("small", whole)
    environment(HF_HUB_CACHE=str(tmp_path / "elsewhere"))
    assert find_model("small").is_relative_to(tmp_path / "elsewhere")


def test_another_process_reads_the_same_variables(hub, whole, tmp_path):
    hub.add("stand-in/small", whole)
    code = "from npgpt.files.hub import find_model; print(find_model('stand-in/small'))"
    shown = []
    for extra in ({"HF_ENDPOINT": hub.url}, {"HF_HUB_OFFLINE": "1"}):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        environment = {**inherited, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "*", **extra}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        shown.append(done.stdout.strip())
    assert shown[0] == shown[1]
    assert_same(load_checkpoint(shown[0])[1], random_params())
