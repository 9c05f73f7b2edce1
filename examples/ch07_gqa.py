"""Grouped queries, as Llama has them: several heads of Q share one of K and V (article 7.7).

First the sizes of Llama-3-8B, then the same attention small enough to run. Positions are left out
here (all angles 0); ch06_position.py turns them.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, say, table

from npgpt.decoding.kv_cache import KVCache
from npgpt.describe.architectures import PRESETS
from npgpt.layers.grouped_attention import (
    GroupedAttentionSaved,
    grouped_attention_backward,
    grouped_attention_forward,
)
from npgpt.layers.self_attention import self_attention_backward, self_attention_forward
from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.ops.mask import causal_mask

llama = PRESETS["llama-3-8b"]
assert isinstance(llama, LlamaConfig)
heading("7.7", say("one layer of Llama-3-8B: 32 heads of Q", "Llama-3-8B 的一层：32 个 Q 头"))
shapes = param_shapes(llama)
attention = {n.split(".")[3]: s for n, s in shapes.items() if n.startswith("layers.0.self_attn")}
for (name, shape), matrix in zip(attention.items(), ("W_Q", "W_K", "W_V", "W_O"), strict=True):
    print(f"  {matrix}  {name}  {[*shape]!s:14} {math.prod(shape):12,}")
check(
    say("heads of Q for one of K and V", "几个 Q 头合用一个 K、V 头"),
    attention["q_proj"][1] / attention["k_proj"][1],
    "4",
)
claim(say("no bias", "没有 bias"), not any(name.endswith("bias") for name in shapes))
caches = [
    KVCache(1, (n_kv_head, 1024, llama.d_h), np.dtype(np.float16)).nbytes
    for n_kv_head in (llama.num_attention_heads, llama.n_kv_head)
]
cache = say("KV cache, 1024 tokens, heads kept:", "KV cache，1024 个 token，存的头数：")
check(f"{cache} 32", caches[0], "16,777,216", "bytes")
check(f"{cache} 8", caches[1], "4,194,304", "bytes")

heading(
    "7.7",
    say("the same, with 4 heads of Q and 2 of K and V", "同样的结构：4 个 Q 头，2 个 K、V 头"),
)
T, d, H, H_KV, G = 5, 16, 4, 2, 2
D_H = d // H
rng = np.random.default_rng(0)
x, dy = rng.standard_normal((2, T, d))
W_Q, W_O = rng.standard_normal((2, d, d))
W_K, W_V = rng.standard_normal((2, d, H_KV * D_H))


def grouped(W_K: np.ndarray) -> tuple[np.ndarray, GroupedAttentionSaved]:
    """The output [T, d] and what backward reads."""
    return grouped_attention_forward(
        x,
        *(W_Q, W_K, W_V, W_O),
        n_head=H,
        n_kv_head=H_KV,
        cos_sin=(np.ones((T, 1)), np.zeros((T, 1))),
        divisor=math.sqrt(D_H),
        mask=causal_mask(T, T),
    )


def copied(W: np.ndarray) -> np.ndarray:
    """[d, H_kv d_h] -> [d, H d_h]: each head's columns G times."""
    return W.reshape(d, H_KV, D_H).repeat(G, axis=1).reshape(d, H * D_H)


out, saved = grouped(W_K)
c_attn = np.hstack([W_Q, copied(W_K), copied(W_V)])
ordinary, saved_ordinary = self_attention_forward(
    x,
    *(c_attn, np.zeros(3 * d), W_O, np.zeros(d)),
    n_head=H,
    divisor=math.sqrt(D_H),
    mask=causal_mask(T, T),
)
claim(
    say(
        "the same output as ordinary attention whose K and V heads come in twos",
        "输出等于普通的多头，只是 K、V 头两两相同",
    ),
    np.allclose(out, ordinary, rtol=1e-12),
)
other = W_K.copy()
other[:, :D_H] += 1
changed = (grouped(other)[1].probs != saved.probs).any(axis=(1, 2))
claim(
    say(
        f"change the first K head: weight tables that change {table(changed[None])[0]}",
        f"改动第一个 K 头，变了的权重表：{table(changed[None])[0]}",
    ),
    changed.tolist() == [True, True, False, False],
)
unlike = np.abs(saved.probs[0] - saved.probs[1]).max()
claim(
    say("the two that share K still look elsewhere", "合用一个 K 的两个头，看的仍不一样"),
    unlike > 0.1,
)
_, _, dW_K, *_ = grouped_attention_backward(dy, saved)
_, dc_attn, *_ = self_attention_backward(dy, saved_ordinary)
of_copies = dc_attn[:, d : 2 * d].reshape(d, H_KV, G, D_H)
claim(
    say(
        "backward: the gradient of a shared head is the sum of its copies' gradients",
        "反向：合用的头，梯度是各份拷贝的梯度之和",
    ),
    np.allclose(dW_K, of_copies.sum(axis=2).reshape(d, -1), rtol=1e-10),
)
