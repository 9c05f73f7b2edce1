"""One token's way in numbers, against a GPT-2 and a Llama of plain formulas.

The formulas are written in other words than npgpt's and use none of its operations: the Llama turns
by complex numbers and gives every head its own copy of the keys it shares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from npgpt.models.gpt2.config import init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.trace.lens import (
    Observed,
    corrections,
    logit_lens,
    observe,
    sharpest_head,
    sink_heads,
    strongest_neurons,
)
from tests.builders.gpt2 import byte_gpt2_config
from tests.builders.llama import random_llama

IDS = [5, 18, 17, 5, 2, 11, 8]
T, L = len(IDS), 2
H, d_h, H_kv = 6, 4, 3  # of the Llama; the GPT-2 has 3 heads of 4
EPS, THETA = 1e-2, 50.0  # both far enough from nothing to be missed


class Plain(NamedTuple):
    """Streams and sublayers of a forward pass, each [T, …]."""

    streams: list[np.ndarray]  # after the embedding, and after each of 2 L corrections
    added: list[np.ndarray]
    probs: list[np.ndarray]
    factors: list[tuple[np.ndarray, ...]]  # whose product a neuron's activation is

    def active(self, layer: int) -> np.ndarray:
        return np.prod(self.factors[layer], axis=0)


class Case(NamedTuple):
    """A model, its pass, and what the tests need to know of it."""

    model: GPT2 | Llama
    seen: Observed
    plain: Plain
    blocks: str
    attn: str
    down: tuple[str, str]  # the FFN's last weight of both blocks
    scaled: Callable[[np.ndarray, np.ndarray], np.ndarray]  # by the last norm; part, whole
    bias: np.ndarray  # the last norm's
    table: np.ndarray  # lm_head's [V, d]


def layer_norm(x, p, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def attend(q, k, v):
    """Weights [H, T, T] and joined contexts [T, H d_h] of q, k, v [T, H, d_h]."""
    weights = np.exp(np.einsum("thc,shc->hts", q, k) / np.sqrt(d_h)) * np.tril(np.ones((T, T)))
    weights /= weights.sum(-1, keepdims=True)
    return weights, np.einsum("hts,shc->thc", weights, v).reshape(T, -1)


def plain_gpt2(p) -> Plain:
    x = p["wte.weight"][IDS] + p["wpe.weight"][:T]
    found = Plain([x], [], [], [])
    for n in range(L):
        h = f"h.{n}."
        qkv = layer_norm(x, p, h + "ln_1") @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]
        weights, joined = attend(*qkv.reshape(T, 3, 3, d_h).transpose(1, 0, 2, 3))
        attn = joined @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        x = x + attn
        u = layer_norm(x, p, h + "ln_2") @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"]
        active = u / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
        mlp = active @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
        found.streams.extend([x, x := x + mlp])
        found.added.extend([attn, mlp])
        found.probs.append(weights)
        found.factors.append((active,))
    return found


def gpt2_case(tied: bool) -> Case:
    rng = np.random.default_rng(7)
    config = byte_gpt2_config(tie_word_embeddings=tied)
    p = init_params(config, rng, np.float64)
    for name, param in p.items():  # biases and gains too
        p[name] = param * (1 if "ln_" in name else 9) + 0.3 * rng.standard_normal(param.shape)
    model = GPT2(config, p)

    def scaled(part, whole):
        spread = np.sqrt(whole.var() + 1e-5)
        return (part - part.mean()) / spread * p["ln_f.weight"]

    return Case(
        model,
        observe(model, IDS),
        plain_gpt2(p),
        "h",
        "attn",
        ("h.0.mlp.c_proj.weight", "h.1.mlp.c_proj.weight"),
        scaled,
        p["ln_f.bias"],
        p["wte.weight" if tied else "lm_head.weight"],
    )


def rms_norm(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * gain


def turn(x):
    """Pair (i, i + d_h/2) of every head [T, heads, d_h] as a complex number, times e^(i angle)."""
    angle = np.arange(T)[:, None] * THETA ** (-2 * np.arange(d_h // 2) / d_h)
    z = (x[..., : d_h // 2] + 1j * x[..., d_h // 2 :]) * np.exp(1j * angle)[:, None]
    return np.concatenate([z.real, z.imag], axis=-1)


def plain_llama(p) -> Plain:
    x = p["embed_tokens.weight"][IDS]
    found = Plain([x], [], [], [])
    for n in range(L):
        w = {k.removeprefix(f"layers.{n}."): v for k, v in p.items() if k.startswith(f"layers.{n}")}
        read = rms_norm(x, w["input_layernorm.weight"])
        q = turn((read @ w["self_attn.q_proj.weight"]).reshape(T, H, d_h))
        k = turn((read @ w["self_attn.k_proj.weight"]).reshape(T, H_kv, d_h))
        v = (read @ w["self_attn.v_proj.weight"]).reshape(T, H_kv, d_h)
        weights, joined = attend(q, *(np.repeat(each, H // H_kv, axis=1) for each in (k, v)))
        attn = joined @ w["self_attn.o_proj.weight"]
        x = x + attn
        read = rms_norm(x, w["post_attention_layernorm.weight"])
        u, value = read @ w["mlp.gate_proj.weight"], read @ w["mlp.up_proj.weight"]
        gate = u / (1 + np.exp(-u))
        mlp = (gate * value) @ w["mlp.down_proj.weight"]
        found.streams.extend([x, x := x + mlp])
        found.added.extend([attn, mlp])
        found.probs.append(weights)
        found.factors.append((gate, value))
    return found


def llama_case(tied: bool) -> Case:
    model = random_llama(
        np.random.default_rng(5), rms_norm_eps=EPS, rope_theta=THETA, tie_word_embeddings=tied
    )
    p = model.params
    return Case(
        model,
        observe(model, IDS),
        plain_llama(p),
        "layers",
        "self_attn",
        ("layers.0.mlp.down_proj.weight", "layers.1.mlp.down_proj.weight"),
        lambda part, whole: part / np.sqrt((whole**2).mean() + EPS) * p["norm.weight"],
        np.zeros(1),
        p["embed_tokens.weight" if tied else "lm_head.weight"],
    )


@pytest.fixture(
    scope="module",
    params=[(make, tied) for make in (gpt2_case, llama_case) for tied in (True, False)],
    ids=["gpt2", "gpt2 own head", "llama", "llama own head"],
)
def case(request) -> Case:
    make, tied = request.param
    made: Case = make(tied)
    return made


@pytest.fixture(scope="module")
def llama() -> Case:
    return llama_case(tied=False)


def test_corrections_are_two_a_block_with_the_stream_they_are_added_to(case):
    found = corrections(case.seen, 4)
    sublayers = (case.attn, "mlp")
    assert [c.station for c in found] == [
        f"{case.blocks}.{n}.{s}" for n in (0, 1) for s in sublayers
    ]
    for c, stream, added in zip(found, case.plain.streams, case.plain.added, strict=False):
        np.testing.assert_allclose(c.stream, np.sqrt((stream**2).sum(-1)), rtol=1e-9)
        np.testing.assert_allclose(c.added, np.sqrt((added**2).sum(-1)), rtol=1e-9)
        np.testing.assert_allclose(c.ratio, c.added / c.stream, rtol=1e-12)
        assert c.ratio_at_position == c.ratio[4]


def test_a_stream_of_zeros_has_an_infinite_ratio_and_does_not_warn(case):
    stations = {**case.seen.stations, "embed": np.zeros_like(case.seen.stations["embed"])}
    assert np.isinf(corrections(case.seen._replace(stations=stations), 0)[0].ratio).all()


def test_the_logit_lens_reads_the_stream_through_the_last_norm_and_lm_head(case):
    position, target = 3, 9
    found = logit_lens(case.seen, position, target, top=6)
    assert [row.station for row in found] == ["embed", f"{case.blocks}.0", f"{case.blocks}.1"]
    for row, streams in zip(found, case.plain.streams[::2], strict=True):
        stream = streams[position]
        logits = (case.scaled(stream, stream) + case.bias) @ case.table.T
        p = np.exp(logits - logits.max())
        p /= p.sum()
        assert [token for token, _ in row.likeliest] == list(np.argsort(-p)[:6])
        np.testing.assert_allclose([x for _, x in row.likeliest], np.sort(p)[::-1][:6], rtol=1e-8)
        assert row.rank == 1 + (p > p[target]).sum()
        assert row.probability == pytest.approx(p[target], rel=1e-8)
        assert row.norm == pytest.approx(np.linalg.norm(stream))


def test_the_last_row_is_what_the_model_says(case):
    logits = case.seen.stations["logits"][3]
    (token, p), *_ = logit_lens(case.seen, 3, 0, top=1)[-1].likeliest
    assert token == np.argmax(logits)
    assert p == pytest.approx(1 / np.exp(logits - logits.max()).sum())


def test_the_head_that_gives_most_to_one_token_leaves_out_the_first_and_itself(case):
    first, second = (f"{case.blocks}.{n}.{case.attn}.probs" for n in range(L))
    tables = {name: np.zeros((3, T, T)) for name in (first, second)}
    tables[first][1, 4] = [0.97, 0.01, 0.01, 0.01, 0, 0, 0]  # rests on the first
    tables[first][2, 4] = [0, 0, 0, 0.3, 0.7, 0, 0]
    tables[second][0, 4] = [0.2, 0.7, 0, 0.1, 0, 0, 0]
    tables[second][2, 4] = [0, 0.1, 0, 0, 0.9, 0, 0]  # looks at itself
    tables[second][1, 5] = [0, 1, 0, 0, 0, 0, 0]  # another position
    tables[first][0, 1] = [0.4, 0.6, 0, 0, 0, 0, 0]  # there is no third token yet
    chosen = case.seen._replace(stations=tables)
    assert sharpest_head(chosen, 4) == (1, 0)
    assert sharpest_head(chosen, 4, layer=0) == (0, 2)
    assert sharpest_head(chosen, 1) == (0, 0)
    assert sink_heads(chosen, 4) == 1
    assert sink_heads(chosen, 1) == 0


def test_attention_weights_and_the_heads_chosen_from_them(case):
    for n in range(L):
        np.testing.assert_allclose(case.seen.attention_weights(n), case.plain.probs[n], atol=1e-12)
    probs = np.stack(case.plain.probs)  # [L, H, T, T]
    looks = probs[:, :, 5, 1:5].max(axis=-1)  # [L, H]
    assert sharpest_head(case.seen, 5) == divmod(int(np.argmax(looks)), looks.shape[1])
    assert sharpest_head(case.seen, 5, layer=0) == (0, int(np.argmax(looks[0])))
    assert sink_heads(case.seen, 5) == (probs[:, :, 5, 0] > 0.5).sum()


def test_heads_that_share_are_those_that_one_head_of_keys_reaches(llama):
    """The keys of one shared head moved: exactly the weights of its group move."""
    for shared in range(H_kv):
        name = "layers.0.self_attn.k_proj.weight"
        moved = llama.model.params[name].copy()
        moved[:, shared * d_h : (shared + 1) * d_h] *= -1
        other = observe(Llama(llama.model.config, {**llama.model.params, name: moved}), IDS)
        changed = other.attention_weights(0) != llama.seen.attention_weights(0)
        heads = np.flatnonzero(changed.any(axis=(1, 2))).tolist()
        assert len(heads) == H // H_kv
        for head in heads:
            assert llama.seen.view.heads_that_share(head) == heads


@pytest.mark.parametrize("layer", [0, 1])
def test_neurons_are_ordered_by_what_they_answer_and_sum_to_the_correction(case, layer):
    rows = case.model.params[case.down[layer]]
    active, factors = case.plain.active(layer), case.plain.factors[layer]
    strength = np.abs(active) if len(factors) > 1 else active  # a value has either sign
    answers = np.linalg.norm(active[4][:, None] * rows, axis=1)
    found = strongest_neurons(case.seen, layer, 4, top=len(rows))
    assert [n.number for n in found] == list(np.argsort(-answers))
    assert any(n.activation < 0 for n in found)
    for n in found:
        j = n.number
        assert n.answer == pytest.approx(answers[j])
        assert n.activation == pytest.approx(active[4, j], rel=1e-9)
        assert n.most_at == np.argmax(strength[:, j])
        assert n.most == pytest.approx(active[n.most_at, j], rel=1e-9)
        shown = [x for x in (n.gate, n.value) if x is not None]
        assert shown == pytest.approx([x[4, j] for x in factors if len(factors) > 1], rel=1e-9)
    total = sum(n.activation * rows[n.number] for n in found)
    bias = case.model.params.get(case.down[layer].replace("weight", "bias"), 0)
    np.testing.assert_allclose(total + bias, case.plain.added[2 * layer + 1][4], rtol=1e-8)


def test_what_a_neuron_pushes_is_what_the_logits_lose_without_it(case):
    """In the last block, with the scale that the last norm had."""
    for n in strongest_neurons(case.seen, 1, 4, top=5):
        row = case.model.params[case.down[1]][n.number]
        part = case.plain.active(1)[4, n.number] * row
        push = case.scaled(part, case.plain.streams[-1][4]) @ case.table.T
        assert [token for token, _ in n.up] == list(np.argsort(-push)[:5])
        assert [token for token, _ in n.down] == list(np.argsort(push)[:5])
        np.testing.assert_allclose([y for _, y in n.up], push[[i for i, _ in n.up]], rtol=1e-8)
        np.testing.assert_allclose([y for _, y in n.down], push[[i for i, _ in n.down]], rtol=1e-8)


def turned_by(seen):
    """Cosine and sine [T, d_h/2] that the last block saved."""
    return [each.reshape(T, d_h // 2) for each in seen.saved.blocks[-1].self_attn.cos_sin]


def test_frequencies_are_those_that_the_pass_has_turned_by(llama):
    angles = 5 * llama.seen.view.frequencies(T)
    cos, sin = turned_by(llama.seen)
    np.testing.assert_allclose(np.cos(angles), cos[5], rtol=1e-12)
    np.testing.assert_allclose(np.sin(angles), sin[5], rtol=1e-12)
    np.testing.assert_allclose(angles, [5, 5 / np.sqrt(THETA)], rtol=1e-12)


@pytest.mark.parametrize("rope_type", ["linear", "dynamic"])
def test_other_ways_to_turn(rng, rope_type):
    """Beyond max_position_embeddings `dynamic` turns by the length of this text."""
    scaling = {"rope_type": rope_type, "factor": 3.0}
    model = random_llama(rng, rope_scaling=scaling, max_position_embeddings=4)
    seen = observe(model, IDS)
    assert seen.view.frequencies is not None
    frequencies = seen.view.frequencies(T)
    np.testing.assert_allclose(np.cos(6 * frequencies), turned_by(seen)[0][6], rtol=1e-12)
    assert frequencies[-1] < 1 / 100  # the last pair's at rope_theta 10000, were nothing changed
