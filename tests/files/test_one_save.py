"""Weights and configuration are of one save, or the folder is refused: however a save ended."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npgpt.files.checkpoint import MARK
from npgpt.files.safetensors_file import read_header, read_metadata, read_tensors, write_tensors
from npgpt.models.auto import from_pretrained
from npgpt.models.gpt2.model import GPT2
from tests.builders.checkpoints import SMALL, random_params, write_checkpoint
from tests.builders.gpt2 import write_byte_vocabulary

OTHER = replace(SMALL, n_head=3)  # of the same shapes: nothing but the mark tells them apart
MIXED = "model.safetensors comes from another save than config.json"
RACED = "was saved again while it was read: load it once more"


def small(scale: float = 1.0, config=SMALL) -> GPT2:
    return GPT2(config, {name: scale * array for name, array in random_params(config).items()})


def mark_of(folder: Path) -> tuple[str | None, str | None]:
    """The mark of the configuration, and of the weights."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return raw.get(MARK), read_metadata(folder / "model.safetensors").get(MARK)


def loaded(folder: Path) -> str:
    """Which model a folder holds: "old" (SMALL, weights 1), "new" (OTHER, weights 2), or why none.

    ValueErrors other than those of two saves are raised.
    """
    try:
        model = from_pretrained(folder)
    except ValueError as error:
        for reason in (MIXED, RACED):
            if reason in str(error):
                return reason
        raise
    scale = model.params["wte.weight"][0, 0] / random_params()["wte.weight"][0, 0]
    return {(2, 1.0): "old", (3, 2.0): "new"}.get((model.config.n_head, scale), "mixed")


def test_a_save_leaves_one_mark_and_the_same_bytes_each_time(tmp_path):
    for name in ("a", "a", "b"):
        small().save_pretrained(tmp_path / name)
    from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "c")
    assert len({(tmp_path / n / "model.safetensors").read_bytes() for n in "abc"}) == 1
    assert len({(tmp_path / n / "config.json").read_bytes() for n in "ab"}) == 1
    config, weights = mark_of(tmp_path / "a")
    assert config == weights == mark_of(tmp_path / "c")[0]
    small(2.0, OTHER).save_pretrained(tmp_path / "a")
    other, weights = mark_of(tmp_path / "a")
    assert config != other == weights
    assert config
    assert MARK not in from_pretrained(tmp_path / "a").config.other


def kills(folder: Path) -> list[Path]:
    """Copies of a folder in which a save was killed before its first, second, … system call."""
    script = """
        import os, shutil, sys
        from pathlib import Path
        from npgpt.models.auto import from_pretrained

        source, target = map(Path, sys.argv[1:])
        model = from_pretrained(source / "new")
        model.save_pretrained(source / "first")  # so that nothing is imported any more
        for k in range(99):
            shutil.copytree(source / "old", target / str(k))
            if (child := os.fork()) == 0:
                left = [k]

                def dying(call):
                    def run(*args, **kwargs):
                        if left[0] == 0:
                            os._exit(9)
                        left[0] -= 1
                        return call(*args, **kwargs)
                    return run

                os.fsync, Path.replace = dying(os.fsync), dying(Path.replace)
                Path.unlink, shutil.rmtree = dying(Path.unlink), dying(shutil.rmtree)
                model.save_pretrained(target / str(k), overwrite=True)
                os._exit(0)
            if os.waitpid(child, 0)[1] == 0:
                break
    """
    target = folder / "killed"
    target.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder), str(target)]
    subprocess.run(command, check=True)
    return sorted(target.iterdir(), key=lambda path: int(path.name))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
@pytest.mark.parametrize("old", ["ours", "of another program"])
def test_a_kill_at_any_moment_leaves_the_old_model_or_the_new_or_a_refusal(tmp_path, old):
    if old == "ours":
        small().save_pretrained(tmp_path / "old")
    else:
        write_checkpoint(tmp_path / "old", random_params())
    (tmp_path / "old" / "tokenizer.json").write_text("of the old")
    small(2.0, OTHER).save_pretrained(tmp_path / "new")
    write_byte_vocabulary(tmp_path / "new")
    found = [loaded(folder) for folder in kills(tmp_path)]
    # Killed before: four files are flushed; weights, vocab.json, merges.txt are renamed,
    # tokenizer.json is removed, config.json is renamed; the folder is flushed, the temporaries go.
    assert found == 5 * ["old"] + 4 * [MIXED] + (len(found) - 9) * ["new"]
    assert len(found) > 10
    last = {path.name for path in (tmp_path / "killed" / str(len(found) - 1)).iterdir()}
    assert last == {"config.json", "model.safetensors", "vocab.json", "merges.txt"}
    assert {path.name for path in (tmp_path / "killed" / "4").iterdir()} > {"tokenizer.json"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_kill_between_equal_configurations_mixes_nothing(tmp_path):
    for name, scale in (("old", 1.0), ("new", 2.0)):
        small(scale).save_pretrained(tmp_path / name)
    old, new = (
        from_pretrained(tmp_path / name).params["wte.weight"][0, 0] for name in ("old", "new")
    )
    found = [from_pretrained(folder).params["wte.weight"][0, 0] for folder in kills(tmp_path)]
    assert found == 3 * [old] + (len(found) - 3) * [new]


def test_the_refusal_says_what_happened_and_a_mark_set_by_hand_is_believed(tmp_path):
    small().save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_bytes()
    small(2.0, OTHER).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes(config)
    with pytest.raises(ValueError, match=MIXED) as caught:
        from_pretrained(tmp_path)
    mark = mark_of(tmp_path)[1]
    assert str(caught.value).endswith(f"set 'npgpt_save' in it to {mark!r}.")
    assert "\n" not in str(caught.value)
    raw = {**json.loads(config), MARK: mark}
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    assert from_pretrained(tmp_path).config.n_head == 2
    small(2.0, OTHER).save_pretrained(tmp_path)
    assert loaded(tmp_path) == "new"


@pytest.mark.parametrize("kept", [True, False])
def test_what_others_do_to_the_files_is_no_reason_to_refuse(tmp_path, kept):
    """A configuration edited by hand; weights written by a program that knows no mark."""
    small().save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**raw, "n_head": 3}), encoding="utf-8")
    assert from_pretrained(tmp_path).config.n_head == 3
    weights = tmp_path / "model.safetensors"
    write_tensors(weights, {n: 2 * a for n, a in read_tensors(weights).items()}, {"format": "pt"})
    if not kept:
        del raw[MARK]
        (tmp_path / "config.json").write_text(json.dumps({**raw, "n_head": 3}), encoding="utf-8")
    assert loaded(tmp_path) == "new"


def test_a_save_over_an_edited_configuration_of_its_own_has_another_mark(tmp_path):
    small().save_pretrained(tmp_path)
    first = mark_of(tmp_path)
    edited = json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) | {"n_head": 3}
    (tmp_path / "config.json").write_text(json.dumps(edited), encoding="utf-8")
    small().save_pretrained(tmp_path)
    assert mark_of(tmp_path)[0] == mark_of(tmp_path)[1] != first[0]
    small().save_pretrained(tmp_path)
    assert mark_of(tmp_path) == first


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_save_while_a_model_is_read_is_noticed(tmp_path, monkeypatch, when):
    small().save_pretrained(tmp_path)

    def read_and_save(path: Path):
        header = read_header(path) if when == "after" else None
        small(2.0, OTHER).save_pretrained(tmp_path)
        return header or read_header(path)

    monkeypatch.setattr("npgpt.files.checkpoint.read_header", read_and_save)
    assert loaded(tmp_path) == RACED
    monkeypatch.undo()
    assert loaded(tmp_path) == "new"


def test_readers_beside_a_writer_see_one_model_or_the_other(tmp_path):
    small().save_pretrained(tmp_path / "model")
    script = """
        import sys
        from tests.files.test_one_save import OTHER, small

        models = small(), small(2.0, OTHER)
        print("ready", flush=True)
        while True:
            for model in models:
                model.save_pretrained(sys.argv[1])
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "model")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            seen = set()
            for _ in range(300):
                seen.add(loaded(tmp_path / "model"))
        finally:
            writer.kill()
    assert {"old", "new"} <= seen <= {"old", "new", MIXED, RACED}


def test_damaged_files_are_refused_for_what_is_wrong_with_them(tmp_path):
    small().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a JSON object"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        from_pretrained(tmp_path)
    small().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs")
    with pytest.raises(ValueError, match="Git LFS pointer"):
        from_pretrained(tmp_path)


def test_metadata_are_written_in_order_and_change_no_tensor(tmp_path):
    tensors = {'é\u2028"\\\n': np.arange(6.0), "b": np.zeros((2, 3), np.float16)}
    metadata = {f"key {n} ü\t": "value" for n in range(9, 0, -1)}
    for name in ("a", "b"):
        write_tensors(tmp_path / name, tensors, metadata)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [*read_metadata(tmp_path / "a")] == sorted(metadata)
    for name, array in read_tensors(tmp_path / "a").items():
        assert np.array_equal(array, tensors[name])
