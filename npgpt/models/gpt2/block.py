"""One GPT-2 block: attention and feed-forward, each with its LayerNorm in front and its residual
around it (article chapters 9 and 11.1)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from npgpt.decoding.kv_cache import KVCache
from npgpt.layers.feed_forward import (
    FeedForwardSaved,
    feed_forward_backward,
    feed_forward_forward,
)
from npgpt.layers.self_attention import (
    SelfAttentionSaved,
    self_attention_backward,
    self_attention_forward,
)
from npgpt.models.common import Observer, Params, station
from npgpt.models.gpt2.config import GPT2Config
from npgpt.ops import dropout, layer_norm
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward


class BlockSaved(NamedTuple):
    """What `block_backward` reads."""

    ln_1: layer_norm.Saved
    attn: SelfAttentionSaved
    attn_dropout: dropout.Saved
    ln_2: layer_norm.Saved
    mlp: FeedForwardSaved
    mlp_dropout: dropout.Saved


def block_forward(
    x: np.ndarray,
    params: Params,
    n: int,
    config: GPT2Config,
    mask: np.ndarray,
    kv: KVCache | None = None,
    rng: np.random.Generator | None = None,
    observe: Observer | None = None,
    flash: bool = False,
) -> tuple[np.ndarray, BlockSaved]:
    """Block n: two sublayers, each reads LayerNorm(x) and adds its correction to x. Article 11.1.

        x = x + attn(ln_1(x))
        x = x + mlp(ln_2(x))

    Args:
        x: the residual stream [..., T, d].
        params: the model's parameters; those named h.n.… are used.
        mask: bool, broadcasts against [..., H, T, S].
        kv, rng, observe, flash: see `GPT2.forward`.

    Returns:
        x [..., T, d] after both corrections, and what backward reads.
    """
    h, eps, pdrop = f"h.{n}.", config.layer_norm_epsilon, config.resid_pdrop

    normed, ln_1 = layer_norm_forward(
        x, params[h + "ln_1.weight"], params[h + "ln_1.bias"], eps=eps
    )
    correction, attn = self_attention_forward(
        normed,
        params[h + "attn.c_attn.weight"],
        params[h + "attn.c_attn.bias"],
        params[h + "attn.c_proj.weight"],
        params[h + "attn.c_proj.bias"],
        n_head=config.n_head,
        divisor=config.attention_divisor(n),
        mask=mask,
        extend_kv=None if kv is None else partial(kv.extend, n),
        pdrop=config.attn_pdrop,
        rng=rng,
        flash=flash,
    )
    correction, attn_dropout = dropout_forward(correction, p=pdrop, rng=rng)
    x = x + correction
    if observe is not None and not flash:
        observe(h + "attn.probs", attn.probs)
    station(observe, h + "attn", correction)

    normed, ln_2 = layer_norm_forward(
        x, params[h + "ln_2.weight"], params[h + "ln_2.bias"], eps=eps
    )
    correction, mlp = feed_forward_forward(
        normed,
        params[h + "mlp.c_fc.weight"],
        params[h + "mlp.c_fc.bias"],
        params[h + "mlp.c_proj.weight"],
        params[h + "mlp.c_proj.bias"],
        activation=config.activation_function,
    )
    correction, mlp_dropout = dropout_forward(correction, p=pdrop, rng=rng)
    x = x + correction
    station(observe, h + "mlp", correction)
    station(observe, f"h.{n}", x)
    return x, BlockSaved(ln_1, attn, attn_dropout, ln_2, mlp, mlp_dropout)


def block_backward(dx: np.ndarray, saved: BlockSaved, n: int, grads: Params) -> np.ndarray:
    """Block n in reverse: puts its parameters' gradients into `grads`, returns dx [..., T, d].

    At each "+" the gradient goes both ways unchanged: straight on along the residual stream, and
    through the sublayer, whose share is added (article 9.1).
    """
    h = f"h.{n}."

    dcorrection = dropout_backward(dx, saved.mlp_dropout)
    dnormed, *dmlp = feed_forward_backward(dcorrection, saved.mlp)
    dthrough, *dln_2 = layer_norm_backward(dnormed, saved.ln_2)
    dx = dx + dthrough
    grads[h + "mlp.c_fc.weight"], grads[h + "mlp.c_fc.bias"] = dmlp[:2]
    grads[h + "mlp.c_proj.weight"], grads[h + "mlp.c_proj.bias"] = dmlp[2:]
    grads[h + "ln_2.weight"], grads[h + "ln_2.bias"] = dln_2

    dcorrection = dropout_backward(dx, saved.attn_dropout)
    dnormed, *dattn = self_attention_backward(dcorrection, saved.attn)
    dthrough, *dln_1 = layer_norm_backward(dnormed, saved.ln_1)
    dx = dx + dthrough
    grads[h + "attn.c_attn.weight"], grads[h + "attn.c_attn.bias"] = dattn[:2]
    grads[h + "attn.c_proj.weight"], grads[h + "attn.c_proj.bias"] = dattn[2:]
    grads[h + "ln_1.weight"], grads[h + "ln_1.bias"] = dln_1
    return dx
