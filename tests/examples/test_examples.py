"""Every example runs, alone with NumPy and npgpt, and prints the article's numbers.

The examples check their numbers themselves; here it is seen that they print them all, fit a
terminal of 100 columns, and say in one sentence what they lack.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.cli import width
from tests.examples.numbers import NUMBERS
from tests.test_layering import imports_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
HELPERS = {"show", "toy", "any_model", "encoder_decoder", "plots", "one_sentence", "word_rows"}
HELPERS |= {"number_words", "looking_across", "held_against", "nudged", "block_of_two"}
HELPERS |= {"two_stacks", *(path.stem for path in EXAMPLES.glob("draw_*.py"))}
# In test_bert.py, test_translation.py and tests/test_vectors_hf.py.
APART = {"sentence_similarity", "train_bert", "train_translation", "vectors_with_torch"}
BENCHMARK = {EXAMPLES / "benchmark.py", *(EXAMPLES / "benchmarking").glob("*.py")}
PEERS = {
    "transformers",
    "onnx",
    "onnxruntime",
    "openvino",
    "ctranslate2",
    "xllamacpp",
    "gguf",
    "jax",
}
PEERS |= {"gpt2"}  # picoGPT's gpt2.py
LONGER = {"one_page": 170, "show": 200}
SCRIPTS = sorted(
    path.stem
    for path in EXAMPLES.glob("*.py")
    if path.stem not in HELPERS | APART and path not in BENCHMARK
)
WITH_A_MODEL = [
    name for name in SCRIPTS if "open_model" in (EXAMPLES / f"{name}.py").read_text("utf-8")
]
TALES = ["weights/tales"] if (ROOT / "weights" / "tales").is_dir() else []
# Runs a script in an interpreter that cannot find some packages.
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys({absent!r}))
sys.argv = sys.argv[1:]
sys.path[0] = {examples!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start(
    name: str, *args: str, absent: tuple[str, ...] = (), stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """A script in a new interpreter in which warnings are errors; it speaks English unless told."""
    path = str(EXAMPLES / f"{name}.py")
    code = WITHOUT.format(absent=absent, examples=str(EXAMPLES))
    command = [sys.executable, "-W", "error", "-c", code, path, *args]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "0"}
    env["LC_MESSAGES"] = "C"  # whatever this machine speaks
    for name in ("LC_ALL", "LANG", "PYTHONUNBUFFERED"):
        env.pop(name, None)
    return subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, encoding="utf-8", env=env
    )


def end(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for what a script prints and its exit code."""
    with process:
        out, err = process.communicate(timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(name: str, *args: str, absent: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A script from start to end."""
    return end(start(name, *args, absent=absent))


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "pictures"])
def test_prints_the_articles_numbers(name: str, output: Callable[[str], str]) -> None:
    printed = output(name)
    lines = [line.strip() for line in printed.splitlines()]
    missing = [number for number in NUMBERS[name] if not any(number in line for line in lines)]
    assert missing == []
    assert [line for line in printed.splitlines() if width(line) > 100] == []


def test_no_example_is_left_out() -> None:
    assert sorted(NUMBERS) == [name for name in SCRIPTS if name != "pictures"]
    assert all(NUMBERS.values())


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The end to write to of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("name", ["ch02_encoder_decoder", "ch07_mask", "one_page", "benchmark"])
def test_without_a_reader_they_end_quietly(name: str, closed_pipe: int) -> None:
    """As at `| head`."""
    done = end(start(name, *(["--quick"] if name == "benchmark" else []), stdout=closed_pipe))
    assert (done.returncode, done.stderr) == (0, "")


def test_all_that_can_be_run_take_this_from_show() -> None:
    scripts = {*SCRIPTS, *APART, "benchmark"} - {"vectors_with_torch"}
    texts = {name: (EXAMPLES / f"{name}.py").read_text("utf-8") for name in scripts}
    assert [name for name, text in texts.items() if "from show import " not in text] == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a whole console")
@pytest.mark.parametrize("name", ["ch02_encoder_decoder", "ch07_heads_of_a_model", "benchmark"])
def test_at_ctrl_c_they_end_quietly(name: str) -> None:
    process = start(name)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.returncode, done.stderr) == (130, "")


def test_the_default_is_what_there_is() -> None:
    done = run("ch07_mask")
    assert done.returncode == 0
    assert ("weights/tales reads" if TALES else "a random model reads") in done.stdout
    assert bool(done.stderr) != bool(TALES)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_need_nothing_else(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LONGER.get(path.stem, 200 if path in BENCHMARK else 160)
    assert source.startswith('"""')
    own = {"benchmarking", *(each.stem for each in EXAMPLES.glob("*.py"))}
    own |= {"torch", "safetensors"} if path.stem == "vectors_with_torch" else set()
    for found in imports_of(source, ""):
        package = found.name.split(".")[0]
        if package in sys.stdlib_module_names or package in {"numpy", "npgpt", *own}:
            continue
        assert found.lazy, found.name
        peers = PEERS if path in BENCHMARK else set()
        assert package in {"torch", "matplotlib", "PIL"} | peers, found.name


@pytest.mark.parametrize("name", ["ch07_attention_six_steps"])
def test_backward_fits_on_two_screens(name: str, output: Callable[[str], str]) -> None:
    printed = output(name)
    backward = printed.partition("AND BACK AGAIN")[2].splitlines()
    assert 40 < len(backward) <= 100
    assert sum(line.count("±") for line in backward) == 13  # 11 gradients, ± p (1 - p), the legend


@pytest.mark.hf
def test_six_steps_against_torch(hf: None) -> None:
    done = run("ch07_attention_six_steps")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("largest difference") == 2


@pytest.mark.real
def test_token_ids_from_gpt2s_vocabulary(data_dir: Path) -> None:
    done = run(
        "ch05_token_embedding", "--model", "random", "--vocabulary", str(data_dir / "gpt2-vocab")
    )
    assert done.returncode == 0, done.stderr
    assert "-> [464, 3797, 3332, 319, 262]   " in done.stdout  # a claim, with its ✓


@pytest.mark.real
@pytest.mark.parametrize("name", ["ch07_heatmap", "ch09_residual_layernorm"])
def test_a_trained_checkpoint(name: str, data_dir: Path) -> None:
    folder = str(data_dir / "checkpoints" / "slm4096")
    done = run(name, "--model", folder, "--text", "Q: What is SLM?")
    assert done.returncode == 0, done.stderr


@pytest.mark.hub
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ch01_overview", "12 blocks of 2 corrections"),
        ("ch05_token_embedding", "[464, 3797, 3332, 319, 262]   "),
        ("ch07_heatmap", " 0.84  "),
        ("ch07_heads_of_a_model", "of 144 heads put most of their weight on the first token"),
        ("ch09_residual_layernorm", "of 24 corrections"),
        ("next_gelu", "relative"),
    ],
)
def test_real_gpt2(name: str, number: str) -> None:
    done = run(name, "--model", "gpt2")
    assert done.returncode == 0, done.stderr
    assert number in done.stdout


def test_a_model_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = run("ch07_mask", "--model", str(tmp_path / "none"))
    assert done.returncode == 2
    assert done.stderr.startswith("ch07_mask.py: error: There is no model")
    assert done.stderr.count("\n") == 1


def test_a_model_that_is_no_gpt2_is_said_in_one_sentence(tmp_path: Path) -> None:
    """Before any weights are looked for."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    done = run("ch07_mask", "--model", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith(" is a llama, but this example looks inside a GPT-2.\n")


@pytest.mark.parametrize(("name", "option"), [("pictures", []), ("ch07_heatmap", ["--out"])])
def test_without_matplotlib_pictures_say_what_to_install(
    name: str, option: list[str], tmp_path: Path
) -> None:
    done = run(name, "--model", "random", *option, str(tmp_path / "x.png"), absent=("matplotlib",))
    assert done.returncode == 2
    assert done.stderr.endswith('error: pictures need matplotlib: pip install "npgpt[plot]"\n')
    assert list(tmp_path.iterdir()) == []


def helper(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the examples' folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


def test_a_check_fails_where_the_digits_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    show = helper("show", monkeypatch)
    show.check("", 0.8375, "0.84")
    show.check("", 12_582_912, "12,582,912")
    with pytest.raises(AssertionError, match=r"0\.83 .* but the article has 0\.84"):
        show.check("", 0.834, "0.84")
    with pytest.raises(AssertionError, match="does not hold: x"):
        show.claim("x", False)
    with pytest.raises(AssertionError, match="not what the article prints"):
        show.same(np.array([[0.125]]), [[0.13]])
    with pytest.raises(AssertionError, match="was not refused"):
        show.refused("x", lambda: None)


def test_the_token_that_ends_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    any_model = helper("any_model", monkeypatch)
    tokenizer = any_model.Bytes()
    ids = tokenizer.encode("猫 sits, it is")
    assert any_model.word_position(tokenizer, ids, "it") == ids.index(ord(",")) + 3
    assert any_model.word_position(tokenizer, ids, "cat") is None


def test_the_benchmark_runs_on_a_tiny_model(tmp_path) -> None:
    done = run("benchmark", "--quick", "--json", str(tmp_path / "found.json"))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert found["pairs"][0]["work"] == "decode"
    assert all(row["npgpt"]["seconds"] > 0 < row["npgpt"]["peak"] for row in found["pairs"])
    assert found["machine"]["numpy"] == np.__version__
    assert {len(found["attention"]), len(found["growth"])} == {2}


def test_the_benchmark_names_the_program_that_fails(tmp_path) -> None:
    done = run("benchmark", "--quick", "--picogpt", str(tmp_path), absent=("torch",))
    assert done.returncode == 1
    assert "picoGPT failed at decode:" in done.stderr
