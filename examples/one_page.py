"""GPT-2 on one page, there and back: from ids to the loss, then to the gradient of every weight.

Plain NumPy, one text at a time. Under each function stands its backward, which undoes the lines
above it from the last to the first: dq is ∂loss/∂q and has q's shape. `kept` is what the way back
reads. w holds the weights under the checkpoint's names, dw their gradients.

A line ends with the shape of what it makes: T tokens, V vocabulary, d width, H heads of d_h = d / H
numbers, F width of the MLP. The numbers before it are the article's sections and its steps ① … ⑥.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

# fmt: off

def mean(x):                                                            # [T, d]
    return x.mean(axis=-1, keepdims=True)                               # [T, 1]

# 9.2 LayerNorm: each token gets mean 0 and variance 1, then scale γ (weight) and shift β (bias).
def layer_norm(x, w, name, eps):                                        # x [T, d]
    centred = x - mean(x)                                               # [T, d]
    rstd = 1 / np.sqrt(mean(centred**2) + eps)                          # [T, 1]
    x_hat = centred * rstd                                              # [T, d]
    y = x_hat * w[f"{name}.weight"] + w[f"{name}.bias"]                 # [T, d]
    return y, (x_hat, rstd)

def layer_norm_backward(dy, kept, w, dw, name):                         # dy [T, d]
    x_hat, rstd = kept
    dw[f"{name}.bias"] = dy.sum(axis=0)                                 # [d]
    dw[f"{name}.weight"] = (dy * x_hat).sum(axis=0)                     # [d]
    dx_hat = dy * w[f"{name}.weight"]                                   # [T, d]
    dcentred = rstd * (dx_hat - x_hat * mean(dx_hat * x_hat))           # [T, d], also via rstd
    return dcentred - mean(dcentred)                                    # dx [T, d]

# 7.3 A linear layer: four in each block.
def linear(x, w, name):                                                 # x [T, in]
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]                  # [T, out]

def linear_backward(dy, x, w, dw, name):                                # dy [T, out]
    dw[f"{name}.bias"] = dy.sum(axis=0)                                 # [out]
    dw[f"{name}.weight"] = x.T @ dy                                     # [in, out]
    return dy @ w[f"{name}.weight"].T                                   # dx [T, in]

# 7.3 ⑤ Softmax: scores become weights, of which each row sums to 1.
def softmax(x):                                                         # [..., S]
    e = np.exp(x - x.max(axis=-1, keepdims=True))                       # [..., S]
    return e / e.sum(axis=-1, keepdims=True)                            # [..., S]

def softmax_backward(dp, p):                                            # [..., S]
    return p * (dp - (dp * p).sum(axis=-1, keepdims=True))              # dx [..., S]

# 7 Attention: the six steps ① … ⑥, in H heads side by side.
def attention(x, w, name, H):                                           # x [T, d]
    T, d = x.shape
    qkv = linear(x, w, f"{name}.c_attn")                                # ① [T, 3 d]
    q, k, v = qkv.reshape(T, 3, H, d // H).transpose(1, 2, 0, 3)        # ① [H, T, d_h] each
    scores = q @ k.mT                                                   # ② [H, T, T]
    scaled = scores / math.sqrt(d // H)                                 # ③ [H, T, T]
    masked = np.where(np.tri(T, dtype=bool), scaled, -np.inf)           # ④ [H, T, T], -∞ at j > i
    probs = softmax(masked)                                             # ⑤ [H, T, T]
    context = probs @ v                                                 # ⑥ [H, T, d_h]
    merged = context.transpose(1, 0, 2).reshape(T, d)                   # [T, d]
    y = linear(merged, w, f"{name}.c_proj")                             # [T, d]
    return y, (x, q, k, v, probs, merged)

def attention_backward(dy, kept, w, dw, name):                          # dy [T, d]
    x, q, k, v, probs, merged = kept
    H, T, d_h = q.shape
    dmerged = linear_backward(dy, merged, w, dw, f"{name}.c_proj")      # [T, d]
    dcontext = dmerged.reshape(T, H, d_h).transpose(1, 0, 2)            # [H, T, d_h]
    dprobs, dv = dcontext @ v.mT, probs.mT @ dcontext                   # ⑥ [H, T, T], [H, T, d_h]
    dmasked = softmax_backward(dprobs, probs)                           # ⑤ [H, T, T]
    dscaled = np.where(np.tri(T, dtype=bool), dmasked, 0)               # ④ [H, T, T], 0 at j > i
    dscores = dscaled / math.sqrt(d_h)                                  # ③ [H, T, T]
    dq, dk = dscores @ k, dscores.mT @ q                                # ② [H, T, d_h] each
    dqkv = np.stack([dq, dk, dv]).transpose(2, 0, 1, 3).reshape(T, -1)  # ① [T, 3 d]
    return linear_backward(dqkv, x, w, dw, f"{name}.c_attn")            # ① dx [T, d]

# 8 MLP: widen, GELU, narrow.
def mlp(x, w, name):                                                    # x [T, d]
    wide = linear(x, w, f"{name}.c_fc")                                 # [T, F]
    u = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)            # [T, F]
    tanh_u = np.tanh(u)                                                 # [T, F]
    active = wide / 2 * (1 + tanh_u)                                    # [T, F], GELU(wide)
    y = linear(active, w, f"{name}.c_proj")                             # [T, d]
    return y, (x, wide, tanh_u, active)

def mlp_backward(dy, kept, w, dw, name):                                # dy [T, d]
    x, wide, tanh_u, active = kept
    dactive = linear_backward(dy, active, w, dw, f"{name}.c_proj")      # [T, F]
    dtanh_u = dactive * wide / 2                                        # [T, F]
    du = dtanh_u * (1 - tanh_u**2)                                      # [T, F]
    dwide = du * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * wide**2)  # [T, F], through u
    dwide += dactive / 2 * (1 + tanh_u)                                 # [T, F], and as a factor
    return linear_backward(dwide, x, w, dw, f"{name}.c_fc")             # dx [T, d]

# 11 All of GPT-2. Each "+" of a block passes the gradient on unchanged, both ways: dy is dx.
def forward(ids, targets, w, config):                                   # ids [T], targets [T]
    eps, blocks = config.layer_norm_epsilon, []
    x = w["wte.weight"][ids]                                            # 5 lookup [T, d]
    x = x + w["wpe.weight"][: len(ids)]                                 # 6 position [T, d]
    for n in range(config.n_layer):
        normed, ln_1 = layer_norm(x, w, f"h.{n}.ln_1", eps)             # [T, d]
        y, attn = attention(normed, w, f"h.{n}.attn", config.n_head)    # [T, d]
        x = x + y                                                       # 9.1 residual [T, d]
        normed, ln_2 = layer_norm(x, w, f"h.{n}.ln_2", eps)             # [T, d]
        y, ffn = mlp(normed, w, f"h.{n}.mlp")                           # [T, d]
        x = x + y                                                       # 9.1 residual [T, d]
        blocks.append((ln_1, attn, ln_2, ffn))
    normed, ln_f = layer_norm(x, w, "ln_f", eps)                        # [T, d]
    head = "lm_head.weight" if "lm_head.weight" in w else "wte.weight"  # 10.2 wte, if it is shared
    logits = normed @ w[head].T                                         # 10.1 lm_head [T, V]
    probs = softmax(logits)                                             # [T, V]
    loss = -np.log(probs[np.arange(len(ids)), targets]).mean()          # 7.5 one number
    return logits, loss, (blocks, ln_f, normed, head, probs)

def backward(ids, targets, kept, w):                                    # starts from dloss = 1
    blocks, ln_f, normed, head, probs = kept
    dw = {name: np.zeros_like(array) for name, array in w.items()}
    dlogits = probs.copy()                                              # 7.5 p everywhere [T, V]
    dlogits[np.arange(len(ids)), targets] -= 1                          # p - 1 at the target [T]
    dlogits /= len(ids)                                                 # 7.5 of the mean [T, V]
    dw[head] += dlogits.T @ normed                                      # 10.1 lm_head [V, d]
    dnormed = dlogits @ w[head]                                         # [T, d]
    dx = layer_norm_backward(dnormed, ln_f, w, dw, "ln_f")              # [T, d]
    for n in reversed(range(len(blocks))):
        ln_1, attn, ln_2, ffn = blocks[n]
        dnormed = mlp_backward(dx, ffn, w, dw, f"h.{n}.mlp")            # [T, d]
        dx = dx + layer_norm_backward(dnormed, ln_2, w, dw, f"h.{n}.ln_2")  # 9.1 [T, d]
        dnormed = attention_backward(dx, attn, w, dw, f"h.{n}.attn")    # [T, d]
        dx = dx + layer_norm_backward(dnormed, ln_1, w, dw, f"h.{n}.ln_1")  # 9.1 [T, d]
    dw["wpe.weight"][: len(ids)] = dx                                   # 6 position [T, d]
    np.add.at(dw["wte.weight"], ids, dx)                                # 5 lookup [V, d]
    return dw

# fmt: on


def main(argv: Sequence[str]) -> int:
    """Read a text with a model; hold the page against npgpt and transformers, in float64."""
    from any_model import open_model, options  # here, because the page needs NumPy alone
    from held_against import compare, in_float64, of_npgpt, of_transformers
    from show import heading, say

    args = options(__doc__).parse_args(argv)
    opened = open_model(args.model)
    model, ids = in_float64(opened.model), np.array(opened.tokenizer.encode(args.text))
    expected = of_npgpt(model, ids)  # first: it refuses a text that does not fit
    read, targets, w = ids[:-1], ids[1:], model.params
    logits, loss, kept = forward(read, targets, w, model.config)
    found = {"loss": loss, "logits": logits, **backward(read, targets, kept, w)}
    heading("11", say(f"{opened.name} reads {args.text!r}", f"{opened.name} 读 {args.text!r}"))
    print(say(f"  {len(read)} tokens, loss {loss:.4f}", f"  {len(read)} 个 token，loss {loss:.4f}"))
    compare("npgpt", found, expected)
    if theirs := of_transformers(model, ids):
        compare("transformers", found, theirs)
    return 0


if __name__ == "__main__":
    from show import arguments  # without --lang

    from npgpt.cli import run

    sys.exit(run("one_page.py", main, arguments))
