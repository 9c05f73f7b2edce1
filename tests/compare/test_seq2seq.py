"""`python -m npgpt.compare` on an encoder-decoder: source and target, names, refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from npgpt.compare.activations import collect_stations
from npgpt.compare.station_parts import what_makes
from npgpt.files.safetensors_file import read_tensors
from npgpt.models.transformer.model import Transformer
from tests.compare.ports import edited, run
from tests.models.tiny_transformer import DIALECTS, random_transformer
from tests.test_translate import MARKS, TABLES
from tests.text.small_marian import write_marian

IDS, TARGET = np.array([3, 1, 4, 1, 5]), np.array([6, 11, 7, 2])
NUMBERS = ("--ids", "3 1 4 1 5", "--target-ids", "6 11 7 2")


def stations_of(model: Transformer, **options: Any) -> dict[str, np.ndarray]:
    return collect_stations(model, IDS, TARGET, **{"gradients": False, **options})


@pytest.fixture
def model(rng, tmp_path) -> Transformer:
    model = random_transformer(rng, np.float32, model_type="bart")
    model.save_pretrained(tmp_path)
    return model


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dump_of_every_dialect_is_within_tolerance(rng, tmp_path, dialect):
    model = random_transformer(rng, np.float32, **DIALECTS[dialect])
    model.save_pretrained(tmp_path / "model")
    arguments, dump = ("--model", tmp_path / "model", "--gradients"), tmp_path / "a.safetensors"
    code, _, err = run(*NUMBERS, *arguments, "--dump", dump)
    assert code == 0
    found, wanted = read_tensors(dump), stations_of(model, gradients=True)
    assert f"wrote {len(wanted)} arrays" in err
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    code, out, err = run("--against", dump, *arguments)
    assert (code, err) == (0, "")
    assert "against" in out
    assert "5 tokens and 4 of the target" in out
    assert f"all 38 stations are within tolerance\nall {len(model.params)} gradients" in out
    assert "likeliest at position 3:" in out


def test_names_shapes_and_loss(model):
    stations = stations_of(model, gradients=True)
    loss, grads = model.loss_and_grads(IDS, TARGET)
    assert stations["loss"] == pytest.approx(loss, rel=1e-6)
    for name, grad in grads.items():
        np.testing.assert_allclose(stations[f"grad.{name}"], grad, rtol=2e-4, atol=1e-6)
    attn = ("self_attn.probs", "self_attn", "self_attn_layer_norm")
    cross = ("encoder_attn.probs", "encoder_attn", "encoder_attn_layer_norm")
    names = ["ids", "target_ids", "encoder.embed"]
    for n in range(2):
        layer = f"encoder.layers.{n}"
        names += [*(f"{layer}.{part}" for part in (*attn, "fc2")), layer]
    names.append("decoder.embed")
    for n in range(3):
        layer = f"decoder.layers.{n}"
        names += [*(f"{layer}.{part}" for part in (*attn, *cross, "fc2")), layer]
    assert [n for n in stations if not n.startswith("grad.")] == [*names, "logits", "loss"]
    assert stations["encoder.layers.0.self_attn.probs"].shape == (3, 5, 5)
    assert stations["decoder.layers.0.self_attn.probs"].shape == (2, 4, 4)
    assert stations["decoder.layers.2.encoder_attn.probs"].shape == (2, 4, 5)
    assert stations["decoder.layers.2.encoder_attn"].shape == (4, 12)


def test_every_station_says_what_makes_it(model):
    for name in stations_of(model, gradients=True):
        if not name.startswith(("grad.", "ids", "target")):
            assert what_makes("bart", name)
    assert "no causal mask" in what_makes("marian", "encoder.layers.1.self_attn.probs")
    assert "no causal" not in what_makes("marian", "decoder.layers.1.self_attn.probs")
    assert "shifted right" in what_makes("transformer", "decoder.embed")


def test_source_and_target_come_from_the_command_or_the_file(model, tmp_path):
    dump = tmp_path / "port.safetensors"
    assert run(*NUMBERS, "--model", tmp_path, "--dump", dump)[0] == 0
    against = ("--model", tmp_path, "--against", dump)
    assert run(*NUMBERS, *against)[0] == run(*NUMBERS[:2], *against)[0] == run(*against)[0] == 0
    code, out, err = run("--target-ids", "6 11 7", *against)
    assert (code, out) == (2, "")
    assert "its 'target_ids' 6 11 7 2 are not those given here, 6 11 7; leave" in err
    edited(dump, target_ids=None)
    assert "give --target or --target-ids to compare on" in run(*against)[2]
    assert run(*NUMBERS[2:], *against)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--ids", "1 2"], "give --target or --target-ids to compare on, or a file with"),
        (["--target-ids", "1 2"], "give a text or --ids to compare on, or a file with"),
        (["--ids", "1", "--target-ids", ""], "no tokens to compare on; give --target or"),
        (["--ids", "1", "--target-ids", "2", "--target", "a"], "either --target or --target-ids"),
        (["--ids", "1", "--target-ids", "x"], "ids must be whole numbers"),
        (["--ids", "99", "--target-ids", "2"], "token id 99"),
        (["--ids", "1", "--target-ids", "99 2"], "token id 99"),
        (["--ids", "1", "--target-ids", "2 99"], "target 99 at index [1]"),
        (["--ids", "1", "--target", "a"], "is a bart, whose vocabulary is not read here"),
        (["a", "--target-ids", "1"], "is a bart, whose vocabulary is not read here"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(model, tmp_path, arguments, sentence):
    code, out, err = run("--model", tmp_path, "--dump", tmp_path / "a.safetensors", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


def test_the_papers_layout_has_no_counterpart(rng, tmp_path):
    random_transformer(rng, np.float32).save_pretrained(tmp_path)
    for against in ((), ("--against", "hf")):
        code, out, err = run(*NUMBERS, "--model", tmp_path, *against)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "transformers has no counterpart of the paper's own layout" in err


def test_characters_of_config_json(rng, tmp_path):
    options: dict[str, Any] = {"model_type": "bart", **MARKS, **TABLES}
    random_transformer(rng, np.float32, **options).save_pretrained(tmp_path)
    dump = tmp_path / "a.safetensors"
    assert run("bad", "--target", "bæd?", "--model", tmp_path, "--dump", dump)[0] == 0
    found = read_tensors(dump)
    assert found["ids"].tolist() == [1, 5, 4, 7, 2]
    assert found["target_ids"].tolist() == [1, 5, 4, 7, 3, 2]
    out = run("--model", tmp_path, "--against", dump, "--json")[1]
    shown = {each["token"] for each in json.loads(out)["logits"]["ours"]}
    assert shown & {*TABLES["phoneme_chars"]}


def test_marians_pieces(spm, tmp_path):
    model, dump = write_marian(tmp_path), tmp_path / "a.safetensors"
    text = ("the cat sat on the mat", "--target", "猫坐在垫子上")
    assert run(*text, "--model", tmp_path, "--dump", dump)[0] == 0
    found = read_tensors(dump)
    end = model.config.eos_token_id
    assert found["ids"][-1] == found["target_ids"][-1] == end
    assert found["target_ids"].min() >= 0
    code, out, err = run(*text, "--model", tmp_path, "--against", dump)
    assert (code, err) == (0, "")
    assert "'" in out.split("likeliest")[1]
