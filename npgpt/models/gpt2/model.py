"""GPT-2: token and position embedding, L blocks, a last LayerNorm (article chapter 11).

    x = wte[ids] + wpe[positions]
    x = x + attn(ln_1(x));   x = x + mlp(ln_2(x))           L times
    logits = ln_f(x) wteᵀ                                    lm_head (chapter 10), in `causal.py`

The residual stream x runs from top to bottom, and every block adds its corrections to it. The
backward pass is the same page read from below.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding.kv_cache import Sizes
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
from npgpt.models.causal import CausalLM, check_positions
from npgpt.models.common import Params, Pass, of, put
from npgpt.models.gpt2.checkpoint import save_checkpoint
from npgpt.models.gpt2.config import GPT2Config
from npgpt.ops import dropout, layer_norm, lookup, position
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.position import position_backward, position_forward


class BlockSaved(NamedTuple):
    """What `block_backward` reads."""

    ln_1: layer_norm.Saved
    attn: Any  # SelfAttentionSaved; GPT-Neo's has other names
    attn_dropout: dropout.Saved
    ln_2: layer_norm.Saved
    mlp: FeedForwardSaved
    mlp_dropout: dropout.Saved


class GPT2Saved(NamedTuple):
    """What `backward` reads; `blocks[4].attn.probs[0, 11]` is the weight table of one head."""

    wte: lookup.Saved
    wpe: position.Saved
    embd_dropout: dropout.Saved
    blocks: list[BlockSaved]
    ln_f: layer_norm.Saved
    lm_head: Any = None  # lm_head.Saved, once there are logits


def attn_forward(
    x: np.ndarray, params: Params, n: int, config: GPT2Config, mask: np.ndarray, run: Pass
) -> tuple[np.ndarray, SelfAttentionSaved]:
    """The attention of block n, on the normalised stream [..., T, d]; see `block_forward`."""
    attn = f"h.{n}.attn"
    return self_attention_forward(
        x,
        *of(params, f"{attn}.c_attn", f"{attn}.c_proj"),
        n_head=config.n_head,
        divisor=config.attention_divisor(n),
        mask=mask,
        extend_kv=run.extend_kv(n),
        pdrop=config.attn_pdrop,
        rng=run.rng,
        flash=run.flash,
        station=run.within(attn),
    )


def attn_backward(
    dy: np.ndarray, saved: SelfAttentionSaved, n: int, grads: Params, run: Pass
) -> np.ndarray:
    """Puts the gradients of block n's attention into `grads`, returns dx [..., T, d]."""
    attn = f"h.{n}.attn"
    dx, *dparams = self_attention_backward(dy, saved, run.within(attn))
    put(grads, f"{attn}.c_attn", f"{attn}.c_proj", of=dparams)
    return dx


def block_forward(
    x: np.ndarray,
    params: Params,
    n: int,
    config: GPT2Config,
    mask: np.ndarray,
    run: Pass,
    attn_forward: Callable[..., Any] = attn_forward,
) -> tuple[np.ndarray, BlockSaved]:
    """Block n: two sublayers, each reads LayerNorm(x) and adds its correction to x. Article 11.1.

        x = x + attn(ln_1(x))
        x = x + mlp(ln_2(x))

    Args:
        x: the residual stream [..., T, d].
        params: the model's parameters; those named h.n.… are used.
        mask: bool, broadcasts against [..., H, T, S]; True = may attend.
        attn_forward: the attention; GPT-Neo has its own.

    Returns:
        x [..., T, d] after both corrections, and what backward reads.
    """
    h, eps, pdrop = f"h.{n}", config.layer_norm_epsilon, config.resid_pdrop

    normed, ln_1 = layer_norm_forward(x, *of(params, f"{h}.ln_1"), eps=eps)  # [..., T, d]
    normed = run.station(f"{h}.ln_1", normed)
    correction, attn = attn_forward(normed, params, n, config, mask, run)  # [..., T, d]
    correction, attn_dropout = dropout_forward(correction, p=pdrop, rng=run.rng)
    x = x + run.station(f"{h}.attn", correction)

    normed, ln_2 = layer_norm_forward(x, *of(params, f"{h}.ln_2"), eps=eps)
    correction, mlp = feed_forward_forward(
        run.station(f"{h}.ln_2", normed),
        *of(params, f"{h}.mlp.c_fc", f"{h}.mlp.c_proj"),
        activation=config.activation_function,
        station=run.within(f"{h}.mlp"),
    )  # [..., T, d] -> [..., T, F] -> [..., T, d]
    correction, mlp_dropout = dropout_forward(correction, p=pdrop, rng=run.rng)
    x = run.station(h, x + run.station(f"{h}.mlp", correction))
    return x, BlockSaved(ln_1, attn, attn_dropout, ln_2, mlp, mlp_dropout)


def block_backward(
    dx: np.ndarray,
    saved: BlockSaved,
    n: int,
    grads: Params,
    run: Pass,
    attn_backward: Callable[..., np.ndarray] = attn_backward,
) -> np.ndarray:
    """Block n in reverse: puts its parameters' gradients into `grads`, returns dx [..., T, d].

    At each "+" the gradient goes both ways unchanged: straight on along the residual stream, and
    through the sublayer, whose share is added (article 9.1).
    """
    h = f"h.{n}"

    dx = run.station(h, dx)
    dcorrection = dropout_backward(run.station(f"{h}.mlp", dx), saved.mlp_dropout)  # [..., T, d]
    dnormed, *dmlp = feed_forward_backward(dcorrection, saved.mlp, run.within(f"{h}.mlp"))
    dthrough, *dln_2 = layer_norm_backward(run.station(f"{h}.ln_2", dnormed), saved.ln_2)
    dx = dx + dthrough
    put(grads, f"{h}.mlp.c_fc", f"{h}.mlp.c_proj", of=dmlp)
    put(grads, f"{h}.ln_2", of=dln_2)

    dcorrection = dropout_backward(run.station(f"{h}.attn", dx), saved.attn_dropout)
    dnormed = attn_backward(dcorrection, saved.attn, n, grads, run)
    dthrough, *dln_1 = layer_norm_backward(run.station(f"{h}.ln_1", dnormed), saved.ln_1)
    dx = dx + dthrough
    put(grads, f"{h}.ln_1", of=dln_1)
    return dx


class GPT2(CausalLM):
    """A GPT-2 with its parameters: logits, loss, gradients, text.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `transformer.`.
    """

    TABLE = "wte.weight"
    config: GPT2Config
    attn_forward: Callable[..., Any] = staticmethod(attn_forward)
    attn_backward: Callable[..., np.ndarray] = staticmethod(attn_backward)

    def _trunk(
        self, ids: np.ndarray, positions: np.ndarray, masks: list[np.ndarray], run: Pass
    ) -> tuple[np.ndarray, GPT2Saved]:
        params, config = self.params, self.config
        check_positions(positions, self.context)
        x, wte = lookup_forward(ids, params["wte.weight"])  # [..., T] -> [..., T, d]
        x, wpe = position_forward(x, positions, params["wpe.weight"])
        x, embd_dropout = dropout_forward(x, p=config.embd_pdrop, rng=run.rng)
        x = run.station("embed", x)
        blocks = []
        for n in range(config.n_layer):
            x, saved = block_forward(x, params, n, config, masks[n], run, self.attn_forward)
            if run.keep:
                blocks.append(saved)
            del saved  # or it would still be there while the next block runs
        x, ln_f = layer_norm_forward(x, *of(params, "ln_f"), eps=config.layer_norm_epsilon)
        return run.station("ln_f", x), GPT2Saved(wte, wpe, embd_dropout, blocks, ln_f)

    def _trunk_backward(self, dx: np.ndarray, saved: Any, grads: Params, run: Pass) -> None:
        dx, *dln_f = layer_norm_backward(run.station("ln_f", dx), saved.ln_f)  # [..., T, d]
        put(grads, "ln_f", of=dln_f)
        for n in reversed(range(self.config.n_layer)):
            dx = block_backward(dx, saved.blocks[n], n, grads, run, self.attn_backward)
        dx = dropout_backward(run.station("embed", dx), saved.embd_dropout)
        dx, grads["wpe.weight"] = position_backward(dx, saved.wpe)
        # A tied wte has its gradient as lm_head already; that of the lookup is added to it (10.2).
        grads["wte.weight"] = lookup_backward(dx, saved.wte, add_to=grads.get("wte.weight"))

    def num_params(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied head counted once.

        `embeddings=False` leaves out the position table, as nanoGPT counts (article 11.2).
        """
        return super().num_params() - (0 if embeddings else self.params["wpe.weight"].size)

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        save_checkpoint(folder, self.config, self.params, **options)

    @property
    def context(self) -> int:
        """How many tokens a text may have: the rows of wpe."""
        return len(self.params["wpe.weight"])

    def _kv_sizes(self) -> Sizes:
        config = self.config
        return Sizes(config.n_layer, config.n_head, config.n_embd // config.n_head)

    def _sizes(self) -> str:
        c = self.config
        return f"{c.n_layer} blocks, {c.n_head} heads, d {c.n_embd}, V {self.rows}"
