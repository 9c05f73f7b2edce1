"""What generation_config.json asks for, against transformers: the same tokens, model by model."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from npgpt.models.generation import Generation
from tests.goldens import gpt2, llama, transformer

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

MARKS = {"bos_token_id": 0, "eos_token_id": 2}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt2": (gpt2, {"vocab_size": 19, "n_positions": 40, "n_embd": 24, "n_layer": 2, "n_head": 4}),
    "llama": (llama, {**llama.SIZES, "max_position_embeddings": 40}),
    "bart": (transformer, {**transformer.SIZES, "model_type": "bart"}),
    "marian": (transformer, {**transformer.SIZES, **transformer.DIALECTS["marian"]}),
}
ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "two ends": {"eos_token_id": [2, 7]},
    "no end": {"eos_token_id": None},
    "no pair twice": {"no_repeat_ngram_size": 2},
    "no triple twice": {"no_repeat_ngram_size": 3},
    "no token twice": {"no_repeat_ngram_size": 1},
    "repetition": {"repetition_penalty": 1.7},
    "more of the same": {"repetition_penalty": 0.6},
    "repetition of the source": {"encoder_repetition_penalty": 1.9},
    "away from the source": {"encoder_repetition_penalty": 0.5},
    "no pair of the source": {"encoder_no_repeat_ngram_size": 2},
    "no token of the source": {"encoder_no_repeat_ngram_size": 1},
    "no triple of the source": {"encoder_no_repeat_ngram_size": 3},
    "at least 9": {"min_length": 9},
    "at least 7 new": {"min_new_tokens": 7, "eos_token_id": [2, 9]},
    "both lengths": {"min_length": 4, "min_new_tokens": 6},
    "suppressed": {"suppress_tokens": [3, 4, 5, 6, 99]},
    "suppressed at first": {"begin_suppress_tokens": [3, 4, 5, 6, 7, 8, 9, 10]},
    "words": {"bad_words_ids": [[3], [4, 5], [6, 6], [2], [7, 8, 9]]},
    "all words of one": {"bad_words_ids": [[i, j] for i in range(3, 18) for j in range(3, 11)]},
    "decay": {"exponential_decay_length_penalty": [3, 1.4], "repetition_penalty": 1.3},
    "decay at once": {"exponential_decay_length_penalty": [0, 1.05], "eos_token_id": [2, 5]},
    "first": {"forced_bos_token_id": 11, "begin_suppress_tokens": [3, 4, 5, 6]},
    "last": {"forced_eos_token_id": 2, "min_length": 12},
    "one of two last": {"forced_eos_token_id": [2, 6], "suppress_tokens": [2]},
    "renormalised": {"renormalize_logits": True, "suppress_tokens": [3, 4, 5, 6, 7]},
    "all at once": {
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.2,
        "min_length": 5,
        "bad_words_ids": [[5], [8, 9]],
        "exponential_decay_length_penalty": [6, 1.2],
        "suppress_tokens": [13],
    },
}
BEAMS = [{}, {"num_beams": 3}, {"num_beams": 4, "early_stopping": True}]
SEARCHES: dict[str, list[dict[str, Any]]] = {
    "gpt2": [{}],
    "llama": [{}],
    **dict.fromkeys(("bart", "marian"), BEAMS),
}


TABLES = {"gpt2": ["transformer.wte"], "llama": ["model.embed_tokens", "lm_head"]}


@functools.cache
def pair(name: str) -> tuple[Any, Any]:
    """A random model of transformers whose texts vary, and the same one of npgpt."""
    architecture, options = MODELS[name]
    reference = architecture.reference_model({**options, **MARKS}, 1)
    for table in TABLES.get(name, ()):  # no row many times larger, which would often win
        reference.get_submodule(table).weight.data.normal_(std=0.5)
    config = architecture.CONFIG.from_dict(reference.config.to_dict())
    return reference, architecture.MODEL(config, architecture.reference_params(reference))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_tokens(name, asked) -> None:
    import torch
    from transformers import GenerationConfig

    is_causal, written = name in TABLES, set()
    reference, model = pair(name)
    for search in SEARCHES[name]:
        said = {"max_new_tokens": 14, "pad_token_id": 1, **MARKS, **search, **ASKED[asked]}
        if not is_causal:
            said["decoder_start_token_id"] = reference.config.decoder_start_token_id
        reference.generation_config = GenerationConfig(**said)
        model.generation = Generation.from_dict(said, "generation_config.json", 19)
        for ids in ([3], [4, 5, 6], [7, 3, 7, 3, 8, 9, 4]):
            whole = reference.generate(torch.tensor([ids]), do_sample=False)[0].tolist()
            want = whole[len(ids) if is_causal else 1 :]
            assert [*model.generate(ids)] == want, (search, ids)
            written.add(tuple(want))
    assert len(written) > 1
