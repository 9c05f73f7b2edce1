"""Settings of every architecture's config.json: what is refused, and what is written back."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from npgpt.models.auto import MODEL_TYPES
from npgpt.models.bert.config import BERTConfig
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.not_here import NOT_HERE
from npgpt.models.transformer.config import TransformerConfig
from npgpt.ops.activation import ACTIVATIONS
from tests.builders import bert, gpt2, llama, transformer

CONFIGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt2": (GPT2Config, {**gpt2.SIZES, "n_inner": None}),
    "llama": (LlamaConfig, {n: s for n, s in llama.SIZES.items() if s is not None}),
    "bert": (BERTConfig, bert.SIZES),
    "transformer": (
        TransformerConfig,
        {n: s for n, s in transformer.SIZES.items() if not n.endswith("_id")},
    ),
}
NULLABLE = ("n_inner", "num_key_value_heads", "head_dim")


def refusal(architecture: str, /, **settings: Any) -> str:
    """The one sentence with which a configuration is refused, without the name of the file."""
    config, sizes = CONFIGS[architecture]
    with pytest.raises(ValueError, match=r"^some/config\.json: ") as caught:
        config.from_dict({**sizes, **settings}, "some/config.json")
    text = str(caught.value).removeprefix("some/config.json: ")
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text
    return text


# What is said of wrong values -> the values, and the settings of each architecture.
KINDS: dict[str, tuple[list[Any], dict[str, tuple[str, ...]]]] = {
    "but must be true or false": (
        ["", None, 1],
        {
            **dict.fromkeys(CONFIGS, ("tie_word_embeddings",)),
            "transformer": (
                "tie_word_embeddings",
                "scale_embedding",
                "share_encoder_decoder_embeddings",
            ),
        },
    ),
    "but must be a probability in [0, 1)": (
        [1.0, 1, -0.1, None, "0", False, math.nan],
        {
            "gpt2": ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
            "llama": ("attention_dropout",),
            "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
            "transformer": ("dropout", "attention_dropout"),
        },
    ),
    "but must be a number >= 0": (
        [-1e-5, math.nan, math.inf, "1e-5", None],
        {"gpt2": ("layer_norm_epsilon",), "llama": ("rms_norm_eps",), "bert": ("layer_norm_eps",)},
    ),
    "but must be a number > 0": ([0, "x", math.inf], {"llama": ("rope_theta",)}),
    "but must be an id, or an array of ids or null": (
        ["", "2", 2.0, [5, 2.0], [1, "a"]],
        dict.fromkeys(("gpt2", "llama", "transformer"), ("eos_token_id",)),
    ),
    "but must be the id of a token or null": (
        ["<pad>", 1.0, [1]],
        {"transformer": ("pad_token_id", "bos_token_id", "decoder_start_token_id")},
    ),
    "but must be an array in which each value is an array of at least one id or null": (
        [3, [3], [["a"]], [[]]],
        dict.fromkeys(CONFIGS, ("bad_words_ids",)),
    ),
}


@pytest.mark.parametrize(
    ("architecture", "name"), [(a, name) for a, (_, sizes) in CONFIGS.items() for name in sizes]
)
def test_sizes_are_positive_integers(architecture, name) -> None:
    for size in [0, -3, 2.0, "12", True] + [None] * (name not in NULLABLE):
        text = refusal(architecture, **{name: size})
        more = " or null" * (name in NULLABLE) or " up to 10000" * ("layer" in name)
        assert text == f"{name} is {size!r}, but must be a positive integer{more}."


@pytest.mark.parametrize("says", KINDS)
def test_other_settings_are_of_their_kind(says) -> None:
    wrong, settings = KINDS[says]
    for architecture, names in settings.items():
        for name, value in itertools.product(names, wrong):
            assert refusal(architecture, **{name: value}) == f"{name} is {value!r}, {says}."


@pytest.mark.parametrize(
    ("architecture", "name", "more"),
    [
        ("gpt2", "activation_function", ()),
        ("llama", "hidden_act", ()),
        ("bert", "hidden_act", ()),
        ("transformer", "activation_function", ("swish",)),
    ],
)
def test_an_unknown_activation_is_answered_by_the_known_ones(architecture, name, more) -> None:
    known = ", ".join((*ACTIVATIONS, *more))
    for value in ("mish", ["relu"], None):
        text = refusal(architecture, **{name: value})
        assert text == f"{name} is {value!r}, but must be one of {known}."


@pytest.mark.parametrize(
    ("architecture", "settings", "says"),
    [
        ("gpt2", {"model_type": "llama"}, "model_type is 'llama', but must be 'gpt2'"),
        (
            "llama",
            {"model_type": "phi3"},
            "'phi3', but must be one of llama, mistral, mixtral, qwen2, qwen3, qwen3_moe",
        ),
        ("bert", {"model_type": ["bert"]}, "model_type is ['bert'], but must be one of bert,"),
        ("gpt2", {"n_embd": 10}, "n_embd 10 cannot be cut into n_head 3 heads"),
        ("bert", {"hidden_size": 10}, "10 cannot be cut into num_attention_heads 3 heads"),
        ("transformer", {"d_model": 9}, "d_model 9 cannot be cut into decoder_attention_heads 2"),
        ("gpt2", {"add_cross_attention": True}, "_attention is set, but this GPT-2 has none"),
        ("bert", {"is_decoder": True}, "is_decoder is set, but this BERT only encodes"),
        ("bert", {"add_cross_attention": True}, "add_cross_attention is set, but this BERT only"),
        (
            "transformer",
            {"normalize_before": True},
            "_before is set, but here the norm comes after",
        ),
        ("transformer", {"add_final_layer_norm": True}, "add_final_layer_norm is set, but here"),
    ],
)
def test_what_an_architecture_cannot_be_is_refused(architecture, settings, says) -> None:
    assert says in refusal(architecture, **settings)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_every_key_that_was_read_is_written_back(model_type) -> None:
    config, sizes = CONFIGS[model_type]
    raw = {
        **sizes,
        "model_type": model_type,
        "architectures": ["Other"],
        "tie_word_embeddings": False,
        "initializer_range": 0.5,
        "pad_token_id": 1,
        "eos_token_id": [1, 2],
        "task_specific_params": {"text-generation": {"max_length": 50}},
        "id2label": {"0": "A"},
        "is_encoder_decoder": model_type == "transformer",
    }
    written = config.from_dict(raw).to_dict()
    assert written.items() >= raw.items()
    assert config.from_dict(written) == config.from_dict(raw)
    assert config.from_dict({}) == config()


def test_what_is_nearest_to_a_model_that_does_not_fit_is_one_that_does() -> None:
    assert not NOT_HERE.keys() & MODEL_TYPES.keys()
    assert {nearest for _, nearest in NOT_HERE.values()} <= MODEL_TYPES.keys()
