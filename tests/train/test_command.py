"""The command from text to a model: its files, its words, and what it keeps when it fails."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt.files import io
from npgpt.files.safetensors_file import read_tensors
from npgpt.models.gpt2.model import GPT2
from npgpt.train import command, log, steps
from tests.builders.gpt2 import write_tiny_gpt2
from tests.train.training_runs import (
    BATCH,
    SIZE,
    SMALL,
    at_step,
    facts,
    rows,
    run,
    weights,
    write_story,
)

COLUMNS = [
    "step", "tokens", "lr", "grad_norm", "train_loss", "val_loss", "bits_per_byte", "seconds",
]  # fmt: skip
FILES = {
    ".lock", "config.json", "ids.safetensors", "log.csv", "merges.txt", "model.safetensors",
    "state.safetensors", "vocab.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run from scratch: its folder, and what it printed to both streams."""
    folder = tmp_path_factory.mktemp("finished")
    options = (*SMALL, "--steps", 10, "--sample-every", 5, "--sample-prompt", "The fox")
    with pytest.MonkeyPatch.context() as patch:
        out, err = folder / "out.txt", folder / "err.txt"
        text, whole = write_story(folder), folder / "run"
        with out.open("w", encoding="utf-8") as stdout, err.open("w", encoding="utf-8") as stderr:
            patch.setattr("sys.stdout", stdout)
            patch.setattr("sys.stderr", stderr)
            assert run("--data", text, "--out", whole, *options, draw=True) == 0
    return folder / "run", out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")


def test_the_files_of_a_run(finished):
    folder, *_ = finished
    assert {path.name for path in folder.parent.iterdir()} == {
        "story.txt", "run", "out.txt", "err.txt",
    }  # fmt: skip
    assert {path.name for path in folder.iterdir()} - {"loss.png"} == FILES
    model, tokenizer = npgpt.from_pretrained(folder), npgpt.load_tokenizer(folder)
    config = model.config
    assert (config.n_layer, config.n_head, config.n_embd, config.n_positions) == (2, 2, 16, 16)
    assert (config.vocab_size, config.eos_token_id, config.embd_pdrop) == (257, 256, 0.1)
    assert tokenizer.encode("The fox") == list(b"The fox")
    assert tokenizer.encode("<|endoftext|>", allowed_special="all") == [256]
    state = read_tensors(folder / "state.safetensors")
    for name, param in model.params.items():
        np.testing.assert_array_equal(param, state[f"params.{name}"])
    assert facts(folder)["step"] == 10


def test_the_log_has_every_step_and_the_evaluations(finished):
    table = rows(finished[0])
    assert list(table[0]) == COLUMNS
    assert [int(row["step"]) for row in table] == list(range(1, 11))
    assert [int(row["tokens"]) for row in table] == list(range(128, 1281, 128))
    assert [row["step"] for row in table if row["val_loss"]] == ["4", "8", "10"]
    losses = [float(row["train_loss"]) for row in table]
    assert losses[0] == pytest.approx(np.log(257), rel=0.01)
    assert losses[-1] < losses[0] - 0.01
    evaluated = table[-1]
    bits = float(evaluated["val_loss"]) / np.log(2)  # a byte is an id here
    assert float(evaluated["bits_per_byte"]) == pytest.approx(bits, rel=1e-6)
    seconds = [float(row["seconds"]) for row in table]
    assert seconds == sorted(seconds)


def test_what_a_run_tells(finished):
    folder, out, err = finished
    assert out.startswith("10,960 parameters; 2,702 tokens to train on, 300 held out; 10 steps of ")
    assert "step 8: train loss " in out
    assert ", perplexity " in out
    assert " bits per byte\n" in out
    assert "\n--- sample after step 5\nThe fox" in out
    assert "\n--- sample after step 10\nThe fox" in out
    assert f"\ndone after step 10; saved in {folder}\n" in out
    assert err.splitlines()[-1].startswith("step 10/10, loss 5.")
    assert "tokens/s, 00:00 left" in err


def test_the_curve_is_drawn_where_matplotlib_is(finished):
    folder, out, _ = finished
    if importlib.util.find_spec("matplotlib") is None:
        assert '\nno loss.png, which needs: pip install "npgpt[plot]"\n' in out
        assert not (folder / "loss.png").exists()
    else:
        assert "loss.png" not in out
        assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_run_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    text = write_story(tmp_path)
    assert run("--data", text, "--out", tmp_path / "run", *SMALL, "--steps", 1, draw=True) == 0
    assert '\nno loss.png, which needs: pip install "npgpt[plot]"\n' in capsys.readouterr().out
    assert not (tmp_path / "run" / "loss.png").exists()


def test_a_bar_on_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    text = write_story(tmp_path)
    assert run("--data", text, "--out", tmp_path / "run", *SMALL, "--steps", 2) == 0
    last = capsys.readouterr().err.split("\r")[-1]
    assert last.startswith("step 2/2, loss ")
    assert "100%|" in last
    assert "tokens/s]" in last


def test_texts_held_out_by_name_are_not_trained_on(tmp_path, capsys):
    texts = tmp_path / "texts"
    (texts / "deep").mkdir(parents=True)
    for name, size in (("a.txt", 500), ("b.txt", 300), ("deep/c.txt", 100)):
        write_story(texts, size, name)
    for name, held, train, kept in (
        ("file", [texts / "b.txt"], 603, 302),
        ("folder", [texts / "deep"], 803, 102),
        ("both", [texts / "a.txt", texts / "deep"], 302, 603),
        ("twice", [texts / "deep", texts / "deep" / "c.txt"], 803, 102),
        ("elsewhere", [write_story(tmp_path, 50)], 904, 52),
    ):
        options = ("--val", *held, *SMALL, "--steps", 1)
        assert run("--data", texts, "--out", tmp_path / name, *options) == 0
        assert f"; {train} tokens to train on, {kept} held out; " in capsys.readouterr().out


def test_nothing_need_be_held_out(tmp_path, capsys):
    text = write_story(tmp_path, 40)
    options = ("--val-fraction", 0, *SIZE, *BATCH, "--steps", 1)
    assert run("--data", text, "--out", tmp_path / "run", *options) == 0
    assert "; 42 tokens to train on, 0 held out; " in capsys.readouterr().out
    assert rows(tmp_path / "run")[0]["val_loss"] == ""


@pytest.mark.parametrize(
    ("lr", "why"),
    [
        ("3e38", "no longer finite after the update of step 2 (learning rate 3e+38): wte.weight."),
        ("1e9", "useless after step 2: loss "),  # finite, and so is the loss
    ],
)
def test_a_run_that_diverges_keeps_the_last_good_state(tmp_path, capsys, monkeypatch, lr, why):
    """The first step learns as it should; what the second one makes is never saved."""
    text, out = write_story(tmp_path), tmp_path / "run"
    monkeypatch.setattr(steps, "learning_rate", lambda step, **_: 1e-3 if step == 0 else float(lr))
    options = (*SIZE, "--lr", lr, "--clip", 0, "--save-every", 1)
    assert run("--data", text, "--out", out, *options, "--steps", 2) == 1
    told = capsys.readouterr()
    assert f"npgpt.train: stopped, {why}" in told.err
    assert "keeps the last state that was saved; start anew with a smaller --lr, " in told.err
    assert "done" not in told.out
    assert facts(out)["step"] == 1
    assert len(rows(out)) == 1 or why.startswith("useless")
    for name in ("state.safetensors", "model.safetensors"):
        tensors = read_tensors(out / name)
        assert all(abs(array).max() < 2 for array in tensors.values())
    before = weights(out)
    assert run("--out", out, "--resume") == 1
    assert f"stopped, {why}" in capsys.readouterr().err
    assert weights(out) == before
    monkeypatch.setattr(steps, "learning_rate", lambda step, **_: 1e-3)
    assert run("--out", out, "--resume") == 0
    assert [row["step"] for row in rows(out)] == ["1", "2"]


def test_a_stop_saves_nothing_useless_either(tmp_path, capsys):
    text, out = write_story(tmp_path), tmp_path / "run"
    wild = ("--lr", "1e9", "--clip", 0, "--warmup", 0, "--save-every", 0, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SIZE, *wild, "--steps", 9) == 1
    assert "stopped, useless after step 1: " in capsys.readouterr().err
    assert facts(out)["step"] == 0


def out_of_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("lr", "code"), [("1e-3", 0), ("3e38", 1)])
def test_a_reader_that_has_gone_away_ends_no_run(tmp_path, monkeypatch, lr, code):
    """As `| head` does; and the exit code stays that of the run."""
    text, out = write_story(tmp_path), tmp_path / "run"
    with contextlib.ExitStack() as streams:
        for name in ("stdout", "stderr"):
            reader, writer = os.pipe()
            os.close(reader)
            stream = streams.enter_context(os.fdopen(writer, "w", encoding="utf-8"))
            monkeypatch.setattr(sys, name, stream)
        options = (*SIZE, "--lr", lr, "--eval-every", 1, "--steps", 3)
        assert run("--data", text, "--out", out, *options) == code
    assert facts(out)["step"] == (3 if code == 0 else 0)


@pytest.mark.filterwarnings("default")
def test_a_disk_too_full_for_picture_and_model_ends_no_run(tmp_path, capsys, monkeypatch):
    """From the first save on; and whatever matplotlib fails of."""
    replace = Path.replace
    lost: list[Path] = []

    def full(path: Path, target: Path) -> Path:
        if target.name == "model.safetensors" and len(lost) < 2:
            lost.append(target)
            out_of_space()
        return replace(path, target)

    def fail(*_):
        raise RuntimeError("no font")

    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(log, "_draw", fail)
    text, out = write_story(tmp_path), tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", 4, draw=True) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    full_disk = f"{lost[0]} could not be written (No space left on device)"
    assert [line.removeprefix("npgpt.train: warning: ") for line in warned] == [
        f"after step 0: {full_disk}; what was there before is unchanged.",
        f"after step 2: {full_disk}; what was there before is unchanged.",
        f"{out / 'loss.png'} was not drawn: no font",
    ]
    assert facts(out)["step"] == 4
    param = read_tensors(out / "state.safetensors")["params.wte.weight"]
    np.testing.assert_array_equal(npgpt.from_pretrained(out).params["wte.weight"], param)


@pytest.mark.filterwarnings("default")
def test_a_sample_that_cannot_be_written_ends_no_run(tmp_path, capsys, monkeypatch):
    """It is written after the save that is due at the same step."""
    text, out = write_story(tmp_path), tmp_path / "run"
    saved = []

    def fail(*_, **__):
        saved.append(facts(out)["step"])
        raise ValueError("every id is forbidden; nothing can be generated.")

    monkeypatch.setattr(GPT2, "generate", fail)
    options = (*SMALL, "--steps", 4, "--sample-every", 2)
    assert run("--data", text, "--out", out, *options) == 0
    err = capsys.readouterr().err
    for step in (2, 4):
        assert f"warning: no sample was written after step {step}: every id is forbidden; " in err
    assert saved == [2, 4]


@pytest.mark.filterwarnings("default")
def test_a_model_too_large_for_float16_is_not_written_as_infinity(tmp_path, capsys):
    text, out = write_story(tmp_path), tmp_path / "run"
    model = npgpt.from_pretrained(write_tiny_gpt2(tmp_path / "big"))
    model.params["h.0.attn.c_attn.bias"][12] = 1e5  # of a key: all scores of a query move alike
    model.save_pretrained(tmp_path / "big")
    common = ("--data", text, "--save-dtype", "float16", "--steps", 1, "--sample-every", 0)
    assert run(*common, "--init", tmp_path / "big", "--out", out) == 2
    err = capsys.readouterr().err
    assert "has numbers that are too large for float16, so it was not written" in err
    assert not (out / "model.safetensors").exists()
    assert run("--out", out, "--resume", "--save-dtype", "float32") == 0


def test_a_log_that_cannot_be_written_ends_the_run_by_name(tmp_path, capsys, monkeypatch):
    text, out = write_story(tmp_path), tmp_path / "run"

    class Full(StringIO):
        name = str(out / "log.csv")

        def write(self, _):
            out_of_space()

    monkeypatch.setattr(command, "open_log", lambda *_: Full())
    assert run("--data", text, "--out", out, *SMALL, "--steps", 4) == 2
    assert "log.csv could not be written (No space left on device)." in capsys.readouterr().err


def test_a_full_disk_while_saving_leaves_the_last_save(tmp_path, capsys, monkeypatch):
    text, out = write_story(tmp_path), tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 3, lambda: patch.setattr(os, "fsync", out_of_space))
        assert run("--data", text, "--out", out, *SMALL, "--steps", 6) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert "could not be written (No space left on device); what was there" in sentence
    assert facts(out)["step"] == 2
    assert {path.name for path in out.iterdir()} - {"loss.png"} == FILES
    npgpt.from_pretrained(out)
    assert run("--out", out, "--resume") == 0
    assert run("--data", text, "--out", tmp_path / "whole", *SMALL, "--steps", 6) == 0
    assert weights(out) == weights(tmp_path / "whole")


def test_a_file_that_grows_too_large_leaves_the_last_save(tmp_path, capsys, monkeypatch):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    text, out = write_story(tmp_path), tmp_path / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # of 135,000 bytes

    at_step(monkeypatch, 3, limit)
    try:
        assert run("--data", text, "--out", out, *SMALL, "--steps", 6) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "state.safetensors could not be written" in capsys.readouterr().err
    assert facts(out)["step"] == 2
    assert {path.name for path in out.iterdir()} - {"loss.png"} == FILES


def refuse_to_replace(monkeypatch, name: str) -> None:
    """As Windows does where a file is open in another program."""
    replace = Path.replace

    def refusing(path, target):
        if Path(target).name == name:
            raise PermissionError(errno.EACCES, "Access is denied", str(target))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refusing)
    monkeypatch.setattr(io, "WAITS", ())


@pytest.mark.filterwarnings("always:.*could not be written:UserWarning")
@pytest.mark.parametrize("name", ["loss.png", "model.safetensors"])
def test_a_picture_or_model_that_is_open_elsewhere_ends_no_run(tmp_path, monkeypatch, capsys, name):
    """The next save writes it; the last one has to, so that nobody takes the old model for new."""
    if name == "loss.png":
        pytest.importorskip("matplotlib", reason='pictures need: pip install "npgpt[plot]"')
    text, out = write_story(tmp_path), tmp_path / "run"
    options = ("--data", text, "--out", out, *SMALL, "--steps", 3, "--save-every", 1)
    with monkeypatch.context() as patch:
        at_step(patch, 2, lambda: refuse_to_replace(patch, name))
        assert run(*options, draw=name == "loss.png") == (0 if name == "loss.png" else 2)
    told = capsys.readouterr().err
    assert f"npgpt.train: warning: {'after step 2: ' * (name != 'loss.png')}{out / name}" in told
    assert f"{out / name} could not be written (Access is denied); what was there" in told
    assert facts(out)["step"] == 3
    assert run("--out", out, "--resume") == 0
    assert run("--data", text, "--out", tmp_path / "whole", *SMALL, "--steps", 3) == 0
    assert weights(out) == weights(tmp_path / "whole")


def test_the_home_folder_holds_text_and_run(tmp_path, monkeypatch):
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    write_story(tmp_path)
    assert run("--data", "~/story.txt", "--out", "~/run", *SMALL, "--steps", 1) == 0
    assert facts(tmp_path / "run")["step"] == 1
