"""What the command dumps is within tolerance; what it refuses to compare."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest

import npgpt
from npgpt.compare.activations import collect_stations
from npgpt.files.safetensors_file import read_metadata, read_tensors
from npgpt.models.transformer.model import Transformer
from tests.builders.bert import random_bert
from tests.builders.transformer import DIALECTS, random_transformer
from tests.compare.ports import SOURCE_AND_TARGET, TEXTS, edited, run


def test_a_dump_holds_every_station_under_its_name(dumped, folder):
    model = npgpt.from_pretrained(folder)
    wanted = collect_stations(model, np.array([*b"hello"]), gradients=True)
    found = read_tensors(dumped)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is Unicode")
def test_a_dump_of_a_model_whose_folder_is_no_text(folder, tmp_path):
    """Its name goes into the file, which takes UTF-8 only."""
    model = tmp_path / "caf\udce9"
    shutil.copytree(folder, model)
    path = tmp_path / "x.safetensors"
    assert run("hello", "--model", model, "--dump", path)[0] == 0
    assert read_metadata(path)["model"] == f"{tmp_path}/caf\ufffd"


def test_its_own_dump_is_within_tolerance(folder, dumped):
    code, out, err = run("--model", folder, "--against", dumped, "--gradients")
    assert (code, err) == (0, "")
    assert "(float32) against" in out
    assert (
        "verdict: all 30 stations, 29 station gradients and 28 parameter gradients are within"
        in out
    )
    assert "argmax: the same at 5 of 5 positions\nKL divergence: mean 0, max 0 nats\n" in out


@pytest.mark.parametrize(("tolerance", "code"), [("0", 1), ("1e-9", 1), ("1e-3", 0)])
def test_a_tolerance_of_ones_own(folder, dumped, tolerance, code):
    """float64 against float32: apart by rounding, which is more than nothing."""
    arguments = ("--model", folder, "--against", dumped, "--dtype", "float64")
    found, out, _ = run(*arguments, "--tolerance", tolerance)
    assert found == code
    assert f"tolerance: {float(tolerance):g}\n" in out
    assert run(*arguments)[0] == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dump_of_every_dialect_is_within_tolerance(rng, tmp_path, dialect):
    model = random_transformer(rng, np.float32, **DIALECTS[dialect])
    model.save_pretrained(tmp_path / "model")
    arguments, dump = ("--model", tmp_path / "model", "--gradients"), tmp_path / "a.safetensors"
    code, _, err = run(*SOURCE_AND_TARGET, *arguments, "--dump", dump)
    assert code == 0
    found = read_tensors(dump)
    wanted = collect_stations(model, *TEXTS[Transformer], gradients=True)
    assert f"wrote {len(wanted)} arrays" in err
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    code, out, err = run("--against", dump, *arguments)
    assert (code, err) == (0, "")
    assert "against" in out
    assert "5 tokens and 4 of the target" in " ".join(out.split())
    assert (
        f"all 88 stations, 87 station gradients and {len(model.params)} parameter gradients" in out
    )
    assert "likeliest at position 3:" in out


def test_the_papers_layout_has_no_counterpart(rng, tmp_path):
    random_transformer(rng, np.float32).save_pretrained(tmp_path)
    for against in ((), ("--against", "hf")):
        code, out, err = run(*SOURCE_AND_TARGET, "--model", tmp_path, *against)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "transformers has no counterpart of the paper's own layout" in err


def test_without_an_mlm_head_there_is_no_loss(rng, tmp_path):
    random_bert(rng, np.float32, mlm_head=False).save_pretrained(tmp_path)
    arguments = ("--ids", "1 2 3", "--model", tmp_path, "--dump", tmp_path / "a.safetensors")
    code, out, err = run(*arguments, "--gradients")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no MLM head (cls.predictions.…), so there is no loss" in err
    assert run(*arguments)[0] == 0
    code, out, _ = run("--model", tmp_path, "--against", tmp_path / "a.safetensors", "--json")
    found = json.loads(out)
    assert (code, found["logits"], found["missing"]) == (0, None, [])
    assert found["stations"][-1]["station"] == "pooler"


@pytest.mark.parametrize("more", [(), ("--gradients",)])
def test_the_list_is_what_a_dump_holds(folder, tmp_path, more):
    """Names, dtypes and shapes as JSON, to be read or pasted."""
    dump = tmp_path / "a.safetensors"
    code, out, err = run("hello", "--model", folder, "--list", "--dump", dump, *more)
    assert code == 0
    assert "wrote" in err
    listed = json.loads(out)
    held = {
        name: {"dtype": array.dtype.name, "shape": [*array.shape]}
        for name, array in read_tensors(dump).items()
    }
    assert listed == held
    assert listed["h.1.attn.q"] == {"dtype": "float32", "shape": [3, 5, 4]}
    assert out.count("\n") == len(listed) + 2
    assert ("grad.h.1.attn.q" in listed) == bool(more)


@pytest.mark.parametrize("above", [-np.inf, np.finfo(np.float32).min, -1e4, 0.0, 7.0, np.nan])
@pytest.mark.parametrize("more", [(), ("--local",)])
def test_nobody_minds_what_is_above_the_diagonal(folder, dumped, above, more):
    """A mask keeps scores and two gradients from being looked at, so a port may have anything."""
    arrays = read_tensors(dumped)
    names = [n for n in arrays if n.endswith("scores") or (n.endswith("probs") and "grad" in n)]
    assert len(names) == 6
    upper = np.triu(np.ones((5, 5), bool), 1)
    for name in names:
        arrays[name] = np.where(upper, np.float32(above), arrays[name])
    edited(dumped, **arrays)
    code, out, _ = run("--model", folder, "--against", dumped, "--gradients", *more)
    assert code == 0, out


def test_a_dump_without_what_is_optional_lacks_nothing(folder, dumped):
    arrays = read_tensors(dumped)
    names = [n for n in arrays if n.endswith((".q", ".act", "ln_1", "scores", "grad.h.1.mlp"))]
    code, out, _ = run(
        *("--model", folder, "--against", edited(dumped, **dict.fromkeys(names))),
        *("--gradients", "--json"),
    )
    assert (code, json.loads(out)["missing"]) == (0, [])
