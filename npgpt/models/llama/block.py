"""One Llama block: grouped attention and SwiGLU, each with its RMSNorm in front and its residual
around it (article chapters 9 and 11.1)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from npgpt.decoding.kv_cache import KVCache
from npgpt.layers.grouped_attention import (
    GroupedAttentionSaved,
    grouped_attention_backward,
    grouped_attention_forward,
)
from npgpt.layers.swiglu import SwiGLUSaved, swiglu_backward, swiglu_forward
from npgpt.models.common import Observer, Params, station
from npgpt.models.llama.config import LlamaConfig
from npgpt.ops import rms_norm
from npgpt.ops.rms_norm import rms_norm_backward, rms_norm_forward

ATTENTION = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")
MLP = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")


class BlockSaved(NamedTuple):
    """What `block_backward` reads."""

    input_layernorm: rms_norm.Saved
    self_attn: GroupedAttentionSaved
    post_attention_layernorm: rms_norm.Saved
    mlp: SwiGLUSaved


def block_forward(
    x: np.ndarray,
    params: Params,
    n: int,
    config: LlamaConfig,
    mask: np.ndarray,
    turns: tuple[np.ndarray, np.ndarray],
    kv: KVCache | None = None,
    rng: np.random.Generator | None = None,
    observe: Observer | None = None,
    flash: bool = False,
) -> tuple[np.ndarray, BlockSaved]:
    """Block n: two sublayers, each reads RMSNorm(x) and adds its correction to x. Article 11.1.

        x = x + self_attn(input_layernorm(x))
        x = x + mlp(post_attention_layernorm(x))

    Args:
        x: the residual stream [..., T, d].
        params: the model's parameters; those named layers.n.… are used.
        mask: bool [T, S] or [..., 1, T, S].
        turns: cos and sin of the positions, see `grouped_attention_forward`.
        kv, rng, observe, flash: see `Llama.forward`.

    Returns:
        x [..., T, d] after both corrections, and what backward reads.
    """
    h, eps = f"layers.{n}.", config.rms_norm_eps

    normed, norm_1 = rms_norm_forward(x, params[h + "input_layernorm.weight"], eps=eps)
    correction, self_attn = grouped_attention_forward(
        normed,
        *(params[f"{h}self_attn.{name}"] for name in ATTENTION),
        n_head=config.num_attention_heads,
        n_kv_head=config.n_kv_head,
        turns=turns,
        divisor=config.d_h**0.5,
        mask=mask,
        extend_kv=None if kv is None else partial(kv.extend, n),
        pdrop=config.attention_dropout,
        rng=rng,
        flash=flash,
    )
    x = x + correction
    if observe is not None and not flash:
        observe(h + "self_attn.probs", self_attn.probs)
    station(observe, h + "self_attn", correction)

    normed, norm_2 = rms_norm_forward(x, params[h + "post_attention_layernorm.weight"], eps=eps)
    correction, mlp = swiglu_forward(
        normed, *(params[f"{h}mlp.{name}"] for name in MLP), activation=config.hidden_act
    )
    x = x + correction
    station(observe, h + "mlp", correction)
    station(observe, f"layers.{n}", x)
    return x, BlockSaved(norm_1, self_attn, norm_2, mlp)


def block_backward(dx: np.ndarray, saved: BlockSaved, n: int, grads: Params) -> np.ndarray:
    """Block n in reverse: puts its parameters' gradients into `grads`, returns dx [..., T, d].

    At each "+" the gradient goes both ways unchanged: straight on along the residual stream, and
    through the sublayer, whose share is added (article 9.1).
    """
    h = f"layers.{n}."

    dnormed, *dmlp = swiglu_backward(dx, saved.mlp)
    dthrough, dweight = rms_norm_backward(dnormed, saved.post_attention_layernorm)
    dx = dx + dthrough
    grads |= {f"{h}mlp.{name}": grad for name, grad in zip(MLP, dmlp, strict=True)}
    grads[h + "post_attention_layernorm.weight"] = dweight

    dnormed, *dattn = grouped_attention_backward(dx, saved.self_attn)
    dthrough, dweight = rms_norm_backward(dnormed, saved.input_layernorm)
    dx = dx + dthrough
    grads |= {f"{h}self_attn.{name}": grad for name, grad in zip(ATTENTION, dattn, strict=True)}
    grads[h + "input_layernorm.weight"] = dweight
    return dx
