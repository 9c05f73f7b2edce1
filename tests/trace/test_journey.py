"""One token's way in numbers, against a GPT-2 of plain formulas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from npgpt.models.gpt2.config import init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.trace.journey import (
    Pass,
    corrections,
    guesses,
    looking_head,
    observe_pass,
    resting_heads,
    strongest_neurons,
)
from tests.tiny import tiny_config

IDS = [5, 200, 17, 5, 99, 31, 8]
T, d, H, L = len(IDS), 12, 3, 2


class Plain(NamedTuple):
    """Streams and sublayers of a forward pass, each [T, …]."""

    streams: list[np.ndarray]  # after the embedding, and after each of 2 L corrections
    added: list[np.ndarray]
    probs: list[np.ndarray]
    bent: list[np.ndarray]


def norm(x, p, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def plain_forward(p) -> Plain:
    """GPT-2 once more, in one function and other words."""
    x = p["wte.weight"][IDS] + p["wpe.weight"][:T]
    found = Plain([x], [], [], [])
    for n in range(L):
        h = f"h.{n}."
        qkv = norm(x, p, h + "ln_1") @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]
        q, k, v = qkv.reshape(T, 3, H, d // H).transpose(1, 2, 0, 3)
        scores = np.einsum("htc,hsc->hts", q, k) / np.sqrt(d // H)
        weights = np.exp(scores) * np.tril(np.ones((T, T)))
        weights /= weights.sum(-1, keepdims=True)
        joined = np.einsum("hts,hsc->thc", weights, v).reshape(T, d)
        attn = joined @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        x = x + attn
        u = norm(x, p, h + "ln_2") @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"]
        bent = u / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
        mlp = bent @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
        found.streams.extend([x, x := x + mlp])
        found.added.extend([attn, mlp])
        found.probs.append(weights)
        found.bent.append(bent)
    return found


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(7)
    params = init_params(tiny_config(), rng, np.float64)
    for name, param in params.items():  # biases and gains too
        params[name] = param * (1 if "ln_" in name else 9) + 0.3 * rng.standard_normal(param.shape)
    return params


@pytest.fixture(scope="module")
def seen(params) -> Pass:
    return observe_pass(GPT2(tiny_config(), params), IDS)


@pytest.fixture(scope="module")
def plain(params) -> Plain:
    return plain_forward(params)


def test_corrections_are_two_a_block_with_the_stream_they_are_added_to(seen, plain):
    found = corrections(seen)
    assert [c.station for c in found] == ["h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp"]
    for c, stream, added in zip(found, plain.streams, plain.added, strict=False):
        np.testing.assert_allclose(c.stream, np.sqrt((stream**2).sum(-1)), rtol=1e-9)
        np.testing.assert_allclose(c.added, np.sqrt((added**2).sum(-1)), rtol=1e-9)
        np.testing.assert_allclose(c.ratio, c.added / c.stream, rtol=1e-12)


def test_a_stream_of_zeros_has_an_infinite_ratio_and_does_not_warn(seen):
    zeros = {name: np.zeros_like(a) if name == "embed" else a for name, a in seen.stations.items()}
    assert np.isinf(corrections(seen._replace(stations=zeros))[0].ratio).all()


def test_guesses_read_the_stream_through_ln_f_and_lm_head(seen, plain, params):
    position, target = 3, 99
    found = guesses(seen, position, target, top=6)
    assert [g.station for g in found] == ["embed", "h.0", "h.1"]
    for guess, stream in zip(found, plain.streams[::2], strict=True):
        logits = norm(stream[position], params, "ln_f") @ params["wte.weight"].T
        p = np.exp(logits - logits.max())
        p /= p.sum()
        assert [token for token, _ in guess.likeliest] == list(np.argsort(-p)[:6])
        np.testing.assert_allclose([x for _, x in guess.likeliest], np.sort(p)[::-1][:6], rtol=1e-8)
        assert guess.rank == 1 + (p > p[target]).sum()
        assert guess.probability == pytest.approx(p[target], rel=1e-8)
        assert guess.norm == pytest.approx(np.linalg.norm(stream[position]))


def test_the_last_guess_is_what_the_model_says(seen):
    logits = seen.stations["logits"][3]
    (token, p), *_ = guesses(seen, 3, 0, top=1)[-1].likeliest
    assert token == np.argmax(logits)
    assert p == pytest.approx(1 / np.exp(logits - logits.max()).sum())


def test_an_untied_head_is_read_by_its_own_table(params, rng):
    own = {**params, "lm_head.weight": rng.standard_normal((257, d))}
    seen = observe_pass(GPT2(tiny_config(tie_word_embeddings=False), own), IDS)
    logits = norm(plain_forward(params).streams[-1][2], params, "ln_f") @ own["lm_head.weight"].T
    assert guesses(seen, 2, 0, top=1)[-1].likeliest[0][0] == np.argmax(logits)


def test_the_head_that_gives_most_to_one_token_leaves_out_the_first_and_itself(seen):
    tables = {f"h.{n}.attn.probs": np.zeros((H, T, T)) for n in range(L)}
    tables["h.0.attn.probs"][1, 4] = [0.97, 0.01, 0.01, 0.01, 0, 0, 0]  # rests on the first
    tables["h.0.attn.probs"][2, 4] = [0, 0, 0, 0.3, 0.7, 0, 0]
    tables["h.1.attn.probs"][0, 4] = [0.2, 0.7, 0, 0.1, 0, 0, 0]
    tables["h.1.attn.probs"][2, 4] = [0, 0.1, 0, 0, 0.9, 0, 0]  # looks at itself
    tables["h.1.attn.probs"][1, 5] = [0, 1, 0, 0, 0, 0, 0]  # another position
    tables["h.0.attn.probs"][0, 1] = [0.4, 0.6, 0, 0, 0, 0, 0]  # there is no third token yet
    chosen = seen._replace(stations=tables)
    assert looking_head(chosen, 4) == (1, 0)
    assert looking_head(chosen, 4, layer=0) == (0, 2)
    assert looking_head(chosen, 1) == (0, 0)
    assert resting_heads(chosen, 4) == 1
    assert resting_heads(chosen, 1) == 0


def test_weight_tables_are_those_of_the_pass(seen, plain):
    for n in range(L):
        np.testing.assert_allclose(seen.stations[f"h.{n}.attn.probs"], plain.probs[n], atol=1e-12)


@pytest.mark.parametrize("layer", [0, 1])
def test_neurons_are_ordered_by_what_they_answer(seen, plain, params, layer):
    found = strongest_neurons(seen, layer, 4, top=48)
    rows = params[f"h.{layer}.mlp.c_proj.weight"]
    answers = [np.linalg.norm(plain.bent[layer][4, j] * rows[j]) for j in range(48)]
    assert [n.number for n in found] == list(np.argsort(-np.array(answers)))
    for n in found:
        assert n.answer == pytest.approx(answers[n.number])
        assert n.activation == pytest.approx(plain.bent[layer][4, n.number], rel=1e-9)
        assert n.most_at == np.argmax(plain.bent[layer][:, n.number])
        assert n.most == pytest.approx(plain.bent[layer][n.most_at, n.number], rel=1e-9)


def test_what_a_neuron_pushes_is_what_the_logits_lose_without_it(seen, plain, params):
    """In the last block, ln_f's scale held as it is."""
    x = plain.streams[-1][4]
    spread = np.sqrt(x.var() + 1e-5)
    for n in strongest_neurons(seen, 1, 4, top=5):
        without = x - plain.bent[1][4, n.number] * params["h.1.mlp.c_proj.weight"][n.number]
        lost = (x - x.mean() - without + without.mean()) / spread * params["ln_f.weight"]
        push = lost @ params["wte.weight"].T
        assert [token for token, _ in n.up] == list(np.argsort(-push)[:5])
        assert [token for token, _ in n.down] == list(np.argsort(push)[:5])
        np.testing.assert_allclose([y for _, y in n.up], push[[i for i, _ in n.up]], rtol=1e-8)
        np.testing.assert_allclose([y for _, y in n.down], push[[i for i, _ in n.down]], rtol=1e-8)


def test_all_neurons_together_and_the_bias_are_the_correction(seen, plain, params):
    rows, bias = params["h.1.mlp.c_proj.weight"], params["h.1.mlp.c_proj.bias"]
    found = strongest_neurons(seen, 1, 4, top=48)
    total = sum(n.activation * rows[n.number] for n in found) + bias
    np.testing.assert_allclose(total, plain.added[-1][4], rtol=1e-8)
