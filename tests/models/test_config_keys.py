"""Every key of config.json is obeyed, known to change nothing, refused, or named in a warning."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.describe import command as describe
from npgpt.models import generation, settings
from npgpt.models.auto import model_type
from npgpt.models.bert import config as bert
from npgpt.models.gpt2 import config as gpt2
from npgpt.models.llama import config as llama
from npgpt.models.settings import Keys
from npgpt.models.transformer import config as transformer
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer

# model_type -> its class, its lists, transformers' class
ARCHITECTURES: dict[str, tuple[Any, Keys, str]] = {
    "gpt2": (gpt2.GPT2Config, gpt2.KEYS, "GPT2Config"),
    "llama": (llama.LlamaConfig, llama.KEYS, "LlamaConfig"),
    "bert": (bert.BERTConfig, bert.KEYS, "BertConfig"),
    "bart": (transformer.TransformerConfig, transformer.KEYS, "BartConfig"),
    "marian": (transformer.TransformerConfig, transformer.KEYS, "MarianConfig"),
}
MODELS: dict[str, Any] = {
    "gpt2": random_gpt2,
    "llama": random_llama,
    "bert": random_bert,
    "bart": random_transformer,
    "marian": random_transformer,
}


def write(folder: Path, kind: str, **changes: Any) -> Path:
    """A model's folder with these changes of its config.json; None takes a key away."""
    options = {"model_type": kind} if kind in ("bart", "marian") else {}
    MODELS[kind](np.random.default_rng(0), np.float32, **options).save_pretrained(folder)
    path = folder / "config.json"
    raw = {**json.loads(path.read_text()), **changes}
    kept = {key: value for key, value in raw.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")
    return folder


def read(kind: str, **raw: Any) -> Any:
    return ARCHITECTURES[kind][0].from_dict({"model_type": kind, **raw}, "a/config.json")


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_an_unknown_key_is_named_once_unless_it_says_nothing(kind) -> None:
    with pytest.warns(
        UserWarning, match=r"^a/config\.json: npgpt does not know new, logit_sc"
    ) as c:
        config = read(kind, new=3, logit_scale=[1.5], **dict.fromkeys("abcde", None), id2label={})
    assert len(c) == 1
    assert str(c[0].message).endswith("new, logit_scale, which may change results.")
    assert config.to_dict().items() >= {"new": 3, "logit_scale": [1.5], "a": None}.items()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(kind, a=None, b=False, c="", d={}, e=[], f=0)


def test_the_warning_points_at_who_asked_for_the_model(tmp_path) -> None:
    folder = write(tmp_path, "gpt2", new=3)
    with pytest.warns(UserWarning, match="does not know new"):
        npgpt.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "raw", "says"),
    [
        ("gpt2", {"is_causal": False}, "is_causal is False, but this GPT-2 looks back only"),
        ("gpt2", {"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}, but npgpt has every"),
        ("gpt2", {"is_encoder_decoder": True}, "is_encoder_decoder is set, but this GPT-2 is one"),
        ("llama", {"per_layer_config": {"0": {}}}, "per_layer_config is {'0': {}}, but npgpt's bl"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, but npgpt turns"),
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "is 'relative_key', but npgpt's BERT",
        ),
        ("bert", {"is_decoder": True}, "is_decoder is set, but this BERT only encodes"),
        ("bart", {"is_decoder": True}, "is_decoder is set, but here an encoder reads for a decod"),
        ("bart", {"is_encoder_decoder": False}, "is_encoder_decoder is False, but here an encoder"),
        ("bart", {"normalize_embedding": False}, "normalize_embedding is False, but a bart's is n"),
        (
            "bart",
            {"static_position_embeddings": True},
            "static_position_embeddings is set, but a b",
        ),
        ("marian", {"normalize_embedding": True}, "normalize_embedding is set, but a marian's is"),
        ("marian", {"tie_encoder_decoder": True}, "tie_encoder_decoder is set, but here encoder"),
        (
            "marian",
            {"add_final_layer_norm": True},
            "add_final_layer_norm is set, but here the norm",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(kind, raw, says) -> None:
    with pytest.raises(ValueError, match=r"^a/config\.json: ") as caught:
        read(kind, **raw)
    assert says in str(caught.value)
    read(kind, **dict.fromkeys(raw))  # null is the default


# What published models say: OpenAI's, Meta's, TinyLlama's and SmolLM2's, Google's, Meta's BART, an
# OPUS-MT translator, and tuned ones.
SUMMARY = {"activation": None, "first_dropout": 0.1, "proj_to_labels": True, "type": "cls_index"}
HALVES = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048, "layerdrop": 0.0}
SIDES = {f"{side}_{of}": n for side in ("encoder", "decoder") for of, n in HALVES.items()}
LABELS = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "_num_labels": 3}
PUBLISHED: list[tuple[str, dict[str, Any]]] = [
    (
        "gpt2",
        {
            "architectures": ["GPT2LMHeadModel"],
            "n_ctx": 1024,
            "n_special": 0,
            "predict_special_tokens": True,
            "output_past": True,
            **{f"summary_{of}": value for of, value in SUMMARY.items()},
            "summary_use_proj": True,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            "reorder_and_upcast_attn": True,
            "torch_dtype": "float16",
            "_name_or_path": "gpt2",
            "use_cache": True,
            "gradient_checkpointing": False,
            "hidden_size": 768,
            "n_embd": 768,
        },
    ),
    (
        "llama",
        {
            "architectures": ["LlamaForCausalLM"],
            "pretraining_tp": 1,
            "max_sequence_length": 2048,
            "pad_token_id": 0,
            "is_llama_config": True,
            "rope_interleaved": False,
            "rope_scaling": None,
            "transformers.js_config": {"dtype": "q4"},
            "unsloth_fixed": True,
            "mlp_bias": False,
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    (
        "bert",
        {
            "architectures": ["BertForMaskedLM"],
            "directionality": "bidi",
            "pooler_fc_size": 768,
            "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3,
            "pooler_size_per_head": 128,
            "pooler_type": "first_token_transform",
            "position_embedding_type": "absolute",
            "classifier_dropout": 0.1,
            "finetuning_task": "sst-2",
            "problem_type": "single_label_classification",
            "pruned_heads": {},
            **LABELS,
        },
    ),
    (
        "bart",
        {
            **SIDES,
            **LABELS,
            "add_bias_logits": False,
            "add_final_layer_norm": False,
            "activation_dropout": 0.1,
            "classif_dropout": 0.1,
            "classifier_dropout": 0.0,
            "do_blenderbot_90_layernorm": False,
            "extra_pos_embeddings": 2,
            "force_bos_token_to_be_generated": True,
            "forced_eos_token_id": 2,
            "gradient_checkpointing": False,
            "is_encoder_decoder": True,
            "no_repeat_ngram_size": 3,
            "early_stopping": True,
            "num_beams": 4,
            "min_length": 56,
            "normalize_before": False,
            "normalize_embedding": True,
            "num_hidden_layers": 6,
            "prefix": " ",
            "save_step": 58,
            "static_position_embeddings": False,
            "task_specific_params": {"summarization": {"num_beams": 6}},
        },
    ),
    (
        "marian",
        {
            **SIDES,
            **LABELS,
            "activation_function": "swish",
            "bad_words_ids": [[58100]],
            "decoder_vocab_size": 58101,
            "max_length": 512,
            "num_beams": 6,
            "extra_pos_embeddings": 58101,
            "normalize_before": False,
            "normalize_embedding": False,
            "num_hidden_layers": 6,
            "static_position_embeddings": True,
            "scale_embedding": True,
        },
    ),
]


@pytest.mark.parametrize(("kind", "raw"), PUBLISHED, ids=[kind for kind, _ in PUBLISHED])
def test_what_published_models_say_needs_no_warning(kind, raw) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(kind, **raw)


ALIASED = [
    (kind, *pair) for kind, (_, keys, _) in ARCHITECTURES.items() for pair in keys.aliases.items()
]


@pytest.mark.parametrize(("kind", "alias", "name"), ALIASED)
def test_transformers_other_names_of_sizes_are_read(tmp_path, kind, alias, name) -> None:
    plain = npgpt.from_pretrained(write(tmp_path / "a", kind))
    size = getattr(plain.config, name)
    renamed = npgpt.from_pretrained(write(tmp_path / "b", kind, **{name: None, alias: size}))
    assert renamed.config == plain.config
    assert alias not in renamed.config.to_dict()
    write(tmp_path / "c", kind, **{alias: size})
    assert npgpt.from_pretrained(tmp_path / "c").config == plain.config


@pytest.mark.parametrize(("kind", "alias", "name"), ALIASED)
def test_of_two_names_that_differ_the_other_one_counts_and_that_is_said(kind, alias, name) -> None:
    counts = 4 if "heads" in alias else 48
    says = f"{alias} is {counts} and {name} 96, which mean the same; {alias} counts"
    with pytest.warns(UserWarning, match=says) as caught:
        assert getattr(read(kind, **{name: 96, alias: counts}), name) == counts
    assert len(caught) == 1


@pytest.mark.parametrize(("kind", "alias", "name"), ALIASED)
def test_a_wrong_value_under_another_name_is_refused(kind, alias, name) -> None:
    with pytest.raises(ValueError, match=f"{name} is '4', but must be a positive integer"):
        read(kind, **{alias: "4"})


CLASSES = {
    "gpt2": ["GPT2LMHeadModel", "GPT2Model", "GPT2DoubleHeadsModel", "GPT2ForTokenClassification"],
    "llama": ["LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification"],
    "bert": ["BertForMaskedLM", "BertModel", "BertForPreTraining", "BertLMHeadModel"],
    "bart": ["BartForConditionalGeneration", "BartModel"],
    "marian": ["MarianMTModel", "MarianModel"],
}


@pytest.mark.parametrize("kind", CLASSES)
def test_without_model_type_architectures_say_what_it_is(tmp_path, kind, capsys) -> None:
    want = npgpt.from_pretrained(write(tmp_path / "a", kind))
    for name in CLASSES[kind]:
        folder = write(tmp_path / name, kind, model_type=None, architectures=[name])
        assert model_type(folder) == kind
        assert npgpt.from_pretrained(folder).config.to_dict() == {
            **want.config.to_dict(),
            "architectures": [name],
        }
        assert describe.main([str(folder / "config.json")]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"hidden_size": 768, "type_vocab_size": 2, "num_hidden_layers": 12},  # Google's own BERT
        {"architectures": ["OpenAIGPTLMHeadModel"], "n_embd": 8, "n_layer": 1},
        {"architectures": ["BertGenerationDecoder"]},
        {"architectures": ["BertModel", "GPT2Model"]},
        {"architectures": [3, None, {}]},
        {"architectures": 7},
        {"architectures": "BertModel"},
        {"architectures": None, "model_type": None},
    ],
)
def test_where_nothing_says_what_it_is_that_is_said(tmp_path, raw) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    says = r"config\.json: has neither a model_type, nor architectures .* set model_type to one of"
    for open_it in (
        model_type,
        npgpt.from_pretrained,
        lambda place: describe.main([str(place)]),
    ):
        with pytest.raises(ValueError, match=says):
            open_it(tmp_path)


def test_an_old_gpt2_has_its_sizes_alone(tmp_path) -> None:
    folder = write(tmp_path, "gpt2", model_type=None, architectures=None)
    assert type(npgpt.from_pretrained(folder)).__name__ == "GPT2"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gpt2", "n_layer"),
        ("gpt2", "num_hidden_layers"),
        ("llama", "num_hidden_layers"),
        ("bert", "num_hidden_layers"),
        ("bart", "decoder_layers"),
        ("marian", "num_hidden_layers"),
    ],
)
def test_more_blocks_than_any_model_has_are_refused_before_they_are_listed(
    tmp_path, kind, name
) -> None:
    folder = write(tmp_path, kind, n_layer=None, encoder_layers=None)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: 10**9}), encoding="utf-8")
    for open_it in (npgpt.from_pretrained, lambda place: describe.main([str(place)])):
        with pytest.raises(ValueError, match="is 1000000000, but must be a positive integer up to"):
            open_it(folder)


@pytest.mark.hf
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_key_that_transformers_knows_is_in_a_list(hf, kind) -> None:
    """What a later version adds is named here before it is read past."""
    import transformers

    own, keys, name = ARCHITECTURES[kind]
    theirs = getattr(transformers, name)
    fields = {field.name for field in dataclasses.fields(own)}
    lists = [keys.aliases, keys.fixed, keys.no_effect, settings.FIXED, settings.NO_EFFECT]
    known = fields.union(*lists, generation.KEYS, ["rope_parameters"])
    assert not {field.name for field in dataclasses.fields(theirs)} - known
    assert not theirs().to_dict().keys() - known
    assert keys.aliases == theirs.attribute_map
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.from_dict(theirs().to_dict())


@pytest.mark.hf
@pytest.mark.parametrize(("kind", "alias", "name"), ALIASED)
def test_which_of_two_names_counts_for_transformers(hf, kind, alias, name) -> None:
    import transformers

    theirs = getattr(transformers, ARCHITECTURES[kind][2])
    for raw in ({alias: 48, name: 96}, {name: 96, alias: 48}):
        assert getattr(theirs.from_dict(raw), name) == 48
