"""BERT: embeddings, L post-norm layers, and what reads them (article chapter 3, encoder-only).

Every token looks at all others, on both sides, so that BERT cannot be asked for the next token; it
is asked for tokens that were masked. The parts are written out in `bert_embeddings.py`,
`bert_layer.py` and `bert_heads.py`, configuration and parameter names in `bert_config.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.models.bert.config import BERTConfig
from npgpt.models.bert.embeddings import (
    POSITIONS,
    WORDS,
    EmbeddingsSaved,
    check_input,
    embeddings_backward,
    embeddings_forward,
)
from npgpt.models.bert.heads import (
    HeadsSaved,
    heads_backward,
    heads_forward,
    mlm_head_backward,
    mlm_head_forward,
)
from npgpt.models.bert.layer import LayerSaved, layer_backward, layer_forward
from npgpt.models.common import Observer, Params, station
from npgpt.ops.cross_entropy import (
    IGNORE_INDEX,
    check_targets,
    cross_entropy_backward,
    cross_entropy_forward,
)


class BERTSaved(NamedTuple):
    """What `backward` reads; `layers[4].attn.probs[0, 11]` is the weight table of one head."""

    embeddings: EmbeddingsSaved
    layers: list[LayerSaved]
    heads: HeadsSaved


class BERTOutput(NamedTuple):
    """What `forward` gives, in the parameters' dtype."""

    hidden: np.ndarray  # last hidden states [..., T, d]
    pooled: np.ndarray | None  # [..., d]; None without a pooler
    logits: np.ndarray | None  # [..., T, V]; None without an MLM head
    saved: BERTSaved


class BERT:
    """A BERT with its parameters: hidden states, logits of masked tokens, loss, gradients.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `bert.`. Those of
            the pooler (`pooler.…`), the MLM head (`cls.predictions.…`), or both may be absent.
        source: the place it was loaded from, None for a model made in memory.
    """

    def __init__(self, config: BERTConfig, params: Params) -> None:
        self.config = config
        self.params = params
        self.source: Path | None = None

    def __call__(
        self, ids: Any, attention_mask: Any = None, token_type_ids: Any = None
    ) -> np.ndarray:
        """Logits alone [..., T, V]: `forward` without keeping anything for a backward pass.

        Raises ValueError without an MLM head; `encode` needs none.
        """
        self._need_mlm_head()
        x = self.encode(ids, attention_mask, token_type_ids)
        return mlm_head_forward(x, self.params, self.config)[0]

    def encode(
        self, ids: Any, attention_mask: Any = None, token_type_ids: Any = None
    ) -> np.ndarray:
        """The last hidden states alone [..., T, d]: a vector for each token in its context."""
        x, *_ = self._trunk(ids, attention_mask, token_type_ids, None, None, flash=True, keep=False)
        return x

    def forward(
        self,
        ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        *,
        rng: np.random.Generator | None = None,
        observe: Observer | None = None,
        flash: bool = False,
    ) -> BERTOutput:
        """Hidden states, pooled vector and logits, as far as there are parameters for them.

        Args:
            ids: [T] or [B, T] integers in 0..V-1.
            attention_mask: like ids, 0 for padding, which nobody sees. Positions are counted from
                the left, padding or not, as Hugging Face's BERT does: pad on the right.
            token_type_ids: like ids, which of two texts a token belongs to; None: all 0.
            rng: draws the dropout masks in training; None: no dropout.
            observe: called as observe(station, array) at each station of the pass: `embed`,
                `encoder.layer.0.attention.self.probs`, `….attention.output.dense`,
                `….attention.output.LayerNorm`, `….output.dense`, `encoder.layer.0`, …, `pooler`,
                `logits`: each the output of Hugging Face's module of that name.
            flash: attention without weight tables, see `attend_forward`.

        Raises:
            ValueError: ids or types out of range or of a wrong shape or dtype; too many positions.
        """
        x, embeddings, layers = self._trunk(
            ids, attention_mask, token_type_ids, rng, observe, flash=flash, keep=True
        )
        pooled, logits, heads = heads_forward(x, self.params, self.config)
        for name, array in (("pooler", pooled), ("logits", logits)):
            if array is not None:
                station(observe, name, array)
        return BERTOutput(x, pooled, logits, BERTSaved(embeddings, layers, heads))

    def _trunk(
        self,
        ids: Any,
        attention_mask: Any,
        token_type_ids: Any,
        rng: np.random.Generator | None,
        observe: Observer | None,
        *,
        flash: bool,
        keep: bool,
    ) -> tuple[np.ndarray, EmbeddingsSaved, list[LayerSaved]]:
        """The last hidden states [..., T, d], and what embeddings and layers saved."""
        context = len(self.params[POSITIONS])
        ids, types, mask = check_input(ids, attention_mask, token_type_ids, context)
        x, embeddings = embeddings_forward(ids, types, self.params, self.config, rng)
        station(observe, "embed", x)
        layers = []
        for n in range(self.config.num_hidden_layers):
            x, saved = layer_forward(x, self.params, n, self.config, mask, rng, observe, flash)
            if keep:
                layers.append(saved)
            del saved  # or it would still be there while the next layer runs
        return x, embeddings, layers

    def backward(
        self,
        dlogits: np.ndarray | None,
        saved: BERTSaved,
        *,
        dhidden: np.ndarray | None = None,
        dpooled: np.ndarray | None = None,
    ) -> Params:
        """Gradients of all parameters, keyed like `params`, from those of one or more outputs.

        A parameter that none of these outputs depends on gets zeros. A tied word table gets both
        its contributions: as MLM head and as lookup (article 10.2).

        Args:
            dlogits: [..., T, V].
            dhidden: [..., T, d].
            dpooled: [..., d].

        Raises:
            ValueError: the gradient of an output that the model does not have.
        """
        grads: Params = {}
        shape = (*saved.embeddings.words[0].shape, self.config.hidden_size)
        dx = np.zeros(shape, self.params[WORDS].dtype) if dhidden is None else dhidden
        dx = dx + heads_backward(dpooled, dlogits, saved.heads, self.config, grads)
        return self._trunk_backward(dx, saved.embeddings, saved.layers, grads)

    def _trunk_backward(
        self, dx: np.ndarray, embeddings: EmbeddingsSaved, layers: list[LayerSaved], grads: Params
    ) -> Params:
        """Layers and embeddings in reverse; `grads` holds those of the heads already."""
        for n in reversed(range(self.config.num_hidden_layers)):
            dx = layer_backward(dx, layers[n], n, grads)
        embeddings_backward(dx, embeddings, grads)
        return {
            name: grads[name] if name in grads else np.zeros_like(param)
            for name, param in self.params.items()
        }

    def loss_and_grads(
        self,
        ids: Any,
        targets: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        *,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.floating, Params]:
        """Mean loss in nats over all targets that are not -100, and every parameter's gradient.

        The MLM head, as wide as the vocabulary, reads the positions with a target only. The pooler
        has no part in this loss: its gradients are zero.

        Args:
            ids: [T] or [B, T], some of them masked.
            targets: like ids: the token that is asked for, or -100.
            attention_mask, token_type_ids, rng: see `forward`.

        Raises:
            ValueError: as `forward`; targets that do not fit; a model without an MLM head.
        """
        self._need_mlm_head()
        x, embeddings, layers = self._trunk(
            ids, attention_mask, token_type_ids, rng, None, flash=True, keep=True
        )
        targets = np.asarray(targets)
        check_targets((*x.shape[:-1], len(self.params[WORDS])), targets, IGNORE_INDEX)
        asked = targets != IGNORE_INDEX
        logits, head = mlm_head_forward(x[asked], self.params, self.config)  # [N, d] -> [N, V]
        loss, saved_loss = cross_entropy_forward(logits, targets[asked])
        grads: Params = {}
        dx = np.zeros_like(x)
        dx[asked] = mlm_head_backward(
            cross_entropy_backward(1.0, saved_loss), head, self.config, grads
        )
        return loss, self._trunk_backward(dx, embeddings, layers, grads)

    def num_params(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied table counted once.

        `embeddings=False` leaves out the position table, as for GPT-2.
        """
        total = sum(array.size for array in self.params.values())
        return total if embeddings else total - self.params[POSITIONS].size

    def save_pretrained(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a folder that transformers loads too, with the vocabulary of the model loaded.

        `overwrite`: also where there is another vocabulary or a training run; else ValueError.
        """
        from npgpt.files.hub import companions
        from npgpt.models.bert.checkpoint import save_bert

        options = {"beside": companions(self.source), "overwrite": overwrite}
        save_bert(folder, self.config, self.params, **options)

    def _need_mlm_head(self) -> None:
        if "cls.predictions.bias" not in self.params:
            raise ValueError(
                "this BERT has no MLM head (cls.predictions.…), so it gives no logits; `encode` "
                "gives its hidden states."
            )
