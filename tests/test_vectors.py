"""The conformance vectors: complete, small, the same each time, right, and sharp enough."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken

from npgpt import layers, ops
from npgpt.files.safetensors_file import read_tensors
from npgpt.models.auto import MODEL_TYPES
from npgpt.ops import activation, cross_entropy, layer_norm, lookup, rms_norm, rope, softmax
from npgpt.ops.row_sum import sum_rows
from npgpt.text.tokenizer import load_tokenizer
from npgpt.vectors import command
from npgpt.vectors.cases import formulas, pairs
from npgpt.vectors.inputs import LAYERS, OPERATIONS

ROOT = Path(__file__).parent.parent
PARTS = ("inputs", "settings", "outputs", "upstream", "gradients")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("vectors") / "set"
    assert command.main(["--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def cases(vectors) -> list[dict[str, Any]]:
    index = json.loads((vectors / "index.json").read_text(encoding="utf-8"))
    assert index["float64"] == command.FLOAT64
    return list(index["cases"])


def test_every_pair_of_functions_has_cases() -> None:
    assert pairs(ops).keys() == OPERATIONS.keys()
    one_of_two = {"attend", "projection"}  # that have some
    assert pairs(layers).keys() == LAYERS.keys() | one_of_two
    assert all(len(table) > 0 for table in (*OPERATIONS.values(), *LAYERS.values()))


def test_every_architecture_has_a_model(cases) -> None:
    settings = [case["settings"] for case in cases if case["name"].startswith("models/")]
    assert {each["config.model_type"] for each in settings} == MODEL_TYPES.keys()


def test_the_set_is_complete_and_readable(vectors, cases) -> None:
    for case in cases:
        arrays = read_tensors(vectors / case["file"])
        assert case["formula"], case["name"]
        parts = [name for part in PARTS for name in case[part]]
        assert len(parts) == len({*parts}), case["name"]
        assert arrays.keys() == {*parts, *(f"tolerance.{name}" for name in case["tolerance"])}
        for part in set(PARTS) - {"settings"}:
            assert {name: [*arrays[name].shape] for name in case[part]} == case[part]
        for name, setting in case["settings"].items():
            array = arrays[name]
            text = isinstance(setting, str)
            assert (array.tobytes().decode() if text else array.item()) == setting
        for name, tolerance in case["tolerance"].items():
            assert (
                0 < tolerance < 0.01 * max(1, np.abs(arrays[name][np.isfinite(arrays[name])]).max())
            )
            assert arrays[f"tolerance.{name}"] == tolerance
        for name, array in arrays.items():
            assert not np.isnan(array).any(), name
            assert array.dtype in (np.float64, np.int64, np.uint8, bool), name
    files = {path.relative_to(vectors).as_posix() for path in vectors.rglob("*") if path.is_file()}
    others = {"index.json", "text/vocab.json", "text/merges.txt"}
    assert files == {case["file"] for case in cases} | others


def test_inputs_are_numbers_that_float32_holds(vectors, cases) -> None:
    for case in cases:
        arrays = read_tensors(vectors / case["file"])
        for name in (*case["inputs"], *case["upstream"]):
            np.testing.assert_array_equal(arrays[name], arrays[name].astype(np.float32))


def test_it_is_small(vectors) -> None:
    assert sum(path.stat().st_size for path in vectors.rglob("*") if path.is_file()) < 3e6


def test_another_process_writes_the_same_bytes(vectors, tmp_path) -> None:
    again = tmp_path / "again"
    call = [sys.executable, "-m", "npgpt.vectors", "--out", str(again)]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=environment)
    assert re.fullmatch(rf"\d+ cases, \d\.\d MB in {re.escape(str(again))}\n", done.stdout)
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (vectors, again)
    )
    assert first == second


def test_a_folder_with_files_is_left_alone(run_command, tmp_path) -> None:
    (tmp_path / "mine").touch()
    code, out, err = run_command(command, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"npgpt.vectors: error: {tmp_path} is there and not empty; name a new folder.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_formula_is_that_of_the_docstring() -> None:
    assert formulas(softmax.softmax_forward) == "probs_i = exp(x_i) / Σ_j exp(x_j)"
    assert formulas(layer_norm.layer_norm_backward).endswith(
        "dx = rstd (g - mean(g) - x̂ mean(g x̂))"
    )
    assert formulas(activation.relu_forward) == "ReLU: y = max(x, 0). Article 8.1."


def beyond(vectors: Path, operation: str) -> set[str]:
    """What npgpt, as it is now, computes otherwise than the set says: case/array."""
    wrong = set()
    for case in command.all_cases():
        if case.name.partition("/")[2].partition(".")[0] == operation:
            stored = read_tensors(vectors / f"{case.name}.safetensors")
            computed = case.compute(np.float32)
            for name, array in (computed.outputs | computed.gradients).items():
                with np.errstate(invalid="ignore"):  # -∞ - -∞
                    apart = np.abs(np.where(array == stored[name], 0, array - stored[name]))
                if not (apart <= stored[f"tolerance.{name}"]).all():
                    wrong.add(f"{case.name.rpartition('.')[2]}/{name}")
    return wrong


@pytest.mark.parametrize("operation", [*OPERATIONS, *LAYERS])
def test_npgpt_in_float32_is_within_the_tolerances(vectors, operation) -> None:
    assert beyond(vectors, operation) == set()


def by_d_less_1(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, eps: float) -> Any:
    x_hat = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(x_hat).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)
    rstd = 1 / np.sqrt(variance + eps)
    return x_hat * rstd * weight + bias, (x_hat * rstd, rstd, weight)


def eps_outside(x: np.ndarray, weight: np.ndarray, *, eps: float) -> Any:
    rrms = 1 / (np.sqrt(np.square(x).mean(axis=-1, keepdims=True)) + eps)
    return x * rrms * weight, (x * rrms, rrms, weight)


def interleaved(x: np.ndarray, *, cos: np.ndarray, sin: np.ndarray) -> Any:
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape), (cos, sin)


def last_one_wins(dy: np.ndarray, saved: Any) -> np.ndarray:
    dtable = np.zeros(saved[1], dy.dtype)
    dtable[saved[0]] = dy
    return dtable


def without_size(dy: np.ndarray, saved: Any) -> Any:
    x_hat, rstd, weight = saved
    g = dy * weight
    dx = rstd * (g - g.mean(axis=-1, keepdims=True))
    return dx, sum_rows(dy * x_hat), sum_rows(dy)


def over_all_positions(dloss: float, saved: Any) -> np.ndarray:
    kept = saved[3] != saved[4]
    return REAL_CROSS_ENTROPY(dloss, saved) * (kept.sum() / kept.size)


REAL_CROSS_ENTROPY = cross_entropy.cross_entropy_backward
# What is wrong, the function that is replaced and by what, and arrays that show it.
FAULTS: dict[str, tuple[Any, str, Callable[..., Any], set[str]]] = {
    "exact GELU": (
        activation,
        "gelu_tanh_forward",
        lambda x: (activation.gelu_erf_forward(x)[0], x),
        {"batch/y", "one_number/y"},
    ),
    "slope without x φ": (
        activation,
        "gelu_erf_backward",
        lambda dy, saved: dy * saved[1],
        {"batch/dx", "near_zero/dx", "one_number/dx"},
    ),
    "ReLU's slope at 0": (
        activation,
        "relu_forward",
        lambda x: (np.maximum(x, 0), x >= 0),
        {"near_zero/dx"},
    ),
    "variance by d - 1": (
        layer_norm,
        "layer_norm_forward",
        by_d_less_1,
        {"batch/y", "one_token/dx", "small/dx", "large_eps/dweight"},
    ),
    "LayerNorm without its third road": (
        layer_norm,
        "layer_norm_backward",
        without_size,
        {"batch/dx", "one_token/dx", "small/dx", "far_from_zero/dx"},
    ),
    "eps outside": (rms_norm, "rms_norm_forward", eps_outside, {"small/y", "large_eps/dx"}),
    "softmax one by one": (
        softmax,
        "softmax_backward",
        lambda dprobs, saved: dprobs * saved[0],
        {"batch/dx", "masked/dx", "blind_row/dx", "other_axis/dx", "one_key/dx"},
    ),
    "repeated ids": (lookup, "lookup_backward", last_one_wins, {"repeated_ids/dtable"}),
    "pairs side by side": (rope, "rope_forward", interleaved, {"heads/y", "far/dx"}),
    "mean over ignored targets": (
        cross_entropy,
        "cross_entropy_backward",
        over_all_positions,
        {"ignored_targets/dlogits"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(vectors, monkeypatch, fault) -> None:
    module, name, wrong, shown = FAULTS[fault]
    operation, _, way = name.rpartition("_")
    monkeypatch.setattr(module, name, functools.wraps(getattr(module, name))(wrong))
    found = beyond(vectors, operation)
    assert shown <= found
    assert way == "forward" or {each.partition("/")[2][0] for each in found} == {"d"}


def test_a_fault_in_a_model_is_seen(vectors, monkeypatch) -> None:
    assert beyond(vectors, "gpt2") == set()
    monkeypatch.setitem(activation.ACTIVATIONS, "gelu_new", activation.ACTIVATIONS["gelu"])
    found = beyond(vectors, "gpt2")
    assert {"one_text/h.0.mlp.act", "one_token/loss", "padded/grad.h.0.ln_1.weight"} <= found
    assert {"one_text/h.0.mlp.c_fc", "untied/embed", "padded/h.0.attn"} & found == set()


def test_the_pages_example_is_an_entry_of_the_index(cases) -> None:
    text = (ROOT / "docs" / "porting.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = json.loads(block)
    (entry,) = (case for case in cases if case["name"] == shown["name"])
    cut = shown.pop("backward")
    assert entry.pop("backward").startswith(cut.removesuffix("…"))
    assert entry.pop("tolerance") == pytest.approx(shown.pop("tolerance"), rel=2)
    assert entry == shown
    assert f"# {len(cases)} cases, " in text


def test_decoding_with_a_cache_gives_the_logits_of_the_whole_pass(vectors, cases) -> None:
    decoded = [case for case in cases if "decode.logits" in case["outputs"]]
    assert len(decoded) == 17
    for case in decoded:
        arrays = read_tensors(vectors / case["file"])
        got, want, inputs = arrays["decode.logits"], arrays["logits"], case["inputs"]
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
        assert len(inputs["ids" if "ids" in inputs else "decoder_input_ids"]) == got.ndim - 1


SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WRONG_SPLITS = {
    "": SPLIT,
    "letters of ASCII": SPLIT.replace(r"?\p{L}", "?[A-Za-z]").replace(r"\p{L}", "A-Za-z"),
    "letters and marks": SPLIT.replace(r"?\p{L}", r"?[\p{L}\p{M}]").replace(
        r"\p{L}", r"\p{L}\p{M}"
    ),
    "digits of ASCII": SPLIT.replace(r"?\p{N}", "?[0-9]").replace(r"\p{N}", "0-9"),
    "decimal digits": SPLIT.replace(r"\p{N}", r"\p{Nd}"),
    "white space of ASCII": SPLIT.replace(r"^\s", r"^ \t\n\r").replace(r"|\s+", r"|[ \t\n\r]+"),
    "capital contractions": SPLIT.replace("'m", "'m|'M"),
    "no contractions": SPLIT.partition("'d|")[2],
    "all spaces together": SPLIT.replace(r"\s+(?!\S)|", ""),
    "three digits": SPLIT.replace(r"\p{N}+|", r"\p{N}{1,3}|"),
}


@pytest.mark.parametrize("fault", WRONG_SPLITS)
def test_no_other_split_pattern_gives_the_same_ids(vectors, fault) -> None:
    arrays = read_tensors(vectors / "text" / "byte_pairs.tiny.safetensors")
    ranks = {text: id_ for id_, text in load_tokenizer(vectors / "text").bytes_of.items()}
    other = tiktoken.Encoding(
        "other", pat_str=WRONG_SPLITS[fault], mergeable_ranks=ranks, special_tokens={}
    )
    same = [
        other.encode_ordinary(arrays[name].tobytes().decode())
        == arrays[name.replace("text", "ids")].tolist()
        for name in arrays
        if name.startswith("text.")
    ]
    assert all(same) is (fault == "")


def test_byte_pairs_are_those_of_the_vocabulary_beside_them(vectors) -> None:
    arrays = read_tensors(vectors / "text" / "byte_pairs.tiny.safetensors")
    tokenizer, used = load_tokenizer(vectors / "text"), set()
    texts = [name for name in arrays if name.startswith("text.")]
    for name in texts:
        ids = arrays[name.replace("text", "ids")].tolist()
        assert tokenizer.encode(arrays[name].tobytes().decode()) == ids
        used |= {*ids}
    assert len(texts) == 12
    whole = {
        b" the",
        b" cat",
        b" sat",
        b"The",
        b" aaaa",
        b"'m",
        b"201",
        "猫".encode(),
        "é".encode(),
        "fé".encode(),
        b"7\xc2",  # of 7²
    }
    assert whole <= {tokenizer.decode_bytes([i]) for i in used}


C_FAULTS = {
    "": ("", "", set()),
    "eps left out": ("variance + eps", "variance + 0 * eps", {"y", "dx", "dweight"}),
    "third road the other way": ("- x_hat[i] * along", "+ x_hat[i] * along", {"dx"}),
    "last token alone": ("dbias[i] += dy[i]", "dbias[i] = dy[i]", {"dbias"}),
    "no maximum": ("= expf(x[i * step] - highest)", "= expf(x[i * step])", {"probs", "dx"}),
}


@pytest.mark.parametrize("fault", C_FAULTS)
def test_the_c_program_tests_its_own_functions(vectors, tmp_path, fault) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler, cc")
    program = (ROOT / "examples" / "vectors.c").read_text(encoding="utf-8")
    assert len(program.splitlines()) <= 150
    right, instead, shown = C_FAULTS[fault]
    if fault:
        assert program.count(right) == 1
        program = program.replace(right, instead)
    (tmp_path / "check.c").write_text(program, encoding="utf-8")
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *strict, "-o", "check", "check.c", "-lm"], cwd=tmp_path, check=True)
    files = [str(f) for name in ("layer_norm", "softmax") for f in vectors.glob(f"ops/{name}.*")]
    done = subprocess.run([str(tmp_path / "check"), *files], stdout=subprocess.PIPE, text=True)
    *lines, _ = done.stdout.splitlines()
    assert len(lines) == 4 * len(OPERATIONS["layer_norm"]) + 2 * len(OPERATIONS["softmax"])
    assert {line.split()[1] for line in lines if line.startswith("WRONG ")} == shown
    assert done.returncode == bool(fault)
