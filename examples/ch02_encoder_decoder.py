"""The encoder-decoder of 2017: who sees whom, and where Q, K and V come from (article chapter 2).

One layer of each side with random weights (encoder_decoder.py). Leaves out translation itself,
which train_translation.py learns, and GPT-2, which ch02_columns.py puts beside it.
"""

from __future__ import annotations

import math

import numpy as np
from encoder_decoder import cross_attention, decoder_layer, encoder_layer, one_layer_each
from show import check, claim, heading, moved, say, table

from npgpt.cli import left
from npgpt.models.transformer.config import TransformerConfig, param_shapes
from npgpt.ops.sinusoids import sinusoids

S, T = 6, 5
rng = np.random.default_rng(0)
base = TransformerConfig()
model = one_layer_each(rng, vocab_size=3)  # the layers do not look at ids
D = model.config.d_model
source = rng.normal(size=(S, D)) + sinusoids(np.arange(S), D)
target = rng.normal(size=(T, D)) + sinusoids(np.arange(T), D)
other_source, other_target = source.copy(), target.copy()
other_source[2], other_target[2] = rng.normal(size=(2, D))
SOURCE_CHANGES = say("change source token 2: rows of the ", "改动源句第 2 个 token：")
TARGET_CHANGES = say("change target token 2: rows of the ", "改动目标句第 2 个 token：")
ENCODER, DECODER = say("encoder", "encoder 的各行"), say("decoder", "decoder 的各行")


def size(part: str) -> int:
    """Parameters of the base model whose names begin so."""
    shapes = param_shapes(base)
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(part))


def notice(what: str, changed: np.ndarray, wanted: list[bool] | np.ndarray) -> None:
    claim(f"{left(what, 48)}{table(changed[None])[0]}", np.array_equal(changed, wanted))


heading("2", say("the base model: two stacks of layers", "base 配置：encoder、decoder 各堆 N 层"))
check(say("N, encoder layers", "N：encoder 层数"), base.encoder_layers, "6")
check(say("N, decoder layers", "N：decoder 层数"), base.decoder_layers, "6")
check(say("d_model", "d_model：隐藏维度"), base.d_model, "512")
check(say("h, heads", "h：头数"), base.encoder_attention_heads, "8")
check(say("d_ff, width of the FFN", "d_ff：FFN 宽度"), base.encoder_ffn_dim, "2048")
encoder_size, decoder_size = size("encoder.layers.0."), size("decoder.layers.0.")
more = size("decoder.layers.0.encoder_attn")
check(say("parameters of an encoder layer", "encoder 一层的参数"), encoder_size, "3,152,384")
check(say("parameters of a decoder layer", "decoder 一层的参数"), decoder_size, "4,204,032")
claim(
    say(
        f"the decoder's {more:,} more: cross-attention, 4 (d² + d), and its norm, 2 d",
        f"decoder 多出 {more:,}：cross-attention 4 (d² + d)，加上它的 norm 2 d",
    ),
    decoder_size - encoder_size == more == 4 * (D * D + D) + 2 * D,
)
layers = size("encoder.layers.") + size("decoder.layers.")
check(say("all layers, tables not counted", "全部层，不算 embedding 表"), layers, "44,138,496")

heading(
    "2",
    say(
        "encoder: bidirectional, every position sees the whole source",
        "encoder：双向 self-attention，每个位置看到整句",
    ),
)
memory, _ = encoder_layer(model, source)
other_memory, _ = encoder_layer(model, other_source)
what = say(f"shape stays [S, d] = {[S, D]}", f"形状不变，[S, d] = {[S, D]}")
claim(what, memory.shape == source.shape)
notice(SOURCE_CHANGES + ENCODER, moved(memory, other_memory), [True] * S)

heading(
    "2",
    say(
        "decoder: causal self-attention, cross-attention, FFN; each followed by Add & Norm",
        "decoder：因果 self-attention、cross-attention、FFN，每个之后 Add & Norm",
    ),
)
out, _ = decoder_layer(model, target, memory)
changed = moved(out, decoder_layer(model, other_target, memory)[0])
notice(TARGET_CHANGES + DECODER, changed, np.arange(T) >= 2)
changed = moved(out, decoder_layer(model, target, other_memory)[0])
notice(SOURCE_CHANGES + DECODER, changed, [True] * T)
claim(
    say(
        "Add & Norm: every row leaves with mean 0 and variance 1",
        "Add & Norm：每一行出来时均值 0、方差 1",
    ),
    np.allclose(out.mean(axis=-1), 0) and np.allclose(out.var(axis=-1), 1, atol=1e-3),
)

heading(
    "2",
    say(
        "cross-attention: Q comes from the decoder, K and V from the encoder's output",
        "cross-attention：Q 来自 decoder，K、V 来自 encoder 的输出",
    ),
)
crossed = cross_attention(model, target, memory)
claim(
    say(
        f"Q [T, d] = {[T, D]}, K and V [S, d] = {[S, D]}: the result is as long as the target",
        f"Q [T, d] = {[T, D]}，K、V [S, d] = {[S, D]}：结果与目标句一样长",
    ),
    crossed.shape == (T, D),
)
changed = moved(crossed, cross_attention(model, other_target, memory))
notice(TARGET_CHANGES + say("result", "结果的各行"), changed, np.arange(T) == 2)
changed = moved(crossed, cross_attention(model, target, other_memory))
notice(SOURCE_CHANGES + say("result", "结果的各行"), changed, [True] * T)
