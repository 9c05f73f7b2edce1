"""grouped_attention: rotary positions and shared heads, head by head, and every gradient."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.layers.attention import attention_forward
from npgpt.layers.grouped_attention import grouped_attention_backward, grouped_attention_forward
from npgpt.ops.mask import attention_mask_for
from npgpt.ops.rope import default_frequencies, rope_forward, rotation
from tests.gradcheck import check_gradients, relative_error

T, D, H, H_KV, D_H = 5, 7, 6, 2, 4
COS_SIN = rotation(np.arange(T), default_frequencies(D_H, 100.0))
PADDED = attention_mask_for(T, T, np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]))


def random_inputs(rng, lead=(2,)):
    shapes = [(*lead, T, D), (D, H * D_H), (D, H_KV * D_H), (D, H_KV * D_H), (H * D_H, D)]
    return tuple(rng.standard_normal(shape) for shape in shapes)


def settings(**changes):
    usual = {"n_head": H, "n_kv_head": H_KV, "cos_sin": COS_SIN, "divisor": 2.0, "mask": PADDED}
    return {**usual, **changes}


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("lead", [(), (2,)], ids=str)
def test_gradients(rng, flash, lead) -> None:
    mask = PADDED if lead else attention_mask_for(T, T)
    check_gradients(
        grouped_attention_forward,
        grouped_attention_backward,
        random_inputs(rng, lead),
        rng,
        **settings(flash=flash, mask=mask),
    )


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True)])
def test_gradients_of_biases_and_norms(rng, given) -> None:
    biases = [(H * D_H,), (H_KV * D_H,), (H_KV * D_H,), (D,)]
    shapes = [*(biases if given[0] else []), *([(D_H,), (D_H,)] if given[1] else [])]
    more = [rng.standard_normal(shape) for shape in shapes]
    inputs = (*random_inputs(rng), *more)

    def forward(*arrays, **options):
        head, tail = arrays[:5], arrays[5:]
        return grouped_attention_forward(*head, *([] if given[0] else [None] * 4), *tail, **options)

    check_gradients(forward, grouped_attention_backward, inputs, rng, **settings(eps=0.1))


@pytest.mark.parametrize("flash", [False, True])
def test_naive_loop_over_heads(rng, flash) -> None:
    x, W_q, W_k, W_v, W_o = random_inputs(rng)
    y, saved = grouped_attention_forward(x, W_q, W_k, W_v, W_o, **settings(flash=flash))
    want = np.zeros_like(x)
    for h in range(H):
        kv = h // 3
        columns, shared = slice(h * D_H, (h + 1) * D_H), slice(kv * D_H, (kv + 1) * D_H)
        q, _ = rope_forward(x @ W_q[:, columns], cos=COS_SIN[0], sin=COS_SIN[1])
        k, _ = rope_forward(x @ W_k[:, shared], cos=COS_SIN[0], sin=COS_SIN[1])
        context, head = attention_forward(q, k, x @ W_v[:, shared], divisor=2.0, mask=PADDED[:, 0])
        want += context @ W_o[columns]
        if not flash:
            assert relative_error(saved.probs[:, h], head.softmax[0]) < 1e-13
    assert relative_error(y, want) < 1e-13


def test_tiles_have_no_tables(rng) -> None:
    _, saved = grouped_attention_forward(*random_inputs(rng), **settings(flash=True))
    with pytest.raises(AttributeError, match="keeps no weight tables"):
        _ = saved.probs
