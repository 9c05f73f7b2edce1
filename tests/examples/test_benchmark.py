"""How `examples/benchmark.py` deals with the engines that it sets npgpt against."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.cli import width
from tests.builders.gpt2 import random_gpt2
from tests.examples.test_examples import PEERS, helper, run

ALONE = ("torch", *PEERS)


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarking/speed.py, where every package is there and no process is started."""
    module = helper("benchmarking.speed", monkeypatch)
    monkeypatch.setattr(module, "is_installed", lambda _: True)
    return module


def test_engines_that_are_not_installed_are_named_and_left_out(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    args = ["--quick", "--parts", "speed", "--works", "decode", "--json", str(found)]
    done = run("benchmark", *args, absent=ALONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "left out: transformers (torch transformers), ONNX Runtime (onnx onnxr" in done.stdout
    (row,) = json.loads(found.read_text("utf-8"))["pairs"]
    assert [*row] == ["work", "what", "npgpt", "products"]
    limit = row["products"]
    assert limit["ratio"] == pytest.approx(row["npgpt"]["seconds"] / limit["seconds"])


def turns(speed: Any, monkeypatch: pytest.MonkeyPatch, computed: dict[str, Any]) -> dict[str, Any]:
    """The row of three rounds of decoding, in which npgpt takes 6 s, and the others 1, 2, 3 … s."""
    started = []

    def measure(name: str, program: str, folder: str, args: Namespace) -> dict[str, Any]:
        started.append(program)
        what = computed.get(program, computed["npgpt"])
        np.save(Path(folder) / f"{program}, {name}.npy", what)
        return {"seconds": [[*speed.PROGRAMS].index(program) or 6.0], "peak": 2**20}

    monkeypatch.setattr(speed, "measure", measure)
    args = Namespace(quick=False, rounds=3, picogpt=None, llm_c=[])
    row: dict[str, Any] = speed.measured("llama decode", computed["folder"], args)
    assert started == ["npgpt", "transformers", "ctranslate2", "llama.cpp", "products"] * 3
    return row


def test_the_table_has_npgpts_time_as_a_multiple_of_each(
    speed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logits = np.random.default_rng(0).standard_normal((1, 1, 500))
    same = {"llama.cpp": logits - 7, "transformers": logits + 1e-5}  # the former's are log-softmax
    row = turns(speed, monkeypatch, {"npgpt": logits, "folder": str(tmp_path), **same})
    assert row["llama.cpp"]["difference"] < 1e-12
    assert row["llama.cpp"]["measured"] == 3
    heads, line = (text.split() for text in speed.ratios([row]).splitlines())
    assert heads == ["npgpt", "s", "transformers", "ctranslate2", "llama.cpp", "products"]
    assert line == ["llama", "decode", "6.000", "6.00", "1.50", "1.20", "0.75"]


def test_the_widest_table_fits(speed: Any) -> None:
    row = {name: {"seconds": 123.0, "ratio": 99.0} for name in (*speed.PROGRAMS, "llm.c")}
    table = speed.ratios([{"work": name, **row} for name in speed.WORKS])
    assert max(map(width, table.splitlines())) < 118  # and two in front


@pytest.mark.parametrize("wrong", [1.0003, np.nan])
def test_an_engine_that_computes_something_else_is_refused(
    speed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: float
) -> None:
    logits = np.random.default_rng(0).standard_normal((1, 1, 500))
    others = {"npgpt": logits, "ctranslate2": wrong * logits, "folder": str(tmp_path)}
    with pytest.raises(SystemExit, match=r"ctranslate2 does not compute the same .* llama decode"):
        turns(speed, monkeypatch, others)


def test_in_training_the_losses_must_agree(speed: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "npgpt, train 4 64.npy", [6.2, 5.9])
    np.save(tmp_path / "jax, train 4 64.npy", [6.20001, 5.9])
    assert speed.check("train 4 64", "jax", str(tmp_path)) == pytest.approx(1e-5 / 6.2)
    np.save(tmp_path / "jax, train 4 64.npy", [6.2, 5.95])  # another update
    with pytest.raises(SystemExit, match=r"its losses are off by 8\.1e-03 of npgpt's largest"):
        speed.check("train 4 64", "jax", str(tmp_path))


def test_picogpt_stays_in_float32(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has roots of numbers, with which NumPy 2 makes float64 of an array."""
    code = "import numpy as np\ndef gpt2(ids, wte, **_):\n    return wte[ids] ** 2 * np.sqrt(2)"
    (tmp_path / "gpt2.py").write_text(code, "utf-8")
    random_gpt2(np.random.default_rng(0), np.float32).save_pretrained(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    programs = helper("benchmarking.numpy_programs", monkeypatch)
    work = programs.Work("", "", "decode", 1, 3)
    logits = programs.in_picogpt(work, str(tmp_path), str(tmp_path))(1, True)
    del sys.modules["gpt2"]  # that of this test
    assert logits.dtype == np.float32


def test_what_would_choose_kernels_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    done = run("benchmark", "--quick", "--parts", "memory")
    assert (done.returncode, done.stderr) == (0, "")
    assert "unset OPENBLAS_CORETYPE=Nehalem" in done.stdout
    assert "kernels for Nehalem" not in done.stdout


def test_a_blas_that_tells_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    module = helper("benchmarking.machine", monkeypatch)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda _: object())
    assert module.blas() == "unknown"
