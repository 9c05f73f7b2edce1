"""What `python -m npgpt.compare` prints: tables of at most 100 columns, or one JSON object.

Beside the first station that is wrong stands its likely cause: a table for each architecture says
what computes a station.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from npgpt import cli
from npgpt.compare.activations import GRAD
from npgpt.compare.differences import OK, Difference, LogitsDifference, first_beyond

TokenText = Callable[[int], str | None]

# What computes a station; N stands for any layer.
WEIGHTS = "the split into heads, the scale 1/√d_h, {mask}softmax"
SUM = "the weighted sum, merging the heads"

GPT2_CAUSES = {
    "embed": "wte[id] + wpe[position]",
    "h.N.attn.probs": "ln_1, the Q and K thirds of c_attn, "
    + WEIGHTS.format(mask="the causal mask, "),
    "h.N.attn": f"the V third of c_attn, {SUM}, attn.c_proj",
    "h.N.mlp": "ln_2, mlp.c_fc, the activation function, mlp.c_proj",
    "h.N": "the residual additions: x + attn, then x + mlp",
    "ln_f": "ln_f.weight, ln_f.bias, layer_norm_epsilon",
    "logits": "lm_head, which is the token table transposed where the two are tied",
    "loss": "log-softmax, and targets shifted by one: ids[t + 1] for position t",
}
LLAMA_CAUSES = {
    "embed": "embed_tokens[id]; no position is added",
    "layers.N.self_attn.probs": "input_layernorm, q_proj, k_proj, the split into heads, which of "
    "them share keys, rotary angles and which coordinates are a pair, the scale 1/√d_h, the causal "
    "mask, softmax",
    "layers.N.self_attn": f"v_proj, {SUM}, o_proj",
    "layers.N.mlp": "post_attention_layernorm, gate_proj with the activation, times up_proj, "
    "down_proj",
    "layers.N": "the residual additions: x + self_attn, then x + mlp",
    "norm": "norm.weight, rms_norm_eps; no mean is subtracted",
    "logits": GPT2_CAUSES["logits"],
    "loss": GPT2_CAUSES["loss"],
}
_LAYER = "encoder.layer.N."
BERT_CAUSES = {
    "embed": "LayerNorm(word_embeddings[id] + position_embeddings[t] + token_type_embeddings[0]), "
    "layer_norm_eps",
    _LAYER + "attention.self.probs": "query, key, "
    + WEIGHTS.format(mask="")
    + "; no causal mask: every token sees all",
    _LAYER + "attention.output.dense": f"value, {SUM}, attention.output.dense",
    _LAYER + "attention.output.LayerNorm": "LayerNorm(x + attention.output.dense), layer_norm_eps",
    _LAYER + "output.dense": "intermediate.dense, the activation function (gelu is the exact one), "
    "output.dense",
    "encoder.layer.N": "LayerNorm(x + output.dense), layer_norm_eps",
    "pooler": "tanh(pooler.dense) of the first token alone",
    "logits": "cls.predictions: transform.dense, the activation function, transform.LayerNorm, the "
    "word table transposed where the two are tied, bias",
    "loss": "log-softmax, and the target of position t: ids[t] itself, not shifted",
}
_EMBEDDED = (
    "embed_tokens[id], times √d_model where scale_embedding is set, + positions: learned ones from "
    "row 2 on and layernorm_embedding in a bart, sines and then cosines in a marian, alternating "
    "in the paper"
)
SEQ2SEQ_CAUSES = {
    "encoder.embed": _EMBEDDED,
    "encoder.layers.N.self_attn.probs": "q_proj, k_proj, "
    + WEIGHTS.format(mask="")
    + "; no causal mask: every token of the source sees all",
    "decoder.embed": "the target shifted right, decoder_start_token_id in front; then as "
    + _EMBEDDED,
    "decoder.layers.N.self_attn.probs": "q_proj, k_proj, "
    + WEIGHTS.format(mask="the causal mask, "),
    "decoder.layers.N.encoder_attn.probs": "q_proj of the target's x, k_proj of the "
    "encoder's output, " + WEIGHTS.format(mask="") + "; no causal mask",
    "decoder.layers.N.encoder_attn": f"v_proj of the encoder's output, {SUM}, out_proj",
    "decoder.layers.N.encoder_attn_layer_norm": "LayerNorm(x + encoder_attn), eps 1e-5",
    **{
        f"{side}.layers.N{part}": cause
        for side in ("encoder", "decoder")
        for part, cause in (
            (".self_attn", f"v_proj, {SUM}, out_proj"),
            (".self_attn_layer_norm", "LayerNorm(x + self_attn), eps 1e-5"),
            (".fc2", "fc1, the activation function, fc2"),
            ("", "final_layer_norm: LayerNorm(x + fc2), eps 1e-5"),
        )
    },
    "logits": "the table shared.weight transposed where the head is tied, else lm_head; plus "
    "final_logits_bias",
    "loss": "log-softmax, and the target of position t: target_ids[t]; the mean over all of them",
}
CAUSES = {
    "gpt2": GPT2_CAUSES,
    "llama": LLAMA_CAUSES,
    "bert": BERT_CAUSES,
    **dict.fromkeys(("bart", "marian", "transformer"), SEQ2SEQ_CAUSES),
}


def likely_cause(model_type: str, station: str) -> str:
    """Where to look when `station` is the first that is wrong: the computation that makes it."""
    return CAUSES[model_type][re.sub(r"\.\d+", ".N", station)]


class Comparison(NamedTuple):
    """Two implementations side by side."""

    model: str
    model_type: str
    against: str
    dtype: str
    tolerance: float | None  # None: from rounding, station by station
    ids: list[int]
    target_ids: list[int] | None  # of an encoder-decoder
    stations: list[Difference]  # in the order of the forward pass; `loss` last
    gradients: list[Difference]  # in the order of the backward pass
    logits: LogitsDifference | None  # None where the other side has no logits
    missing: list[str]
    unknown: list[str]
    unread: list[str]

    @property
    def within(self) -> bool:
        """Whether every station and gradient is ok."""
        return first_beyond([*self.stations, *self.gradients]) is None

    @property
    def worst_first(self) -> list[Difference]:
        """The gradients, those that use most of their tolerance in front."""
        return sorted(self.gradients, key=lambda row: row.share, reverse=True)


def as_text(comparison: Comparison, token_text: TokenText) -> str:
    """The tables of stations and gradients, the findings, and the names that only one side has."""
    c, other = comparison, "hf" if comparison.against == "hf" else "file"
    blocks = [_title(c)]
    if c.stations:
        blocks.append(_table("station", c.stations, other))
    if c.gradients:
        rows = [row._replace(station=row.station.removeprefix(GRAD)) for row in c.worst_first]
        blocks.append(_table("gradient, worst first", rows, other))
    blocks.append(_findings(c))
    if c.logits is not None:
        blocks.append(_next_token(c, c.logits, other, token_text))
    for title, names in (
        ("not in the file", c.missing),
        ("in the file, but no station of this model", c.unknown),
        ("in the file, but compared only with --gradients", c.unread),
    ):
        if names:
            blocks.append(f"{title}:\n{_wrapped(names)}")
    return "\n\n".join(blocks)


def as_json(comparison: Comparison, token_text: TokenText) -> dict[str, Any]:
    """The same as an object; NaN and infinity, for which JSON has no number, are null."""
    c = comparison
    beyond, beyond_grad = first_beyond(c.stations), first_beyond(c.gradients)
    return {
        "model": c.model,
        "against": c.against,
        "dtype": c.dtype,
        "tolerance": c.tolerance,
        "ids": c.ids,
        "target_ids": c.target_ids,
        "within_tolerance": c.within,
        "first_beyond": beyond and beyond.station,
        "first_gradient_beyond": beyond_grad and beyond_grad.station,
        "stations": [_row_as_json(row) for row in c.stations],
        "gradients": [_row_as_json(row) for row in c.worst_first],
        "logits": c.logits and _logits_as_json(c.logits, token_text),
        "missing": c.missing,
        "unknown": c.unknown,
        "unread": c.unread,
    }


def _title(c: Comparison) -> str:
    tolerance = "what rounding explains" if c.tolerance is None else f"{c.tolerance:g}"
    tokens = f"{len(c.ids)} tokens"
    if c.target_ids is not None:
        tokens += f" and {len(c.target_ids)} of the target"
    return f"{c.model} ({c.dtype}) against {c.against}, {tokens}; tolerance: {tolerance}"


def _table(title: str, rows: Sequence[Difference], other: str) -> str:
    """One line for each difference."""
    cells = [(title, "max |Δ|", "relative", "tolerance", "worst at", "npgpt", other, "")]
    cells += [
        (
            row.station,
            _number(row.max_abs),
            _number(row.relative),
            _number(row.tolerance),
            "(" + ", ".join(map(str, row.worst)) + ")",
            f"{row.ours:.3e}",
            f"{row.theirs:.3e}",
            row.verdict if row.verdict == OK else row.verdict.upper(),
        )
        for row in rows
    ]
    return cli.table(cells, "lrrrlrrl")


def _findings(c: Comparison) -> str:
    sentences = []
    beyond = first_beyond(c.stations)
    if beyond is not None:
        at = c.stations.index(beyond)
        before = f"; {c.stations[at - 1].station} before it is ok" if at else ""
        sentences.append(f"first station beyond tolerance: {beyond.station}{before}")
        sentences.append(f"  made by: {likely_cause(c.model_type, beyond.station)}")
    elif c.stations:
        sentences.append(f"all {len(c.stations)} stations are within tolerance")
    if c.gradients:
        late = first_beyond(c.gradients)
        sentences.append(
            f"all {len(c.gradients)} gradients are within tolerance"
            if late is None
            else f"first gradient beyond tolerance, as the backward pass goes: {late.station}"
        )
    if c.logits is not None:
        sentences += _logits_sentences(c.logits)
    return "\n".join(sentences)


def _logits_sentences(logits: LogitsDifference) -> list[str]:
    first = ""
    if logits.first_disagreement is not None:
        first = (
            f"; first disagreement at position {logits.first_disagreement}, where npgpt's logits "
            f"of the two tokens differ by {_number(logits.gap)}"
        )
    return [
        f"argmax: the same at {logits.agreeing} of {logits.positions} positions{first}",
        f"KL divergence: mean {_number(logits.kl_mean)}, max {_number(logits.kl_max)} nats",
    ]


def _next_token(c: Comparison, logits: LogitsDifference, other: str, token_text: TokenText) -> str:
    at = "after" if c.model_type in ("gpt2", "llama") else "at"
    lines = [f"likeliest {at} position {logits.positions - 1}:"]
    lines.append(f"     {'npgpt':<42}{other}")
    for place, pair in enumerate(zip(logits.ours, logits.theirs, strict=True), start=1):
        cells = [f"{p:<8.2g}  {i:<6} {_quoted(token_text(i))}" for i, p in pair]
        lines.append(f"  {place}  {cells[0]:<42}{cells[1]}".rstrip())
    return "\n".join(lines)


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    quoted = repr(text)
    return quoted if len(quoted) <= 24 else quoted[:23] + "…"


def _wrapped(names: Sequence[str]) -> str:
    return textwrap.indent(textwrap.fill(", ".join(names), 98), "  ")


def _number(x: float) -> str:
    return "0" if x == 0 else f"{x:.1e}"


def _row_as_json(row: Difference) -> dict[str, Any]:
    return {key: _finite_or_none(value) for key, value in row._asdict().items()}


def _logits_as_json(logits: LogitsDifference, token_text: TokenText) -> dict[str, Any]:
    def tokens(likeliest: list[tuple[int, float]]) -> list[dict[str, Any]]:
        return [
            {"id": i, "token": token_text(i), "probability": _finite_or_none(p)}
            for i, p in likeliest
        ]

    return {
        "positions": logits.positions,
        "agreeing": logits.agreeing,
        "parting": logits.first_disagreement,
        "gap": _finite_or_none(logits.gap),
        "kl_mean": _finite_or_none(logits.kl_mean),
        "kl_max": _finite_or_none(logits.kl_max),
        "ours": tokens(logits.ours),
        "theirs": tokens(logits.theirs),
    }


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
