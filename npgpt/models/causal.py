"""What GPT-2 and Llama share: text in, logits of the next tokens out, loss, gradients, new text.

A model of this kind writes out its trunk, from ids to the last norm, and the trunk's backward. Here
is what stands around it: positions and mask before, lm_head and loss behind (article 10, 7.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding import causal as decoding
from npgpt.decoding.kv_cache import KVCache, Sizes, check_cache, new_cache
from npgpt.models.common import Model, Observer, Params, Pass
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lm_head_loss import lm_head_loss_backward, lm_head_loss_forward
from npgpt.ops.lookup import check_ids, check_mask
from npgpt.ops.mask import attention_masks_for


class CausalOutput(NamedTuple):
    """Logits [..., T, V], and everything the backward pass reads."""

    logits: np.ndarray
    saved: Any  # GPT2Saved, LlamaSaved


class CausalLM(Model):
    """A model that reads from left to right and says what may come next."""

    TABLE: str  # the name of the token table [V, d]

    def _trunk(
        self, ids: np.ndarray, positions: np.ndarray, masks: list[np.ndarray], run: Pass
    ) -> tuple[np.ndarray, Any]:
        """From ids [..., T] to the residual stream after the last norm [..., T, d].

        `masks` say of each block who may look at whom: some look no further back than a window.
        Returns what backward reads, too, as a record with an empty field `lm_head`.
        """
        raise NotImplementedError

    def _trunk_backward(self, dx: np.ndarray, saved: Any, grads: Params, run: Pass) -> None:
        """The trunk in reverse: puts the gradients of its parameters into `grads`."""
        raise NotImplementedError

    def _kv_sizes(self) -> Sizes:
        raise NotImplementedError

    @property
    def context(self) -> int:
        """How many tokens a text may have."""
        raise NotImplementedError

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
        x, _ = self._read(ids, attention_mask, Pass(flash=True, keep=False, kv=kv))
        return lm_head_forward(x[..., -1:, :] if last_only else x, self.params[self.head])[0]

    def forward(
        self,
        ids: Any,
        attention_mask: Any = None,
        kv: KVCache | None = None,
        *,
        rng: np.random.Generator | None = None,
        observe: Observer | None = None,
        flash: bool = False,
    ) -> CausalOutput:
        """Logits for every position, and everything that the backward pass reads.

        Args:
            ids: [T] or [B, T] integers in 0..V-1.
            attention_mask: [S] or [B, S], 0 for padding on either side; positions count the real
                tokens only, as Hugging Face's generation does. S includes cached positions.
            kv: keys and values of earlier tokens, which grow by these T; see `new_kv_cache`.
            rng: draws the dropout masks in training; None: no dropout.
            observe: called as observe(station, array) at each station of the pass, see
                `npgpt.compare.activations`; `{}.__setitem__` collects them. Where it returns an
                array, the pass goes on with that one, see `npgpt.layers.stations`.
            flash: attention without weight tables, see `attend_forward`.

        Returns:
            logits [T, V] or [B, T, V] in the parameters' dtype, and `saved`.

        Raises:
            ValueError: ids out of range or of a wrong shape or dtype; too many positions.
        """
        run = Pass(rng, observe, flash, kv=kv)
        x, saved = self._read(ids, attention_mask, run)
        logits, lm_head = lm_head_forward(x, self.params[self.head])  # [..., T, d] -> [..., T, V]
        return CausalOutput(run.station("logits", logits), saved._replace(lm_head=lm_head))

    def backward(
        self, dlogits: np.ndarray, saved: Any, *, observe: Observer | None = None
    ) -> Params:
        """Gradients of all parameters, keyed like `params`, from that of the logits [..., T, V].

        A tied table gets both its contributions: as lm_head and as lookup (article 10.2).

        `observe` is called as observe(station, gradient) with the gradient that arrives at each
        station, from the last to the first. Where it returns an array, that one goes on.
        """
        run = Pass(observe=observe)
        dx, dtable = lm_head_backward(run.station("logits", dlogits), saved.lm_head)
        return self._read_backward(dx, dtable, saved, run)

    def loss_and_grads(
        self,
        ids: Any,
        targets: Any,
        attention_mask: Any = None,
        *,
        rng: np.random.Generator | None = None,
        flash: bool = True,
    ) -> tuple[np.floating, Params]:
        """Mean loss in nats over all targets that are not -100, and every parameter's gradient.

        Two operations stand for several that would write large tables: `flash_attention` for the
        six steps, `lm_head_loss` for `lm_head` and `cross_entropy`. `flash=False` takes the latter:
        slower, with more memory, and the same numbers up to rounding.

        Args:
            ids: [T] or [B, T].
            targets: like ids, already shifted: targets[t] is the token that follows ids[t].
            attention_mask, rng: see `forward`.
            flash: False runs each operation by itself.
        """
        targets = check_ids(targets, "targets")
        if not flash:
            out = self.forward(ids, attention_mask, rng=rng)
            loss, saved_entropy = cross_entropy_forward(out.logits, targets)
            more, saved = self._further_loss(out.saved, attention_mask)
            return loss + more, self.backward(cross_entropy_backward(1.0, saved_entropy), saved)
        x, saved = self._read(ids, attention_mask, Pass(rng, flash=True))
        loss, saved_loss = lm_head_loss_forward(x, targets, self.params[self.head])
        more, saved = self._further_loss(saved, attention_mask)
        grads = self._read_backward(*lm_head_loss_backward(1.0, saved_loss), saved, Pass())
        return loss + more, grads

    def _further_loss(self, saved: Any, attention_mask: Any) -> tuple[Any, Any]:  # noqa: ARG002
        """What is added to the loss, and `saved` with what its backward reads."""
        return 0.0, saved

    def _read(self, ids: Any, attention_mask: Any, run: Pass) -> tuple[np.ndarray, Any]:
        """What the trunk makes of checked ids, their positions, and who may look at whom."""
        ids = check_ids(ids)
        if run.kv is not None:
            check_cache(run.kv, self._kv_sizes(), ids.shape[:-1])
        past = 0 if run.kv is None else run.kv.length
        T = ids.shape[-1]
        if attention_mask is not None:
            attention_mask = check_mask(attention_mask, (*ids.shape[:-1], past + T))
        positions = new_positions(past, T, attention_mask)
        masks = attention_masks_for(T, past + T, attention_mask, self.config.windows)
        x, saved = self._trunk(ids, positions, masks, run)
        if run.kv is not None:
            run.kv.advance(T)
        return x, saved

    def _read_backward(self, dx: np.ndarray, dtable: np.ndarray, saved: Any, run: Pass) -> Params:
        """Gradients of all parameters, from that of the trunk's output and of lm_head's table."""
        grads: Params = {self.head: dtable}
        self._trunk_backward(dx, saved, grads, run)
        return {name: grads[name] for name in self.params}

    def new_kv_cache(self, batch: tuple[int, ...] = (), capacity: int | None = None) -> KVCache:
        """An empty cache for ids [*batch, T], with room for `capacity` (`context`) tokens."""
        capacity = self.context if capacity is None else capacity
        return new_cache(self._kv_sizes(), batch, capacity, self.params[self.TABLE].dtype)

    def generate(
        self, ids: Any, max_new_tokens: int | None = None, **options: Any
    ) -> Iterator[Any]:
        """Continue `ids`, one token after the other; options: see `npgpt.decoding.causal`."""
        return decoding.generate(self, ids, max_new_tokens, **options)

    @property
    def rows(self) -> int:
        """How many ids have a row in the token table, padding beyond `vocab_size` included."""
        return len(self.params[self.TABLE])

    @property
    def head(self) -> str:
        """The name of lm_head's table, which is the token table where the two are tied."""
        return self.TABLE if self.config.tie_word_embeddings else "lm_head.weight"


def new_positions(past: int, T: int, attention_mask: np.ndarray | None) -> np.ndarray:
    """Positions of the T new tokens: [T], or [..., T] counting only what is not padding."""
    if attention_mask is None:
        return np.arange(past, past + T)
    return np.maximum(np.cumsum(attention_mask, axis=-1) - 1, 0)[..., past:]


def check_positions(positions: np.ndarray, context: int) -> None:
    """Raise ValueError unless every position has a row in a table of `context` rows."""
    if positions.max() >= context:
        raise ValueError(
            f"the text is {positions.max() + 1} tokens long, but the model has positions for "
            f"{context}; shorten it."
        )
