"""Twelve heads: what is cut, what it costs, what the sublayer's parameters are (article 7.6, 7.7).

All numbers follow from the sizes of GPT-2 small. What the heads of a trained model do is in
ch07_heads_of_a_model.py.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading

from npgpt.decoding.kv_cache import KVCache
from npgpt.layers.attention import attention_forward
from npgpt.layers.self_attention import self_attention_forward
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.heads import split_heads_forward
from npgpt.ops.linear import linear_forward
from npgpt.ops.mask import causal_mask
from npgpt.ops.scores import scores_forward

config = GPT2Config()
d, H, L, T = config.n_embd, config.n_head, config.n_layer, config.n_positions
d_h = d // H
rng = np.random.default_rng(0)

heading("7.6", "what is cut is x W_Q, not x: every head reads all 768 numbers")
x = rng.standard_normal((5, d))
W_Q, b_Q = rng.standard_normal((d, d)), rng.standard_normal(d)
Q, _ = linear_forward(x, W_Q, b_Q)
heads, _ = split_heads_forward(Q, n_head=H)
columns = [slice(h * d_h, (h + 1) * d_h) for h in range(H)]
separate = np.array([linear_forward(x, W_Q[:, cut], b_Q[cut])[0] for cut in columns])
check("heads", H, "12")
check("numbers each", d_h, "64")
claim(
    "12 projections [768, 64] of the whole x = the 12 pieces of x W_Q", np.allclose(heads, separate)
)
other = x.copy()
other[:, 0] += 1  # one of the 768 numbers
changed = split_heads_forward(linear_forward(other, W_Q, b_Q)[0], n_head=H)[0] != heads
claim("change one number of x: all 12 heads change", changed.any(axis=(1, 2)).all())

heading("7.6", "heads cost no multiplications")
flops = H * 2 * T * T * d_h
check("scores of 12 heads at T = 1024:  h · 2 T² d_h", flops, "1,610,612,736", "FLOPs")
check("scores of one head:              2 T² d", 2 * T * T * d, "1,610,612,736", "FLOPs")

heading("7.6", "they do cost W_O …")
check("W_O: d² parameters, millions", d * d / 1e6, "0.59", "M")
check("a quarter of the sublayer's four matrices", 100 * d * d / (4 * d * d), "25", "%")
check("2 d² FLOPs a token, millions", 2 * d * d / 1e6, "1.2", "MFLOPs")
W_V, W_O = rng.standard_normal((2, d, d)) / math.sqrt(d)
no_bias, mask, root = np.zeros(d), causal_mask(5, 5), math.sqrt(d)
one_head, _ = self_attention_forward(
    x, np.hstack([W_Q, W_Q, W_V]), np.zeros(3 * d), W_O, no_bias, n_head=1, divisor=root, mask=mask
)
q, folded = x @ W_Q, x @ (W_V @ W_O)
context, _ = attention_forward(q, q, folded, divisor=root, mask=mask)
claim(
    "with one head W_V W_O folds into one matrix: the same output", np.allclose(one_head, context)
)

heading("7.6", "… and h weight tables")
table = H * T * T
check("weights of one layer at T = 1024:  h T²", table, "12,582,912")
check("in bf16, 2 bytes each", 2 * table, "25,165,824", "bytes")
check("which is", 2 * table / 2**20, "24", "MiB")
check("all 12 layers", L * 2 * table, "301,989,888", "bytes")
check("which is", L * 2 * table / 2**20, "288", "MiB")
shape = scores_forward(np.zeros((H, 8, d_h)), np.zeros((H, 8, d_h)))[0].shape
claim(f"the scores of 8 tokens have shape [h, T, T] = {[*shape]}", shape == (H, 8, 8))

heading("7.6", "the KV cache does not care: K and V are [T, d] each, in however many pieces")
sizes = {h: KVCache(L, (h, T, d // h), np.dtype(np.float32)).nbytes for h in (1, 12, 96)}
claim(
    f"1, 12, 96 heads: {' = '.join(f'{size:,}' for size in sizes.values())} bytes in float32",
    set(sizes.values()) == {L * 2 * T * d * 4},
)

heading("7.7", "four matrices; c_attn is the first three side by side")
shapes = param_shapes(config)
c_attn, c_proj = shapes["h.0.attn.c_attn.weight"], shapes["h.0.attn.c_proj.weight"]
claim(
    f"c_attn [768, 2304] = {[*c_attn]}, c_proj {[*c_proj]}",
    c_attn == (d, 3 * d) and c_proj == (d, d),
)
for name in ("W_Q", "W_K", "W_V", "W_O"):
    check(f"{name}: 768 · 768 + 768", d * d + d, "590,592")
attention = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("h.0.attn"))
check("together", attention, "2,362,368")
third = self_attention_forward(
    x,
    np.hstack([W_Q, W_V, W_O]),
    np.zeros(3 * d),
    np.eye(d),
    no_bias,
    n_head=H,
    divisor=8.0,
    mask=mask,
)[1].heads.scores[1]
claim(
    "K read from c_attn is x times its middle third",
    np.allclose(third, split_heads_forward(x @ W_V, n_head=H)[0]),
)
