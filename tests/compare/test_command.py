"""`python -m npgpt.compare` against a file: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt.compare import inputs as compare_input
from npgpt.compare.activations import collect_stations
from npgpt.files.safetensors_file import read_tensors, write_tensors
from tests.compare.ports import edited, run
from tests.tiny import write_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def dumped(folder, tmp_path) -> Path:
    """npgpt's own stations of "hello", with gradients, as another program might have made them."""
    path = tmp_path / "port.safetensors"
    assert run("hello", "--model", folder, "--dump", path, "--gradients")[:2] == (0, "")
    return path


def test_a_dump_holds_every_station_under_its_name(dumped, folder):
    model = npgpt.from_pretrained(folder)
    wanted = collect_stations(model, np.array([*b"hello"]), gradients=True)
    found = read_tensors(dumped)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_its_own_dump_is_within_tolerance(folder, dumped):
    code, out, err = run("--model", folder, "--against", dumped, "--gradients")
    assert (code, err) == (0, "")
    assert "(float32) against" in out
    assert "all 12 stations are within tolerance\nall 28 gradients are within tolerance\n" in out
    assert "argmax: the same at 5 of 5 positions\nKL divergence: mean 0, max 0 nats\n" in out


def test_the_table_fits_in_100_columns_and_stands_straight(folder, dumped):
    edited(dumped, **{"h.1.mlp": np.full((5, 12), -123.4, np.float32)})
    out = run("--model", folder, "--against", dumped, "--gradients")[1]
    tables = [block.split("\n") for block in out.split("\n\n") if "max |Δ|" in block]
    assert [len(table) for table in tables] == [13, 29]
    for head, *rows in tables:
        assert max(map(len, [head, *rows])) <= 100
        ends = head.index("npgpt") + len("npgpt")
        assert all(row[ends - 1] != " " and row[ends] == " " for row in rows)


def test_a_fault_is_named_with_what_makes_the_station(folder, dumped):
    mlp = read_tensors(dumped)["h.1.mlp"]
    mlp[3, 7] += 1
    code, out, err = run(
        "hello", "--model", folder, "--against", edited(dumped, **{"h.1.mlp": mlp})
    )
    assert (code, err) == (1, "")
    (line,) = [line for line in out.split("\n") if line.startswith("h.1.mlp ")]
    assert line.split()[4:6] == ["(3,", "7)"]
    assert line.endswith("BEYOND")
    assert (
        "first station beyond tolerance: h.1.mlp; h.1.attn before it is ok\n  made by: ln_2" in out
    )


def test_the_first_station_of_all_has_none_before_it(folder, dumped):
    edited(dumped, embed=np.zeros((5, 12), np.float32))
    out = run("--model", folder, "--against", dumped)[1]
    assert "first station beyond tolerance: embed\n" in out


def test_nan_is_said(folder, dumped):
    edited(dumped, ln_f=np.full((1, 5, 12), np.nan, np.float16))
    code, out, _ = run("--model", folder, "--against", dumped)
    assert code == 1
    (line,) = [line for line in out.split("\n") if line.startswith("ln_f ")]
    assert line.endswith("NAN/INF")
    found = json.loads(run("--model", folder, "--against", dumped, "--json")[1])
    (row,) = [row for row in found["stations"] if row["station"] == "ln_f"]
    assert (row["max_abs"], row["theirs"], row["verdict"]) == (None, None, "NaN/inf")


def test_what_one_side_lacks_is_listed(folder, dumped):
    edited(dumped, logits=None, **{"h.0": None, "h.0.qkv": np.zeros(3)})
    code, out, _ = run("--model", folder, "--against", dumped)
    assert code == 0
    assert "not in the file:\n  h.0, logits\n" in out
    assert "in the file, but no station of this model:\n  h.0.qkv\n" in out
    assert "in the file, but compared only with --gradients:\n  loss, grad." in out
    assert "argmax" not in out
    found = json.loads(run("--model", folder, "--against", dumped, "--json")[1])
    assert (found["missing"], found["unknown"]) == (["h.0", "logits"], ["h.0.qkv"])
    assert found["logits"] is None


def test_gradients_alone(folder, dumped):
    arrays = {n: a for n, a in read_tensors(dumped).items() if n.startswith(("grad.", "ids"))}
    arrays["grad.h.1.ln_2.bias"] *= 1.01
    write_tensors(dumped, arrays)
    code, out, _ = run("--model", folder, "--against", dumped, "--gradients")
    assert code == 1
    assert "stations" not in out
    (table,) = [block.split("\n") for block in out.split("\n\n") if "max |Δ|" in block]
    assert table[1].startswith("h.1.ln_2.bias ")
    assert "as the backward pass goes: grad.h.1.ln_2.bias\n" in out


def test_json_is_everything_in_one_object(folder, dumped):
    code, out, err = run("--model", folder, "--against", dumped, "--gradients", "--json")
    found = json.loads(out)
    assert (code, err, found["within_tolerance"], found["first_beyond"]) == (0, "", True, None)
    assert found["ids"] == [*b"hello"]
    assert (len(found["stations"]), len(found["gradients"])) == (12, 28)
    assert found["stations"][0]["station"] == "embed"
    assert found["logits"]["agreeing"] == 5
    assert len(found["logits"]["ours"]) == 5
    assert isinstance(found["logits"]["ours"][0]["token"], str)


def test_argmax_that_differs_is_shown(folder, dumped):
    logits = read_tensors(dumped)["logits"]
    logits[2, 99] = logits[2].max() + 0.25
    out = run("--model", folder, "--against", edited(dumped, logits=logits))[1]
    assert "argmax: the same at 4 of 5 positions; first parting at position 2, where" in out


def test_tokens_have_their_text_where_there_is_a_vocabulary(folder, dumped, tmp_path):
    logits = read_tensors(dumped)["logits"]
    logits[-1, [256, 65]] = 300, 299
    edited(dumped, logits=logits)
    assert "256    '<|endoftext|>'" in run("--model", folder, "--against", dumped)[1]
    bare = write_tiny_model(tmp_path / "bare")
    (bare / "vocab.json").unlink()
    out = run("--model", bare, "--against", dumped)[1]
    assert "'" not in out.split("likeliest")[1]
    assert " 65\n" in out


def test_long_tokens_are_cut(folder, dumped, monkeypatch):
    long = compare_input.Vocabulary(None, None, lambda _: "long " * 20)
    monkeypatch.setattr(compare_input, "_load_vocabulary", lambda *_: long)
    out = run("--model", folder, "--against", dumped)[1]
    assert max(map(len, out.split("likeliest")[1].split("\n"))) <= 100


@pytest.mark.parametrize(("tolerance", "code"), [("0", 1), ("1e-9", 1), ("1e-3", 0)])
def test_a_tolerance_of_ones_own(folder, dumped, tolerance, code):
    """float64 against float32: apart by rounding, which is more than nothing."""
    arguments = ("--model", folder, "--against", dumped, "--dtype", "float64")
    found, out, _ = run(*arguments, "--tolerance", tolerance)
    assert found == code
    assert f"tolerance: {float(tolerance):g}\n" in out
    assert run(*arguments)[0] == 0
