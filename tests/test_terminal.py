"""What comes from a file does not steer a terminal; a pipe gets it unchanged."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt import cli, evaluate, fill_mask, generate, translate
from npgpt.__main__ import module_of
from npgpt.cli import escaped
from npgpt.files.safetensors_file import read_tensors, write_tensors
from tests.builders.bert import PIECES, write_tiny_bert
from tests.builders.checkpoints import change
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.transformer import random_transformer
from tests.train import training_runs

TITLE = "\x1b]0;PWN\x07\x9b1m"  # sets the title of a window; then C1's way to change the colour
SHOWN = rb"\u001b]0;PWN\u0007\u009b1m"
IDS = ["--ids", "1 2"]

needs_pty = pytest.mark.skipif(os.name == "nt", reason="Windows has no pty")


class Terminal:
    """A terminal in raw mode, and all that is written to it."""

    def __init__(self) -> None:
        import fcntl
        import pty
        import termios
        import tty

        self._master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._master, 4096):
                self._pieces.append(piece)
        except OSError:  # Linux says so when the other side is closed
            pass

    def written(self) -> bytes:
        """Everything, once whoever writes has closed his side."""
        self._reader.join(10)
        os.close(self._master)
        return b"".join(self._pieces)


@pytest.fixture
def on_terminal(monkeypatch) -> Callable[..., tuple[int, bytes]]:
    """Run a command in this process with both its streams on one terminal: exit code, output."""

    def call(command: Any, *argv: object) -> tuple[int, bytes]:
        terminal = Terminal()
        with (
            os.fdopen(os.dup(terminal.slave), "w") as out,
            os.fdopen(terminal.slave, "w") as err,
            monkeypatch.context() as patch,
        ):
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = cli.run(command.PROG, command.main, [str(argument) for argument in argv])
        return code, terminal.written()

    return call


@pytest.fixture
def says_title(tmp_path) -> Path:
    """A GPT-2 that writes nothing but a token with `TITLE` in it, which its vocabulary adds."""
    folder = write_tiny_gpt2(tmp_path / "says", vocab_size=258)
    tensors = read_tensors(folder / "model.safetensors")
    table = tensors["transformer.wte.weight"]
    table[257] = 3
    norm = {"ln_f.weight": np.zeros(12, "f4"), "ln_f.bias": np.ones(12, "f4")}
    change(folder, {"transformer.wte.weight": table} | {f"transformer.{n}": norm[n] for n in norm})
    (folder / "added_tokens.json").write_text(json.dumps({TITLE: 257}), "utf-8")
    return folder


@pytest.fixture
def has_title(tmp_path) -> Path:
    """A GPT-2 in a folder of such a name, with a tensor of such a name that it does not use."""
    return change(write_tiny_gpt2(tmp_path / TITLE), {TITLE: np.zeros(1, "f4")})


def both(on_terminal, run_command, command: Any, *argv: object) -> tuple[bytes, str]:
    """What a terminal gets and what a pipe gets, stdout and stderr together; the codes agree."""
    code, shown = on_terminal(command, *argv)
    piped = run_command(command, *argv)
    assert code == piped[0]
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]", shown)
    return shown, piped[1] + piped[2]


def test_escaped_is_one_character_for_one_and_leaves_text_alone() -> None:
    assert escaped("猫\t a\n😁 é 👩\u200d💻") == "猫\t a\n😁 é 👩\u200d💻"
    assert escaped("a\x1b[31m\r\x00\x7f\x85\x9b") == r"a\u001b[31m\u000d\u0000\u007f\u0085\u009b"
    assert escaped("\u202eab\u202c\u2066c\u2069") == r"\u202eab\u202c\u2066c\u2069"
    text = "".join(map(chr, range(0x3000)))
    assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text


@needs_pty
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_generated_text(on_terminal, run_command, says_title, more) -> None:
    arguments = ("a", "--model", says_title, "--max-new-tokens", "2", *more)
    shown, piped = both(on_terminal, run_command, generate, *arguments)
    if more:
        assert json.loads(shown) == json.loads(piped)
        assert json.loads(piped)["text"] == 2 * TITLE
    else:
        assert (shown, piped) == (2 * SHOWN + b"\n", 2 * TITLE + "\n")


def test_generated_text_still_streams(monkeypatch, tmp_path) -> None:
    """Piece by piece, each flushed; here on a terminal of Python's own, which Windows has too."""
    pieces: list[str] = []

    class Console(io.StringIO):
        def isatty(self) -> bool:
            return True

        def flush(self) -> None:
            pieces.append(self.getvalue()[len("".join(pieces)) :])

    monkeypatch.setattr(sys, "stdout", Console())
    arguments = ["--ids", "1 2", "--max-new-tokens", "5", "--ignore-eos"]
    cli.run(generate.PROG, generate.main, [*arguments, "--model", str(write_tiny_gpt2(tmp_path))])
    assert len([piece for piece in pieces if piece]) == 6  # five ids, and the end of the line


@needs_pty
@pytest.mark.parametrize("name", ["trace", "compare"])
def test_tokens_and_paths_of_a_report(
    on_terminal, run_command, says_title, name, monkeypatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    folder = says_title.rename(says_title.parent / TITLE)
    stations = says_title.parent / f"{TITLE}.safetensors"
    command, arguments = module_of(name), ["a", "--model", folder]
    if name == "compare":
        run_command(command, *arguments, "--dump", stations)
        write_tensors(stations, {**read_tensors(stations), TITLE: np.zeros(1)})
        arguments += ["--against", stations]
    shown, piped = both(on_terminal, run_command, command, *arguments)
    assert SHOWN in shown
    assert TITLE in piped


@needs_pty
def test_colours_are_for_a_terminal_that_wants_them(on_terminal, run_command, says_title) -> None:
    """Whole lines of compare; what else would be obeyed there is shown all the same."""
    folder = says_title.rename(says_title.parent / TITLE)
    stations = says_title.parent / "port.safetensors"
    command, arguments = module_of("compare"), ["a", "--model", folder]
    run_command(command, *arguments, "--dump", stations)
    arguments += ["--against", stations]
    code, shown = on_terminal(command, *arguments)
    green = re.findall(rb"\x1b\[32m(.+?)\x1b\[0m", shown)
    assert code == 0
    assert green == 2 * [b"verdict: all 29 stations are within tolerance"]
    assert shown.count(b"\x1b") == 4
    assert SHOWN in shown
    arrays = read_tensors(stations)
    write_tensors(stations, {**arrays, "h.1": arrays["h.1"] + 1})
    code, shown = on_terminal(command, *arguments)
    red = re.findall(rb"\x1b\[31m(.+?)\x1b\[0m", shown)
    assert code == 1
    assert [line.split()[0] for line in red] == [b"verdict:", b"h.1", b"wrong:", b"verdict:"]
    assert "\x1b" not in run_command(command, *arguments)[1].replace(TITLE, "")


@needs_pty
@pytest.mark.filterwarnings("always:.*not part of GPT-2")
@pytest.mark.parametrize("name", ["describe", "generate", "compare"])
def test_names_of_tensors_and_paths(on_terminal, run_command, has_title, name) -> None:
    """`describe` prints the path; the others warn of a tensor that they do not use."""
    arguments = {
        "describe": [has_title],
        "generate": [*IDS, "--model", has_title],
        "compare": [*IDS, "--model", has_title, "--dump", has_title / "x.safetensors"],
    }
    shown, piped = both(on_terminal, run_command, module_of(name), *arguments[name])
    assert SHOWN in shown
    assert TITLE in piped
    assert ("warning" in piped) == (name != "describe")


@needs_pty
def test_an_error_names_a_tensor(on_terminal, run_command, has_title) -> None:
    arrays: dict[str, Any] = {TITLE: np.array(["text"]), "ids": np.array([1, 2])}
    np.savez(has_title / "x.npz", **arrays)
    arguments = (module_of("compare"), "--model", has_title, "--against", has_title / "x.npz")
    shown, piped = both(on_terminal, run_command, *arguments)
    assert re.search(rb"error: .*" + re.escape(SHOWN), shown)
    assert TITLE in piped


@needs_pty
def test_evaluate_shows_its_bar_and_escapes_a_path(on_terminal, tmp_path) -> None:
    path = tmp_path / f"{TITLE}.txt"
    path.write_text(60 * "a cat. ", "utf-8")
    folder = write_tiny_gpt2(tmp_path)
    code, shown = on_terminal(evaluate, path, "--model", folder)
    assert code == 0
    assert b"\x1b" not in shown
    assert SHOWN + b".txt" in shown
    assert re.search(rb"\rnpgpt:.*%.*tokens", shown)  # tqdm goes back to the line's beginning


@needs_pty
def test_training_shows_its_bar(on_terminal, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module_of("train"), "plot_log", lambda folder: True)
    story = training_runs.write_story(tmp_path)
    arguments = ["--data", story, "--out", tmp_path / TITLE, "--steps", "2", *training_runs.SMALL]
    code, shown = on_terminal(module_of("train"), *arguments)
    assert code == 0
    assert b"\x1b" not in shown
    assert re.search(rb"saved in .*" + re.escape(SHOWN), shown)
    assert re.search(rb"\rstep 2/2.*%", shown)


@needs_pty
def test_a_token_does_not_go_back_to_the_beginning_of_the_line(on_terminal, says_title) -> None:
    """A carriage return is a progress bar's on stderr, and nobody's on stdout."""
    (says_title / "added_tokens.json").write_text(json.dumps({"\rerror": 257}), "utf-8")
    arguments = ("a", "--model", says_title, "--max-new-tokens", "1")
    assert on_terminal(generate, *arguments) == (0, rb"\u000derror" + b"\n")


@needs_pty
def test_proposed_tokens_of_a_bert(on_terminal, run_command, tmp_path) -> None:
    pytest.importorskip("tokenizers")
    folder = write_tiny_bert(tmp_path, [*PIECES, TITLE])
    arguments = ("the [MASK]", "--model", folder, "--top-k", "99")
    shown, piped = both(on_terminal, run_command, fill_mask, *arguments)
    assert SHOWN in shown
    assert TITLE in piped


@needs_pty
def test_a_translation(on_terminal, run_command, tmp_path) -> None:
    tables = {f"{kind}_chars": "____" + "\x1babcdefghijklmn" for kind in ("grapheme", "phoneme")}
    model = random_transformer(np.random.default_rng(0), np.float32, model_type="bart", **tables)
    model.params["final_logits_bias"][0, 4] = 1e3
    model.save_pretrained(tmp_path)
    arguments = ("ab", "--model", tmp_path, "--max-new-tokens", "2")
    shown, piped = both(on_terminal, run_command, translate, *arguments)
    assert (shown, piped) == (2 * rb"\u001b" + b"\n", 2 * "\x1b" + "\n")


@needs_pty
def test_a_process_on_a_terminal(tmp_path) -> None:
    """The same with a process of its own, whose streams are a terminal from the beginning."""
    terminal = Terminal()
    command = [sys.executable, "-m", "npgpt", "describe", str(tmp_path / f"{TITLE}.json")]
    done = subprocess.run(command, stdout=terminal.slave, stderr=terminal.slave, check=False)
    os.close(terminal.slave)
    assert done.returncode == 2
    assert re.fullmatch(
        rb"npgpt.describe: error: .*" + re.escape(SHOWN) + rb"\.json.*\n", terminal.written()
    )
