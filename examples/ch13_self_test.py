"""The six questions of the self-test, each answered by something that runs (article chapter 13)."""

from __future__ import annotations

import math

import numpy as np
from any_model import random_model
from encoder_decoder import cross_attention, decoder_layer, encoder_layer, one_layer_each
from show import check, claim, heading, moved, refused, say, table

from npgpt.models.common import Pass
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import block_forward
from npgpt.ops.mask import causal_mask
from npgpt.ops.rope import rope_forward, rotation

rng = np.random.default_rng(0)
shapes = param_shapes(GPT2Config())
model, transformer = random_model(), one_layer_each(rng, vocab_size=3)


def question(n: int, english: str, chinese: str, answer: str, in_chinese: str) -> None:
    heading(say(f"13, question {n}", f"13 第 {n} 题"), say(english, chinese))
    print(f"  {say(answer, in_chinese)}")


def shown(english: str, chinese: str, true: bool | np.bool_) -> None:
    claim(say(english, chinese), true)


question(
    1,
    "cross-attention: where do Q, K, V come from? Why has GPT-2 none?",
    "cross-attention 的 Q、K、V 来自哪里？GPT-2 为什么没有？",
    "Q from the decoder, K and V from the encoder's output. GPT-2 has no encoder to read from.",
    "Q 来自 decoder，K、V 来自 encoder 的输出。GPT-2 没有 encoder 可读。",
)
target, source = rng.standard_normal((5, 512)), rng.standard_normal((7, 512))
memory, _ = encoder_layer(transformer, source)
out = cross_attention(transformer, target, memory)
reversed_ = cross_attention(transformer, target[::-1], memory)[::-1]
shown(
    "Q: the target in another order, the outputs move along",
    "Q：目标句换个顺序，输出跟着换位置",
    np.allclose(out, reversed_),
)
shown(
    "K, V: the source in another order, no difference",
    "K、V：源句的行换个顺序，结果不变",
    np.allclose(out, cross_attention(transformer, target, memory[::-1])),
)
asked = {"add_cross_attention": True}
refused(say("asked of GPT-2", "向 GPT-2 要"), lambda: GPT2Config.from_dict(asked))

question(
    2,
    "who sees what, bidirectional and causal? Why causal in generating?",
    "双向与 causal 各允许看到哪些 token？生成时为什么要 causal mask？",
    "Everything; what is on the left. So that training sees no more than generating will.",
    "前后都看得到；只看左边。这样训练时看到的不比生成时多。",
)
x = rng.standard_normal((5, 48))
both = x, x + (np.arange(5) == 3)[:, None]
both_ways, causal = np.ones((5, 5), bool), causal_mask(5, 5)
for left, right in zip(table(both_ways), table(causal), strict=True):
    print(f"    {left}        {right}")
for mask, wanted in ((both_ways, [1, 1, 1, 1, 1]), (causal, [0, 0, 0, 1, 1])):
    pair = (block_forward(each, model.params, 0, model.config, mask, Pass())[0] for each in both)
    seen = moved(*pair)
    row = table(seen[None])[0]
    shown(f"token 3 changes: {row} notice", f"token 3 变了：{row} 看得到", [*seen] == wanted)
ids = rng.integers(0, 256, 8)
generating = np.array([model(ids[: t + 1])[-1] for t in range(8)])
shown(
    "training at position t = generating after t tokens",
    "训练时的位置 t = 只有前文时的生成",
    np.allclose(model(ids), generating),
)

question(
    3,
    "[T, d] goes into a block. What comes out, and why must it be that?",
    "block 输入 [T, d]，输出是什么形状？为什么必须相同？",
    "[T, d]: to be added to the input, and for the next block to read it like the first.",
    "[T, d]：要加回输入，下一个 block 也照样读它。",
)
out = x
for n in range(model.config.n_layer):
    out, _ = block_forward(out, model.params, n, model.config, causal, Pass())
through = f"{[*x.shape]} -> {[*out.shape]}"
shown(f"{n + 1} blocks: {through}", f"{n + 1} 个 block：{through}", out.shape == x.shape)
refused(say("x + another shape", "x + 另一种形状"), lambda: x + np.ones((5, 32)))

question(
    4,
    "why does the FFN hold two thirds of a block, and not attention?",
    "为什么占一层参数三分之二的是 FFN，不是 attention？",
    "Parameters sit in projections only: four d x d there, d x 4 d and 4 d x d here.",
    "参数只在投影矩阵里：attention 四个 d x d，FFN 是 d x 4 d 加 4 d x d。",
)
d = GPT2Config().n_embd
matrices = {name: math.prod(s) for name, s in shapes.items() if name[:4] == "h.0." and len(s) == 2}
attn = sum(size for name, size in matrices.items() if "attn" in name)
mlp = sum(size for name, size in matrices.items() if "mlp" in name)
claim(
    say(f"attention: 4 d² = {attn:,}", f"attention：4 d² = {attn:,}，四个投影"), attn == 4 * d * d
)
what = say(
    f"FFN: d · 4 d + 4 d · d = 8 d² = {mlp:,}", f"FFN 两个：d · 4 d + 4 d · d = 8 d² = {mlp:,}"
)
claim(what, mlp == 8 * d * d)
check(say("share of the FFN", "FFN 占"), 100 * mlp / (mlp + attn), "66.7", "%")
shown(
    "no others: scores, softmax and weighted sum have none",
    "没有别的：打分、softmax、加权求和都没有参数",
    attn + mlp == sum(matrices.values()),
)

question(
    5,
    "where does the limit of 1024 come from? Why has Llama none like it?",
    "上限 1024 来自哪个部件？Llama 为什么没有同样的硬上限？",
    "From the rows of the position table. Llama rotates by an angle, which any position has.",
    "来自位置表的行数。Llama 转角度，任何位置都算得出角度。",
)
shown("wpe has 1024 rows", "wpe 有 1024 行", shapes["wpe.weight"][0] == 1024)
refused(say("1025 tokens", "1025 个 token"), lambda: model(np.zeros(1025, int)))
cos, sin = rotation(np.array([5000]), np.array([math.radians(30)]))
((a, b),), _ = rope_forward(np.array([[2.0, 0.0]]), cos=cos, sin=sin)
shown(
    f"猫 (2, 0), 30° a position, at position 5000: ({a:.2f}, {b:.2f}), 240° from its start",
    f"猫 (2, 0)，每个位置转 30°，在位置 5000：({a:.2f}, {b:.2f})，转到 240°",
    np.allclose([a, b], [-1, -math.sqrt(3)]),
)

question(
    6,
    "three sublayers in 2017, two in GPT: which is missing, what replaces it?",
    "2017 年的 decoder 有三个子层，GPT 只有两个：少了哪个？由什么代替？",
    "Cross-attention. What is to be read stands in front, and causal self-attention reads it.",
    "少了 cross-attention。要参考的内容拼在前面，由 causal self-attention 去看。",
)
of_2017 = [name for name in transformer.params if name.startswith("decoder.layers.0.")]
sublayers = list(dict.fromkeys(name.split(".")[3] for name in of_2017 if "norm" not in name))
names = list(dict.fromkeys(name.split(".")[2] for name in matrices))
shown(
    f"2017: {', '.join(sublayers)} (an FFN of two); GPT-2: {', '.join(names)}",
    f"2017：{'、'.join(sublayers)}（合为 FFN）；GPT-2：{'、'.join(names)}",
    sublayers == ["self_attn", "encoder_attn", "fc1", "fc2"] and names == ["attn", "mlp"],
)
other_memory, _ = encoder_layer(transformer, source[::-1] + 1)
pair = (decoder_layer(transformer, target, m)[0] for m in (memory, other_memory))
shown("2017: the source reaches the target", "2017：源句的改动传到目标句", moved(*pair).all())
pair = (model([first, 73, 74, 90, 91]) for first in (72, 71))
shown("GPT-2: the prompt reaches all behind it", "GPT-2：prompt 的改动传到后面", moved(*pair).all())
