"""What the command prints: tables, findings, likely causes, JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npgpt.compare import inputs
from npgpt.compare.report import as_text, patterns, shown
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.gpt2.model import GPT2
from tests.builders.checkpoints import SMALL, random_params
from tests.builders.gpt2 import write_tiny_gpt2
from tests.compare.planted import MODELS, compared, port, scaled
from tests.compare.ports import edited, run


def test_the_table_fits_in_100_columns_and_stands_straight(folder, dumped):
    edited(dumped, **{"h.1.mlp": np.full((5, 12), -123.4, np.float32)})
    out = run("--model", folder, "--against", dumped, "--gradients")[1]
    tables = [block.split("\n") for block in out.split("\n\n") if "max |Δ|" in block]
    assert [len(table) for table in tables] == [31, 30, 29]
    for head, *rows in tables:
        assert max(map(len, [head, *rows])) <= 100
        ends = head.index("npgpt") + len("npgpt")
        assert all(row[ends - 1] != " " and row[ends] == " " for row in rows)


def test_a_fault_is_named_with_its_likely_cause(folder, dumped):
    mlp = read_tensors(dumped)["h.1.mlp"]
    mlp[3, 7] += 1
    code, out, err = run(
        "hello", "--model", folder, "--against", edited(dumped, **{"h.1.mlp": mlp})
    )
    assert (code, err) == (1, "")
    (line,) = [line for line in out.split("\n") if line.startswith("h.1.mlp ")]
    assert line.split()[4:6] == ["(3,", "7)"]
    assert line.endswith("BEYOND")
    assert "wrong: h.1.mlp; h.1.mlp.act before it is ok\n  made by: mlp.c_proj\n" in out


def test_the_first_station_of_all_has_none_before_it(folder, dumped):
    edited(dumped, embed=np.zeros((5, 12), np.float32))
    out = run("--model", folder, "--against", dumped)[1]
    assert "wrong: embed\n  made by: wte[id] + wpe[position]\n" in out


@pytest.mark.filterwarnings("default")
def test_nan_on_both_sides_is_no_agreement(tmp_path):
    """A model with a NaN beside its own dump: everything after it is beyond tolerance."""
    params = random_params()
    params["h.1.ln_2.bias"][3] = np.nan
    GPT2(SMALL, params).save_pretrained(tmp_path)
    arguments, dump = ("--model", tmp_path, "--gradients"), tmp_path / "own.safetensors"
    assert run("--ids", "3 1 4", *arguments, "--dump", dump)[0] == 0
    for tolerance in ((), ("--tolerance", "1e9")):
        code, out, _ = run(*arguments, "--against", dump, "--json", *tolerance)
        found = json.loads(out)
        assert (code, found["first_beyond"]) == (1, "h.1.ln_2")
        assert {row["verdict"] for row in found["gradients"]} == {"NaN/inf"}
        assert (found["logits"]["agreeing"], found["logits"]["parting"]) == (0, 0)
        assert found["logits"]["kl_max"] is None


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


def test_names_that_differ_in_a_number_are_one_pattern():
    names = [f"h.{n}.attn" for n in range(12)] + ["h.3.mlp", "h.5.mlp", "h.6.mlp", "ln_f"]
    assert patterns(names) == "h.0–11.attn, h.3.mlp, h.5–6.mlp, ln_f"
    assert patterns(f"layers.{n}" for n in (1, 2)) == "layers.1–2"
    assert patterns([]) == ""
    assert shown([*"abcdefghij"], most=3) == "a, b, c and 7 more"


def test_the_verdict_stands_first_and_last(folder, dumped):
    out = run("--model", folder, "--against", dumped, "--gradients")[1]
    said = "verdict: all 30 stations, 29 station gradients and 28 parameter gradients are within "
    said += "tolerance"
    assert out.split("\n")[0] == out.split("\n")[-2] == said
    edited(dumped, **{"h.1": np.zeros((5, 12), np.float32)})
    out = run("--model", folder, "--against", dumped)[1]
    said = "verdict: beyond tolerance: first h.1; 1 of 29 stations"
    assert out.split("\n")[0] == out.split("\n")[-2] == said
    found = json.loads(run("--model", folder, "--against", dumped, "--json")[1])
    assert found["verdict"] == said
    assert [where["station"] for where in found["findings"]] == ["h.1"]


@pytest.mark.parametrize("architecture", MODELS)
def test_no_line_is_longer_than_the_screen(architecture):
    """Whatever is wrong, and however long the names are."""
    for local in (False, True):
        for kept in (1, 5):
            dumped = port(architecture, "float32", {"logits": scaled, "loss": scaled})
            dumped = {n: 1.1 * a for n, a in [*dumped.items()][::kept] if "ids" not in n}
            found = compared(architecture, "float32", dumped, local=local)
            lines = as_text(found, lambda _: None).split("\n")
            assert max(map(len, lines)) <= 100


def test_the_same_fault_in_each_layer_is_said_once():
    dumped = port("gpt2", "float32", {f"h.{n}.mlp.act": scaled for n in range(2)})
    text = as_text(compared("gpt2", "float32", dumped, local=True), lambda _: None)
    assert text.count("wrong: ") == 1
    assert "  made by: the activation function\n  likewise: h.1.mlp.act\n" in text


def test_gradients_alone(folder, dumped):
    arrays = {n: a for n, a in read_tensors(dumped).items() if n.startswith(("grad.", "ids"))}
    arrays["grad.h.1.ln_2.bias"] *= 1.01
    write_tensors(dumped, arrays)
    code, out, _ = run("--model", folder, "--against", dumped, "--gradients")
    assert code == 1
    _, table = [block.split("\n") for block in out.split("\n\n") if "max |Δ|" in block]
    assert table[1].startswith("h.1.ln_2.bias ")
    assert "wrong: grad.h.1.ln_2.bias; grad.h.1.ln_2 before it is ok\n" in out


def test_json_is_everything_in_one_object(folder, dumped):
    code, out, err = run("--model", folder, "--against", dumped, "--gradients", "--json")
    found = json.loads(out)
    assert (code, err, found["within_tolerance"], found["first_beyond"]) == (0, "", True, None)
    assert found["ids"] == [*b"hello"]
    assert [len(found[part]) for part in ("stations", "arriving", "gradients")] == [30, 29, 28]
    assert found["stations"][0]["station"] == "embed"
    assert found["logits"]["agreeing"] == 5
    assert len(found["logits"]["ours"]) == 5
    assert isinstance(found["logits"]["ours"][0]["token"], str)


def test_argmax_that_differs_is_shown(folder, dumped):
    logits = read_tensors(dumped)["logits"]
    logits[2, 99] = logits[2].max() + 0.25
    out = run("--model", folder, "--against", edited(dumped, logits=logits))[1]
    assert "argmax: the same at 4 of 5 positions; first disagreement at position 2, where" in out


def test_tokens_have_their_text_where_there_is_a_vocabulary(folder, dumped, tmp_path):
    logits = read_tensors(dumped)["logits"]
    logits[-1, [256, 65]] = 300, 299
    edited(dumped, logits=logits)
    assert "256    '<|endoftext|>'" in run("--model", folder, "--against", dumped)[1]
    bare = write_tiny_gpt2(tmp_path / "bare")
    (bare / "vocab.json").unlink()
    out = run("--model", bare, "--against", dumped)[1]
    assert "'" not in out.split("likeliest")[1]
    assert " 65\n" in out


def test_long_tokens_are_cut(folder, dumped, monkeypatch):
    long = inputs.Codec(None, None, lambda _: "long " * 20)
    monkeypatch.setattr(inputs, "_load_codec", lambda *_: long)
    out = run("--model", folder, "--against", dumped)[1]
    assert max(map(len, out.split("likeliest")[1].split("\n"))) <= 100
