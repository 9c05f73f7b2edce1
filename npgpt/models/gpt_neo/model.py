"""GPT-Neo: GPT-2's page with another attention.

Queries, keys and values have matrices of their own, without biases; the scores are not scaled, so
that step 3 of the article's 7.3 is left out; and in every block called local a token sees no
further back than a window. All else, from the embeddings to lm_head, is GPT-2's.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from npgpt.layers.multi_head import (
    KeysValuesSaved,
    QueryAttentionSaved,
    keys_values_backward,
    keys_values_forward,
    query_attention_backward,
    query_attention_forward,
)
from npgpt.models.common import Params, Pass, put_those_of, those_of
from npgpt.models.gpt2.checkpoint import save_checkpoint
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.checkpoint import LAYOUT
from npgpt.models.gpt_neo.config import GPTNeoConfig

# In the order of the layer's arguments; only W_O has a bias.
KEYS_VALUES = ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias")
QUERIES_OUT = ("q_proj.weight", "q_proj.bias", "out_proj.weight", "out_proj.bias")


class AttentionSaved(NamedTuple):
    """What `attn_backward` reads."""

    keys_values: KeysValuesSaved
    queries: QueryAttentionSaved

    @property
    def probs(self) -> np.ndarray:
        """The weight tables [..., H, T, S]."""
        return self.queries.probs


def attn_forward(
    x: np.ndarray, params: Params, n: int, config: GPTNeoConfig, mask: np.ndarray, run: Pass
) -> tuple[np.ndarray, AttentionSaved]:
    """The attention of block n, on the normalised stream [..., T, d]."""
    part, n_head, station = f"h.{n}.attn.attention", config.n_head, run.within(f"h.{n}.attn")
    weights = those_of(params, part, KEYS_VALUES)
    (k, v), keys_values = keys_values_forward(x, *weights, n_head=n_head, station=station)
    if (extend_kv := run.extend_kv(n)) is not None:
        k, v = extend_kv(k, v)  # [..., H, S, d_h]
    y, queries = query_attention_forward(
        x,
        k,
        v,
        *those_of(params, part, QUERIES_OUT),
        n_head=n_head,
        divisor=config.attention_divisor(n),
        mask=mask,
        pdrop=config.attn_pdrop,
        rng=run.rng,
        flash=run.flash,
        station=station,
    )
    return y, AttentionSaved(keys_values, queries)


def attn_backward(
    dy: np.ndarray, saved: AttentionSaved, n: int, grads: Params, run: Pass
) -> np.ndarray:
    """Puts the gradients of block n's attention into `grads`, returns dx [..., T, d]."""
    part, station = f"h.{n}.attn.attention", run.within(f"h.{n}.attn")
    dx, dk, dv, *dqueries = query_attention_backward(dy, saved.queries, station)
    through_kv, *dkeys_values = keys_values_backward(dk, dv, saved.keys_values, station)
    put_those_of(grads, part, QUERIES_OUT, dqueries)
    put_those_of(grads, part, KEYS_VALUES, dkeys_values)
    return dx + through_kv


class GPTNeo(GPT2):
    """A GPT-Neo with its parameters: a `GPT2` in all that is not attention."""

    config: GPTNeoConfig
    attn_forward = staticmethod(attn_forward)
    attn_backward = staticmethod(attn_backward)

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        save_checkpoint(folder, self.config, self.params, LAYOUT, **options)
