"""Twelve heads: what is cut, what it costs, what the sublayer's parameters are (article 7.6, 7.7).

Runs with the sizes of GPT-2 small. What the heads of a trained model do is in
ch07_heads_of_a_model.py, heads that share keys and values in ch07_gqa.py.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, say

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
sizes = {name: math.prod(shape) for name, shape in param_shapes(config).items()}
rng = np.random.default_rng(0)
x = rng.standard_normal((5, d))
W_Q, W_K, W_V, W_O = rng.standard_normal((4, d, d)) / math.sqrt(d)
b_Q = rng.standard_normal(d)

heading(
    "7.6",
    say(
        "what is cut is x W_Q, not x: every head reads all 768 numbers",
        "切的是 x W_Q，不是 x：每个头都读到全部 768 维",
    ),
)
heads, _ = split_heads_forward(linear_forward(x, W_Q, b_Q)[0], n_head=H)
d_h = heads.shape[-1]
check(say("heads", "头数"), heads.shape[0], "12")
check(say("numbers each", "每个头的维数"), d_h, "64")
columns = [slice(h * d_h, (h + 1) * d_h) for h in range(H)]
separate = np.array([linear_forward(x, W_Q[:, cut], b_Q[cut])[0] for cut in columns])
claim(
    say(
        "12 projections [768, 64] of the whole x = the 12 pieces of x W_Q",
        "12 个 [768, 64] 的小投影各读整个 x = x W_Q 切成 12 段",
    ),
    np.allclose(heads, separate),
)
other = x.copy()
other[:, 0] += 1  # one of the 768 numbers
changed = split_heads_forward(linear_forward(other, W_Q, b_Q)[0], n_head=H)[0] != heads
claim(
    say("change one number of x: all 12 heads change", "改动 x 的一个数：12 个头全变"),
    changed.any(axis=(1, 2)).all(),
)

heading("7.6", say("heads cost no multiplications …", "多头不增加算量……"))
tables = {}
for n_head in (12, 1):
    q, _ = split_heads_forward(np.ones((T, d), np.float32), n_head=n_head)  # [h, T, d_h]
    tables[n_head], _ = scores_forward(q, q)  # a product of d_h numbers for each score
    what = say(f"scores, T = {T}, heads: {n_head}", f"打分，T = {T}，头数 {n_head}")
    check(what, 2 * tables[n_head].size * q.shape[-1], "1,610,612,736", "FLOPs")

heading("7.6", say("… they do cost W_O …", "……多出来的是 W_O……"))
c_attn, c_proj = (sizes[f"h.0.attn.{name}.weight"] for name in ("c_attn", "c_proj"))
check(say("W_O: d² parameters", "W_O：d² 个参数"), c_proj / 1e6, "0.59", "M")
check(say("of the four matrices", "占四个矩阵的"), 100 * c_proj / (c_attn + c_proj), "25", "%")
check(say("2 d² FLOPs a token", "每个 token 2 d² FLOPs"), 2 * c_proj / 1e6, "1.2", "MFLOPs")
c_attn_weight, no_bias = np.hstack([W_Q, W_K, W_V]), np.zeros(3 * d)
mask = causal_mask(5, 5)
root = math.sqrt(d)
one, twelve = (
    self_attention_forward(
        x, c_attn_weight, no_bias, W_O, no_bias[:d], n_head=n_head, divisor=root, mask=mask
    )
    for n_head in (1, 12)
)
folded, _ = attention_forward(x @ W_Q, x @ W_K, x @ (W_V @ W_O), divisor=root, mask=mask)
claim(
    say(
        "with one head W_V W_O folds into one matrix: the same output",
        "单头时 W_V W_O 可以合并成一个矩阵：输出相同",
    ),
    np.allclose(one[0], folded),
)
claim(
    say("with 12 heads it does not", "12 个头就不行"),
    np.abs(twelve[0] - folded).max() > 0.1 * np.abs(folded).max(),
)

heading("7.6", say("… and h weight tables", "……以及 h 张权重表"))
weights = tables[12].size
check(
    say("weights of one layer at T = 1024:  h T²", "T = 1024 时每层：h T²"), weights, "12,582,912"
)
check(say("in bf16, 2 bytes each", "bf16，每个 2 字节"), 2 * weights, "25,165,824", "bytes")
check(say("which is", "也就是"), 2 * weights / 2**20, "24", "MiB")
check(say("all 12 layers", "12 层合计"), L * 2 * weights, "301,989,888", "bytes")
check(say("which is", "也就是"), L * 2 * weights / 2**20, "288", "MiB")
check(say("one head: a twelfth", "单头：十二分之一"), weights / tables[1].size, "12")

heading(
    "7.6", say("the KV cache does not care", "KV cache 不受影响：K、V 各 [T, d]，切成几段都一样大")
)
caches = {h: KVCache(L, (h, T, d // h), np.dtype(np.float32)).nbytes for h in (1, 12, 96)}
claim(
    say("heads ", "头数 ") + ", ".join(f"{h}: {size:,}" for h, size in caches.items()) + " bytes",
    set(caches.values()) == {L * 2 * T * d * 4},
)

heading("7.7", say("four matrices; c_attn is the first three", "四个矩阵；c_attn 是前三个并排"))
biases = {name: sizes[f"h.0.attn.{name}.bias"] for name in ("c_attn", "c_proj")}
third = say("W_Q, W_K, W_V: 768 · 768 + 768 each", "W_Q、W_K、W_V 各 768 · 768 + 768")
check(third, (c_attn + biases["c_attn"]) / 3, "590,592")
check("W_O: 768 · 768 + 768", c_proj + biases["c_proj"], "590,592")
attention = sum(size for name, size in sizes.items() if name.startswith("h.0.attn"))
check(say("together", "合计"), attention, "2,362,368")
shape = param_shapes(config)["h.0.attn.c_attn.weight"]
claim(f"c_attn [768, 2304] = [W_Q | W_K | W_V] = {[*shape]}", shape == c_attn_weight.shape)
saved = twelve[1].heads
for name, found, W in zip(
    "QKV", (*saved.scores, saved.weighted_sum[1]), (W_Q, W_K, W_V), strict=True
):
    claim(
        say(f"{name} of the model = x W_{name}, cut", f"模型里的 {name} = x W_{name} 切开"),
        np.allclose(found, split_heads_forward(x @ W, n_head=H)[0]),
    )
