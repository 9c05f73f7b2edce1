"""What computes each station, from which stations before it: the pass as a graph.

A table for each architecture has a step per station. Read forwards it says what makes a station;
read backwards, what makes the gradient that arrives there, and each parameter's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from npgpt.models.bert.heads import decoder_name
from npgpt.models.bert.model import BERT
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.config import expert_names
from npgpt.models.llama.model import Llama
from npgpt.models.transformer.model import Transformer

# What a step's backward does with the gradient that arrives.
UNCHANGED = "goes on unchanged, the same to every summand"
NORM = "the norm's backward, with its mean and its ε, and its gain"
NORM_OF_SUM = f"{NORM}; then it {UNCHANGED}"
# What a parameter's gradient is, of a step that uses it.
MATRIX = "the step's input, transposed, times the gradient that arrives"
GAIN = "the normalised input times the gradient that arrives, summed over positions"
BIAS = "the gradient that arrives, summed over positions"  # where a matrix or a gain has one
ROWS = "the gradient that arrives at each position, added to the row that was looked up there"

CAUSAL = "the causal mask: -∞ above the diagonal"
BACK = " or more back"  # of a window
ALL = "no causal mask: every token sees all"


class Step(NamedTuple):
    """How one station is computed."""

    reads: tuple[str, ...]  # the stations it is computed from
    made_by: str
    back: str  # what makes of the gradient here those of the stations that it reads
    modules: tuple[str, ...] = ()  # whose parameters it uses
    grads: str = MATRIX  # what makes the gradients of these
    used: tuple[str, ...] = ()  # the stations that `back` is computed with
    is_product: bool = False  # whose factors get each the other, instead of `used`


Steps = dict[str, Step]


def steps_of(model: Any) -> Steps:
    """A step for every station of the model; the last one is `loss`, where there is one."""
    if isinstance(model, BERT):
        return _bert(model)
    if isinstance(model, Transformer):
        return _encoder_decoder(model)
    return _llama(model) if isinstance(model, Llama) else _gpt2(model)


def _linear(x: str, module: str, more: str = "") -> Step:
    """A projection, by its matrix [in, out] and its bias."""
    name = _short(module)
    return Step((x,), name + more, f"times {name}.weight transposed", (module,))


def _norm(x: tuple[str, ...], module: str, made_by: str) -> Step:
    return Step(x, made_by, NORM if len(x) == 1 else NORM_OF_SUM, (module,), GAIN, x)


def _activation(x: str, more: str = "") -> Step:
    back = "times the derivative of the activation function"
    return Step((x,), f"the activation function{more}", back, used=(x,))


def _short(module: str) -> str:
    """The module's name without its layer."""
    parts = module.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbers[0] + 1 :] if numbers else parts)


def _attention(
    name: str,
    out: str,
    mask: str,
    out_module: str,
    grouped: str = "",
    scale: str = "the scale 1/√d_h",
) -> Steps:
    """From q, k and v on to what attention adds."""
    return {
        f"{name}.scores": Step(
            (f"{name}.q", f"{name}.k"),
            f"q·k in each head{grouped}, {scale}, {mask}",
            "0 where the mask forbids to look; with the scale, times k for q and times q for k",
            is_product=True,
        ),
        f"{name}.probs": Step(
            (f"{name}.scores",),
            f"softmax over the keys; {mask}",
            "the softmax's backward: p ⊙ (dp - Σ p dp), the sum over the keys of a query",
            used=(f"{name}.probs",),
        ),
        f"{name}.context": Step(
            (f"{name}.probs", f"{name}.v"),
            f"the weighted sum of the values{grouped}, merging the heads",
            "splitting the heads; times vᵀ for the weights, times probsᵀ for v",
            is_product=True,
        ),
        out: _linear(f"{name}.context", out_module),
    }


def _head(x: str, table: str, more: tuple[str, ...] = ()) -> Step:
    """Logits of a table that may be the tokens' own."""
    made_by = f"{table} transposed" + "".join(f", plus {name}" for name in more)
    return Step((x,), made_by, f"times {table}", (_module(table), *more))


def _module(param: str) -> str:
    return param.rpartition(".")[0]


def _loss(targets: str, back: str) -> Step:
    one_hot = "(softmax - one-hot of the target) / number of targets"
    return Step(("logits",), f"log-softmax, {targets}", one_hot + back, used=("logits",))


NEXT_TOKEN = _loss(
    "and targets shifted by one: ids[t + 1] for position t; a mean",
    "; 0 at the last position, which has no target",
)


def _gpt2(model: Any) -> Steps:
    steps = {
        "embed": Step((), "wte[id] + wpe[position]", "", ("wte", "wpe"), ROWS),
    }
    before = "embed"
    for n in range(model.config.n_layer):
        h = f"h.{n}"
        attn, x = f"{h}.attn", f"{h}.ln_1"
        steps[x] = _norm((before,), x, "ln_1.weight, ln_1.bias, layer_norm_epsilon")
        steps |= _gpt_neo_attention(model, n) if isinstance(model, GPTNeo) else _c_attn(x, attn)
        steps |= {
            f"{h}.ln_2": _norm(
                (before, attn), f"{h}.ln_2", "x + attn; ln_2.weight, ln_2.bias, layer_norm_epsilon"
            ),
            f"{h}.mlp.c_fc": _linear(f"{h}.ln_2", f"{h}.mlp.c_fc"),
            f"{h}.mlp.act": _activation(f"{h}.mlp.c_fc"),
            f"{h}.mlp": _linear(f"{h}.mlp.act", f"{h}.mlp.c_proj"),
            h: Step(
                (before, attn, f"{h}.mlp"),
                "the residual additions: x + attn, then x + mlp",
                UNCHANGED,
            ),
        }
        before = h
    steps["ln_f"] = _norm((before,), "ln_f", "ln_f.weight, ln_f.bias, layer_norm_epsilon")
    return steps | {"logits": _head("ln_f", model.head), "loss": NEXT_TOKEN}


def _c_attn(x: str, attn: str) -> Steps:
    """The attention of a GPT-2, whose queries, keys and values come out of one product."""
    thirds = zip("qkv", ("first", "second", "last"), strict=True)
    more = ", the {} third of its columns; the split into heads"
    steps = {f"{attn}.{q}": _linear(x, f"{attn}.c_attn", more.format(third)) for q, third in thirds}
    return steps | _attention(attn, attn, CAUSAL, f"{attn}.c_proj")


def _gpt_neo_attention(model: GPTNeo, n: int) -> Steps:
    """That of a GPT-Neo, in its own order: without a scale, and in some blocks with a window."""
    attn, part = f"h.{n}.attn", f"h.{n}.attn.attention"
    heads = "; the split into heads"
    steps = {f"{attn}.{q}": _linear(f"h.{n}.ln_1", f"{part}.{q}_proj", heads) for q in "kvq"}
    mask = _causal(model.config.windows[n])
    return steps | _attention(attn, attn, mask, f"{part}.out_proj", scale="no scale")


def _causal(window: int | None) -> str:
    return CAUSAL if window is None else f"{CAUSAL} and for keys {window}{BACK}"


def _llama(model: Any) -> Steps:
    steps = {"embed": Step((), "embed_tokens[id]; no position", "", ("embed_tokens",), ROWS)}
    before, eps = "embed", "rms_norm_eps; no mean is subtracted"
    for n, window in enumerate(model.config.windows):
        h = f"layers.{n}"
        attn, x, norm = f"{h}.self_attn", f"{h}.input_layernorm", f"{h}.post_attention_layernorm"
        steps[x] = _norm((before,), x, f"input_layernorm.weight, {eps}")
        for part in "qk":
            has_norm = f"{attn}.{part}_norm.weight" in model.params
            steps[f"{attn}.{part}"] = _turned(x, attn, part, has_norm)
        steps[f"{attn}.v"] = _linear(x, f"{attn}.v_proj", "; the split into heads")
        shared = " (which heads share keys and values)"
        steps |= _attention(attn, attn, _causal(window), f"{attn}.o_proj", shared)
        steps |= {
            norm: _norm(
                (before, attn), norm, f"x + self_attn; post_attention_layernorm.weight, {eps}"
            ),
            **(_mixture if model.config.sparse[n] else _swiglu)(model, n, norm),
            h: Step(
                (before, attn, f"{h}.mlp"),
                "the residual additions: x + self_attn, then x + mlp",
                UNCHANGED,
            ),
        }
        before = h
    steps["norm"] = _norm((before,), "norm", f"norm.weight, {eps}")
    return steps | {"logits": _head("norm", model.head), "loss": NEXT_TOKEN}


def _swiglu(_: Any, n: int, x: str) -> Steps:
    """The MLP of a Llama's block."""
    mlp = f"layers.{n}.mlp"
    return {
        f"{mlp}.gate_proj": _linear(x, f"{mlp}.gate_proj"),
        f"{mlp}.act_fn": _activation(f"{mlp}.gate_proj", " (hidden_act)"),
        f"{mlp}.up_proj": _linear(x, f"{mlp}.up_proj"),
        f"{mlp}.gated": Step(
            (f"{mlp}.act_fn", f"{mlp}.up_proj"),
            "act_fn ⊙ up_proj",
            "each gets it times the other",
            is_product=True,
        ),
        mlp: _linear(f"{mlp}.gated", f"{mlp}.down_proj"),
    }


def _mixture(model: Llama, n: int, x: str) -> Steps:
    """The experts of a block, whose insides are no stations."""
    mlp, config = f"layers.{n}.mlp", model.config
    router, names = expert_names(config, n)
    total = ", divided by their sum" if config.renormalise else ", not divided by their sum"
    return {
        f"{mlp}.gate": _linear(x, _module(router)),
        f"{mlp}.weights": Step(
            (f"{mlp}.gate",),
            f"softmax over the experts, the {config.num_experts_per_tok} largest{total}",
            "nothing for experts that are not chosen, nothing for the choice; the division's "
            "backward where there is one, the softmax's over all experts",
            used=(f"{mlp}.gate",),
        ),
        mlp: Step(
            (x, f"{mlp}.weights"),
            "each expert's gate, up and down on the tokens that chose it, times their weights",
            "each expert's backward on its tokens, times their weights; of a weight: its token's "
            "gradient · what the expert says",
            tuple(_module(name) for of_all in names for name in of_all),
            "the expert's backward on its tokens; zeros where it has none",
            (x, f"{mlp}.weights"),
        ),
    }


def _turned(x: str, attn: str, part: str, has_norm: bool) -> Step:
    """Queries or keys of a Llama, in some relatives normed in each head."""
    step = _linear(x, f"{attn}.{part}_proj")
    norm = f"{part}_norm in each head; " if has_norm else ""
    rotation = "the rotation by the position, whose pairs are i and i + d_h/2"
    step = step._replace(made_by=f"{step.made_by}; the split into heads; {norm}{rotation}")
    turn = "turned back by the position"
    if not has_norm:
        return step._replace(back=f"{turn}; then {step.back}", grads=f"{turn}; then {MATRIX}")
    return step._replace(
        back=f"{turn}; {part}_norm's backward in each head; then {step.back}",
        modules=(*step.modules, f"{attn}.{part}_norm"),
        grads=f"{turn}; through {part}_norm: {MATRIX}; of {part}_norm itself: {GAIN}",
    )


def _bert(model: BERT) -> Steps:
    family, before = model.config.family, "embed"
    steps = {before: _bert_embedding(model)}
    for n in range(model.config.num_hidden_layers):
        part, parts, layer = family.layer(n), family.parts, f"{family.layers}.{n}"
        for station, name in (("k", part.key), ("v", part.value), ("q", part.query)):
            steps[f"{part.attention}.{station}"] = _linear(before, name, "; the split into heads")
        steps |= _attention(part.attention, part.out, ALL, part.out)
        attn_norm = f"LayerNorm(x + {parts.out}), layer_norm_eps"
        norm = f"LayerNorm(x + {parts.narrow}), layer_norm_eps"
        steps |= {
            part.attn_norm: _norm((before, part.out), part.attn_norm, attn_norm),
            part.wide: _linear(part.attn_norm, part.wide),
            part.activation: _activation(part.wide, " (gelu is the exact one)"),
            part.narrow: _linear(part.activation, part.narrow),
            layer: _norm((part.attn_norm, part.narrow), part.norm, norm),
        }
        before = layer
    return steps | _bert_heads(model, before)


def _bert_embedding(model: BERT) -> Step:
    family = model.config.family
    first = f"{model.config.first_position} + t" if family.counts_tokens else "t"
    summands = {"word_embeddings": "id", "position_embeddings": first, "token_type_embeddings": "0"}
    if not family.has_types:
        del summands["token_type_embeddings"]
    made_by = " + ".join(f"{table}[{row}]" for table, row in summands.items())
    modules = tuple(f"embeddings.{table}" for table in (*summands, "LayerNorm"))
    made_by = f"LayerNorm({made_by}), layer_norm_eps"
    return Step((), made_by, "", modules, f"{NORM}; then {ROWS}")


def _bert_heads(model: BERT, before: str) -> Steps:
    steps, family = {}, model.config.family
    if "pooler.dense.weight" in model.params:
        made_by = "tanh(pooler.dense) of the first token alone"
        steps["pooler"] = Step((before,), made_by, "", ("pooler.dense",))
    if model.has_mlm_head:
        dense, norm, table = family.transform, family.transform_norm, decoder_name(model.config)
        steps["logits"] = Step(
            (before,),
            f"{dense}, the activation function, {norm}, {table} transposed, {family.bias}",
            f"the same in reverse: the table, {norm}, the activation function, {dense}",
            (dense, norm, _module(table), _module(family.bias)),
            "the head's backward as far as this parameter",
            (before,),
        )
        targets = "and the target of position t: ids[t] itself, not shifted; a mean"
        steps["loss"] = _loss(targets, "")
    return steps


EMBEDDED = (
    "[id], times √d_model where scale_embedding is set, + positions: learned ones from row 2 on "
    "and layernorm_embedding in a bart, sines and then cosines in a marian, alternating in the "
    "paper"
)


def _embedding(side: str, table: str, shifted: str = "") -> Step:
    norm, positions = f"{side}.layernorm_embedding", f"{side}.embed_positions"
    grads = f"through layernorm_embedding where there is one; {ROWS}, with the same scale; none "
    grads += "from the padding token's lookups"
    made_by = f"{shifted}{table}{EMBEDDED}"
    return Step((), made_by, "", (_module(table), positions, norm), grads)


def _encoder_decoder(model: Transformer) -> Steps:
    config = model.config
    steps = {"encoder.embed": _embedding("encoder", config.source_table)}
    before = "encoder.embed"
    for n in range(config.encoder_layers):
        layer = f"encoder.layers.{n}"
        steps |= _sublayer(layer, "self_attn", before, before, ALL)
        steps |= _feed_forward(layer, f"{layer}.self_attn_layer_norm")
        before = layer
    shifted = "the target shifted right, decoder_start_token_id in front; then "
    memory, before = before, "decoder.embed"
    steps[before] = _embedding("decoder", config.target_table, shifted)
    for n in range(config.decoder_layers):
        layer = f"decoder.layers.{n}"
        steps |= _sublayer(layer, "self_attn", before, before, CAUSAL)
        steps |= _sublayer(layer, "encoder_attn", f"{layer}.self_attn_layer_norm", memory, ALL)
        steps |= _feed_forward(layer, f"{layer}.encoder_attn_layer_norm")
        before = layer
    bias = ("final_logits_bias",) if "final_logits_bias" in model.params else ()
    targets = "and the target of position t: target_ids[t]; the mean over all of them"
    return steps | {
        "logits": _head(before, config.head_table, bias),
        "loss": _loss(targets, ""),
    }


def _sublayer(layer: str, kind: str, x: str, looked_at: str, mask: str) -> Steps:
    """Attention of x to itself or to the encoder's output; Add & Norm."""
    attn, norm = f"{layer}.{kind}", f"{layer}.{kind}_layer_norm"
    of_source = "" if x == looked_at else ", of the encoder's output"
    heads = "; the split into heads"
    return {
        f"{attn}.k": _linear(looked_at, f"{attn}.k_proj", of_source + heads),
        f"{attn}.v": _linear(looked_at, f"{attn}.v_proj", of_source + heads),
        f"{attn}.q": _linear(x, f"{attn}.q_proj", heads),
        **_attention(attn, attn, mask, f"{attn}.out_proj"),
        norm: _norm((x, attn), norm, f"LayerNorm(x + {kind}), eps 1e-5"),
    }


def _feed_forward(layer: str, x: str) -> Steps:
    """Feed-forward network; Add & Norm."""
    act = f"{layer}.activation_fn"
    return {
        f"{layer}.fc1": _linear(x, f"{layer}.fc1"),
        act: _activation(f"{layer}.fc1"),
        f"{layer}.fc2": _linear(act, f"{layer}.fc2"),
        layer: _norm(
            (x, f"{layer}.fc2"),
            f"{layer}.final_layer_norm",
            "final_layer_norm: LayerNorm(x + fc2), eps 1e-5",
        ),
    }
