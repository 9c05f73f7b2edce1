"""The encoder-decoder of 2017: one side reads the source, the other writes the target
(article chapters 2 and 4).

The encoder sees the whole source at once; the decoder sees the target up to its own position, and
through cross-attention all that the encoder made of the source. Both stacks are written out in
`stacks.py`, a layer of each in `layers.py`. Leaves out LayerDrop, and dropout inside the
feed-forward network.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding import seq2seq as seq2seq_decoding
from npgpt.decoding.arguments import real_number
from npgpt.decoding.kv_cache import KVCache, Sizes, check_cache, new_cache
from npgpt.layers.multi_head import KeysValuesSaved
from npgpt.models.common import Model, Observer, Params, Pass
from npgpt.models.transformer.checkpoint import save_transformer
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.stacks import (
    CrossKV,
    DecoderSaved,
    EncoderSaved,
    cross_backward,
    cross_forward,
    decoder_backward,
    decoder_forward,
    encoder_backward,
    encoder_forward,
)
from npgpt.ops import lm_head
from npgpt.ops.cross_entropy import IGNORE_INDEX, check_targets
from npgpt.ops.flash_attention import ROWS
from npgpt.ops.label_smoothing import label_smoothing_backward, label_smoothing_forward
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lookup import check_ids, check_mask
from npgpt.ops.row_sum import sum_rows

BIAS = "final_logits_bias"
MASKS = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}


class TransformerSaved(NamedTuple):
    """What `backward` reads; `decoder.layers[1].encoder_attn.probs[0, 3]` is one head's table."""

    encoder: EncoderSaved
    cross: list[KeysValuesSaved]
    decoder: DecoderSaved
    lm_head: lm_head.Saved


class TransformerOutput(NamedTuple):
    """Logits [..., T, V], and everything the backward pass reads."""

    logits: np.ndarray
    saved: TransformerSaved


class Transformer(Model):
    """An encoder-decoder with its parameters: logits, loss, gradients, translations.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `model.`.
    """

    config: TransformerConfig

    @property
    def written_ids(self) -> int:
        """How many ids it may write."""
        return self.config.target_vocab_size

    def __call__(
        self,
        input_ids: Any,
        decoder_input_ids: Any,
        attention_mask: Any = None,
        decoder_attention_mask: Any = None,
    ) -> np.ndarray:
        """Logits alone: `forward` without keeping anything for a backward pass."""
        masks = attention_mask, decoder_attention_mask
        return self._run(input_ids, decoder_input_ids, *masks, Pass(flash=True, keep=False)).logits

    def forward(
        self,
        input_ids: Any,
        decoder_input_ids: Any,
        attention_mask: Any = None,
        decoder_attention_mask: Any = None,
        *,
        rng: np.random.Generator | None = None,
        observe: Observer | None = None,
        flash: bool = False,
    ) -> TransformerOutput:
        """Logits for every position of the target, and everything that the backward pass reads.

        Args:
            input_ids: the source [S] or [B, S], integers in 0..V-1.
            decoder_input_ids: the target, one behind: [T] or [B, T], it begins with
                `decoder_start_token_id`.
            attention_mask, decoder_attention_mask: like the ids, 0 for padding. Positions count
                padding too, as in Hugging Face, so pad on the right.
            rng: draws the dropout masks in training; None: no dropout.
            observe: called as observe(station, array) at each station of the pass, see
                `npgpt.compare.activations`; `{}.__setitem__` collects them. Where it returns an
                array, the pass goes on with that one, see `npgpt.layers.stations`.
            flash: attention without weight tables where the texts are longer than a tile of it;
                shorter ones are faster with.

        Returns:
            logits [T, V] or [B, T, V] in the parameters' dtype, and `saved`.

        Raises:
            ValueError: ids or masks of a wrong shape, ids out of range, too many positions.
        """
        masks = attention_mask, decoder_attention_mask
        return self._run(input_ids, decoder_input_ids, *masks, Pass(rng, observe, flash))

    def _run(
        self, input_ids: Any, decoder_input_ids: Any, mask: Any, decoder_mask: Any, run: Pass
    ) -> TransformerOutput:
        source, mask = _checked("input_ids", input_ids, mask)
        target, decoder_mask = _checked("decoder_input_ids", decoder_input_ids, decoder_mask)
        if source.shape[:-1] != target.shape[:-1]:
            raise ValueError(
                f"input_ids {[*source.shape]} and decoder_input_ids {[*target.shape]} are not "
                "equally many texts."
            )
        run = run._replace(flash=run.flash and max(source.shape[-1], target.shape[-1]) > ROWS)
        memory, encoder = encoder_forward(source, mask, self.params, self.config, run)
        cross_kv, cross = cross_forward(memory, self.params, self.config, run)
        x, decoder = decoder_forward(
            target, cross_kv, (decoder_mask, mask), self.params, self.config, run
        )
        logits, head = self._head(x)
        logits = run.station("logits", logits)
        return TransformerOutput(logits, TransformerSaved(encoder, cross, decoder, head))

    def encode(self, input_ids: Any, attention_mask: Any = None) -> CrossKV:
        """Read the source [..., S] once: every decoder layer's keys and values of it.

        They are all that `decode` needs, however long the target grows.
        """
        source, mask = _checked("input_ids", input_ids, attention_mask)
        run = Pass(keep=False)
        memory, _ = encoder_forward(source, mask, self.params, self.config, run)
        return cross_forward(memory, self.params, self.config, run)[0]

    def decode(
        self,
        ids: Any,
        cross_kv: CrossKV,
        attention_mask: np.ndarray | None = None,
        kv: KVCache | None = None,
    ) -> np.ndarray:
        """Logits [..., V] of the token that follows the target ids [..., T].

        Args:
            cross_kv: the source, as `encode` read it, [..., H, S, d_h] each.
            attention_mask: that of the source, [..., S].
            kv: keys and values of the target's earlier tokens, which grow by these T.
        """
        ids, masks = check_ids(ids), (None, attention_mask)
        if kv is not None:
            check_cache(kv, self._kv_sizes(), ids.shape[:-1])
        run = Pass(keep=False, kv=kv)
        x, _ = decoder_forward(ids, cross_kv, masks, self.params, self.config, run)
        return self._head(x[..., -1, :])[0]

    def _head(self, x: np.ndarray) -> tuple[np.ndarray, lm_head.Saved]:
        logits, saved = lm_head_forward(x, self.params[self.config.head_table])
        return logits + self.params[BIAS][0] if BIAS in self.params else logits, saved

    def backward(
        self, dlogits: np.ndarray, saved: TransformerSaved, *, observe: Observer | None = None
    ) -> Params:
        """Gradients of all parameters, keyed like `params`, from that of the logits [..., T, V].

        A shared table gets three contributions: as head, from the target, from the source.

        `observe` is called as observe(station, gradient) with the gradient that arrives at each
        station, from the last to the first. Where it returns an array, that one goes on.
        """
        grads: Params = {}
        run = Pass(observe=observe)
        dlogits = run.station("logits", dlogits)
        if BIAS in self.params:
            grads[BIAS] = sum_rows(dlogits)[None]
        dx, grads[self.config.head_table] = lm_head_backward(dlogits, saved.lm_head)
        dcross_kv = decoder_backward(dx, saved.decoder, self.config, grads, run)
        dmemory = cross_backward(dcross_kv, saved.cross, grads, run)
        encoder_backward(dmemory, saved.encoder, self.config, grads, run)
        return {name: grads[name] for name in self.params}

    def loss_and_grads(
        self,
        input_ids: Any,
        targets: Any,
        attention_mask: Any = None,
        *,
        label_smoothing: float = 0.0,
        rng: np.random.Generator | None = None,
        flash: bool = True,
    ) -> tuple[np.floating, Params]:
        """Mean loss in nats over all targets that are not -100, and every parameter's gradient.

        All T losses come from one pass: the decoder reads the start token and the targets before
        each (article chapter 4).

        Args:
            input_ids: [S] or [B, S].
            targets: [T] or [B, T], what to write, with its end-of-text; -100 for padding behind it.
            attention_mask, rng: see `forward`.
            label_smoothing: see `npgpt.ops.label_smoothing`; the paper's is 0.1.
            flash: as in `forward`; False: attention in six steps, with the same numbers.
        """
        label_smoothing = real_number("label_smoothing", label_smoothing)
        targets = check_ids(targets, "targets")
        rows = len(self.params[self.config.head_table])
        check_targets((*targets.shape, rows), targets, IGNORE_INDEX)
        logits, saved = self.forward(
            input_ids, self.shifted_right(targets), attention_mask, rng=rng, flash=flash
        )
        loss, saved_loss = label_smoothing_forward(logits, targets, smoothing=label_smoothing)
        return loss, self.backward(label_smoothing_backward(1.0, saved_loss), saved)

    def shifted_right(self, targets: np.ndarray) -> np.ndarray:
        """decoder_input_ids [..., T]: the start token, then all targets but the last."""
        config = self.config
        start = np.full_like(targets[..., :1], config.decoder_start_token_id)
        shifted = np.concatenate([start, targets[..., :-1]], axis=-1)
        filler = 0 if config.pad_token_id is None else config.pad_token_id
        return np.where(shifted == IGNORE_INDEX, filler, shifted)

    def new_kv_cache(self, batch: tuple[int, ...], capacity: int) -> KVCache:
        """An empty cache for targets [*batch, T], with room for `capacity` tokens."""
        dtype = self.params[self.config.target_table].dtype
        return new_cache(self._kv_sizes(), batch, capacity, dtype)

    def _kv_sizes(self) -> Sizes:
        config, heads = self.config, self.config.decoder_attention_heads
        return Sizes(config.decoder_layers, heads, config.d_model // heads)

    def generate(self, input_ids: Any, **options: Any) -> Any:
        """The target that the model writes; see `npgpt.decoding.seq2seq.generate`."""
        return seq2seq_decoding.generate(self, input_ids, **options)

    def num_params(self) -> int:
        """Number of parameters, a shared table counted once; BIAS is none: it is not trained."""
        return super().num_params() - (self.params[BIAS].size if BIAS in self.params else 0)

    def _sizes(self) -> str:
        c = self.config
        heads, rows = c.decoder_attention_heads, len(self.params[c.target_table])
        layers = f"{c.encoder_layers} + {c.decoder_layers} layers"
        return f"{c.model_type}, {layers}, {heads} heads, d {c.d_model}, V {rows}"

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        save_transformer(folder, self.config, self.params, **options)


def _checked(name: str, ids: Any, mask: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Both as arrays of one shape; the range of ids is checked where they are looked up."""
    ids = check_ids(ids, name)
    if mask is not None:
        mask = check_mask(mask, ids.shape, MASKS[name])
    return ids, mask
