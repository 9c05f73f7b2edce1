"""Tiny models: a whole pass both ways, decoding with a KV cache, two steps of training.

Each is a row of `MODELS`: how it differs from the sizes of its architecture, and what it reads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from npgpt.models.bert import config as bert
from npgpt.models.bert.families import FAMILIES as BERTS
from npgpt.models.bert.model import BERT
from npgpt.models.gpt2 import config as gpt2
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama import config as llama
from npgpt.models.llama.families import FAMILIES
from npgpt.models.llama.model import Llama
from npgpt.models.transformer import config as transformer
from npgpt.models.transformer.model import BIAS, Transformer
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.vectors.cases import Arrays, Case, Computed, Float, formulas, generator, made
from npgpt.vectors.inputs import case
from npgpt.vectors.optimizer import SETTINGS, STEPS, trained


class Architecture(NamedTuple):
    """What makes a model, and the sizes of the tiny one: no two agree that could be swapped."""

    model: type[Any]
    config: Any
    init: Callable[..., dict[str, np.ndarray]]
    sizes: dict[str, Any]


LLAMA = Architecture(
    Llama,
    llama.LlamaConfig,
    llama.init_params,
    case(
        vocab_size=13,
        hidden_size=8,
        intermediate_size=10,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        max_position_embeddings=9,
    ),
)
BERT_ROW = Architecture(
    BERT,
    bert.BERTConfig,
    bert.init_params,
    case(
        vocab_size=13,
        hidden_size=6,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=10,
        max_position_embeddings=9,
        type_vocab_size=2,
    ),
)
ARCHITECTURES = {
    "gpt2": Architecture(
        GPT2,
        gpt2.GPT2Config,
        gpt2.init_params,
        case(
            vocab_size=13,
            n_positions=9,
            n_embd=6,
            n_layer=2,
            n_head=3,
            n_inner=10,
            bos_token_id=None,
            eos_token_id=None,
        ),
    ),
    **dict.fromkeys(FAMILIES, LLAMA),
    **dict.fromkeys(BERTS, BERT_ROW),
    "distilbert": BERT_ROW._replace(
        sizes=case(
            vocab_size=13,
            dim=6,
            n_layers=2,
            n_heads=3,
            hidden_dim=10,
            max_position_embeddings=9,
        ),
    ),
    "gpt_neo": Architecture(
        GPTNeo,
        GPTNeoConfig,
        gpt2.init_params,
        case(
            vocab_size=13,
            max_position_embeddings=9,
            hidden_size=6,
            num_layers=2,
            num_heads=3,
            intermediate_size=10,
            attention_types=[[["global", "local"], 1]],
        ),
    ),
    "transformer": Architecture(
        Transformer,
        transformer.TransformerConfig,
        transformer.init_params,
        case(
            vocab_size=13,
            max_position_embeddings=9,
            d_model=6,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=3,
            decoder_attention_heads=2,
            encoder_ffn_dim=10,
            decoder_ffn_dim=8,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
    ),
}
IDS, TARGETS = np.array([3, 7, 7, 12, 4]), np.array([7, 7, 12, 4, 9])
LEFT = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])  # attention_mask of a batch
TEXTS = np.array([[5, 5, 8, 3, 8], IDS])
ASKED = np.array([[-100, -100, 3, 8, 5], TARGETS])
CAUSAL = case(inputs=case(ids=IDS), targets=TARGETS)
LEFT_PADDED = case(inputs=case(ids=TEXTS, attention_mask=LEFT), targets=ASKED)
TRANSLATION = case(
    inputs=case(input_ids=np.array([4, 9, 9, 6, 2]), decoder_input_ids=np.array([1, 5, 12, 5])),
    targets=np.array([5, 12, 5, 2]),
)
TRANSLATIONS = case(
    inputs=case(
        input_ids=np.array([[4, 9, 9, 6, 2], [7, 2, 0, 0, 0]]),
        decoder_input_ids=np.array([[1, 5, 12, 5], [1, 8, 2, 0]]),
        attention_mask=np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]),
    ),
    targets=np.array([[5, 12, 5, 2], [8, 2, -100, -100]]),
)

# architecture.case -> what it reads, its targets, options
MODELS: dict[str, dict[str, Any]] = {
    "gpt2.one_text": CAUSAL,
    "gpt2.padded": LEFT_PADDED,
    "gpt2.one_token": case(inputs=case(ids=IDS[:1]), targets=TARGETS[:1]),
    "gpt2.untied": case(**CAUSAL, tie_word_embeddings=False),
    "llama.one_text": CAUSAL,
    "llama.padded": LEFT_PADDED,
    "llama.llama3": case(
        **CAUSAL,
        head_dim=8,  # one pair is fast, one blended, two are slow
        rope_theta=500.0,
        tie_word_embeddings=True,
        rope_scaling=case(
            rope_type="llama3",
            factor=4.0,
            low_freq_factor=0.1,
            high_freq_factor=1.0,
            original_max_position_embeddings=8,
        ),
    ),
    "mistral.window": case(**LEFT_PADDED, model_type="mistral", sliding_window=2),
    "qwen2.biases": case(
        **CAUSAL,
        model_type="qwen2",
        rope_scaling=case(rope_type="yarn", factor=4.0, original_max_position_embeddings=8),
    ),
    "qwen3.norms": case(**CAUSAL, model_type="qwen3", rms_norm_eps=0.1),
    "mixtral.experts": case(**LEFT_PADDED, model_type="mixtral", num_local_experts=3),
    "qwen3_moe.in_one_block": case(
        **CAUSAL,
        model_type="qwen3_moe",
        num_local_experts=4,
        num_experts_per_tok=3,
        moe_intermediate_size=6,
        decoder_sparse_step=2,
    ),
    "bert.one_text": case(inputs=case(ids=IDS), targets=np.array([-100, 7, -100, -100, 1])),
    "bert.padded": case(
        inputs=case(
            ids=TEXTS,
            attention_mask=LEFT[:, ::-1],
            token_type_ids=np.array([[0, 1, 1, 0, 0], [0, 0, 0, 1, 1]]),
        ),
        targets=ASKED[:, ::-1],
    ),
    "roberta.padded": case(
        inputs=case(ids=np.where(LEFT == 1, TEXTS, 1), attention_mask=LEFT),
        targets=ASKED,
        model_type="roberta",
    ),
    "distilbert.one_layer": case(**CAUSAL, model_type="distilbert", n_layers=1),
    "xlm-roberta.one_layer": case(**CAUSAL, model_type="xlm-roberta", num_hidden_layers=1),
    "camembert.one_layer": case(**CAUSAL, model_type="camembert", num_hidden_layers=1),
    "gpt_neo.window": case(**LEFT_PADDED, window_size=2),
    "transformer.one_text": TRANSLATION,
    "transformer.padded": TRANSLATIONS,
    "transformer.bart": case(**TRANSLATIONS, model_type="bart"),
    "transformer.marian": case(**TRANSLATION, model_type="marian", activation_function="swish"),
}


def model_cases() -> Iterator[Case]:
    """The cases of `MODELS`."""
    for name, row in MODELS.items():
        options = dict(row)
        compute = partial(_computed, name, options.pop("inputs"), options.pop("targets"), options)
        model = ARCHITECTURES[name.partition(".")[0]].model
        page = formulas(sys.modules[model.__module__])
        yield Case(f"models/{name}", page, formulas(model.backward), compute)


def _computed(
    name: str, inputs: Arrays, targets: np.ndarray, options: Mapping[str, Any], dtype: Float
) -> Computed:
    """Forward with all stations, the loss, backward with all stations, and what follows."""
    make, config_class, init, sizes = ARCHITECTURES[name.partition(".")[0]]
    config, rng = config_class.from_dict({**sizes, **options}), generator(name)
    params = {
        key: made(param + 0.3 * rng.standard_normal(param.shape), rng, dtype)
        for key, param in init(config, rng, np.float64).items()
    }
    model, there, back = make(config, params), Arrays(), Arrays()
    loss, grads = _loss_and_grads(model, inputs, targets, there, back)

    def grads_at(moved: Arrays) -> Arrays:
        found = _loss_and_grads(make(config, params | moved), inputs, targets, {}, {})[1]
        return {key: found[key] for key in moved}

    trainable = {key: param for key, param in params.items() if key != BIAS}
    return Computed(
        {**params, **inputs, "targets": targets},
        _settings({"config": config.to_dict(), "adamw": {**SETTINGS, "steps": STEPS}}),
        {
            **there,
            "loss": np.asarray(loss),
            **_within("decode.", _decoded(model, inputs)),
            **_within("trained.", trained(trainable, grads_at)),
        },
        {},
        _within("grad.", back | grads),
    )


def _settings(values: Mapping[str, Any], part: str = "") -> dict[str, Any]:
    """Numbers and texts, those of tables within with the table's name in front."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _settings(value, f"{part}{name}.")
        elif isinstance(value, (int, float, str)):
            found[part + name] = value
        elif name == "attention_types":  # which blocks of a GPT-Neo are local
            found[part + name] = json.dumps(value)
    return found


def _within(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {part + name: value for name, value in values.items()}


def _loss_and_grads(
    model: Any, inputs: Arrays, targets: np.ndarray, there: Arrays, back: Arrays
) -> tuple[np.floating, Arrays]:
    """Notes what is at the stations, `there` and on the way `back`."""
    out = model.forward(**inputs, observe=there.__setitem__)
    loss, saved = cross_entropy_forward(out.logits, targets)
    dlogits = cross_entropy_backward(1.0, saved)
    return loss, model.backward(dlogits, out.saved, observe=back.__setitem__)


def _decoded(model: Any, inputs: Arrays) -> Arrays:
    """One token after the other: the logits of every step, and the KV cache in the end."""
    if isinstance(model, BERT):
        return {}
    ids = inputs["decoder_input_ids" if isinstance(model, Transformer) else "ids"]
    mask, T = inputs.get("attention_mask"), ids.shape[-1]
    kv = model.new_kv_cache(ids.shape[:-1], T)
    tokens = [ids[..., t : t + 1] for t in range(T)]
    if isinstance(model, Transformer):
        cross_kv = model.encode(inputs["input_ids"], mask)
        seen = None if mask is None else mask == 1
        steps = [model.decode(token, cross_kv, seen, kv) for token in tokens]
    else:
        masks = [None if mask is None else mask[..., : t + 1] for t in range(T)]
        steps = [model(*each, kv)[..., 0, :] for each in zip(tokens, masks, strict=True)]
    return {
        "logits": np.stack(steps, axis=-2),
        "keys": np.stack(kv.keys),
        "values": np.stack(kv.values),
    }
