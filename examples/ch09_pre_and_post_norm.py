"""LayerNorm before the sublayer or after the sum: what reaches the first block (article 9.3).

Stacks of attention and FFN with fresh weights N(0, 1/fan_in), built from npgpt's layers in both
ways. A random gradient enters at the top. Leaves out training; see Xiong et al. 2020.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from show import claim, heading

from npgpt.layers.feed_forward import feed_forward_backward, feed_forward_forward
from npgpt.layers.self_attention import self_attention_backward, self_attention_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.mask import causal_mask

T, D, H = 8, 32, 4
DEPTHS, DRAWS = (1, 2, 4, 8, 16, 32), 8
ONE, ZERO = np.ones(D), np.zeros(D)


class Measured(NamedTuple):
    """Of one stack: gradients (norms), and the standard deviation of the trunk."""

    first: float  # at the input of the first block
    last: float  # of W_Q, W_K, W_V in the last block
    direct: float  # share of the top's gradient that comes down the "+" alone
    trunk: float


def norm(x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return layer_norm_forward(x, ONE, ZERO, eps=1e-5)


def sublayer_weights(rng: np.random.Generator, k: int) -> list[np.ndarray]:
    """W and b of two projections: attention for even k, FFN for odd."""
    sizes = [(D, 3 * D), (D, D)] if k % 2 == 0 else [(D, 4 * D), (4 * D, D)]
    return [a for m, n in sizes for a in (rng.normal(0, m**-0.5, (m, n)), np.zeros(n))]


def measure(depth: int, *, pre: bool, seed: int) -> Measured:
    """Forward and backward through `depth` blocks."""
    rng = np.random.default_rng(seed)
    settings = {"n_head": H, "divisor": math.sqrt(D // H), "mask": causal_mask(T, T)}
    x, saved = rng.standard_normal((T, D)), []
    for k in range(2 * depth):
        read, saved_norm = norm(x) if pre else (x, None)
        w = sublayer_weights(rng, k)
        if k % 2 == 0:
            correction, saved_part = self_attention_forward(read, *w, **settings)
        else:
            correction, saved_part = feed_forward_forward(read, *w, activation="gelu_new")
        x = x + correction
        if not pre:
            x, saved_norm = norm(x)
        saved.append((saved_norm, saved_part))
    trunk = float(x.std())

    top = np.random.default_rng(99).standard_normal((T, D))
    if pre:
        top = layer_norm_backward(top, norm(x)[1])[0]  # ln_f
    dx, direct, last = top, top, None
    for k in reversed(range(2 * depth)):
        saved_norm, saved_part = saved[k]
        backward = (self_attention_backward, feed_forward_backward)[k % 2]
        if pre:
            dread, *dweights = backward(dx, saved_part)
            dx = dx + layer_norm_backward(dread, saved_norm)[0]
        else:
            dx, direct = (layer_norm_backward(d, saved_norm)[0] for d in (dx, direct))
            dread, *dweights = backward(dx, saved_part)
            dx = dx + dread
        last = dweights[0] if k == 2 * depth - 2 else last
    size = np.linalg.norm
    return Measured(float(size(dx)), float(size(last)), float(size(direct) / size(top)), trunk)


def by_depth(*, pre: bool) -> np.ndarray:
    """All measurements: [depths, draws, 4]."""
    return np.array([[measure(L, pre=pre, seed=s) for s in range(DRAWS)] for L in DEPTHS])


def main() -> None:
    found = {"pre-norm": by_depth(pre=True), "post-norm": by_depth(pre=False)}
    heading("9.3", f"gradient at the first block, by depth; {DRAWS} random starts each")
    titles = ("first block", "lowest", "highest", "last block", "direct path", "trunk")
    for name, measured in found.items():
        print(f"  {name:10}" + "".join(f"{title:>12}" for title in titles))
        for L, draws in zip(DEPTHS, measured, strict=True):
            first, last, direct, trunk = np.exp(np.log(draws).mean(axis=0))
            row = (first, draws[:, 0].min(), draws[:, 0].max(), last, direct, trunk)
            print(f"  {L:3} blocks" + "".join(f"{value:12.3g}" for value in row))
    print('  direct path: what comes down the "+" alone; trunk: standard deviation at the top\n')
    pre, post = found.values()
    spread = [draws[-1, :, 0].max() / draws[-1, :, 0].min() for draws in (pre, post)]
    steady = 0.5 < np.median(pre[-1, :, 0]) / np.median(pre[0, :, 0]) < 2
    claim("pre-norm: the first block's gradient does not depend on the depth", steady)
    luck = f"{spread[1]:.0f}-fold between starts, not {spread[0]:.1f}-fold"
    claim(f"post-norm: it becomes a matter of luck: {luck}", spread[1] > 3 * spread[0])
    claim("pre-norm: the direct path passes everything", np.allclose(pre[..., 2], 1))
    rest = post[-1, :, 2].max()
    claim(f"post-norm: every norm takes its part; after 32 blocks {rest:.0e} is left", rest < 1e-3)
    last = post[0, :, 1].mean(), post[-1, :, 1].mean(), pre[-1, :, 1].mean()
    claim(
        "post-norm: the last block's gradient stays large, hence the warm-up",
        last[1] > 0.7 * last[0],
    )
    claim("pre-norm: it falls, like 1 / √depth", last[2] < 0.4 * last[0])
    grows = (np.diff(pre[..., 3].mean(axis=1)) > 0).all()
    claim("pre-norm needs ln_f: the trunk grows with the depth", grows)
    claim("post-norm leaves it at 1", np.allclose(post[..., 3], 1, atol=0.01))


if __name__ == "__main__":
    main()
