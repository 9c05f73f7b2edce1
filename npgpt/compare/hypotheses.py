"""Faults that many a port has had, each as the pass that it would make.

A hypothesis is another model, other targets, or an edit of stations as they are computed. It holds
for all layers at once. `fits.py` tries those that could explain a station that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from npgpt.compare.activations import GRAD, Edit, Stations, inputs_and_targets
from npgpt.compare.llama_hypotheses import experts, gates, rotations, rotations_back, shared_heads
from npgpt.compare.steps import BACK, CAUSAL, NORM, UNCHANGED, steps_of
from npgpt.compare.subject import Hypothesis, Subject, raw_scores
from npgpt.models.bert.heads import decoder_name, mlm_head_forward
from npgpt.models.bert.model import BERT
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.model import Llama
from npgpt.models.transformer.layers import EPS
from npgpt.models.transformer.model import Transformer
from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.cross_entropy import IGNORE_INDEX
from npgpt.ops.softmax import softmax_forward

EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5)
ACTIVATION_KEYS, EPSILON_KEYS = (
    ("activation_function", "hidden_act"),
    ("layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps"),
)


def hypotheses_of(
    model: Any,
    ids: np.ndarray,
    target_ids: np.ndarray | None,
    theirs: Mapping[str, np.ndarray],
) -> Iterator[Hypothesis]:
    """All that apply to this model and text, and to what the other side has.

    One after the other, because some have matrices of their own.
    """
    _, targets = inputs_and_targets(model, ids, target_ids)
    subject = Subject(model, steps_of(model), ids, targets, theirs)
    return (found for kind in TABLE for found in kind(subject))


def _activations(s: Subject) -> Iterator[Hypothesis]:
    key = s.option(ACTIVATION_KEYS)
    assert key is not None
    usual = getattr(s.model.config, "activation", getattr(s.model.config, key))
    names = s.ending(".act", ".act_fn", ".activation_fn", ".intermediate", ".activation")
    for sharp, says in ((1.702, "x σ(1.702 x), the quick GELU,"), (None, "σ(x)")):
        yield s.edited(f"{says} instead of {usual}", names, _sigmoid_of(s, sharp))
    if isinstance(s.model, BERT) and "logits" in s.steps and not s.model.config.family.head_act:
        names.append("logits")
    names += [router.removesuffix(".gate") for router in s.ending(".gate")]
    done = [ACTIVATIONS.get(usual)]
    for other, functions in ACTIVATIONS.items():
        if functions not in done:
            done.append(functions)
            yield s.configured(f"{other} instead of {usual}", names, **{key: other})


def _sigmoid_of(s: Subject, sharp: float | None) -> Edit:
    """x σ(sharp x), or σ(x) alone."""

    def edit(name: str, _: np.ndarray, went: Stations) -> np.ndarray:
        x = went[s.steps[name].reads[0]]
        return x / (1 + np.exp(-sharp * x)) if sharp else 1 / (1 + np.exp(-x))

    return edit


def _epsilons(s: Subject) -> Iterator[Hypothesis]:
    """Another ε, at another place; another variance."""
    key = s.option(EPSILON_KEYS)
    usual = getattr(s.model.config, key) if key else EPS
    norms = [name for name, step in s.steps.items() if step.back.startswith(NORM)]
    within = [n for n, step in s.steps.items() if "norm" in str(step.modules).lower()]
    for other in EPSILONS:
        says = f"ε {other:g} instead of {usual:g}"
        if key and other != usual:
            yield s.configured(says, [*norms, *within], **{key: other})
        elif other != usual:
            yield s.edited(says, norms, _normed(s, other))
    says = "ε added to the root instead of under it"
    yield s.edited(says, norms, _normed(s, 0.0, behind=usual))
    if not isinstance(s.model, Llama):
        says = "the variance divided by d - 1 instead of d"
        yield s.edited(says, norms, _normed(s, usual, less=1))


def _normed(s: Subject, eps: float, *, behind: float = 0.0, less: int = 0, skip: int = 0) -> Edit:
    """The norm with ε under or `behind` the root, and a variance that divides by d - `less`.

    The first `skip` summands of what it reads are left out.
    """

    def edit(name: str, array: np.ndarray, went: Stations) -> np.ndarray:
        step, params = s.steps[name], s.model.params
        x = np.sum([went[read] for read in step.reads[skip:]], axis=0, dtype=np.float64)
        if not isinstance(s.model, Llama):
            x = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(x).sum(axis=-1, keepdims=True) / (x.shape[-1] - less)
        y = x / (np.sqrt(variance + eps) + behind) * params[f"{step.modules[0]}.weight"]
        return (y + params.get(f"{step.modules[0]}.bias", 0.0)).astype(array.dtype)

    return edit


def _parameters(s: Subject) -> Iterator[Hypothesis]:
    """Square matrices transposed; biases left out; those of the first layer in all of them."""
    square: dict[str, np.ndarray] = {}
    for kind, names in _kinds(s, lambda p: p.ndim == 2 and p.shape[0] == p.shape[1]):
        changed = {name: s.model.params[name].T for name in names}
        square |= changed
        yield s.changed(f"{kind} transposed", changed)
    if len({_kind(name) for name in square}) > 1:
        yield s.changed("all square matrices transposed", square)
    thirds = {
        name: np.concatenate([third.T for third in np.split(param, 3, axis=1)], axis=1)
        for name, param in s.model.params.items()
        if name.endswith("c_attn.weight")
    }
    if thirds:
        yield s.changed("each third of h.N.attn.c_attn.weight transposed", thirds)
    for kind, names in _kinds(s, lambda p: bool(p.any())):
        if kind.endswith("bias"):
            left_out = {name: np.zeros_like(s.model.params[name]) for name in names}
            yield s.changed(f"without {kind}", left_out)
        if len(names) > 1:
            first = dict.fromkeys(names[1:], s.model.params[names[0]])
            yield s.changed(f"{names[0]} in all layers", first)


def _kinds(s: Subject, fits: Callable[[np.ndarray], bool]) -> Iterator[tuple[str, list[str]]]:
    """Parameters with the same name in all layers; not the tables of tokens and positions."""
    tables = {module for step in s.steps.values() if not step.reads for module in step.modules}
    kinds: dict[str, list[str]] = {}
    for name, param in s.model.params.items():
        if name.rpartition(".")[0] not in tables and fits(param):
            kinds.setdefault(_kind(name), []).append(name)
    yield from kinds.items()


def _kind(name: str) -> str:
    return re.sub(r"\.\d+\.", ".N.", name)  # not the 1 of ln_1


def _orders(s: Subject) -> Iterator[Hypothesis]:
    """q, k and v for one another: their biases alone, or all of them."""
    for order in permutations("qkv"):
        if order != tuple("qkv"):
            said = f"q, k, v in the order {', '.join(order)}"
            for kinds, of in ((("bias",), "the biases of "), (("weight", "bias"), "")):
                if changed := _reordered(s, order, kinds):
                    yield s.changed(f"{of}{said}", changed)


def _reordered(s: Subject, order: tuple[str, ...], kinds: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The parameters that change; none where they cannot stand for one another."""
    params, changed = s.model.params, {}
    for name, step in s.steps.items():
        part = name.rpartition(".")[2]
        if part not in ("q", "k", "v"):
            continue
        other = order["qkv".index(part)]
        source = s.steps[f"{name[:-1]}{other}"]
        for kind in kinds:
            to, of = (f"{x.modules[0]}.{kind}" for x in (step, source))
            if to not in params:
                continue
            if to.endswith(f".c_attn.{kind}"):  # all three in one
                thirds = dict(zip("qkv", np.split(params[to], 3, axis=-1), strict=True))
                changed[to] = np.concatenate([thirds[x] for x in order], axis=-1)
            elif params[to].shape != params[of].shape:
                return {}
            elif to != of:
                changed[to] = params[of]
    return changed


def _positions(s: Subject) -> Iterator[Hypothesis]:
    """Learned ones, a row too far or none."""
    for name, table in s.model.params.items():
        if name.endswith(("wpe.weight", "position_embeddings.weight")):
            for says, other in (
                ("positions one too high", np.roll(table, -1, axis=0)),
                ("no positions", np.zeros_like(table)),
            ):
                model = type(s.model)(s.model.config, s.model.params | {name: other})
                yield Hypothesis(says, ["embed"], model)  # the table's gradient stays the same


def _scales(s: Subject) -> Iterator[Hypothesis]:
    """Of the scores, and of the gradients that come back through them."""
    names = s.ending(".scores", ".q", ".k")
    names = [n if n.endswith("scores") else GRAD + n for n in names]

    def times(power: float, of_width: float = 0.0) -> Edit:
        def edit(name: str, array: np.ndarray, went: Stations) -> np.ndarray:
            attention = name.removeprefix(GRAD).rpartition(".")[0]
            d_h = went[f"{attention}.q"].shape[-1]
            factor = d_h**power * (len(went[f"{attention}.q"]) * d_h) ** of_width
            return array * array.dtype.type(factor)

        return edit

    if isinstance(s.model, GPTNeo):
        yield s.edited("a scale 1/√d_h, which a GPT-Neo does not have", names, times(-0.5))
        return
    yield s.edited("the scale 1/√d_h is missing", names, times(0.5))
    yield s.edited("the scale 1/d_h instead of 1/√d_h", names, times(-0.5))
    yield s.edited("the scale 1/√(H d_h) instead of 1/√d_h", names, times(0.5, -0.5))


def _attention(s: Subject) -> Iterator[Hypothesis]:
    """Masks, and the axis of the softmax."""
    causal = [n for n in s.ending(".probs") if CAUSAL in s.steps[n].made_by]
    windowed = [n for n in causal if BACK in s.steps[n].made_by]

    def seeing(more: Callable[..., np.ndarray]) -> Edit:
        def edit(name: str, _: np.ndarray, went: Stations) -> np.ndarray:
            attention = name.removesuffix(".probs")
            raw, scores = raw_scores(went, attention), went[f"{attention}.scores"]
            T, S = raw.shape[-2:]
            shown = np.isfinite(scores)
            scale = (scores[shown] @ raw[shown]) / np.square(raw[shown]).sum()
            seen = shown | more(T, S, dtype=bool)
            return softmax_forward(np.where(seen, raw * scale, -np.inf), axis=-1)[0]

        return edit

    def by_query(name: str, _: np.ndarray, went: Stations) -> np.ndarray:
        return softmax_forward(went[name.replace(".probs", ".scores")], axis=-2)[0]

    if causal:
        yield s.edited(
            "no causal mask", causal, seeing(lambda *shape, dtype: np.ones(shape, dtype))
        )
        says = "the causal mask lets the next token be seen"
        yield s.edited(says, causal, seeing(partial(np.eye, k=1)))
    if windowed:
        yield s.edited("no window: all tokens before are seen", windowed, seeing(np.tri))
    says = "softmax over the queries instead of the keys"
    yield s.edited(says, s.ending(".probs"), by_query)


def _residuals(s: Subject) -> Iterator[Hypothesis]:
    """One summand left out."""
    sums = {name: step.reads for name, step in s.steps.items() if step.back == UNCHANGED}
    if not sums:
        return
    for at, part in enumerate(("x", "what attention adds", "what the network adds")):
        less = {name: reads[at] for name, reads in sums.items()}
        yield s.edited(f"{part} is left out of the sum", less, _without(less))
    both = {name: reads[:2] for name, reads in sums.items()}
    says = "nothing goes past the network: x and what attention adds are left out"
    yield s.edited(says, both, lambda name, array, went: array - sum(went[x] for x in both[name]))
    key = s.option(EPSILON_KEYS)
    norms = [n for n, step in s.steps.items() if step.back.startswith(NORM) and len(step.reads) > 1]
    eps = getattr(s.model.config, key) if key else EPS
    yield s.edited("nothing goes past attention: x is left out", norms, _normed(s, eps, skip=1))
    past_the_second = {GRAD + x: GRAD + total for total, reads in sums.items() for x in reads[:2]}
    past_the_first = {GRAD + x: GRAD + attn for x, attn, _ in sums.values()}
    for less, part in ((past_the_first, "attention"), (past_the_second, "the network")):
        says = f"the gradient that goes past {part} unchanged is left out"
        yield s.edited(says, less, _without(less))


def _without(less: dict[str, str]) -> Edit:
    return lambda name, array, went: array - went[less[name]]


def _losses(s: Subject) -> Iterator[Hypothesis]:
    if "loss" not in s.steps:
        return
    names, T = ["loss", GRAD + "logits"], len(s.targets)
    N = int((s.targets != IGNORE_INDEX).sum())

    def times(factor: float) -> Edit:
        return lambda _, array, __: array * array.dtype.type(factor)

    if N > 1:
        yield s.edited(f"a sum over the {N} targets instead of their mean", names, times(N))
        yield s.edited(f"divided by the {N} targets twice", names, times(1 / N))
    if N < T:
        says = f"divided by all {T} positions instead of the {N} that have a target"
        yield s.edited(says, names, times(N / T))
    for targets, says in _other_targets(s):
        yield Hypothesis(says, names, s.model, targets)


def _other_targets(s: Subject) -> Iterator[tuple[np.ndarray, str]]:
    twice = np.append(s.targets[1:], IGNORE_INDEX)
    if isinstance(s.model, BERT | Transformer):
        yield twice, "targets shifted by one"
        return
    yield twice, "targets shifted twice: ids[t + 2] for position t"
    if GRAD + "logits" in s.theirs:  # its last row says which token it took: softmax - one-hot
        last = int(s.theirs[GRAD + "logits"][-1].argmin())
        yield np.append(s.targets[:-1], last), f"the last position has a target, too: id {last}"
    says = "targets not shifted: ids[t] for position t"
    yield s.ids, f"{says}, of all positions"
    yield np.append(s.ids[:-1], IGNORE_INDEX), f"{says}, of all but the last"


def _tied(s: Subject) -> Iterator[Hypothesis]:
    """The gradient of a table that is used more than once lacks a part."""
    config, params, head = s.model.config, s.model.params, "lm_head.weight"
    if not config.tie_word_embeddings or "logits" not in s.steps:
        return
    if isinstance(s.model, BERT):
        table, head = decoder_name(config), f"{config.family.decoder}.weight"
    else:
        table = config.head_table if isinstance(s.model, Transformer) else s.model.head
    untied = type(s.model)(
        replace(config, tie_word_embeddings=False), params | {head: params[table]}
    )
    lacks = "lacks the half that comes from the"
    yield Hypothesis(f"{table} {lacks} logits", [GRAD + table], untied)

    def of_head(_: str, __: np.ndarray, went: Stations) -> np.ndarray:
        x = went[s.steps["logits"].reads[0]]
        if isinstance(s.model, BERT):
            x = mlm_head_forward(x, params, config)[1].decoder[0]
        dtable: np.ndarray = went[GRAD + "logits"].T @ x
        return dtable

    yield s.edited(f"{table} {lacks} lookup", [GRAD + table], of_head)


TABLE: tuple[Callable[[Subject], Iterator[Hypothesis]], ...] = (
    _activations,
    _epsilons,
    _parameters,
    _orders,
    _positions,
    _scales,
    _attention,
    shared_heads,
    rotations,
    rotations_back,
    gates,
    experts,
    _residuals,
    _losses,
    _tied,
)
