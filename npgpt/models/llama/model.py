"""Llama and its relatives: token embedding, L blocks, a last RMSNorm (article 6, 8, 9 and 11).

GPT-2's page with four parts exchanged: rotary positions inside the attention instead of a position
table, RMSNorm, SwiGLU, and keys and values that several heads share; biases only where a relative
has them. What else the relatives have of their own is in `families.py`; a mixture of experts in the
place of the MLP is in `mlp.py`.

    x = embed_tokens[ids]
    x = x + self_attn(input_layernorm(x));   x = x + mlp(post_attention_layernorm(x))      L times
    logits = norm(x) embed_tokensᵀ, or norm(x) lm_headᵀ                             in `causal.py`
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding.kv_cache import Sizes
from npgpt.layers.grouped_attention import (
    GroupedAttentionSaved,
    grouped_attention_backward,
    grouped_attention_forward,
)
from npgpt.layers.mixture import with_balance
from npgpt.models.causal import CausalLM
from npgpt.models.common import Params, Pass, of, put, put_those_of, those_of
from npgpt.models.llama.checkpoint import save_llama
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.mlp import MLPSaved, mlp_backward, mlp_forward
from npgpt.ops import lookup, rms_norm
from npgpt.ops.load_balance import load_balance_backward, load_balance_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.rms_norm import rms_norm_backward, rms_norm_forward
from npgpt.ops.rope import rotation

# In the order of the layers' arguments; a model has all weights, and the rest as it is made.
ATTENTION = (
    *(f"{part}_proj.{kind}" for kind in ("weight", "bias") for part in "qkvo"),
    *(f"{part}_norm.weight" for part in "qk"),
)


class BlockSaved(NamedTuple):
    """What `block_backward` reads."""

    input_layernorm: rms_norm.Saved
    self_attn: GroupedAttentionSaved
    post_attention_layernorm: rms_norm.Saved
    mlp: MLPSaved


class LlamaSaved(NamedTuple):
    """What `backward` reads; `blocks[4].self_attn.probs[0, 11]` is the weight table of one head."""

    embed_tokens: lookup.Saved
    blocks: list[BlockSaved]
    norm: rms_norm.Saved
    lm_head: Any = None  # lm_head.Saved, once there are logits


def block_forward(
    x: np.ndarray,
    params: Params,
    n: int,
    config: LlamaConfig,
    mask: np.ndarray,
    cos_sin: tuple[np.ndarray, np.ndarray],
    run: Pass,
) -> tuple[np.ndarray, BlockSaved]:
    """Block n: two sublayers, each reads RMSNorm(x) and adds its correction to x. Article 11.1.

        x = x + self_attn(input_layernorm(x))
        x = x + mlp(post_attention_layernorm(x))

    Args:
        x: the residual stream [..., T, d].
        params: the model's parameters; those named layers.n.… are used.
        mask: bool [T, S] or [..., 1, T, S]; True = may attend.
        cos_sin: of the positions' angles, see `grouped_attention_forward`.

    Returns:
        x [..., T, d] after both corrections, and what backward reads.
    """
    h, eps = f"layers.{n}", config.rms_norm_eps

    normed, norm_1 = rms_norm_forward(x, *of(params, f"{h}.input_layernorm"), eps=eps)
    correction, self_attn = grouped_attention_forward(
        run.station(f"{h}.input_layernorm", normed),
        *those_of(params, f"{h}.self_attn", ATTENTION),
        n_head=config.num_attention_heads,
        n_kv_head=config.n_kv_head,
        cos_sin=cos_sin,
        divisor=config.d_h**0.5,
        mask=mask,
        eps=eps,
        extend_kv=run.extend_kv(n),
        pdrop=config.attention_dropout,
        rng=run.rng,
        flash=run.flash,
        station=run.within(f"{h}.self_attn"),
    )  # [..., T, d]
    x = x + run.station(f"{h}.self_attn", correction)

    normed, norm_2 = rms_norm_forward(x, *of(params, f"{h}.post_attention_layernorm"), eps=eps)
    normed = run.station(f"{h}.post_attention_layernorm", normed)
    correction, mlp = mlp_forward(normed, params, n, config, run)
    x = run.station(h, x + run.station(f"{h}.mlp", correction))
    return x, BlockSaved(norm_1, self_attn, norm_2, mlp)


def block_backward(
    dx: np.ndarray, saved: BlockSaved, n: int, config: LlamaConfig, grads: Params, run: Pass
) -> np.ndarray:
    """Block n in reverse: puts its parameters' gradients into `grads`, returns dx [..., T, d].

    At each "+" the gradient goes both ways unchanged: straight on along the residual stream, and
    through the sublayer, whose share is added (article 9.1).
    """
    h = f"layers.{n}"

    dx = run.station(h, dx)
    dcorrection = run.station(f"{h}.mlp", dx)
    dnormed = mlp_backward(dcorrection, saved.mlp, n, config, grads, run)
    dnormed = run.station(f"{h}.post_attention_layernorm", dnormed)
    dthrough, *dnorm = rms_norm_backward(dnormed, saved.post_attention_layernorm)
    dx = dx + dthrough
    put(grads, f"{h}.post_attention_layernorm", of=dnorm)

    dcorrection, station = run.station(f"{h}.self_attn", dx), run.within(f"{h}.self_attn")
    dnormed, *dattn = grouped_attention_backward(dcorrection, saved.self_attn, station)
    dnormed = run.station(f"{h}.input_layernorm", dnormed)
    dthrough, *dnorm = rms_norm_backward(dnormed, saved.input_layernorm)
    dx = dx + dthrough
    put_those_of(grads, f"{h}.self_attn", ATTENTION, dattn)
    put(grads, f"{h}.input_layernorm", of=dnorm)
    return dx


class Llama(CausalLM):
    """A Llama or a relative with its parameters: logits, loss, gradients, text.

    There is no longest text, as angles grow without end; what the model was trained for is
    `context`.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `model.`.
    """

    TABLE = "embed_tokens.weight"
    config: LlamaConfig

    def _trunk(
        self, ids: np.ndarray, positions: np.ndarray, masks: list[np.ndarray], run: Pass
    ) -> tuple[np.ndarray, LlamaSaved]:
        params, config = self.params, self.config
        cos_sin = self._cos_sin(positions, cached=run.kv is not None)
        x, embed_tokens = lookup_forward(ids, params["embed_tokens.weight"])  # [..., T, d]
        x = run.station("embed", x)
        blocks = []
        for n in range(config.num_hidden_layers):
            x, saved = block_forward(x, params, n, config, masks[n], cos_sin, run)  # [..., T, d]
            if run.keep:
                blocks.append(saved)
            del saved  # or it would still be there while the next block runs
        x, norm = rms_norm_forward(x, *of(params, "norm"), eps=config.rms_norm_eps)
        return run.station("norm", x), LlamaSaved(embed_tokens, blocks, norm)

    def _trunk_backward(self, dx: np.ndarray, saved: Any, grads: Params, run: Pass) -> None:
        dx, *dnorm = rms_norm_backward(run.station("norm", dx), saved.norm)  # [..., T, d]
        put(grads, "norm", of=dnorm)
        for n in reversed(range(self.config.num_hidden_layers)):
            dx = block_backward(dx, saved.blocks[n], n, self.config, grads, run)
        dx = run.station("embed", dx)
        # A tied table has its gradient as lm_head already; that of the lookup is added to it.
        table = grads.get("embed_tokens.weight")
        grads["embed_tokens.weight"] = lookup_backward(dx, saved.embed_tokens, add_to=table)

    def _further_loss(self, saved: Any, attention_mask: Any) -> tuple[Any, Any]:
        """The load-balancing loss of all routers together, where the configuration asks for it."""
        config, blocks = self.config, list(saved.blocks)
        sparse = [n for n, has_experts in enumerate(config.sparse) if has_experts]
        if not (config.output_router_logits and sparse):
            return 0.0, saved
        probs = np.stack([blocks[n].mlp.router.probs for n in sparse])  # [blocks, ..., T, E]
        kept = np.stack([blocks[n].mlp.router.kept for n in sparse])
        counted = None if attention_mask is None else np.asarray(attention_mask, bool)
        loss, saved_loss = load_balance_forward(probs, kept, counted=counted)
        dprobs = load_balance_backward(config.router_aux_loss_coef, saved_loss)
        for n, of_block in zip(sparse, dprobs, strict=True):
            blocks[n] = blocks[n]._replace(mlp=with_balance(blocks[n].mlp, of_block))
        return config.router_aux_loss_coef * loss, saved._replace(blocks=blocks)

    def _cos_sin(self, positions: np.ndarray, *, cached: bool) -> tuple[np.ndarray, np.ndarray]:
        """Cosine and sine of the angles, the same for every head: [..., 1, T, d_h/2].

        ValueError for a cache beyond the length at which all angles change.
        """
        length, rotary = int(positions.max()) + 1, self.config.rotary
        if cached and rotary.same_angles is not None and length > rotary.same_angles:
            raise ValueError(
                f"rope_type {rotary.rope_type!r} changes the angles of all tokens of a text beyond "
                f"{rotary.same_angles}, which a KV cache cannot follow; go on without "
                "(use_cache=False, --no-cache)."
            )
        cos, sin = rotation(positions[..., None, :], rotary.frequencies(length))
        return rotary.attention_factor * cos, rotary.attention_factor * sin

    def num_params(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied head counted once; without, the blocks and the last norm."""
        tables = () if embeddings else ("embed_tokens.weight", "lm_head.weight")
        return super().num_params() - sum(self.params[t].size for t in tables if t in self.params)

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        save_llama(folder, self.config, self.params, **options)

    @property
    def context(self) -> int:
        """How many tokens a text may have, see `npgpt.models.llama.rotary.Rotary`."""
        return self.config.rotary.context

    def _kv_sizes(self) -> Sizes:
        """The cache holds the H_kv heads that are shared, not H."""
        config = self.config
        return Sizes(config.num_hidden_layers, config.n_kv_head, config.d_h)

    def _sizes(self) -> str:
        c = self.config
        heads = f"{c.num_attention_heads} heads on {c.n_kv_head}"
        return f"{c.num_hidden_layers} blocks, {heads}, d {c.hidden_size}, V {self.rows}"
