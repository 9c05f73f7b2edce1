"""Writing a target: greedy and beam search, with and without caches, against brute force."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from npgpt.decoding.kv_cache import KVCache
from npgpt.models.transformer.model import Transformer
from npgpt.ops.softmax import softmax_forward
from tests.builders.transformer import DIALECTS, random_transformer
from tests.goldens import FILES, FOLDER, load
from tests.goldens.transformer import ENDS, MUST, SEARCHES
from tests.gradcheck import relative_error


def lively(seed, **options):
    """A model whose next token depends on those before it; most random ones repeat one."""
    options = {"decoder_layers": 1, "tie_word_embeddings": False, **options}
    model = random_transformer(np.random.default_rng(seed), **options)
    for name, param in model.params.items():
        param *= 0.1 if name.endswith("bias") else 3 if param.shape[0] == 19 else 1
    return model


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 5e-6)])
def test_reading_a_target_in_pieces_equals_reading_it_at_once(
    rng, options, dtype, tolerance
) -> None:
    """Keys and values of the source come from `encode`, those of the target from a KV cache."""
    model = random_transformer(rng, dtype, **options)
    ids, target = rng.integers(3, 12, (2, 7)), rng.integers(3, 12, (2, 6))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    whole = model(ids, target, mask)
    cross_kv, kv = model.encode(ids, mask), model.new_kv_cache((2,), 6)
    logits = []
    for start, end in ((0, 2), (2, 3), (3, 6)):
        logits.append(model.decode(target[:, start:end], cross_kv, mask, kv))
        assert relative_error(logits[-1], whole[:, end - 1]) < tolerance
        uncached = model.decode(target[:, :end], cross_kv, mask)
        assert relative_error(uncached, whole[:, end - 1]) < tolerance
    assert kv.length == 6
    assert logits[-1].dtype == dtype


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
def test_cached_equals_uncached(rng, options, num_beams) -> None:
    seen, settings = set(), {"max_new_tokens": 9, "num_beams": num_beams}
    for seed in range(5):
        model, ids = lively(seed, **options), rng.integers(3, 12, (4, 7))
        cached = model.generate(ids, **settings)
        assert cached == model.generate(ids, use_cache=False, **settings)
        seen |= {tuple(row) for row in cached}
    assert len(seen) > 5


@pytest.mark.parametrize("num_beams", [1, 3])
def test_rows_side_by_side_with_padding_equal_rows_alone(rng, num_beams) -> None:
    model = lively(4, **DIALECTS["bart"])
    ids, mask = rng.integers(3, 18, (3, 7)), np.arange(7) < np.array([[7], [3], [5]])
    settings = {"max_new_tokens": 9, "num_beams": num_beams}
    together = model.generate(ids, attention_mask=mask, **settings)
    assert len({tuple(row) for row in together}) == 3
    assert together == [
        model.generate(row[kept], **settings) for row, kept in zip(ids, mask, strict=True)
    ]


def log_probability(model, ids, target):
    """Of a target, token by token in one pass."""
    probs, _ = softmax_forward(model(ids, model.shifted_right(np.array(target))), axis=-1)
    return float(np.log(probs[np.arange(len(target)), target]).sum())


def test_enough_beams_find_the_best_target_there_is(rng) -> None:
    """All 3 + 3² targets of at most 3 tokens that end in token 2, or are cut at 3."""
    model = lively(0, vocab_size=4, pad_token_id=None)
    ids = [3, 1, 0, 3]
    targets = [
        target
        for length in (1, 2, 3)
        for target in itertools.product(range(4), repeat=length)
        if 2 not in target[:-1] and (length == 3 or target[-1] == 2)
    ]
    for penalty in (0.0, 1.0, 2.0):
        best = max(targets, key=lambda t: log_probability(model, ids, t) / len(t) ** penalty)
        found = model.generate(
            ids, max_new_tokens=3, num_beams=16, length_penalty=penalty, early_stopping="never"
        )
        assert found == list(best)


def test_a_beam_finds_better_targets_than_greed(rng) -> None:
    better = 0
    for seed in range(20):
        model, ids = lively(seed), rng.integers(3, 18, 6)
        settings = {"max_new_tokens": 6, "length_penalty": 0.0, "early_stopping": "never"}
        greedy, beam = (
            log_probability(model, ids, model.generate(ids, num_beams=n, **settings))
            for n in (1, 5)
        )
        assert beam >= greedy - 1e-12
        better += beam > greedy + 1e-6
    assert better > 2


def test_the_length_penalty_prefers_long_or_short(rng) -> None:
    lengths = {}
    for penalty in (-3.0, 3.0):
        model = lively(4, **DIALECTS["bart"])
        model.params["final_logits_bias"][0, 2] += 2  # ends sometimes
        ids = np.random.default_rng(2).integers(3, 18, (6, 6))
        written = model.generate(ids, max_new_tokens=12, num_beams=4, length_penalty=penalty)
        lengths[penalty] = sum(map(len, written))
    assert lengths[-3.0] < lengths[3.0]


def test_what_must_come_first_and_last_and_what_must_never(rng) -> None:
    options = {"forced_bos_token_id": 7, "forced_eos_token_id": 2, "bad_words_ids": [[3], [4], [5]]}
    model = random_transformer(rng, **DIALECTS["bart"] | options)
    model.params["final_logits_bias"][0, 2] = -50  # would not end by itself
    model.params["final_logits_bias"][0, 3:6] = 50
    for num_beams in (1, 3):
        written = model.generate([8, 9, 10], max_new_tokens=6, num_beams=num_beams)
        assert (written[0], written[-1], len(written)) == (7, 2, 6)
        assert not {3, 4, 5} & set(written)


def test_the_configuration_says_how_unless_told_otherwise(rng) -> None:
    options = {"num_beams": 3, "max_length": 6, "length_penalty": 2.0, "early_stopping": True}
    model = lively(3, **options)
    plain = lively(3)
    ids = rng.integers(3, 18, (5, 6))
    settings = {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True}
    want = plain.generate(ids, max_new_tokens=5, **settings)
    assert model.generate(ids) == want
    assert plain.generate(ids, max_new_tokens=5) != want
    assert max(map(len, plain.generate(ids, num_beams=1))) <= 17  # its positions


def test_every_end_of_text_of_a_list_ends(rng) -> None:
    model = random_transformer(rng, eos_token_id=[2, 9], **DIALECTS["bart"])
    model.params["final_logits_bias"][0, 9] = 50
    for num_beams in (1, 2):
        assert model.generate([3, 4, 5], max_new_tokens=8, num_beams=num_beams) == [9]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams must be a whole number from 1 to 1000, but is 0"),
        ({"num_beams": 10**9}, "num_beams must be a whole number from 1 to 1000, but is 10000"),
        (
            {"length_penalty": 1e9},
            "length_penalty must be a finite number from -50 to 50, but is 100",
        ),
        ({"num_beams": 2.0}, "num_beams must be a whole number"),
        (
            {"max_new_tokens": -1},
            "max_new_tokens must be a whole number from 1 to 2147483648, but is -1",
        ),
        ({"early_stopping": "soon"}, 'early_stopping must be True, False or "never", but is \'soo'),
        ({"attention_mask": [1]}, r"attention_mask has shape \[1\], but these ids want \[2\]"),
        ({"max_new_tokens": 30}, "the target is 18 tokens long, but the model has positions for"),
    ],
)
def test_bad_settings(rng, settings, message) -> None:
    model = random_transformer(rng, eos_token_id=None, **DIALECTS["bart"])
    with pytest.raises(ValueError, match=message):
        model.generate([3, 4], **settings)


def test_a_cache_goes_on_with_the_rows_selected(rng) -> None:
    kv = KVCache(2, (3, 2, 5, 4), np.dtype(np.float64))
    k, v = rng.standard_normal((2, 3, 2, 3, 4))
    for layer in range(2):
        kv.extend(layer, k, v)
    kv.advance(3)
    kv.select(np.array([2, 0, 2]))
    keys, values = kv.extend(1, k[..., :1, :], v[..., :1, :])
    np.testing.assert_array_equal(keys[..., :3, :], k[[2, 0, 2]])
    np.testing.assert_array_equal(values[..., :3, :], v[[2, 0, 2]])


TRANSFORMERS = [path for path in FILES if path.stem.startswith("transformer")]


@pytest.mark.parametrize("path", TRANSFORMERS, ids=lambda path: path.stem)
def test_beams_as_transformers_wrote_them(path) -> None:
    """No torch needed; see tests/goldens/__init__.py."""
    model, given, _ = load(path)
    written = model.generate(
        given["ids"], attention_mask=given["mask"], num_beams=3, max_new_tokens=12
    )
    assert written == [given[f"beams.{row}"].tolist() for row in range(3)]


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_as_transformers_does_it(search) -> None:
    """No torch needed; ends of text are made likelier, so that some targets end early."""
    stored = json.loads((FOLDER / "transformer-searches.json").read_text(encoding="utf-8"))
    assert len(stored) == len(SEARCHES) * len(MUST) * len(ENDS)
    model, given, _ = load(FOLDER / "transformer-bart.safetensors")
    settings = {"max_new_tokens": 12, **SEARCHES[search]}
    for more in ENDS:
        for must, forced in MUST.items():
            bias = model.params["final_logits_bias"].copy()
            bias[0, 2] += more
            likelier = Transformer(model.config, {**model.params, "final_logits_bias": bias})
            likelier.generation = dataclasses.replace(model.generation, **forced)
            got = likelier.generate(given["ids"], attention_mask=given["mask"], **settings)
            assert got == stored[f"{search}; {must}; end {more:+}"]
