"""What a page shows, as arrays: against stations, gradients, trace and ablate; no browser."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.explore import heads, parts
from npgpt.explore.both_ways import there_and_back
from npgpt.explore.data import Wishes, characters, collect, tokens
from npgpt.trace import lens
from tests.builders.gpt2 import random_gpt2
from tests.builders.gpt_neo import random_gpt_neo
from tests.builders.llama import random_llama
from tests.explore.conftest import FOIL, POSITION, TARGET

IDS = [1, 4, 2, 0, 5, 3, 4]


# The second of two blocks has experts, of another width together.
EXPERTS: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 7,
    "decoder_sparse_step": 2,
}
MODELS: dict[str, Any] = {
    "gpt2": random_gpt2,
    "gpt_neo": partial(random_gpt_neo, window_size=len(IDS)),  # or scores are hidden
    "llama": random_llama,
    "experts": partial(random_llama, **EXPERTS),
}


@pytest.fixture(params=MODELS)
def model(request, rng) -> Any:
    return MODELS[request.param](rng)


@pytest.fixture
def both(model):
    return there_and_back(model, IDS)


@pytest.fixture
def shown(model):
    return collect(model, IDS, {})


def table(shown: dict[str, Any], name: str, place: int) -> np.ndarray:
    """A kept head's lower triangle as [T, T]."""
    full = np.zeros((len(IDS), len(IDS)))
    full[np.tril_indices(len(IDS))] = shown["tables"][name][place]
    return full


def test_tables_are_the_stations_there_and_back(both, shown) -> None:
    H = both.view.n_head
    assert shown["tables"]["kept"] == [*range(2 * H)]
    lower = np.tril(np.ones((7, 7)))
    for place in (0, H - 1, H + 1):
        n, head = divmod(place, H)
        for name in ("probs", "scores"):
            station = f"{both.attn(n)}.{name}"
            seen = np.where(lower, both.seen.stations[station][head], 0)
            np.testing.assert_array_equal(table(shown, name, place), seen)
            np.testing.assert_array_equal(
                table(shown, f"d{name}", place), both.back[station][head] * lower
            )


def test_losses_and_their_mean(both, shown, model) -> None:
    loss, _ = model.loss_and_grads(IDS[:-1], IDS[1:])
    assert shown["loss"] == pytest.approx(loss, rel=1e-12)
    assert shown["losses"].mean() == pytest.approx(loss, rel=1e-12)
    assert len(shown["losses"]) == 6


def test_the_lens_is_that_of_trace_and_ends_in_the_logits(both, shown) -> None:
    for position, target in ((0, 4), (3, 5), (5, 4)):
        rows = lens.logit_lens(both.seen, position, target, 3)
        for row, place in zip(rows, (0, 2, 4), strict=True):
            assert shown["stream"]["ids"][place, position].tolist() == [t.id for t in row.likeliest]
            np.testing.assert_allclose(
                shown["stream"]["p"][place, position],
                [t.probability for t in row.likeliest],
                rtol=1e-9,
            )
            assert shown["stream"]["rank"][place, position] == row.rank
            assert shown["stream"]["p_target"][place, position] == pytest.approx(row.probability)
            assert shown["stream"]["size"][place, position] == pytest.approx(row.norm)


def test_what_is_added_is_that_of_trace_and_its_slope_foretells_ablation(
    both, shown, model
) -> None:
    added = [c.added for c in lens.corrections(both.seen, 0)]
    np.testing.assert_allclose(shown["stream"]["added"][1:], added, rtol=1e-12)
    for n, effect in enumerate(npgpt.ablate(model, IDS, mlps=[0, 1])):
        slope = shown["stream"]["slope"][2 + 2 * n].sum()
        assert slope == pytest.approx(-effect.estimate, rel=1e-9)


def test_parts_sum_to_the_logits_and_along_the_gradient_to_0(shown) -> None:
    np.testing.assert_allclose(
        shown["shares"]["logits"].sum(axis=1), shown["answers"]["logits"], rtol=1e-10, atol=1e-10
    )
    slope = shown["shares"]["slope"]
    assert np.abs(slope.sum(axis=1)).max() < 1e-3 * np.abs(slope).max()  # the norm's ε is not 0
    assert np.abs(slope[-1]).max() == 0  # no token follows the last


def test_a_head_s_share_is_what_its_rows_of_w_o_give(both, shown, model) -> None:
    """From the parameters: zero all other rows of W_O, and see what the block adds."""
    H = both.view.n_head
    W = model.params[f"{both.W_O(1)}.weight"]
    alone = np.zeros_like(W)
    own = slice(len(W) // H, 2 * len(W) // H)
    alone[own] = W[own]
    added = both.seen.stations[f"{both.attn(1)}.context"] @ alone
    normed = both.view.norm_with_fixed_scale(both.seen.saved, 3, added[3])
    _, lm_head = both.seen.saved.lm_head
    place = 1 + (H + 1) + 1
    expected = lm_head[shown["answers"]["ids"][3]] @ normed
    np.testing.assert_allclose(shown["shares"]["logits"][3, place], expected, rtol=1e-9)
    assert shown["moved"]["added"][H + 1, 3] == pytest.approx(np.linalg.norm(added[3]))


def test_what_is_moved_is_the_weight_times_a_value_behind_w_o(both, shown) -> None:
    H, d_h = both.view.n_head, both.in_heads(f"{both.attn(1)}.context").shape[-1]
    head = H - 1
    v = both.seen.stations[f"{both.attn(1)}.v"][head // both.view.n_group]
    W = both.model.params[f"{both.W_O(1)}.weight"][head * d_h : (head + 1) * d_h]
    expected = np.linalg.norm(v @ W, axis=1)
    np.testing.assert_allclose(shown["moved"]["values"][H + head], expected, rtol=1e-9)


def test_queries_and_keys_give_the_scores(both, shown) -> None:
    vectors = shown["vectors"]
    for place, number in enumerate(vectors["kept"]):
        scores = vectors["q"][place] @ vectors["k"][place].T / shown["divisors"][0]
        np.testing.assert_allclose(
            table(shown, "scores", number), np.tril(scores), rtol=1e-9, atol=1e-12
        )
    n, head = divmod(vectors["kept"][-1], both.view.n_head)
    back = both.back[f"{both.attn(n)}.v"][head // both.view.n_group]
    packed = vectors["dv"]
    np.testing.assert_allclose(
        packed["array"][-1] * packed["scale"], back, atol=1e-3 * packed["scale"]
    )


def test_neurons_are_those_of_trace(both, shown) -> None:
    neurons = shown["neurons"]
    for position in (0, 4):
        at = neurons["at"][position]
        for layer in (0, 1):
            mine = [i for i in at if neurons["layer"][i] == layer][:3]
            expected = lens.strongest_neurons(both.seen, layer, position, 3)
            assert [int(neurons["number"][i]) for i in mine] == [n.number for n in expected]
            for i, neuron in zip(mine, expected, strict=True):
                active = neurons["active"][i, position]
                assert active == pytest.approx(neuron.activation)
                assert abs(active) * neurons["norm"][i] == pytest.approx(neuron.answer)
                up = neurons["down" if active < 0 else "up"][i][:3]
                assert up.tolist() == [push.id for push in neuron.up]


def test_the_hardest_weight_has_no_larger_gradient_beside_it(both, shown) -> None:
    for each in shown["heads"]:
        gradient = both.grads[each["hardest"]["name"]]
        assert gradient[tuple(each["hardest"]["index"])] == each["hardest"]["value"]
    hardest = max(shown["heads"], key=lambda each: abs(each["hardest"]["value"]))["hardest"]
    names = [n for n in both.grads if "attn" in n and n.endswith("weight") and ".ln" not in n]
    assert abs(hardest["value"]) == max(float(np.abs(both.grads[n]).max()) for n in names)


def test_changes_are_those_of_ablate(shown, model) -> None:
    (effect,) = npgpt.ablate(model, IDS, heads=[(1, 2)])
    each = shown["heads"][len(shown["heads"]) // 2 + 2]
    assert (each["layer"], each["head"]) == (1, 2)
    assert each["change"] == pytest.approx(effect.change, rel=1e-9)
    assert each["estimate"] == pytest.approx(effect.estimate, rel=1e-9)


def test_the_findings_about_tales(record) -> None:
    """The numbers in docs/explore.md."""
    star = record["stars"][POSITION]
    assert (star["layer"], star["head"], star["key"]) == (3, 4, 2)
    assert star["weight"] == pytest.approx(0.8422, abs=5e-5)
    head = record["heads"][3 * 5 + 4]
    assert head["change"] == pytest.approx(0.0078, abs=5e-5)
    assert head["estimate"] == pytest.approx(0.0063, abs=5e-5)
    assert head["hardest"]["name"] == "h.3.attn.c_attn.weight"
    assert head["hardest"]["index"] == [115, 954]
    assert 0.8422 * record["moved"]["values"][19, 2] == pytest.approx(16.58, abs=5e-3)
    assert {TARGET, FOIL} <= set(record["answers"]["ids"][POSITION].tolist())


def synthetic(looks_at) -> np.ndarray:
    P = np.zeros((8, 8))
    for i in range(8):
        P[i, looks_at(i)] = 1.0
    return P


@pytest.mark.parametrize(
    ("looks_at", "ids", "expected"),
    [
        (lambda i: max(0, i - 1), range(8), ("back", 1)),
        (lambda i: max(0, i - 3), range(8), ("back", 3)),
        (lambda i: 0, range(8), ("first", None)),
        (lambda i: i, range(8), ("same", None)),
        (lambda i: [0, 1, 0, 3, 1, 3, 2, 4][i], [1, 2, 1, 3, 2, 3, 1, 2], ("same", None)),
        (lambda i: max(0, i - 5), range(8), ("first", None)),  # five back in three rows of eight
    ],
)
def test_jobs(looks_at, ids, expected) -> None:
    found = heads.job(synthetic(looks_at), list(ids))
    assert (found["job"], found.get("offset")) == expected


def test_a_job_that_is_none(rng) -> None:
    even = np.tril(np.ones((8, 8)))
    even /= even.sum(axis=1, keepdims=True)
    assert heads.job(even, list(range(8)))["job"] == "spread"
    three = synthetic(lambda i: 0) * 0.25 + synthetic(lambda i: max(0, i - 1)) * 0.25
    three += synthetic(lambda i: i // 2) * 0.5
    assert heads.job(three, list(range(8)))["job"] == "mixed"


def test_the_largest_of_rows_are_those_of_a_stable_sort(rng) -> None:
    rows = rng.integers(0, 5, (6, 40)).astype(np.float32)  # many equal ones
    for top in (1, 3, 40, 50):
        expected = np.argsort(-rows, axis=1, kind="stable")[:, :top]
        np.testing.assert_array_equal(parts.largest(rows, top), expected)


def test_tokens_and_the_characters_that_they_share() -> None:
    names = {0: b"a", 1: b"\xe7\x8c", 2: b"\xab", 3: b" \xe8", 4: b"\xbf\xbd", 5: b"\xff"}
    found = tokens([0, 1, 2, 7], names)
    assert [each["label"] for each in found] == ["a", "<E7 8C>", "<AB>", "#7"]
    assert [each["part"] for each in found] == [False, True, True, False]
    assert found[1]["bytes"] == "E7 8C"
    assert characters([0, 1, 2, 0, 3, 4, 5], names) == [
        {"first": 1, "last": 2, "text": "猫"},
        {"first": 4, "last": 5, "text": "␣追"},
    ]


def test_a_long_text_keeps_the_heads_that_matter(model, both, shown, monkeypatch) -> None:
    monkeypatch.setattr(heads, "TABLE_BYTES", 0)
    monkeypatch.setattr(heads, "VECTOR_BYTES", 0)
    short = collect(model, IDS, {}, wishes=Wishes(position=5))
    star = heads.star(both, 5)
    assert star is not None
    assert len(short["tables"]["kept"]) == 4
    assert short["vectors"]["kept"] == [star.layer * both.view.n_head + star.head]
    assert short["vectors"]["kept"][0] in short["tables"]["kept"]
    full = collect(model, IDS, {}, wishes=Wishes(full=True))
    assert len(full["tables"]["kept"]) == len(full["vectors"]["kept"]) == 2 * both.view.n_head


def test_what_there_is_no_page_of(model) -> None:
    with pytest.raises(ValueError, match="at least two tokens"):
        collect(model, [1], {})
    with pytest.raises(ValueError, match="no position 7: the text has 7 tokens"):
        collect(model, IDS, {}, wishes=Wishes(position=7))
    with pytest.raises(ValueError, match="12 tokens long, but the model has positions for 11"):
        collect(model, [1] * 12, {})
    table = model.params[model.TABLE]
    table[4] = np.nan
    with pytest.raises(ValueError, match="the mean loss of this text is nan"):
        collect(model, IDS, {})


def test_two_tokens_are_enough(model) -> None:
    shown = collect(model, [1, 4], {})
    assert shown["start"]["position"] == 0
    assert shown["stars"] == [None, None]


def test_a_wished_target_is_among_the_answers(model) -> None:
    shown = collect(model, IDS, {}, wishes=Wishes(3, target=17, foil=11))
    assert {17, 11, IDS[4]} <= set(shown["answers"]["ids"][3].tolist())
    p = shown["answers"]["p"]
    assert (np.diff(p, axis=1) <= 0).all()
