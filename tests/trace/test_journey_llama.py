"""One token's way through a Llama in numbers, against a Llama of plain formulas.

The formulas turn by complex numbers, give every head its own copy of the keys it shares, and know
nothing of npgpt's operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from npgpt.models.llama.model import Llama
from npgpt.trace.journey import (
    Pass,
    corrections,
    guesses,
    looking_head,
    observe_pass,
    resting_heads,
    strongest_neurons,
)
from npgpt.trace.journey_parts import heads_that_share
from tests.models.tiny_llama import random_llama

IDS = [5, 18, 17, 5, 2, 11, 8]
T, H, H_kv, d_h, F, L = len(IDS), 6, 3, 4, 10, 2
EPS, THETA = 1e-2, 50.0  # both far enough from nothing to be missed


class Plain(NamedTuple):
    """Streams and sublayers of a forward pass, each [T, …]."""

    streams: list[np.ndarray]  # after the embedding, and after each of 2 L corrections
    added: list[np.ndarray]
    probs: list[np.ndarray]
    gates: list[np.ndarray]
    values: list[np.ndarray]


def norm(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * gain


def turn(x):
    """Pair (i, i + d_h/2) of every head [T, heads, d_h] as a complex number, times e^(i angle)."""
    angle = np.arange(T)[:, None] * THETA ** (-2 * np.arange(d_h // 2) / d_h)
    z = (x[..., : d_h // 2] + 1j * x[..., d_h // 2 :]) * np.exp(1j * angle)[:, None]
    return np.concatenate([z.real, z.imag], axis=-1)


def plain_forward(p) -> Plain:
    """Llama once more, in one function and other words."""
    x = p["embed_tokens.weight"][IDS]
    found = Plain([x], [], [], [], [])
    for n in range(L):
        w = {k.removeprefix(f"layers.{n}."): v for k, v in p.items() if k.startswith(f"layers.{n}")}
        read = norm(x, w["input_layernorm.weight"])
        q = turn((read @ w["self_attn.q_proj.weight"]).reshape(T, H, d_h))
        k = turn((read @ w["self_attn.k_proj.weight"]).reshape(T, H_kv, d_h))
        v = (read @ w["self_attn.v_proj.weight"]).reshape(T, H_kv, d_h)
        k, v = (np.repeat(each, H // H_kv, axis=1) for each in (k, v))
        weights = np.exp(np.einsum("thc,shc->hts", q, k) / np.sqrt(d_h)) * np.tril(np.ones((T, T)))
        weights /= weights.sum(-1, keepdims=True)
        joined = np.einsum("hts,shc->thc", weights, v).reshape(T, H * d_h)
        attn = joined @ w["self_attn.o_proj.weight"]
        x = x + attn
        read = norm(x, w["post_attention_layernorm.weight"])
        u, value = read @ w["mlp.gate_proj.weight"], read @ w["mlp.up_proj.weight"]
        gate = u / (1 + np.exp(-u))
        mlp = (gate * value) @ w["mlp.down_proj.weight"]
        found.streams.extend([x, x := x + mlp])
        for kept, each in zip(found[1:], (attn, weights, gate, value), strict=True):
            kept.append(each)
        found.added.append(mlp)
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["own head", "tied head"])
def model(request) -> Llama:
    rng = np.random.default_rng(5)
    settings = {"rms_norm_eps": EPS, "rope_theta": THETA, "tie_word_embeddings": request.param}
    return random_llama(rng, **settings)


@pytest.fixture(scope="module")
def seen(model) -> Pass:
    return observe_pass(model, IDS)


@pytest.fixture(scope="module")
def plain(model) -> Plain:
    return plain_forward(model.params)


def table_of(model):
    return model.params.get("lm_head.weight", model.params["embed_tokens.weight"])


def test_corrections_are_two_a_block_with_the_stream_they_are_added_to(seen, plain):
    found = corrections(seen)
    parts = ("self_attn", "mlp")
    assert [c.station for c in found] == [f"layers.{n}.{part}" for n in (0, 1) for part in parts]
    for c, stream, added in zip(found, plain.streams, plain.added, strict=False):
        np.testing.assert_allclose(c.stream, np.sqrt((stream**2).sum(-1)), rtol=1e-9)
        np.testing.assert_allclose(c.added, np.sqrt((added**2).sum(-1)), rtol=1e-9)


def test_guesses_read_the_stream_through_the_last_norm_and_lm_head(model, seen, plain):
    position, target = 3, 9
    found = guesses(seen, position, target, top=6)
    assert [g.station for g in found] == ["embed", "layers.0", "layers.1"]
    for guess, stream in zip(found, plain.streams[::2], strict=True):
        logits = norm(stream[position], model.params["norm.weight"]) @ table_of(model).T
        p = np.exp(logits - logits.max())
        p /= p.sum()
        assert [token for token, _ in guess.likeliest] == list(np.argsort(-p)[:6])
        np.testing.assert_allclose([x for _, x in guess.likeliest], np.sort(p)[::-1][:6], rtol=1e-8)
        assert guess.rank == 1 + (p > p[target]).sum()
        assert guess.probability == pytest.approx(p[target], rel=1e-8)
        assert guess.norm == pytest.approx(np.linalg.norm(stream[position]))


def test_weight_tables_and_the_heads_chosen_from_them(seen, plain):
    for n in range(L):
        found = seen.stations[f"layers.{n}.self_attn.probs"]
        np.testing.assert_allclose(found, plain.probs[n], atol=1e-12)
    probs = np.stack(plain.probs)  # [L, H, T, T]
    looks = probs[:, :, 5, 1:5].max(axis=-1)  # [L, H]
    assert looking_head(seen, 5) == divmod(int(np.argmax(looks)), H)
    assert looking_head(seen, 5, layer=0) == (0, int(np.argmax(looks[0])))
    assert resting_heads(seen, 5) == (probs[:, :, 5, 0] > 0.5).sum()


def test_heads_that_share_are_those_that_one_head_of_keys_reaches(model, seen):
    """The keys of one shared head moved: exactly the tables of its group move."""
    for shared in range(H_kv):
        name = "layers.0.self_attn.k_proj.weight"
        moved = model.params[name].copy()
        moved[:, shared * d_h : (shared + 1) * d_h] *= -1
        other = observe_pass(Llama(model.config, {**model.params, name: moved}), IDS)
        station = "layers.0.self_attn.probs"
        changed = (other.stations[station] != seen.stations[station]).any(axis=(1, 2))
        assert changed.sum() == H // H_kv
        for head in np.flatnonzero(changed):
            assert heads_that_share(seen.parts, int(head)) == np.flatnonzero(changed).tolist()


@pytest.mark.parametrize("layer", [0, 1])
def test_neurons_are_gate_times_value_ordered_by_what_they_answer(model, seen, plain, layer):
    found = strongest_neurons(seen, layer, 4, top=F)
    rows = model.params[f"layers.{layer}.mlp.down_proj.weight"]
    gates, values = plain.gates[layer], plain.values[layer]
    active = gates * values
    answers = np.linalg.norm(active[4][:, None] * rows, axis=1)
    assert [n.number for n in found] == list(np.argsort(-answers))
    assert any(n.activation < 0 for n in found)
    for n in found:
        j = n.number
        want = {"gate": gates[4, j], "value": values[4, j]}
        assert n.factors == pytest.approx(want, rel=1e-9)
        assert n.activation == pytest.approx(want["gate"] * want["value"], rel=1e-9)
        assert n.answer == pytest.approx(answers[j])
        assert n.most_at == np.argmax(np.abs(active[:, j]))
        assert n.most == pytest.approx(active[n.most_at, j], rel=1e-9)
    total = sum(n.activation * rows[n.number] for n in found)
    np.testing.assert_allclose(total, plain.added[2 * layer + 1][4], rtol=1e-8)


def test_what_a_neuron_pushes_is_what_the_logits_lose_without_it(model, seen, plain):
    """In the last block, the last norm's scale held as it is; no mean is subtracted."""
    x, gain = plain.streams[-1][4], model.params["norm.weight"]
    size = np.sqrt((x**2).mean() + EPS)
    for n in strongest_neurons(seen, 1, 4, top=5):
        row = model.params["layers.1.mlp.down_proj.weight"][n.number]
        lost = (plain.gates[1] * plain.values[1])[4, n.number] * row
        push = lost / size * gain @ table_of(model).T
        assert [token for token, _ in n.up] == list(np.argsort(-push)[:5])
        assert [token for token, _ in n.down] == list(np.argsort(push)[:5])
        np.testing.assert_allclose([y for _, y in n.up], push[[i for i, _ in n.up]], rtol=1e-8)


def turns_of(seen):
    """Cosine and sine [T, d_h/2] that the last block saved."""
    saved = seen.saved.blocks[-1].self_attn.cos_sin
    return [each.reshape(T, d_h // 2) for each in saved]


def test_the_angles_are_those_that_the_pass_has_turned_by(seen):
    angles = 5 * seen.parts.speeds(seen.model, T)
    cos, sin = turns_of(seen)
    np.testing.assert_allclose(np.cos(angles), cos[5], rtol=1e-12)
    np.testing.assert_allclose(np.sin(angles), sin[5], rtol=1e-12)
    np.testing.assert_allclose(angles, [5, 5 / np.sqrt(THETA)], rtol=1e-12)


@pytest.mark.parametrize("rope_type", ["linear", "dynamic"])
def test_other_ways_to_turn(rng, rope_type):
    """Beyond max_position_embeddings `dynamic` turns by the length of this text."""
    scaling = {"rope_type": rope_type, "factor": 3.0}
    model = random_llama(rng, rope_scaling=scaling, max_position_embeddings=4)
    seen = observe_pass(model, IDS)
    speeds = seen.parts.speeds(model, T)
    np.testing.assert_allclose(np.cos(6 * speeds), turns_of(seen)[0][6], rtol=1e-12)
    assert speeds[-1] < 1 / 100  # the last pair's at rope_theta 10000, were nothing changed
