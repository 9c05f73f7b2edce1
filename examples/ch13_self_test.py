"""The six questions of the self-test, each answered by something that runs (article chapter 13)."""

from __future__ import annotations

import math

import numpy as np
from any_model import random_model
from encoder_decoder import D, attention, decoder_layer, draw_layer, encoder_layer
from show import check, claim, heading, moved, refused, table

from npgpt.models.common import Pass
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import block_forward
from npgpt.ops.mask import causal_mask

rng = np.random.default_rng(0)
shapes = param_shapes(GPT2Config())
model = random_model()

heading("13, question 1", "cross-attention: where do Q, K, V come from? Why has GPT-2 none?")
print("  Q from the decoder, K and V from the encoder's output. GPT-2 has no encoder to read from.")
decoder, encoder = draw_layer(rng, cross=True), draw_layer(rng, cross=False)
target, source = rng.standard_normal((5, D)), rng.standard_normal((7, D))
memory = encoder_layer(source, encoder)


def cross(target: np.ndarray, memory: np.ndarray) -> np.ndarray:
    return attention(target, memory, decoder["cross"], np.ones((5, 7), bool))


out = cross(target, memory)
claim("Q: 5 target rows in, 5 out, whatever the 7 source rows", out.shape == (5, D))
reversed_ = cross(target[::-1], memory)[::-1]
claim("Q: the target in another order, the outputs move along", np.allclose(out, reversed_))
claim(
    "K, V: the source in another order, no difference",
    np.allclose(out, cross(target, memory[::-1])),
)
claim("GPT-2 has no parameter for it", not [name for name in shapes if "cross" in name])
refused("asked for it", lambda: GPT2Config.from_dict({"add_cross_attention": True}))

heading("13, question 2", "who sees what, bidirectional and causal? Why causal in generating?")
print("  Everything; what is on the left. So that training sees no more than generating will.")
x = rng.standard_normal((5, 48))
other = x.copy()
other[3] += 1
both_ways, causal = np.ones((5, 5), bool), causal_mask(5, 5)
for left, right in zip(table(both_ways), table(causal), strict=True):
    print(f"    {left}        {right}")
for mask, wanted in ((both_ways, [1, 1, 1, 1, 1]), (causal, [0, 0, 0, 1, 1])):
    before, after = (
        block_forward(each, model.params, 0, model.config, mask, Pass())[0] for each in (x, other)
    )
    changed = moved(before, after)
    claim(f"token 3 changes:  {table(changed[None])[0]}  notice", changed.tolist() == wanted)
ids = rng.integers(0, 256, 8)
generating = np.array([model(ids[: t + 1])[-1] for t in range(8)])
claim("training at position t = generating after t tokens", np.allclose(model(ids), generating))

heading("13, question 3", "[T, d] goes into a block. What comes out, and why must it be that?")
print("  [T, d]: to be added to the input, and for the next block to read it like the first.")
out = x
for n in range(12):
    out, _ = block_forward(out, model.params, n, model.config, causal, Pass())
claim(f"twelve blocks: {[*x.shape]} -> {[*out.shape]}", out.shape == x.shape)
refused("x + another shape", lambda: x + np.ones((5, 32)))

heading("13, question 4", "why does the FFN hold two thirds of a block, and not attention?")
print("  Parameters sit in projections only: four d x d there, d x 4 d and 4 d x d here.")
d = 768
matrices = {name: math.prod(s) for name, s in shapes.items() if name[:4] == "h.0." and len(s) == 2}
attn = sum(size for name, size in matrices.items() if "attn" in name)
mlp = sum(size for name, size in matrices.items() if "mlp" in name)
claim(f"attention: 4 d² = {attn:,}", attn == 4 * d * d)
claim(f"FFN: d · 4 d + 4 d · d = 8 d² = {mlp:,}", mlp == 8 * d * d)
check("share of the FFN", 100 * mlp / (mlp + attn), "66.7", "%")
claim("no others: scores, softmax and weighted sum have none", len(matrices) == 4)

heading("13, question 5", "where does the limit of 1024 come from? Why has Llama none like it?")
print("  From the rows of the position table. Llama rotates by an angle, which any position has.")
claim("wpe has 1024 rows", shapes["wpe.weight"] == (1024, 768))
refused("1025 tokens", lambda: model(np.zeros(1025, int)))
c, s = math.cos(math.radians(30 * 5000)), math.sin(math.radians(30 * 5000))
turned = np.array([[c, -s], [s, c]]) @ [2, 0]
claim(
    f"猫 (2, 0) at position 5000 is ({turned[0]:.2f}, {turned[1]:.2f})",
    np.isclose(turned @ turned, 4),
)

heading(
    "13, question 6", "three sublayers in 2017, two in GPT: which is missing, what replaces it?"
)
print("  Cross-attention. What is to be read stands in front, and causal self-attention reads it.")
names = {name.split(".")[2] for name in shapes if name[:4] == "h.0." and ".ln_" not in name}
three_and_two = len(decoder) == 3 and names == {"attn", "mlp"}
claim(f"2017: {', '.join(decoder)}; GPT-2: {', '.join(sorted(names))}", three_and_two)
before = decoder_layer(target, memory, decoder)
after = decoder_layer(target, encoder_layer(source[::-1] + 1, encoder), decoder)
claim("2017: a change of the source reaches the target", moved(before, after).all())
before, after = model([72, 73, 74, 90, 91]), model([71, 73, 74, 90, 91])
claim("GPT-2: a change of the prompt reaches what follows it", moved(before, after).all())
