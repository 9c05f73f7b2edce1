"""BERT: embeddings, L post-norm layers, and what reads them (article chapter 3, encoder-only).

Every token looks at all others, on both sides, so that BERT cannot be asked for the next token; it
is asked for tokens that were masked. Each layer has its two LayerNorms behind the sums: post-norm,
as in 2017 (chapters 2 and 9). RoBERTa, DistilBERT and others are the same model under other names,
and little else: `families.py`.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from npgpt.layers.feed_forward import (
    FeedForwardSaved,
    feed_forward_backward,
    feed_forward_forward,
)
from npgpt.layers.multi_head import (
    KeysValuesSaved,
    QueryAttentionSaved,
    keys_values_backward,
    keys_values_forward,
    query_attention_backward,
    query_attention_forward,
)
from npgpt.layers.stations import Station
from npgpt.models.bert.checkpoint import save_bert
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
from npgpt.models.common import Model, Observer, Params, Pass, of, put
from npgpt.ops import dropout, layer_norm
from npgpt.ops.cross_entropy import (
    IGNORE_INDEX,
    check_targets,
    cross_entropy_backward,
    cross_entropy_forward,
)
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.lookup import check_ids


class LayerSaved(NamedTuple):
    """What `layer_backward` reads; `attn.probs[0, 11]` is the weight table of one head."""

    keys_values: KeysValuesSaved
    attn: QueryAttentionSaved
    attn_dropout: dropout.Saved
    attn_norm: layer_norm.Saved
    mlp: FeedForwardSaved
    mlp_dropout: dropout.Saved
    mlp_norm: layer_norm.Saved


def layer_forward(
    x: np.ndarray, params: Params, n: int, config: BERTConfig, mask: np.ndarray, run: Pass
) -> tuple[np.ndarray, LayerSaved]:
    """Layer n: two sublayers; each reads x, adds its correction, and the sum is normalised.

        x = LayerNorm(x + attn(x))
        x = LayerNorm(x + mlp(x))

    Args:
        x: [..., T, d].
        params: the model's parameters; those that `config.family.layer(n)` names are used.
        mask: bool, broadcasts against [..., H, T, T]; True = may attend.

    Returns:
        x [..., T, d], and what backward reads.
    """
    part, eps, pdrop = config.family.layer(n), config.layer_norm_eps, config.hidden_dropout_prob
    layer, in_attn, in_mlp = _stations(n, config, run)

    weights = of(params, part.key, part.value)
    (k, v), keys_values = keys_values_forward(
        x, *weights, n_head=config.num_attention_heads, station=in_attn
    )
    weights = of(params, part.query, part.out)
    correction, attn = query_attention_forward(
        x,
        k,
        v,  # [..., H, T, d_h]
        *weights,
        n_head=config.num_attention_heads,
        divisor=config.attention_divisor,
        mask=mask,
        pdrop=config.attention_probs_dropout_prob,
        rng=run.rng,
        flash=run.flash,
        station=in_attn,
    )  # [..., T, d]
    correction, attn_dropout = dropout_forward(correction, p=pdrop, rng=run.rng)
    x = x + run.station(part.out, correction)
    x, attn_norm = layer_norm_forward(x, *of(params, part.attn_norm), eps=eps)
    x = run.station(part.attn_norm, x)

    weights = of(params, part.wide, part.narrow)
    correction, mlp = feed_forward_forward(
        x, *weights, activation=config.hidden_act, station=in_mlp
    )
    correction, mlp_dropout = dropout_forward(correction, p=pdrop, rng=run.rng)
    x = x + run.station(part.narrow, correction)
    x, mlp_norm = layer_norm_forward(x, *of(params, part.norm), eps=eps)
    x = run.station(layer, x)
    return x, LayerSaved(keys_values, attn, attn_dropout, attn_norm, mlp, mlp_dropout, mlp_norm)


def layer_backward(
    dx: np.ndarray, saved: LayerSaved, n: int, config: BERTConfig, grads: Params, run: Pass
) -> np.ndarray:
    """Layer n in reverse: puts its parameters' gradients into `grads`, returns dx [..., T, d].

    Every gradient passes the LayerNorm first: unlike pre-norm, no way leads straight through all
    layers (article chapter 9). After it, at the "+", it goes both ways unchanged.
    """
    part = config.family.layer(n)
    layer, in_attn, in_mlp = _stations(n, config, run)

    dx, *dmlp_norm = layer_norm_backward(run.station(layer, dx), saved.mlp_norm)
    dcorrection = dropout_backward(run.station(part.narrow, dx), saved.mlp_dropout)
    dthrough, *dmlp = feed_forward_backward(dcorrection, saved.mlp, in_mlp)
    dx = dx + dthrough
    put(grads, part.wide, part.narrow, of=dmlp)
    put(grads, part.norm, of=dmlp_norm)

    dx, *dattn_norm = layer_norm_backward(run.station(part.attn_norm, dx), saved.attn_norm)
    dcorrection = dropout_backward(run.station(part.out, dx), saved.attn_dropout)
    dthrough_q, dk, dv, *dattn = query_attention_backward(dcorrection, saved.attn, in_attn)
    dthrough_kv, *dkeys_values = keys_values_backward(dk, dv, saved.keys_values, in_attn)
    dx = dx + dthrough_q + dthrough_kv
    put(grads, part.query, part.out, of=dattn)
    put(grads, part.key, part.value, of=dkeys_values)
    put(grads, part.attn_norm, of=dattn_norm)
    return dx


def _stations(n: int, config: BERTConfig, run: Pass) -> tuple[str, Station, Station]:
    """Of layer n: its own, those within the attention, and within the feed-forward network."""
    layer, parts = f"{config.family.layers}.{n}", config.family.parts
    in_attn = run.within(f"{layer}.{parts.attention}")
    return layer, in_attn, run.within(layer, c_fc=parts.wide, act=parts.activation)


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


class BERT(Model):
    """A BERT with its parameters: hidden states, logits of masked tokens, loss, gradients.

    Attributes:
        config: sizes and options.
        params: name -> array, the names of the Hugging Face checkpoint without `bert.`. Those of
            the pooler (`pooler.…`), the MLM head (`cls.predictions.…`), or both may be absent. Of
            BERT's relatives those that `npgpt.models.bert.families` says.
        others: tensors of the file that this model does not use, such as a classifier's, under
            their names there; saved again as they are.
    """

    config: BERTConfig

    def __init__(self, config: BERTConfig, params: Params, others: Params | None = None) -> None:
        super().__init__(config, params)
        self.others = others or {}

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
        x, *_ = self._trunk(ids, attention_mask, token_type_ids, Pass(flash=True, keep=False))
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
                the left, padding or not, as Hugging Face's BERT does: pad on the right. RoBERTa's
                pass over the padding token, see `positions_of`.
            token_type_ids: like ids, which of two texts a token belongs to; None: all 0.
                DistilBERT has none.
            rng: draws the dropout masks in training; None: no dropout.
            observe: called as observe(station, array) at each station of the pass, see
                `npgpt.compare.activations`; `{}.__setitem__` collects them. Where it returns an
                array, the pass goes on with that one, see `npgpt.layers.stations`.
            flash: attention without weight tables, see `attend_forward`.

        Raises:
            ValueError: ids or types out of range or of a wrong shape or dtype; too many positions.
        """
        run = Pass(rng, observe, flash)
        x, embeddings, layers = self._trunk(ids, attention_mask, token_type_ids, run)
        pooled, logits, heads = heads_forward(x, self.params, self.config, run)
        return BERTOutput(x, pooled, logits, BERTSaved(embeddings, layers, heads))

    def _trunk(
        self, ids: Any, attention_mask: Any, token_type_ids: Any, run: Pass
    ) -> tuple[np.ndarray, EmbeddingsSaved, list[LayerSaved]]:
        """The last hidden states [..., T, d], and what embeddings and layers saved."""
        ids, types, mask = check_input(ids, attention_mask, token_type_ids, self.config)
        x, embeddings = embeddings_forward(ids, types, self.params, self.config, run.rng)
        x = run.station("embed", x)
        layers = []
        for n in range(self.config.num_hidden_layers):
            x, saved = layer_forward(x, self.params, n, self.config, mask, run)
            if run.keep:
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
        observe: Observer | None = None,
    ) -> Params:
        """Gradients of all parameters, keyed like `params`, from those of one or more outputs.

        A parameter that none of these outputs depends on gets zeros. A tied word table gets both
        its contributions: as MLM head and as lookup (article 10.2).

        Args:
            dlogits: [..., T, V].
            dhidden: [..., T, d].
            dpooled: [..., d].
            observe: called as observe(station, gradient) with the gradient that arrives at each
                station, from the last to the first. Where it returns an array, that one goes on.

        Raises:
            ValueError: the gradient of an output that the model does not have.
        """
        grads: Params = {}
        shape = (*saved.embeddings.words[0].shape, self.config.hidden_size)
        dx = np.zeros(shape, self.params[WORDS].dtype) if dhidden is None else dhidden
        run = Pass(observe=observe)
        dx = dx + heads_backward(dpooled, dlogits, saved.heads, self.config, grads, run)
        return self._trunk_backward(dx, saved.embeddings, saved.layers, grads, run)

    def _trunk_backward(
        self,
        dx: np.ndarray,
        embeddings: EmbeddingsSaved,
        layers: list[LayerSaved],
        grads: Params,
        run: Pass,
    ) -> Params:
        """Layers and embeddings in reverse; `grads` holds those of the heads already."""
        for n in reversed(range(self.config.num_hidden_layers)):
            dx = layer_backward(dx, layers[n], n, self.config, grads, run)
        embeddings_backward(run.station("embed", dx), embeddings, grads)
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
        flash: bool = True,
    ) -> tuple[np.floating, Params]:
        """Mean loss in nats over all targets that are not -100, and every parameter's gradient.

        The MLM head, as wide as the vocabulary, reads the positions with a target only. The pooler
        has no part in this loss: its gradients are zero.

        Args:
            ids: [T] or [B, T], some of them masked.
            targets: like ids: the token that is asked for, or -100.
            attention_mask, token_type_ids, rng: see `forward`.
            flash: attention in one operation; False: in six steps, with the same numbers.

        Raises:
            ValueError: as `forward`; targets that do not fit; a model without an MLM head.
        """
        self._need_mlm_head()
        targets = check_ids(targets, "targets")
        run = Pass(rng, flash=flash)
        x, embeddings, layers = self._trunk(ids, attention_mask, token_type_ids, run)
        check_targets((*x.shape[:-1], len(self.params[WORDS])), targets, IGNORE_INDEX)
        asked = targets != IGNORE_INDEX
        logits, head = mlm_head_forward(x[asked], self.params, self.config)  # [N, d] -> [N, V]
        loss, saved_loss = cross_entropy_forward(logits, targets[asked])
        grads: Params = {}
        dx = np.zeros_like(x)
        dx[asked] = mlm_head_backward(
            cross_entropy_backward(1.0, saved_loss), head, self.config, grads
        )
        return loss, self._trunk_backward(dx, embeddings, layers, grads, run)

    def num_params(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied table counted once.

        `embeddings=False` leaves out the position table, as for GPT-2.
        """
        return super().num_params() - (0 if embeddings else self.params[POSITIONS].size)

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        save_bert(folder, self.config, self.params, self.others, **options)

    def _sizes(self) -> str:
        c = self.config
        heads, rows = c.num_attention_heads, len(self.params[WORDS])
        return f"{c.num_hidden_layers} layers, {heads} heads, d {c.hidden_size}, V {rows}"

    @property
    def has_mlm_head(self) -> bool:
        """Whether there are parameters for logits."""
        return self.config.family.bias in self.params

    def _need_mlm_head(self) -> None:
        if not self.has_mlm_head:
            raise ValueError(
                f"this BERT has no MLM head ({self.config.family.head}…), so it gives no logits; "
                "`encode` gives its hidden states."
            )
