"""Faults of what a Llama has of its own: shared keys, rotations, gates, experts.

As in `hypotheses.py`, each is the pass that it would make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from npgpt.compare.activations import GRAD, Edit, Stations
from npgpt.compare.subject import Hypothesis, Subject, raw_scores
from npgpt.models.llama.config import expert_names
from npgpt.models.llama.model import Llama
from npgpt.ops.rope import rope_backward, rope_forward, rotation
from npgpt.ops.router import renormalise_forward, top_k_forward
from npgpt.ops.softmax import softmax_forward


def shared_heads(s: Subject) -> Iterator[Hypothesis]:
    """Queries that look at the keys of another group."""
    if not isinstance(s.model, Llama):
        return
    H, n_kv_head = s.model.config.num_attention_heads, s.model.config.n_kv_head

    def tiled(name: str, array: np.ndarray, went: Stations) -> np.ndarray:
        attention, _, last = name.rpartition(".")
        of_all = np.tile(
            went[f"{attention}.{'k' if last == 'scores' else 'v'}"], (H // n_kv_head, 1, 1)
        )
        if last == "context":
            heads = went[f"{attention}.probs"] @ of_all
            return heads.swapaxes(0, 1).reshape(array.shape)
        shown, right = np.isfinite(array), raw_scores(went, attention)
        scale = (array[shown] @ right[shown]) / np.square(right[shown]).sum()
        raw = went[f"{attention}.q"] @ of_all.swapaxes(-1, -2)
        return np.where(shown, raw * scale, -np.inf)

    if 1 < n_kv_head < H:
        says = f"query head h looks at key head h mod {n_kv_head} instead of h // {H // n_kv_head}"
        yield s.edited(says, s.ending(".scores", ".context"), tiled)


def rotations(s: Subject) -> Iterator[Hypothesis]:
    """Queries and keys turned by another angle, in other pairs, or not at all."""
    if not isinstance(s.model, Llama):
        return

    def turned(how: Callable[..., np.ndarray]) -> Edit:
        def edit(_: str, array: np.ndarray, __: Stations) -> np.ndarray:
            cos_sin = _cos_sin(s, array)
            return how(rope_backward(array, cos_sin), *cos_sin)

        return edit

    def of_neighbours(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        return in_pairs(rope_forward(in_halves(x), cos=cos, sin=sin)[0])

    def backwards(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        return rope_forward(x, cos=cos, sin=-sin)[0]

    names = s.ending(".q", ".k")
    yield s.edited("the rotation turns neighbours, 2i and 2i + 1", names, turned(of_neighbours))
    yield s.edited("turned the other way", names, turned(backwards))
    yield s.edited("no rotation", names, turned(lambda x, *_: x))

    def one_more(_: str, array: np.ndarray, __: Stations) -> np.ndarray:
        frequencies = s.model.config.rotary.frequencies(array.shape[-2])
        cos, sin = rotation(np.ones(1), frequencies)
        return rope_forward(array, cos=cos, sin=sin)[0]

    yield s.edited("positions one too high", names, one_more)
    says = "the coordinates of a pair, i and i + d_h/2, side by side"
    yield s.edited(says, names, lambda _, array, __: in_pairs(array))


def _cos_sin(s: Subject, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the angles of all positions of queries or keys [H, T, d_h]."""
    T = heads.shape[-2]
    cos, sin = rotation(np.arange(T), s.model.config.rotary.frequencies(T))
    return cos.astype(heads.dtype), sin.astype(heads.dtype)


def rotations_back(s: Subject) -> Iterator[Hypothesis]:
    """Gradients of queries and keys that are not turned back, or turned on."""
    params = s.model.params
    if not isinstance(s.model, Llama) or any(".q_norm." in name for name in params):
        return
    parts = [
        (name.rpartition(".")[0], name[-1]) for name in s.ending(".self_attn.q", ".self_attn.k")
    ]
    grads = {
        f"{GRAD}{attn}.{part}_proj.{kind}": (attn, part)
        for attn, part in parts
        for kind in ("weight", "bias")
        if f"{attn}.{part}_proj.{kind}" in params
    }
    inputs = {GRAD + s.steps[f"{attn}.q"].reads[0]: attn for attn, _ in parts}

    def turned(how: Callable[..., np.ndarray]) -> Edit:
        def arriving(went: Stations, attn: str, part: str) -> tuple[np.ndarray, np.ndarray]:
            """[T, H d_h]: as it should be, and as it is."""
            dpart = went[f"{GRAD}{attn}.{part}"]
            cos_sin = _cos_sin(s, dpart)
            both = rope_backward(dpart, cos_sin), how(dpart, *cos_sin)
            right, wrong = (x.swapaxes(0, 1).reshape(dpart.shape[-2], -1) for x in both)
            return right, wrong

        def edit(name: str, array: np.ndarray, went: Stations) -> np.ndarray:
            if name in grads:
                attn, part = grads[name]
                wrong = arriving(went, attn, part)[1]
                x = went[s.steps[f"{attn}.{part}"].reads[0]]
                return wrong.sum(axis=0) if name.endswith("bias") else x.T @ wrong
            for part in "qk":
                right, wrong = arriving(went, inputs[name], part)
                array = array + (wrong - right) @ params[f"{inputs[name]}.{part}_proj.weight"].T
            return array

        return edit

    names = [*grads, *inputs]
    yield s.edited("gradients not turned back", names, turned(lambda dx, *_: dx))
    says = "gradients turned on instead of back"
    yield s.edited(says, names, turned(lambda dx, cos, sin: rope_forward(dx, cos=cos, sin=sin)[0]))


def gates(s: Subject) -> Iterator[Hypothesis]:
    """The two matrices that widen, one for the other."""
    params = s.model.params
    exchanged: dict[str, np.ndarray] = {}
    for gate in params:
        up = gate.replace(".mlp.gate_proj.", ".mlp.up_proj.")
        if up != gate:
            exchanged |= {gate: params[up], up: params[gate]}
    if exchanged:
        yield s.changed("gate and up exchanged", exchanged)


def experts(s: Subject) -> Iterator[Hypothesis]:
    """More experts a token, or fewer; other weights; an expert's gate for its up."""
    names = s.ending(".weights")
    if not names:
        return
    config, params = s.model.config, s.model.params
    k = config.num_experts_per_tok
    for other in (k - 1, k + 1):
        if 0 < other <= config.num_local_experts:
            says = f"{other} experts a token instead of {k}"
            yield s.configured(says, names, num_experts_per_tok=other)

    def other_weights(name: str, _: np.ndarray, went: Stations) -> np.ndarray:
        probs = softmax_forward(went[name.replace(".weights", ".gate")], axis=-1)[0]
        weights = top_k_forward(probs, k=k)[0]
        return weights if config.renormalise else renormalise_forward(weights)[0]

    said = "not divided" if config.renormalise else "divided"
    yield s.edited(f"the weights of the chosen experts {said} by their sum", names, other_weights)
    exchanged: dict[str, np.ndarray] = {}
    for n in (n for n, has_experts in enumerate(config.sparse) if has_experts):
        _, (gates, ups, _) = expert_names(config, n)
        for gate, up in zip(gates, ups, strict=True):
            exchanged |= {gate: params[up], up: params[gate]}
    yield s.changed("gate and up of each expert exchanged", exchanged)


def in_halves(x: np.ndarray) -> np.ndarray:
    """Coordinates 0, 2, 4 … first, then 1, 3, 5 …."""
    return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)


def in_pairs(x: np.ndarray) -> np.ndarray:
    """What `in_halves` makes halves of."""
    return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)
