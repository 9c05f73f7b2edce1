"""RoBERTa and DistilBERT: BERT's page under other names, with positions and heads of their own."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.describe import command as describe
from npgpt.models.auto import model_type
from npgpt.models.bert.config import BERTConfig, param_shapes
from npgpt.models.bert.embeddings import positions_of
from npgpt.models.bert.families import FAMILIES
from npgpt.models.bert.model import BERT
from tests.builders.bert import random_bert, tiny_bert_config
from tests.builders.checkpoints import assert_same
from tests.goldens import bert, reference_values
from tests.gradcheck import check_close

RELATIVES = [kind for kind in FAMILIES if kind != "bert"]
SIZES = {
    "vocab_size": 31,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
}
# name -> options, lengths of the rows, the side that is padded
CASES: dict[str, dict[str, tuple[dict[str, Any], list[int], str]]] = {
    "roberta": {
        "plain": ({}, [7, 7], "right"),
        "padding": ({"num_attention_heads": 2}, [2, 9, 5], "right"),
        "padding on the left": ({"intermediate_size": 10}, [8, 3], "left"),
        "one token type": ({"type_vocab_size": 1}, [6, 4], "right"),
        "untied": ({"tie_word_embeddings": False, "type_vocab_size": 3}, [6, 4], "right"),
        "the head's gelu is no relu": ({"hidden_act": "relu"}, [9], "right"),
        "eps": ({"hidden_act": "gelu_new", "layer_norm_eps": 1e-2}, [5], "right"),
        "another padding token": ({"pad_token_id": 5, "vocab_size": 23}, [9, 4, 1], "right"),
        "padding token 0": ({"pad_token_id": 0}, [4, 15], "left"),
        "full context": ({"num_hidden_layers": 1}, [14, 14], "right"),
        "full context, padding": ({"num_hidden_layers": 1}, [14, 3], "right"),
        "pooler": ({"kind": "RobertaModel", "hidden_size": 20}, [3, 8, 1], "right"),
        "xlm-roberta": ({"model_type": "xlm-roberta"}, [7, 3], "right"),
        "camembert": ({"model_type": "camembert", "hidden_act": "silu"}, [2, 6], "left"),
    },
    "distilbert": {
        "plain": ({}, [7, 7], "right"),
        "padding": ({"num_attention_heads": 2}, [2, 9, 5], "right"),
        "padding on the left": ({"intermediate_size": 10}, [8, 3], "left"),
        "no padding token": ({"pad_token_id": None}, [8, 3], "left"),
        "untied": ({"tie_word_embeddings": False}, [6, 4], "right"),
        "relu": ({"hidden_act": "relu"}, [9], "right"),
        "one head": ({"num_attention_heads": 1, "hidden_size": 18}, [4, 5], "right"),
        "sinusoids": ({"sinusoidal_pos_embds": True}, [5, 5], "right"),
        "one token": ({"vocab_size": 11}, [1, 1, 1], "right"),
        "full context": ({"num_hidden_layers": 1}, [16, 16], "right"),
        "hidden states": ({"kind": "DistilBertModel"}, [7, 5], "right"),
        "hidden states, wide": (
            {"kind": "DistilBertModel", "intermediate_size": 100},
            [3, 8],
            "left",
        ),
    },
}


@pytest.mark.hf
@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind, cases in CASES.items() for case in cases]
)
def test_outputs_and_every_gradient_against_transformers(hf, kind, case) -> None:
    changes, lengths, side = CASES[kind][case]
    options = {"model_type": kind, **SIZES, **changes}
    given = bert.random_input(options, lengths, side, np.random.default_rng(5))
    reference = bert.reference_model(options, 5)
    config = BERTConfig.from_dict(reference.config.to_dict())
    model = BERT(config, bert.reference_params(reference))
    heads = {"mlm_head": "kind" not in changes, "pooler": "kind" in changes}
    assert {n: p.shape for n, p in model.params.items()} == param_shapes(config, **heads)
    check_close(bert.computed(model, given), reference_values(bert, reference, given), 1e-12)


@pytest.mark.hf
@pytest.mark.parametrize("kind", RELATIVES)
def test_transformers_loads_what_is_saved_and_the_other_way_round(hf, tmp_path, rng, kind) -> None:
    import transformers

    for tied, heads in ((True, True), (False, True), (True, False)):
        options = {"model_type": kind, "tie_word_embeddings": tied}
        model = random_bert(rng, pooler=not heads, mlm_head=heads, **options)
        model.save_pretrained(tmp_path, overwrite=True)
        Auto = transformers.AutoModelForMaskedLM if heads else transformers.AutoModel
        theirs, info = Auto.from_pretrained(
            tmp_path, output_loading_info=True, dtype="auto", attn_implementation="eager"
        )
        assert not any(info.values()), info
        assert_same(bert.reference_params(theirs), model.params)
        theirs.save_pretrained(tmp_path)
        again = npgpt.from_pretrained(tmp_path, dtype=np.float64)
        assert_same(again.params, model.params)
        assert settings(again.config) == settings(model.config)


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore:.*kept on saving")
@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_the_head_of_a_task_goes_there_and_back(hf, tmp_path, kind) -> None:
    import torch
    import transformers

    name = f"{FAMILIES[kind].cls}ForSequenceClassification"
    reference = bert.reference_model({"model_type": kind, **SIZES, "kind": name}, 3, "float32")
    reference.save_pretrained(tmp_path / "theirs")
    npgpt.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values()), info
    before, after = reference.state_dict(), again.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_roberta_is_a_bert_whose_position_table_begins_later(rng) -> None:
    roberta = random_bert(rng, model_type="roberta", pad_token_id=1, pooler=False)
    names, params = iter(random_bert(rng, pooler=False).params), dict(roberta.params)
    table = "embeddings.position_embeddings.weight"
    params[table] = params[table][2:]
    config = replace(roberta.config, model_type="bert", max_position_embeddings=9)
    other = BERT(config, dict(zip(names, params.values(), strict=True)))
    ids = rng.integers(2, 19, (3, 9))
    np.testing.assert_array_equal(roberta(ids), other(ids))
    with pytest.raises(ValueError, match="is 10 tokens long, but the model has positions for 9"):
        roberta([2] * 10)
    assert roberta([2] * 9 + [1] * 5).shape == (14, 19)  # padding needs no position


def test_a_distilbert_is_a_bert_whose_token_types_are_zero(rng) -> None:
    small = random_bert(rng, model_type="distilbert")
    assert not any("pooler" in name or "token_type" in name for name in small.params)
    model = random_bert(rng, pooler=False)
    types = "embeddings.token_type_embeddings.weight"
    names = iter(name for name in model.params if name != types)
    params = dict(zip(names, small.params.values(), strict=True))
    params[types] = np.zeros_like(model.params[types])
    other = BERT(replace(small.config, model_type="bert"), params)
    np.testing.assert_array_equal(small([5, 1, 4]), other([5, 1, 4]))
    with pytest.raises(ValueError, match="a distilbert has no token types; leave them out"):
        small([5, 1, 4], token_type_ids=[0, 0, 0])


def test_positions_of_a_roberta_pass_over_padding(rng) -> None:
    config = tiny_bert_config(model_type="roberta")
    ids = np.array([[1, 1, 7, 8, 9], [7, 8, 1, 9, 1]])
    np.testing.assert_array_equal(positions_of(ids, config), [[1, 1, 2, 3, 4], [2, 3, 1, 4, 1]])
    model = random_bert(rng, model_type="roberta")
    for padded in ([1, 1, 7, 8, 9], [7, 8, 9, 1, 1]):
        real = np.array(padded) != 1
        got = model.encode(padded, real)[real]
        np.testing.assert_allclose(got, model.encode([7, 8, 9]), rtol=0, atol=1e-12)


# What published models say.
PUBLISHED: dict[str, dict[str, Any]] = {
    "roberta": {
        "architectures": ["RobertaForMaskedLM"],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "classifier_dropout": None,
        "position_embedding_type": "absolute",
        "use_cache": True,
    },
    "xlm-roberta": {"max_position_embeddings": 514, "output_past": True, "vocab_size": 250002},
    "camembert": {"max_position_embeddings": 514, "output_past": True, "vocab_size": 32005},
    "distilbert": {
        "activation": "gelu",
        "attention_dropout": 0.1,
        "dim": 768,
        "dropout": 0.1,
        "hidden_dim": 3072,
        "n_heads": 12,
        "n_layers": 6,
        "qa_dropout": 0.1,
        "seq_classif_dropout": 0.2,
        "sinusoidal_pos_embds": False,
        "tie_weights_": True,
    },
}


@pytest.mark.parametrize("kind", RELATIVES)
def test_what_published_models_say_is_read_and_written_without_a_warning(kind) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = BERTConfig.from_dict({"model_type": kind, **PUBLISHED[kind]})
        written = config.to_dict()
        assert settings(BERTConfig.from_dict(written)) == settings(config)
    assert written.items() >= PUBLISHED[kind].items()
    assert written["model_type"] == kind
    assert ("type_vocab_size" in written) == (kind != "distilbert")


def settings(config: BERTConfig) -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if name != "other"}


@pytest.mark.hf
@pytest.mark.parametrize("kind", RELATIVES)
def test_transformers_defaults_are_ours_and_it_knows_no_other_key(hf, kind) -> None:
    import transformers

    theirs = transformers.AutoConfig.for_model(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = BERTConfig.from_dict(theirs.to_dict())
    assert settings(BERTConfig.from_dict({"model_type": kind})) == settings(config)


def test_the_three_names_that_transformers_reads_in_a_distilbert() -> None:
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = BERTConfig.from_dict({"model_type": "distilbert", **sizes})
    assert {name: getattr(config, name) for name in sizes} == sizes
    assert config.to_dict().items() >= {"dim": 48, "n_heads": 4, "n_layers": 2}.items()
    assert not sizes.keys() & config.to_dict().keys()
    with pytest.warns(UserWarning, match="n_layers 9, which mean the same; num_hidden_layers cou"):
        BERTConfig.from_dict({"model_type": "distilbert", "num_hidden_layers": 2, "n_layers": 9})
    with pytest.warns(UserWarning, match="npgpt does not know intermediate_size, which may"):
        other = BERTConfig.from_dict({"model_type": "distilbert", "intermediate_size": 7})
    assert other.intermediate_size == 3072


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"model_type": "distilbert", "dim": "7"}, "dim is '7', but must be a positive integer"),
        ({"model_type": "distilbert", "layer_norm_eps": 1e-5}, "a distilbert's is always 1e-12"),
        ({"model_type": "roberta", "pad_token_id": None}, "is None, but a roberta has its first"),
        ({"model_type": "roberta", "pad_token_id": -1}, "is -1, but a roberta has its first"),
        ({"model_type": "camembert", "pad_token_id": 511}, "behind that row of 512 (max_position_"),
        ({"model_type": "roberta", "is_decoder": True}, "this BERT only encodes"),
        ({"model_type": "roberta-prelayernorm"}, "but must be one of bert, roberta, xlm-roberta"),
    ],
)
def test_what_cannot_be_followed_is_refused(raw, says) -> None:
    with pytest.raises(ValueError, match=r"^a/config\.json: ") as caught:
        BERTConfig.from_dict(raw, "a/config.json")
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", RELATIVES)
def test_without_model_type_the_class_says_which_it_is(tmp_path, capsys, rng, kind) -> None:
    random_bert(rng, np.float32, model_type=kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    del raw["model_type"]
    path.write_text(json.dumps(raw), encoding="utf-8")
    assert model_type(tmp_path) == npgpt.from_pretrained(tmp_path).config.model_type == kind
    assert describe.main([str(path)]) == 0
    capsys.readouterr()
