"""Encoder, decoder and GPT-2 side by side, drawn from their configurations (article chapter 2).

Read from below, as the article's figure. The names of npgpt's parameters for a configuration say
what stands in a layer, and in which order. Then the four differences, each by a run.
"""

from __future__ import annotations

import numpy as np
from any_model import random_model
from encoder_decoder import encoder_layer, one_layer_each
from show import claim, heading, moved, say

from npgpt.cli import left
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.config import param_shapes as gpt2_shapes
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.config import param_shapes as transformer_shapes

Shapes = dict[str, tuple[int, ...]]
BASE, SMALL = TransformerConfig(), GPT2Config()
OF_2017, OF_GPT2 = transformer_shapes(BASE), gpt2_shapes(SMALL)
WPE = [*OF_GPT2["wpe.weight"]]


def parts_of(shapes: Shapes, layer: str) -> list[str]:
    """What a layer is made of, in the order of the forward pass."""
    inside = [name.removeprefix(layer) for name in shapes if name.startswith(layer)]
    return list(dict.fromkeys(name.partition(".")[0] for name in inside))


def boxes(parts: list[str], sees: str, width: tuple[int, ...]) -> list[str]:
    """A line for each sublayer, norm and sum, from below."""
    ffn = "FFN " + " → ".join(map(str, (*width, width[0])))
    names = {"encoder_attn": "cross-attention", "fc1": ffn, "mlp": ffn}
    names |= dict.fromkeys(("self_attn", "attn"), f"{sees} self-attention")
    names |= dict.fromkeys(("ln_1", "ln_2"), "LayerNorm")
    lines = []
    for part in parts:
        if part != "fc2":  # the second half of fc1's box
            lines.append(names.get(part, "Add & Norm"))
        if part in ("attn", "mlp"):
            lines.append("+")
    edge = ["└", *"│" * (len(lines) - 2), "┌"]
    return [f"{side} {line}" for side, line in zip(edge, lines, strict=True)]


def columns() -> list[list[str]]:
    """The three columns, each from below; memory and cross-attention at the same height."""
    both, causal = say("bidirectional", "双向"), "causal"
    table, positions = [*OF_2017[BASE.source_table]], say("sinusoids", "正弦位置")
    encoder = [say("source ids", "源句编号") + " [S]", f"embedding {table}", f"+ {positions}"]
    parts = parts_of(OF_2017, "encoder.layers.0.")
    encoder += boxes(parts, both, OF_2017["encoder.layers.0.fc1.weight"])
    encoder.append(left(f"memory [S, {BASE.d_model}] ", 24) + "K, V ─▶")
    below = ["", ""]  # the encoder begins two lines lower
    decoder = [*below, say("target ids", "目标句编号") + " [T]", f"embedding {table}"]
    parts = parts_of(OF_2017, "decoder.layers.0.")
    decoder += [f"+ {positions}", *boxes(parts, causal, OF_2017["decoder.layers.0.fc1.weight"])]
    decoder.append(f"logits [T, {BASE.target_vocab_size}]")
    gpt = [*below, say("ids", "编号") + " [T]", f"wte {[*OF_GPT2['wte.weight']]}", f"+ wpe {WPE}"]
    gpt += boxes(parts_of(OF_GPT2, "h.0."), causal, OF_GPT2["h.0.mlp.c_fc.weight"])
    return [encoder, decoder, [*gpt, "ln_f", f"logits [T, {SMALL.vocab_size}]"]]


heading("2", say("three columns, each read from below", "三列，每列都自下而上读"))
titles = [
    say(f"{name}: {layers} layers, {heads} heads", f"{name}：{layers} 层，{heads} 头")
    for name, layers, heads in (
        ("encoder", BASE.encoder_layers, BASE.encoder_attention_heads),
        ("decoder", BASE.decoder_layers, BASE.decoder_attention_heads),
        ("GPT-2 small", SMALL.n_layer, SMALL.n_head),
    )
]
drawn = columns()
height = max(map(len, drawn))
print("  " + "".join(left(title, 33) for title in titles).rstrip() + "\n")
for line in zip(
    *([*[""] * (height - len(column)), *column[::-1]] for column in drawn), strict=True
):
    print("  " + "".join(left(text, 33) for text in line).rstrip())
print(
    say(
        "\n  GPT-2 has no left column, so no cross-attention; its norm stands before a sublayer.",
        "\n  GPT-2 去掉了左列，cross-attention 也就没有了；LayerNorm 挪到了子层之前。",
    )
)

heading("2", say("against GPT-2, four differences", "对照 GPT-2，四处不同"))
rng = np.random.default_rng(0)
transformer, gpt2 = one_layer_each(rng, vocab_size=3), random_model()
x = rng.normal(size=(5, BASE.d_model))
other_x = np.vstack([x[:2], x[2:3] + 1, x[3:]])
encoded = encoder_layer(transformer, x)[0]
causal = moved(gpt2([0, 1, 2, 3, 4]), gpt2([0, 1, 9, 3, 4]))
claim(
    say(
        "mask: an encoder's row 0 notices a change of token 2; GPT-2's rows 0 and 1 do not",
        "mask：encoder 的第 0 行看得到 token 2 的改动；GPT-2 的第 0、1 行看不到",
    ),
    moved(encoded, encoder_layer(transformer, other_x)[0])[0]
    and causal.tolist() == [False, False, True, True, True],
)
attentions = [
    [part for part in parts_of(*where) if part.endswith("attn")]
    for where in ((OF_2017, "decoder.layers.0."), (OF_GPT2, "h.0."))
]
claim(
    say(
        f"cross-attention: a decoder layer has {attentions[0]}, a block of GPT-2 {attentions[1]}",
        f"cross-attention：decoder 一层有 {attentions[0]}，GPT-2 一个 block 只有 {attentions[1]}",
    ),
    list(map(len, attentions)) == [2, 1],
)
bart = transformer_shapes(TransformerConfig(model_type="bart"))
with_positions = [any("position" in name for name in shapes) for shapes in (OF_2017, bart)]
claim(
    say(
        f"positions: sines there, which have no parameters; here a learned table {WPE}",
        f"位置：那边是没有参数的正弦；这边是学出来的表 {WPE}",
    ),
    with_positions == [False, True] and WPE == [1024, 768],
)
claim(
    say(
        "norm: after each sum there, so that a layer's output has variance 1",
        "norm：那边在每次相加之后，一层的输出方差为 1",
    ),
    np.allclose(encoded.var(axis=-1), 1, atol=1e-3),
)
stations: dict[str, np.ndarray] = {}
gpt2.forward(np.arange(5), observe=stations.__setitem__)
summed = stations["embed"] + stations["h.0.attn"] + stations["h.0.mlp"]
claim(
    say(
        "norm: before the sublayer here; what leaves a block is the plain sum x + attn + mlp",
        "norm：这边在子层之前，出 block 的就是 x + attn + mlp，没有归一化",
    ),
    np.allclose(stations["h.0"], summed),
)
