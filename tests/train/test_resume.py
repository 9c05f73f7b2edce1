"""A run that is stopped, killed or resumed takes the same way to the last bit.

NPGPT_KILLS sets how many times runs are killed at random moments (4).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from npgpt.files.io import alone_in, replacing
from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.text import corpus
from npgpt.train.optim import OPTIMIZERS, learning_rate
from tests.train.training_runs import (
    SMALL,
    at_step,
    facts,
    log_without_seconds,
    rows,
    run,
    start,
    weights,
    write_story,
)

KILLS = int(os.environ.get("NPGPT_KILLS", "4"))
STEPS = 12
UNDRAWN = "import sys; sys.modules['matplotlib'] = None"  # the curve is slow to draw
SAVE_OFTEN = ("--save-every", 1, "--save-dtype", "float16")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_story(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def undisturbed(text):
    """Weights and log of the run that nothing disturbed."""
    out = text.parent / "undisturbed"
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS) == 0
    return weights(out), log_without_seconds(out)


def assert_as_undisturbed(out, undisturbed):
    assert weights(out) == undisturbed[0]
    assert log_without_seconds(out) == undisturbed[1]
    assert [path.name for path in out.iterdir() if path.name.endswith(".tmp")] == []


STOPS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129, "SIGBREAK": 149}


@pytest.mark.parametrize(
    ("number", "code"),
    [(getattr(signal, name), code) for name, code in STOPS.items() if hasattr(signal, name)],
)
def test_signals_finish_the_step_and_save(
    text, undisturbed, tmp_path, monkeypatch, capsys, number, code
):
    out = tmp_path / "run"
    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        at_step(patch, 5, lambda: signal.raise_signal(number))
        assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS) == code
    assert signal.getsignal(number) is before
    told = capsys.readouterr()
    assert "npgpt.train: finishing this step, then saving\n" in told.err
    assert f"\nstopped after step 5; saved in {out}\n" in told.out
    assert run("--out", out, "--resume") == 0
    assert "going on after step 5 (0:" in capsys.readouterr().out
    assert_as_undisturbed(out, undisturbed)


def test_a_second_signal_does_not_wait(text, undisturbed, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 5, lambda: list(map(signal.raise_signal, [signal.SIGINT] * 2)))
        assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS) == 130
    assert len(log_without_seconds(out)) == 6  # five steps are in the log, four in the state
    assert run("--out", out, "--resume") == 0
    assert_as_undisturbed(out, undisturbed)


needs_sighup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has SIGBREAK")


@needs_sighup
def test_a_terminal_that_is_closed_may_say_so_twice_and_takes_no_words(
    text, undisturbed, tmp_path, monkeypatch
):
    """The shell hands the hang-up on to its jobs, and writing to the terminal is an error then."""
    out = tmp_path / "run"

    def hang_up() -> None:
        def print_nothing(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr("builtins.print", print_nothing)
            for _ in range(2):
                signal.raise_signal(signal.SIGHUP)

    with monkeypatch.context() as patch:
        at_step(patch, 5, hang_up)
        assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS) == 129
    assert run("--out", out, "--resume") == 0
    assert_as_undisturbed(out, undisturbed)


@needs_sighup
def test_under_nohup_a_run_goes_on(text, undisturbed, tmp_path, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        at_step(monkeypatch, 5, lambda: signal.raise_signal(signal.SIGHUP))
        assert run("--data", text, "--out", tmp_path / "run", *SMALL, "--steps", STEPS) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert_as_undisturbed(tmp_path / "run", undisturbed)


def test_a_handler_that_is_not_pythons_is_no_error(text, tmp_path, monkeypatch):
    """Such as MPI's may be: Python calls it None, and can only put the default in its place."""
    set_handler = signal.signal

    def from_elsewhere(number, handler):
        return None if set_handler(number, handler) is before else handler

    before = signal.getsignal(signal.SIGTERM)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", from_elsewhere)
            assert run("--data", text, "--out", tmp_path / "run", *SMALL, "--steps", 1) == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_time_limit_holds_for_one_call(text, undisturbed, tmp_path, capsys):
    out = tmp_path / "run"
    limit = ("--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS, *limit) == 0
    assert run("--out", out, "--resume", *limit) == 0
    assert "\nstopped after step 2; saved in" in capsys.readouterr().out
    assert run("--out", out, "--resume") == 0
    assert_as_undisturbed(out, undisturbed)


def test_the_model_as_float16_does_not_touch_the_run(text, undisturbed, tmp_path):
    out = tmp_path / "run"
    first = ("--save-dtype", "float16", "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS, *first) == 0
    assert run("--out", out, "--resume") == 0
    halved, whole = weights(out), undisturbed[0]
    for name, array in whole.items():
        if name.startswith("state"):
            assert halved[name] == array
        else:
            assert len(halved[name]) == len(array) / 2
    assert run("--out", out, "--resume", "--save-dtype", "float32") == 0  # writes the model anew
    assert_as_undisturbed(out, undisturbed)


def test_resume_starts_a_run_that_is_not_there(text, undisturbed, tmp_path):
    out = tmp_path / "run"
    assert run("--data", text, "--out", out, "--resume", *SMALL, "--steps", STEPS) == 0
    assert_as_undisturbed(out, undisturbed)


def test_what_does_not_touch_the_weights_may_change(text, undisturbed, tmp_path):
    out, moved = tmp_path / "run", write_story(tmp_path, name="moved.txt")
    stop = ("--steps", STEPS, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop) == 0
    changes = ("--save-every", 0, "--sample-every", 5, "--eval-batches", 3, "--data", moved)
    assert run("--out", out, "--resume", *changes) == 0
    assert weights(out) == undisturbed[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--lr 0.5", "was started with --lr 0.001, not 0.5, and resumes only as it began"),
        ("--batch-size 5", "was started with --batch-size 4, not 5"),
        ("--optimizer muon", "was started with --optimizer adamw, not muon, and resumes only"),
        ("--seed 1", "was started with --seed 0, not 1"),
        ("--save-every -1", "--save-every must be at least 0, but is -1."),
    ],
)
def test_resuming_with_other_settings_is_refused(text, tmp_path, capsys, options, message):
    out = tmp_path / "run"
    stop = ("--steps", STEPS, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop) == 0
    before = weights(out)
    assert run("--out", out, "--resume", *options.split()) == 2
    assert message in capsys.readouterr().err
    assert weights(out) == before


def test_resuming_on_another_text_is_refused(tmp_path, capsys):
    text, out = write_story(tmp_path), tmp_path / "run"
    stop = ("--steps", STEPS, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop) == 0
    text.write_text(text.read_text("utf-8").replace("fox", "vex"), "utf-8")
    assert run("--out", out, "--resume") == 2
    assert "the texts or the vocabulary have changed since the run" in capsys.readouterr().err


def test_a_finished_run_says_so_and_how_to_extend_it(text, undisturbed, tmp_path, capsys):
    out = tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS) == 0
    capsys.readouterr()
    assert run("--out", out, "--resume") == 0
    said = capsys.readouterr().out
    assert "\nfinished after step 12 (0:" in said
    assert said.endswith("so far); to extend it, resume it with --steps N, N above 12\n")
    assert_as_undisturbed(out, undisturbed)
    assert run("--out", out, "--resume", "--steps", 11) == 2
    sentence = "error: this run has done 12 steps; --steps must be at least that, but is 11.\n"
    assert capsys.readouterr().err.endswith(sentence)
    assert_as_undisturbed(out, undisturbed)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_extended_run_equals_a_longer_one_where_the_rate_is_constant(text, tmp_path, optimizer):
    """Weights, moments and log, to the last bit: the rate alone depends on the number of steps."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    rate = ("--lr", 1e-2, "--min-lr", 1e-2, "--warmup", 3)
    options = ("--data", text, *SMALL, *rate, "--optimizer", optimizer)
    assert run("--out", whole, *options, "--steps", STEPS) == 0
    assert run("--out", out, *options, "--steps", 8) == 0
    assert run("--out", out, "--resume", "--steps", STEPS) == 0
    assert_as_undisturbed(out, (weights(whole), log_without_seconds(whole)))
    assert facts(out)["settings"]["steps"] == STEPS


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_extended_run_takes_the_schedule_of_the_longer_one_from_there_on(
    text, tmp_path, optimizer
):
    """And it takes the same way to the last bit when it is stopped in between."""
    once, twice = tmp_path / "once", tmp_path / "twice"
    options = (*SMALL, "--warmup", 2, "--optimizer", optimizer)
    assert run("--data", text, "--out", once, *options, "--steps", 8) == 0
    short = log_without_seconds(once)
    shutil.copytree(once, twice)
    assert run("--out", once, "--resume", "--steps", STEPS) == 0
    assert log_without_seconds(once)[:9] == short
    rates = [float(row["lr"]) for row in rows(once)]
    for step, rate in enumerate(rates):
        planned = 8 if step < 8 else STEPS
        wanted = learning_rate(step, peak=1e-3, floor=1e-4, warmup=2, steps=planned)
        assert rate == pytest.approx(wanted, rel=1e-8)  # the log has nine digits
    assert rates[8] > 2 * rates[7]
    assert run("--out", twice, "--resume", "--steps", STEPS, "--time-limit", 0) == 0
    assert len(rows(twice)) == 9
    assert run("--out", twice, "--resume") == 0
    assert_as_undisturbed(twice, (weights(once), log_without_seconds(once)))


def test_a_run_may_end_earlier_than_planned(text, tmp_path, capsys):
    out = tmp_path / "run"
    stop = ("--steps", STEPS, "--warmup", 0, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop) == 0
    assert run("--out", out, "--resume", "--steps", 2) == 0
    assert "\ndone after step 2; saved in" in capsys.readouterr().out
    assert float(rows(out)[-1]["lr"]) < 6e-4  # half way down a cosine of two steps


def test_a_resumed_run_reads_the_ids_that_it_kept(text, undisturbed, tmp_path, monkeypatch):
    out = tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS, "--time-limit", 0) == 0
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "read_ids", None)
        assert run("--out", out, "--resume") == 0
    assert_as_undisturbed(out, undisturbed)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda ids, held: b"", "has 0 bytes, too few for a safetensors file"),
        (lambda ids, held: b"no array at all", "is no safetensors file, or is cut off"),
        (lambda ids, held: {"ids": ids[::-1].copy(), "held_out": held}, "has other ids than"),
        (lambda ids, held: {"ids": ids.astype(float), "held_out": held}, "has other ids than"),
        (lambda ids, held: {"ids": ids[None], "held_out": held}, "has other ids than"),
        (lambda ids, held: {"ids": ids}, "has other ids than"),
    ],
)
def test_kept_ids_are_checked_by_content_and_made_anew(
    text, undisturbed, tmp_path, capsys, change, why
):
    out = tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS, "--time-limit", 0) == 0
    path = out / "ids.safetensors"
    changed = change(
        **{("held" if n == "held_out" else n): a for n, a in read_tensors(path).items()}
    )
    if isinstance(changed, bytes):
        path.write_bytes(changed)
    else:
        write_tensors(path, changed, read_metadata(path))
    capsys.readouterr()
    assert run("--out", out, "--resume") == 0
    warned = capsys.readouterr().err
    assert f"npgpt.train: warning: The texts are read again: {path}" in warned
    assert why in warned
    assert_as_undisturbed(out, undisturbed)


def test_kept_ids_that_are_gone_or_of_another_text_are_made_anew(text, undisturbed, tmp_path):
    out = tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", STEPS, "--time-limit", 0) == 0
    write_tensors(out / "ids.safetensors", {"ids": np.zeros(3, np.uint16)}, {"source": "another"})
    assert run("--out", out, "--resume", "--time-limit", 0) == 0
    (out / "ids.safetensors").unlink()
    assert run("--out", out, "--resume") == 0
    assert_as_undisturbed(out, undisturbed)


def test_a_row_of_the_log_that_a_kill_cut_off_is_dropped(text, undisturbed, tmp_path):
    out = tmp_path / "run"
    stop = ("--steps", STEPS, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop) == 0
    with (out / "log.csv").open("a", encoding="utf-8") as log:
        log.write("2,256,0.0")
    assert run("--out", out, "--resume") == 0
    assert_as_undisturbed(out, undisturbed)


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda log: log + b"\xff,\r\n", 3),
        (lambda log: log + log, 3),
        (lambda log: b"step,zzz\r\n1,2\r\n", 1),
        (lambda log: log + b"2," + b"a" * 200_000 + b"\r\n", 3),
        (lambda log: log + b"\0\r\n", 3),
        (lambda log: log + log.splitlines(keepends=True)[1], 3),  # step 1 twice
        (lambda log: log.replace(b"1,128,", b"1,128,,"), 2),
        (lambda log: log.replace(b"1,128,", b"one,128,"), 2),
    ],
)
def test_a_log_that_is_none_is_refused_by_line(text, tmp_path, capsys, damage, line):
    out = tmp_path / "run"
    stop = ("--steps", STEPS, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop) == 0
    log = out / "log.csv"
    sound = log.read_bytes()
    log.write_bytes(damage(sound))
    assert run("--out", out, "--resume") == 2
    assert f"log.csv: line {line} is not a row of a training log" in capsys.readouterr().err
    log.unlink()
    assert run("--out", out, "--resume", *stop[2:]) == 0


def test_a_second_run_in_the_folder_is_refused(text, undisturbed, tmp_path, monkeypatch, capsys):
    """Fresh or resumed; and what the first one is writing at that moment stays."""
    out, codes = tmp_path / "run", []
    options = ("--data", text, "--out", out, *SMALL, "--steps", STEPS)

    def second():
        with replacing(out / "slow") as (slow,):
            slow.touch()
            codes.append(run("--out", out, "--resume"))
            codes.append(run(*options))
            assert slow.exists()

    with monkeypatch.context() as patch:
        at_step(patch, 5, second)
        assert run(*options) == 0
    told = capsys.readouterr().err
    assert codes == [2, 2]
    assert f"npgpt.train: error: another process is at work in {out}: wait until it ends" in told
    assert f"npgpt.train: error: {out} holds a run; go on with --resume" in told
    (out / "slow").unlink()
    assert_as_undisturbed(out, undisturbed)


def test_two_new_runs_in_one_folder_do_not_mix(text, tmp_path, monkeypatch, capsys):
    """One begins, and one begins and ends, while the other still reads its texts."""
    out, options = tmp_path / "run", ("--data", text, *SMALL, "--steps", 2)
    read_ids = corpus.read_ids

    def late(*args, **kwargs):
        monkeypatch.setattr(corpus, "read_ids", read_ids)
        assert run("--out", out, *options) == 0
        return read_ids(*args, **kwargs)

    monkeypatch.setattr(corpus, "read_ids", late)
    assert run("--out", out, *options, "--lr", 0.1) == 2
    assert f"{out} holds a run; go on with --resume" in capsys.readouterr().err
    assert facts(out)["settings"]["lr"] == 1e-3
    other = tmp_path / "other"
    other.mkdir()
    with alone_in(other):
        assert run("--out", other, *options) == 2
    assert "another process is at work in" in capsys.readouterr().err
    assert [path.name for path in other.iterdir()] == [".lock"]


def killed_at_write(write, data, out, options, counts_from=None):
    """Run until the `write`-th time that a file or folder is put on the disk, and die there.

    Only what comes once the file `counts_from` exists is counted, if one is named.
    """
    dies = f"""
        import os
        fsync, calls, counts_from = os.fsync, [], {counts_from and str(counts_from)!r}
        def kill_at_last(file):
            calls.extend([file] * (counts_from is None or os.path.exists(counts_from)))
            if len(calls) == {write}:
                os._exit(9)
            fsync(file)
        os.fsync = kill_at_last
    """
    with start("--data", data, "--out", out, *options, before=dies) as process:
        errors = process.communicate()[1]
    assert process.returncode == 9, errors


@pytest.mark.parametrize("write", range(1, 7))
def test_a_kill_in_the_middle_of_a_save(text, undisturbed, tmp_path, write):
    """When the log, the state and then the model are put on the disk, file and folder."""
    out = tmp_path / "run"
    options = (*SMALL, "--steps", STEPS, *SAVE_OFTEN)
    killed_at_write(write, text, out, options, counts_from=out / "log.csv")
    assert run("--out", out, "--resume", "--save-dtype", "float32") == 0
    assert_as_undisturbed(out, undisturbed)


@pytest.mark.parametrize("write", range(1, 8))
def test_a_kill_before_the_run_has_begun(text, undisturbed, tmp_path, write):
    """When the vocabulary (two files), the ids and the first state are written, with the folder."""
    out = tmp_path / "run"
    options = (*SMALL, "--steps", STEPS)
    killed_at_write(write, text, out, options)
    assert run("--data", text, "--out", out, "--resume", *options) == 0
    assert_as_undisturbed(out, undisturbed)


def test_kills_at_random_moments(text, tmp_path):
    options = ("--data", text, *SMALL, "--steps", 40, *SAVE_OFTEN)
    begin = time.monotonic()
    assert run("--out", tmp_path / "whole", *options) == 0
    seconds = time.monotonic() - begin
    wanted = weights(tmp_path / "whole"), log_without_seconds(tmp_path / "whole")
    rng, outs, kills = random.Random(1), [tmp_path / "run0"], 0
    while kills < KILLS:
        with start("--out", outs[-1], "--resume", *options, before=UNDRAWN) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it begins
            try:
                process.wait(timeout=rng.uniform(0, 0.8) * seconds)
                outs.append(tmp_path / f"run{len(outs)}")
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
    for out in outs:
        assert run("--out", out, "--resume", *options) == 0
        assert_as_undisturbed(out, wanted)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a whole console")
def test_ctrl_c_as_a_shell_sends_it(text, tmp_path):
    out = tmp_path / "run"
    log = out / "log.csv"
    with start("--data", text, "--out", out, *SMALL, "--steps", 100_000) as process:
        while process.poll() is None and not (log.is_file() and len(log.read_bytes()) > 500):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"; saved in {out}\n" in printed
    assert "Traceback" not in errors
    assert (out / "state.safetensors").is_file()
