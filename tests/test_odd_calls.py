"""Odd calls: what is no id, no mask, no count is refused by its name, or does what it plainly says.

Each row of the tables is one argument of one call, exchanged for something odd.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from npgpt.decoding.seq2seq import MOST_BEAMS
from tests.builders import bert, gpt2, llama, transformer
from tests.odd import (
    NAN,
    NO_ALLOWED,
    NO_CACHE,
    NO_COUNTS,
    NO_FLAGS,
    NO_IDS,
    NO_MASK,
    NO_PATHS,
    NO_REALS,
    NO_RNG,
    NO_STOPS,
    NO_TARGETS,
    NO_TYPES,
    SAME_COUNT,
    SAME_IDS,
    SAME_MASK,
    SAME_REAL,
    sentence,
)

MAKE: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: gpt2.random_gpt2(np.random.default_rng(0), attn_pdrop=0.5),
    "llama": lambda: llama.random_llama(np.random.default_rng(0), attention_dropout=0.5),
    "bert": lambda: bert.random_bert(np.random.default_rng(0)),
    "bart": lambda: transformer.random_transformer(np.random.default_rng(0), model_type="bart"),
}
ALL = tuple(MAKE)
CAUSAL, WRITING, HAS_IDS = ("gpt2", "llama"), ("gpt2", "llama", "bart"), ("gpt2", "llama", "bert")
IDS, INPUT_IDS = "token id", "input_ids|token id"  # how errors call `ids` and `input_ids`


CALLS: dict[str, Callable[..., Any]] = {
    "logits": lambda model, **given: model(**given),
    "forward": lambda model, **given: model.forward(**given)[0],
    "loss": lambda model, **given: model.loss_and_grads(**given)[0],
    "encode": lambda model, **given: model.encode(**given)[0],
    "generate": lambda model, **given: [*model.generate(**given)],
    "cache": lambda model, **given: model.new_kv_cache(**given).keys[0].shape,
    "save": lambda model, **given: model.save_pretrained(**given),
}


def plain(architecture: str, call: str) -> dict[str, Any]:
    """The arguments of a plain call, in which one is exchanged."""
    is_bart = architecture == "bart"
    ids = {"input_ids" if is_bart else "ids": [1, 2, 3]}
    target = {"decoder_input_ids": [4, 5, 6]} if is_bart else {}
    sampling = {"temperature": 2.0, "top_k": 2, "seed": 2, "stop_ids": ()}
    search = {"num_beams": 2, "length_penalty": 2.0} if is_bart else sampling
    calls: dict[str, dict[str, Any]] = {
        "logits": {**ids, **target},
        "forward": {**ids, **target},
        "loss": {**ids, "targets": [2, 3, 4]},
        "encode": {**ids},
        "generate": {**ids, "max_new_tokens": 2, **search},
        "cache": {"batch": (), "capacity": 2},
        "save": {"folder": "unused"},
    }
    return calls[call]


def rows(
    call: str, argument: str, values: list[Any], models: tuple[str, ...], says: str = ""
) -> list[Any]:
    """Rows of one argument, for several architectures; what the error says, else its name."""
    return [(m, call, argument, value, says or argument) for m in models for value in values]


REFUSED: list[Any] = [
    *(
        row
        for call in ("logits", "forward", "loss")
        for row in (
            *rows(call, "ids", NO_IDS, HAS_IDS, IDS),
            *rows(call, "input_ids", NO_IDS, ("bart",), INPUT_IDS),
            *rows(call, "attention_mask", NO_MASK, ALL),
        )
    ),
    *rows("generate", "ids", NO_IDS, CAUSAL, IDS),
    *rows("generate", "input_ids", NO_IDS, ("bart",), INPUT_IDS),
    *rows("generate", "attention_mask", NO_MASK, WRITING),
    *rows("encode", "ids", NO_IDS, ("bert",), IDS),
    *rows("logits", "token_type_ids", NO_TYPES, ("bert",), "token_type_ids|token type"),
    *rows("logits", "decoder_input_ids", NO_IDS, ("bart",), "decoder_input_ids|token id"),
    *rows("logits", "decoder_attention_mask", NO_MASK, ("bart",)),
    *rows("loss", "targets", NO_TARGETS, ALL, "target"),
    *rows("loss", "targets", [[1, 2], [[1, 2, 3]]], HAS_IDS),
    *rows("loss", "targets", [[[1, 2, 3]], [[1], [2]]], ("bart",), "equally many texts"),
    *rows("loss", "label_smoothing", [*NO_REALS, 1, -0.1, None], ("bart",), "smoothing"),
    *rows("forward", "rng", NO_RNG, ALL),
    *rows("logits", "kv", NO_CACHE, CAUSAL),
    *rows("generate", "max_new_tokens", NO_COUNTS, CAUSAL),
    *rows("generate", "max_new_tokens", [10**12], CAUSAL, "1000000000000 new ones"),
    *rows("generate", "max_new_tokens", [*NO_COUNTS, 0], ("bart",)),
    *rows("generate", "max_new_tokens", [10**12, 10**30], ("bart",)),
    *rows("generate", "temperature", [*NO_REALS, -1], CAUSAL),
    *rows("generate", "top_k", NO_COUNTS, CAUSAL),
    *rows("generate", "top_p", [*NO_REALS, -0.1, 2], CAUSAL),
    *rows("generate", "seed", NO_COUNTS, CAUSAL),
    *rows("generate", "stop_ids", NO_STOPS, CAUSAL),
    *rows("generate", "allowed", NO_ALLOWED, CAUSAL),
    *rows("generate", "use_cache", NO_FLAGS, WRITING),
    *rows("generate", "slide", NO_FLAGS, CAUSAL),
    *rows("generate", "num_beams", [*NO_COUNTS, 0, MOST_BEAMS + 1, 10**9, 10**30], ("bart",)),
    *rows("generate", "length_penalty", [*NO_REALS, 1e300], ("bart",)),
    *rows("generate", "early_stopping", ["maybe", 1, 0, NAN, [], np.ones(2)], ("bart",)),
    *rows("cache", "capacity", [*NO_COUNTS, 0, 10**12, 10**30], WRITING),
    *rows("cache", "batch", [2, "ab", b"ab", [0], (-1,), (2.0,), (True,), None], WRITING),
    *rows("cache", "batch", [(10**12,)], WRITING, "rows"),
    *rows("save", "folder", NO_PATHS, ALL),
    *rows("save", "overwrite", NO_FLAGS, ALL),
]
SAME: list[Any] = [
    *(row for call in ("logits", "loss") for row in rows(call, "ids", SAME_IDS, HAS_IDS)),
    *(row for call in ("logits", "loss") for row in rows(call, "input_ids", SAME_IDS, ("bart",))),
    *(row for call in ("logits", "loss") for row in rows(call, "attention_mask", SAME_MASK, ALL)),
    *rows("generate", "ids", SAME_IDS, CAUSAL),
    *rows("generate", "input_ids", SAME_IDS, ("bart",)),
    *rows("generate", "attention_mask", SAME_MASK, WRITING),
    *rows("generate", "max_new_tokens", SAME_COUNT, WRITING),
    *rows("generate", "temperature", SAME_REAL, CAUSAL),
    *rows("generate", "top_k", SAME_COUNT, CAUSAL),
    *rows("generate", "top_p", [1, 1.0, np.float32(1), Fraction(1), None], CAUSAL),
    *rows("generate", "seed", SAME_COUNT, CAUSAL),
    *rows("generate", "stop_ids", [[], {99}, np.array([-1])], CAUSAL),
    *rows("generate", "allowed", [[True] * 19], CAUSAL),
    *rows("generate", "use_cache", [True, np.True_], WRITING),
    *rows("generate", "num_beams", SAME_COUNT, ("bart",)),
    *rows("generate", "length_penalty", SAME_REAL, ("bart",)),
    *rows("cache", "capacity", SAME_COUNT, WRITING),
    *rows("cache", "batch", [[], np.array([], int)], WRITING),
]


@functools.cache
def model_of(architecture: str) -> Any:
    return MAKE[architecture]()


def groups(table: list[Any]) -> list[Any]:
    """The rows of one argument of one call together: a test each would be slow to collect."""
    keys = dict.fromkeys(row[:3] for row in table)
    return [pytest.param([r for r in table if r[:3] == k], id="-".join(k)) for k in keys]


@pytest.mark.parametrize("odd", groups(REFUSED))
def test_what_an_argument_cannot_be_is_refused_by_its_name(odd, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for architecture, call, argument, value, says in odd:
        given = {**plain(architecture, call), argument: value}
        text = sentence(CALLS[call], model_of(architecture), **given)
        assert any(each in text for each in says.split("|")), (value, text)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("odd", groups(SAME))
def test_whatever_means_the_same_gives_the_same(odd) -> None:
    for architecture, call, argument, value, _ in odd:
        given = plain(architecture, call)
        want = CALLS[call](model_of(architecture), **given)
        got = CALLS[call](model_of(architecture), **{**given, argument: value})
        np.testing.assert_array_equal(got, want, err_msg=repr(value))


def test_a_list_of_whole_numbers_is_named_as_such() -> None:
    text = sentence(lambda: [*model_of("gpt2").generate([1], 1, stop_ids=3)])
    assert text == "stop_ids must be a list of whole numbers, but is 3."


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("architecture", ALL)
def test_tensors_of_torch_are_arrays(architecture) -> None:
    import torch

    model, given = model_of(architecture), plain(architecture, "loss")
    want = CALLS["loss"](model, **given)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        tensors = {name: torch.tensor(ids, dtype=dtype) for name, ids in given.items()}
        for mask in (torch.ones(3), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=dtype)):
            assert CALLS["loss"](model, **tensors, attention_mask=mask) == want
    for odd in (torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bool)):
        for name in given:
            assert "must be" in sentence(CALLS["loss"], model, **{**given, name: odd})


@pytest.mark.parametrize("architecture", CAUSAL)
@pytest.mark.parametrize(
    ("batch", "ids"), [((), [[1, 2]]), ((1,), [1, 2]), ((3,), [[1, 2]]), ((2,), [[1], [2], [3]])]
)
def test_a_cache_for_another_batch_is_refused(architecture, batch, ids) -> None:
    """NumPy would spread the keys of one row over all rows of the cache."""
    model, bart = model_of(architecture), model_of("bart")
    assert sentence(model, ids, kv=model.new_kv_cache(batch)).startswith("kv has 2 blocks")
    other = bart.new_kv_cache(np.shape(ids)[:-1], 4)
    assert sentence(model, ids, kv=other).startswith("kv has 3 blocks of ")
    assert "these ids want 3 of" in sentence(
        bart.decode, ids, bart.encode([1, 2]), None, model.new_kv_cache(np.shape(ids)[:-1])
    )


@pytest.mark.parametrize("architecture", ALL)
def test_without_any_target_loss_and_gradients_are_0(architecture) -> None:
    given = {**plain(architecture, "loss"), "targets": [-100, -100, -100]}
    loss, grads = model_of(architecture).loss_and_grads(**given)
    assert loss == 0
    assert not any(grad.any() for grad in grads.values())
