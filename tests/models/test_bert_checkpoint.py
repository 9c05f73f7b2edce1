"""What is BERT's own in a checkpoint: optional heads, the decoder's bias, the oldest names."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import read_header, read_tensors, write_tensors
from npgpt.models.bert.checkpoint import load_bert, save_bert
from npgpt.models.bert.config import BERTConfig, param_shapes
from npgpt.models.bert.model import BERT
from npgpt.models.gpt2.checkpoint import load_checkpoint
from tests.builders.bert import SIZES
from tests.builders.checkpoints import assert_same

SMALL = BERTConfig.from_dict({**SIZES, "num_hidden_layers": 1})
UNTIED = replace(SMALL, tie_word_embeddings=False)
WORDS, DECODER = "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
LINEARS = ("query.weight", "key.weight", "value.weight", "dense.weight")


def random_params(config=SMALL, dtype=np.float32, **heads):
    """All parameters random, biases and gains too."""
    rng = np.random.default_rng(1810)
    shapes = param_shapes(config, **heads)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def stored(params):
    """The tensors as transformers stores them: [out, in], with the prefix."""
    return {
        name if name.startswith("cls.") else f"bert.{name}": array.T
        if name.endswith(LINEARS)
        else array
        for name, array in params.items()
    }


def write(folder, tensors, config=SMALL, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    raw = {**config.to_dict(), **changes}
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def refusal(folder):
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        load_bert(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("heads", [(True, True), (True, False), (False, True), (False, False)])
def test_with_and_without_heads_there_and_back(tmp_path, heads, dtype):
    pooler, mlm_head = heads
    params = random_params(dtype=dtype, pooler=pooler, mlm_head=mlm_head)
    BERT(SMALL, params).save_pretrained(tmp_path)
    model = npgpt.from_pretrained(tmp_path, dtype=dtype)
    assert isinstance(model, BERT)
    assert_same(model.params, params)
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert raw["architectures"] == ["BertForMaskedLM" if mlm_head else "BertModel"]
    assert raw["dtype"] == dtype
    header = read_header(tmp_path / "model.safetensors")
    assert ("bert." + WORDS in header) == mlm_head
    out = model.forward([1, 2, 3])
    assert (out.pooled is not None, out.logits is not None) == heads


def test_an_untied_head_is_stored_with_its_bias(tmp_path):
    params = random_params(UNTIED)
    save_bert(tmp_path, UNTIED, params)
    tensors = read_tensors(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(tensors[DECODER_BIAS], params[BIAS])
    assert_same(load_bert(tmp_path)[1], params)
    tensors[BIAS] = 0 * tensors[BIAS]  # has no effect in transformers either
    write(tmp_path, tensors, UNTIED)
    assert_same(load_bert(tmp_path)[1], params)


def test_the_oldest_names_and_buffers(tmp_path):
    params = random_params()
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in stored(params).items()
    }
    tensors["bert.embeddings.position_ids"] = np.arange(11)[None]
    tensors["bert.embeddings.token_type_ids"] = np.zeros((1, 11), np.int64)
    assert_same(load_bert(write(tmp_path, tensors))[1], params)


def test_copies_of_what_is_tied_must_be_equal(tmp_path):
    params = random_params()
    tensors = {**stored(params), DECODER: params[WORDS], DECODER_BIAS: params[BIAS]}
    assert_same(load_bert(write(tmp_path, tensors))[1], params)
    del tensors[BIAS]
    assert_same(load_bert(write(tmp_path, tensors))[1], params)
    tensors |= {BIAS: params[BIAS], DECODER_BIAS: params[BIAS] + 1}
    text = refusal(write(tmp_path, tensors))
    assert f"'{DECODER_BIAS}' differs from '{BIAS}', but by config.json the two are tied" in text
    tensors |= {DECODER_BIAS: params[BIAS], DECODER: params[WORDS] + 1}
    assert f"'{DECODER}' differs from '{WORDS}'" in refusal(write(tmp_path, tensors))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pooler.dense.bias", "lacks 'pooler.dense.bias' of shape [12]."),
        (BIAS, "lacks 'cls.predictions.bias' of shape [19]."),
    ],
)
def test_half_a_head_is_refused(tmp_path, name, sentence):
    params = random_params()
    del params[name]
    assert refusal(write(tmp_path, stored(params))).endswith(sentence)


OTHERS: dict[str, np.ndarray] = {  # of several tasks, named and stored as they may be
    "cls.seq_relationship.weight": np.arange(24, dtype=np.float32).reshape(2, 12),
    "classifier.weight": np.arange(36, dtype=np.float16).reshape(3, 12),
    "classifier.bias": np.array([np.nan, 1, 2], np.float32),
    "bert.embeddings.more.weight": np.zeros((0, 4)),
    "steps": np.array(7),
}


@pytest.mark.parametrize("heads", [(True, True), (True, False), (False, True), (False, False)])
def test_other_heads_are_named_and_kept(tmp_path, heads):
    """Beside changed parameters, in the same folder or another, and again after a second load."""
    params = random_params(pooler=heads[0], mlm_head=heads[1])
    names = {"architectures": ["BertForX"], "id2label": {"0": "good"}}
    write(tmp_path / "0", {**stored(params), **OTHERS}, **names)
    for n, to in enumerate(("1", "1", "1", "2")):
        sentence = r"BERT and not used, but kept on saving: .*classifier\.bias"
        with pytest.warns(UserWarning, match=sentence):
            model = npgpt.from_pretrained(tmp_path / ("0" if n == 0 else "1"))
        assert_same(model.params, params)
        assert_same(model.others, OTHERS)
        params[WORDS][1] += 1
        model.params[WORDS][1] += 1
        model.save_pretrained(tmp_path / to)
        tensors = read_tensors(tmp_path / to / "model.safetensors")
        assert_same({name: tensors[name] for name in OTHERS}, OTHERS)
        assert "bert." + WORDS in tensors  # without it transformers looks for bert.classifier
        raw = json.loads((tmp_path / to / "config.json").read_text(encoding="utf-8"))
        assert {key: raw[key] for key in names} == names


def test_other_heads_lose_the_names_of_wrappers_as_parameters_do(tmp_path):
    tensors = {f"_orig_mod.{n}": a for n, a in {**stored(random_params()), **OTHERS}.items()}
    with pytest.warns(UserWarning, match="kept on saving"):
        assert_same(load_bert(write(tmp_path, tensors))[2], OTHERS)


def test_without_other_heads_the_architecture_is_that_of_the_parameters(tmp_path):
    write(tmp_path, stored(random_params()), architectures=["BertForX"])
    model = npgpt.from_pretrained(tmp_path)
    assert model.others == {}
    model.save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert raw["architectures"] == ["BertForMaskedLM"]


def test_a_table_of_another_size_is_refused(tmp_path):
    text = refusal(write(tmp_path, stored(random_params()), vocab_size=20))
    assert "has shape [19, 12], but by config.json it must have [20, 12]" in text


def test_the_wrong_loader_says_so(tmp_path):
    folder = write(tmp_path, stored(random_params()))
    with pytest.raises(ValueError, match="model_type is 'bert'"):
        load_checkpoint(folder)
    with pytest.raises(ValueError, match="model_type is 'gpt2', but must be one of bert, "):
        load_bert(write(tmp_path, {}, model_type="gpt2"))
