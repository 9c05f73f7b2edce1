"""GPT-2: token and position embedding, L blocks, a last LayerNorm, lm_head (article chapter 11).

The residual stream x runs from top to bottom, and every block adds its corrections to it. The
backward pass is the same page read from below. A block is written out in `gpt2_block.py`,
configuration and parameter names in `gpt2_config.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding import causal as decoding
from npgpt.decoding.kv_cache import KVCache
from npgpt.models.causal import check_input, check_positions, new_positions
from npgpt.models.common import Observer, Params, station
from npgpt.models.gpt2.block import BlockSaved, block_backward, block_forward
from npgpt.models.gpt2.config import GPT2Config
from npgpt.ops import dropout, layer_norm, lm_head, lookup, position
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lm_head_loss import lm_head_loss_backward, lm_head_loss_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.mask import attention_mask_for
from npgpt.ops.position import position_backward, position_forward


class GPT2Saved(NamedTuple):
    """What `backward` reads; `blocks[4].attn.probs[0, 11]` is the weight table of one head."""

    wte: lookup.Saved
    wpe: position.Saved
    embd_dropout: dropout.Saved
    blocks: list[BlockSaved]
    ln_f: layer_norm.Saved
    lm_head: lm_head.Saved


class GPT2Output(NamedTuple):
    """Logits [..., T, V], and everything the backward pass reads."""

    logits: np.ndarray
    saved: GPT2Saved


class GPT2:
    """A GPT-2 with its parameters: logits, loss, gradients, text.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `transformer.`.
        source: the place it was loaded from, None for a model made in memory.
    """

    def __init__(self, config: GPT2Config, params: Params) -> None:
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
    ) -> GPT2Output:
        """Logits for every position, and everything that the backward pass reads.

        Args:
            ids: [T] or [B, T] integers in 0..V-1.
            attention_mask: [S] or [B, S], 0 for padding on either side; positions count the real
                tokens only, as Hugging Face's generation does. S includes cached positions.
            kv: keys and values of earlier tokens, which grow by these T; see `new_kv_cache`.
            rng: draws the dropout masks in training; None: no dropout.
            observe: called as observe(station, array) at each station of the pass: `embed`,
                `h.0.attn`, `h.0.mlp`, `h.0`, …, `ln_f`, `logits`; `{}.__setitem__` collects them.
            flash: attention without weight tables, see `self_attention_forward`.

        Returns:
            logits [T, V] or [B, T, V] in the parameters' dtype, and `saved`.

        Raises:
            ValueError: ids out of range or of a wrong shape or dtype; too many positions.
        """
        x, wte, wpe, embd_dropout, blocks = self._trunk(
            ids, attention_mask, kv, rng, observe, flash=flash, keep=True
        )
        logits, ln_f, head = self._head(x, observe)
        return GPT2Output(logits, GPT2Saved(wte, wpe, embd_dropout, blocks, ln_f, head))

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
    ) -> tuple[np.ndarray, Any, Any, Any, list[BlockSaved]]:
        """The residual stream after the last block [..., T, d], and what each part saved."""
        past = 0 if kv is None else kv.length
        ids, attention_mask = check_input(ids, attention_mask, past)
        T = ids.shape[-1]
        positions = new_positions(past, T, attention_mask)
        check_positions(positions, self.context)
        mask = attention_mask_for(T, past + T, attention_mask)

        x, wte = lookup_forward(ids, self.params["wte.weight"])  # [..., T] -> [..., T, d]
        x, wpe = position_forward(x, positions, self.params["wpe.weight"])
        x, embd_dropout = dropout_forward(x, p=self.config.embd_pdrop, rng=rng)
        station(observe, "embed", x)
        blocks = []
        for n in range(self.config.n_layer):
            x, saved = block_forward(x, self.params, n, self.config, mask, kv, rng, observe, flash)
            if keep:
                blocks.append(saved)
            del saved  # or it would still be there while the next block runs
        if kv is not None:
            kv.advance(T)
        return x, wte, wpe, embd_dropout, blocks

    def _head(
        self, x: np.ndarray, observe: Observer | None
    ) -> tuple[np.ndarray, layer_norm.Saved, lm_head.Saved]:
        """ln_f and lm_head, which is wte itself where the two are tied (article chapter 10)."""
        x, ln_f = self._last_norm(x)
        station(observe, "ln_f", x)
        table = self.params[self._head_name]
        logits, head = lm_head_forward(x, table)  # [..., T, d] -> [..., T, V]
        station(observe, "logits", logits)
        return logits, ln_f, head

    def _last_norm(self, x: np.ndarray) -> tuple[np.ndarray, layer_norm.Saved]:
        weight, bias = self.params["ln_f.weight"], self.params["ln_f.bias"]
        return layer_norm_forward(x, weight, bias, eps=self.config.layer_norm_epsilon)

    def backward(self, dlogits: np.ndarray, saved: GPT2Saved) -> Params:
        """Gradients of all parameters, keyed like `params`, from that of the logits [..., T, V].

        A tied wte gets both its contributions: as lm_head and as lookup (article 10.2).
        """
        return self._backward_from(*lm_head_backward(dlogits, saved.lm_head), saved)

    def _backward_from(self, dx: np.ndarray, dhead: np.ndarray, saved: GPT2Saved) -> Params:
        """The way back from below lm_head; the gradient of its table, `dhead`, is used up."""
        grads: Params = {self._head_name: dhead}
        dx, grads["ln_f.weight"], grads["ln_f.bias"] = layer_norm_backward(dx, saved.ln_f)
        for n in reversed(range(self.config.n_layer)):
            dx = block_backward(dx, saved.blocks[n], n, grads)
        dx = dropout_backward(dx, saved.embd_dropout)
        dx, grads["wpe.weight"] = position_backward(dx, saved.wpe)
        grads["wte.weight"] = lookup_backward(dx, saved.wte, add_to=grads.get("wte.weight"))
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
        x, wte, wpe, embd_dropout, blocks = self._trunk(
            ids, attention_mask, None, rng, None, flash=True, keep=True
        )
        x, ln_f = self._last_norm(x)
        table = self.params[self._head_name]
        loss, saved_loss = lm_head_loss_forward(x, np.asarray(targets), table)
        saved = GPT2Saved(wte, wpe, embd_dropout, blocks, ln_f, (x, table))
        return loss, self._backward_from(*lm_head_loss_backward(1.0, saved_loss), saved)

    def new_kv_cache(self, batch: tuple[int, ...] = (), capacity: int | None = None) -> KVCache:
        """An empty cache for ids [*batch, T], with room for `capacity` (n_positions) tokens."""
        config = self.config
        d_h = config.n_embd // config.n_head
        shape = (*batch, config.n_head, capacity or config.n_positions, d_h)
        return KVCache(config.n_layer, shape, self.params["wte.weight"].dtype)

    def generate(self, ids: Any, max_new_tokens: int = 40, **options: Any) -> Iterator[Any]:
        """Continue `ids`, one token after the other; options: see `npgpt.decoding.causal`."""
        return decoding.generate(self, ids, max_new_tokens, **options)

    def num_params(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied head counted once.

        `embeddings=False` leaves out the position table, as nanoGPT counts (article 11.2).
        """
        total = sum(array.size for array in self.params.values())
        return total if embeddings else total - self.params["wpe.weight"].size

    def save_pretrained(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a folder that transformers loads too, with the vocabulary of the model loaded.

        `overwrite`: also where there is another vocabulary or a training run; else ValueError.
        """
        from npgpt.files.hub import companions
        from npgpt.models.gpt2.checkpoint import save_checkpoint

        options = {"beside": companions(self.source), "overwrite": overwrite}
        save_checkpoint(folder, self.config, self.params, **options)

    @property
    def context(self) -> int:
        """How many tokens a text may have: the rows of wpe."""
        return len(self.params["wpe.weight"])

    @property
    def rows(self) -> int:
        """How many ids have a row in wte, padding beyond `vocab_size` included."""
        return len(self.params["wte.weight"])

    @property
    def _head_name(self) -> str:
        return "wte.weight" if self.config.tie_word_embeddings else "lm_head.weight"
