"""Llama: token embedding, L blocks, a last RMSNorm, lm_head (article chapters 6, 8, 9 and 11).

The same page as `gpt2.py` with four parts exchanged: rotary positions inside the attention instead
of a position table, RMSNorm, SwiGLU, and keys and values that several heads share; no biases. A
block is written out in `llama_block.py`, configuration and parameter names in `llama_config.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding import causal as decoding
from npgpt.decoding.kv_cache import KVCache
from npgpt.models.causal import check_input, new_positions
from npgpt.models.common import Observer, Params, station
from npgpt.models.llama.block import BlockSaved, block_backward, block_forward
from npgpt.models.llama.config import LlamaConfig
from npgpt.ops import lm_head, lookup, rms_norm
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lm_head_loss import lm_head_loss_backward, lm_head_loss_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.mask import attention_mask_for
from npgpt.ops.rms_norm import rms_norm_backward, rms_norm_forward
from npgpt.ops.rope import rotation


class LlamaSaved(NamedTuple):
    """What `backward` reads; `blocks[4].self_attn.probs[0, 11]` is the weight table of one head."""

    embed_tokens: lookup.Saved
    blocks: list[BlockSaved]
    norm: rms_norm.Saved
    lm_head: lm_head.Saved


class LlamaOutput(NamedTuple):
    """Logits [..., T, V], and everything the backward pass reads."""

    logits: np.ndarray
    saved: LlamaSaved


class Llama:
    """A Llama with its parameters: logits, loss, gradients, text.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `model.`.
        source: the place it was loaded from, None for a model made in memory.
    """

    def __init__(self, config: LlamaConfig, params: Params) -> None:
        self.config = config
        self.params = params
        self.source: Path | None = None

    def __call__(
        self,
        ids: Any,
        attention_mask: Any = None,
        kv: KVCache | None = None,
        *,
        last_only: bool = False,
    ) -> np.ndarray:
        """Logits alone: `forward` without keeping anything for a backward pass.

        `last_only` computes those of the last position only: [..., 1, V].
        """
        x, *_ = self._trunk(ids, attention_mask, kv, None, None, flash=True, keep=False)
        x = x[..., -1:, :] if last_only else x
        return self._head(x, None)[0]

    def forward(
        self,
        ids: Any,
        attention_mask: Any = None,
        kv: KVCache | None = None,
        *,
        rng: np.random.Generator | None = None,
        observe: Observer | None = None,
        flash: bool = False,
    ) -> LlamaOutput:
        """Logits for every position, and everything that the backward pass reads.

        Args:
            ids: [T] or [B, T] integers in 0..V-1.
            attention_mask: [S] or [B, S], 0 for padding on either side; positions count the real
                tokens only, as Hugging Face's generation does. S includes cached positions.
            kv: keys and values of earlier tokens, which grow by these T; see `new_kv_cache`.
            rng: draws the masks of `attention_dropout` in training; None: no dropout.
            observe: called as observe(station, array) at each station of the pass: `embed`,
                `layers.0.self_attn`, `layers.0.mlp`, `layers.0`, …, `norm`, `logits`.
            flash: attention without weight tables, see `attend_forward`.

        Returns:
            logits [T, V] or [B, T, V] in the parameters' dtype, and `saved`. There is no longest
            text, for angles grow without end; what the model was trained for is `context`.

        Raises:
            ValueError: ids out of range or of a wrong shape or dtype; a cache beyond the length at
                which rope_type "dynamic" begins to change all angles.
        """
        x, embed_tokens, blocks = self._trunk(
            ids, attention_mask, kv, rng, observe, flash=flash, keep=True
        )
        logits, norm, head = self._head(x, observe)
        return LlamaOutput(logits, LlamaSaved(embed_tokens, blocks, norm, head))

    def _trunk(
        self,
        ids: Any,
        attention_mask: Any,
        kv: KVCache | None,
        rng: np.random.Generator | None,
        observe: Observer | None,
        *,
        flash: bool,
        keep: bool,
    ) -> tuple[np.ndarray, lookup.Saved, list[BlockSaved]]:
        """The residual stream after the last block [..., T, d], and what each part saved."""
        past = 0 if kv is None else kv.length
        ids, attention_mask = check_input(ids, attention_mask, past)
        T = ids.shape[-1]
        turns = self._turns(new_positions(past, T, attention_mask), kv)
        mask = attention_mask_for(T, past + T, attention_mask)

        x, embed_tokens = lookup_forward(ids, self.params["embed_tokens.weight"])  # [..., T, d]
        station(observe, "embed", x)
        blocks = []
        for n in range(self.config.num_hidden_layers):
            x, saved = block_forward(
                x, self.params, n, self.config, mask, turns, kv, rng, observe, flash
            )
            if keep:
                blocks.append(saved)
            del saved  # or it would still be there while the next block runs
        if kv is not None:
            kv.advance(T)
        return x, embed_tokens, blocks

    def _turns(self, positions: np.ndarray, kv: KVCache | None) -> tuple[np.ndarray, np.ndarray]:
        """Cosine and sine of the angles, the same for every head: [..., 1, T, d_h/2]."""
        length = int(positions.max()) + 1
        trained = self.config.max_position_embeddings
        if kv is not None and self.config.rope_type == "dynamic" and length > trained:
            raise ValueError(
                f"rope_type 'dynamic' changes the angles of all tokens of a text beyond {trained}, "
                "which a KV cache cannot follow; go on without (use_cache=False, --no-cache)."
            )
        return rotation(positions[..., None, :], self.config.frequencies(length))

    def _head(
        self, x: np.ndarray, observe: Observer | None
    ) -> tuple[np.ndarray, rms_norm.Saved, lm_head.Saved]:
        """The last norm and lm_head, which is embed_tokens itself where the two are tied."""
        x, norm = rms_norm_forward(x, self.params["norm.weight"], eps=self.config.rms_norm_eps)
        station(observe, "norm", x)
        logits, head = lm_head_forward(x, self.params[self._head_name])  # [..., T, V]
        station(observe, "logits", logits)
        return logits, norm, head

    def backward(self, dlogits: np.ndarray, saved: LlamaSaved) -> Params:
        """Gradients of all parameters, keyed like `params`, from that of the logits [..., T, V].

        A tied table gets both its contributions: as lm_head and as lookup (article 10.2).
        """
        return self._backward_from(*lm_head_backward(dlogits, saved.lm_head), saved)

    def _backward_from(self, dx: np.ndarray, dhead: np.ndarray, saved: LlamaSaved) -> Params:
        """The way back from below lm_head; the gradient of its table, `dhead`, is used up."""
        grads: Params = {self._head_name: dhead}
        dx, grads["norm.weight"] = rms_norm_backward(dx, saved.norm)
        for n in reversed(range(self.config.num_hidden_layers)):
            dx = block_backward(dx, saved.blocks[n], n, grads)
        name = "embed_tokens.weight"
        grads[name] = lookup_backward(dx, saved.embed_tokens, add_to=grads.get(name))
        return {name: grads[name] for name in self.params}

    def loss_and_grads(
        self,
        ids: Any,
        targets: Any,
        attention_mask: Any = None,
        *,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.floating, Params]:
        """Mean loss in nats over all targets that are not -100, and every parameter's gradient.

        Args:
            ids: [T] or [B, T].
            targets: like ids, already shifted: targets[t] is the token that follows ids[t].
            attention_mask, rng: see `forward`.
        """
        x, embed_tokens, blocks = self._trunk(
            ids, attention_mask, None, rng, None, flash=True, keep=True
        )
        x, norm = rms_norm_forward(x, self.params["norm.weight"], eps=self.config.rms_norm_eps)
        table = self.params[self._head_name]
        loss, saved_loss = lm_head_loss_forward(x, np.asarray(targets), table)
        saved = LlamaSaved(embed_tokens, blocks, norm, (x, table))
        return loss, self._backward_from(*lm_head_loss_backward(1.0, saved_loss), saved)

    def new_kv_cache(self, batch: tuple[int, ...] = (), capacity: int | None = None) -> KVCache:
        """An empty cache for ids [*batch, T], with room for `capacity` (`context`) tokens.

        It holds the H_kv heads that are shared, not H.
        """
        config = self.config
        shape = (*batch, config.n_kv_head, capacity or self.context, config.d_h)
        return KVCache(config.num_hidden_layers, shape, self.params["embed_tokens.weight"].dtype)

    def generate(self, ids: Any, max_new_tokens: int = 40, **options: Any) -> Iterator[Any]:
        """Continue `ids`, one token after the other; options: see `npgpt.decoding.causal`."""
        return decoding.generate(self, ids, max_new_tokens, **options)

    def num_params(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied head counted once; without, the blocks and the last norm."""
        tables = () if embeddings else ("embed_tokens.weight", "lm_head.weight")
        return sum(array.size for name, array in self.params.items() if name not in tables)

    def save_pretrained(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a folder that transformers loads too, with the vocabulary of the model loaded.

        `overwrite`: also where there is another vocabulary or a training run; else ValueError.
        """
        from npgpt.files.hub import companions
        from npgpt.models.llama.checkpoint import save_llama

        options = {"beside": companions(self.source), "overwrite": overwrite}
        save_llama(folder, self.config, self.params, **options)

    @property
    def context(self) -> int:
        """How many tokens a text may have: max_position_embeddings, times factor if dynamic."""
        scaling = self.config.rope_scaling or {"rope_type": "default"}
        factor = scaling["factor"] if scaling["rope_type"] == "dynamic" else 1
        return int(factor * self.config.max_position_embeddings)

    @property
    def rows(self) -> int:
        """How many ids have a row in embed_tokens, padding beyond `vocab_size` included."""
        return len(self.params["embed_tokens.weight"])

    @property
    def _head_name(self) -> str:
        return "embed_tokens.weight" if self.config.tie_word_embeddings else "lm_head.weight"
