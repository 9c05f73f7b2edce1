"""The residual stream and its corrections; LayerNorm by hand (article 9.1, 9.2).

What LayerNorm is for is in ch09_scale.py, where it stands in ch09_pre_and_post_norm.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, open_model, options
from show import check, claim, heading, matrices, moved, same, say

from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.rms_norm import rms_norm_forward


def corrections(opened: Opened, text: str) -> list[tuple[str, float, float]]:
    """Station, mean norm of the trunk that it reads, mean norm of what it adds."""
    stations: dict[str, np.ndarray] = {}
    opened.model.forward(opened.tokenizer.encode(text), observe=stations.__setitem__)
    trunk, rows = stations["embed"], []
    for n in range(opened.model.config.n_layer):
        for part in (f"h.{n}.attn", f"h.{n}.mlp"):
            norms = (np.linalg.norm(x, axis=-1).mean() for x in (trunk, stations[part]))
            rows.append((part, *map(float, norms)))
            trunk = trunk + stations[part]
    claim(
        say("embedding + corrections = what ln_f reads", "embedding + 各修正量 = ln_f 读到的"),
        np.allclose(trunk, stations[f"h.{n}"], atol=1e-3),
    )
    return rows


def residual_stream(opened: Opened, text: str) -> None:
    """9.1: 2 L corrections, each added to the trunk."""
    sublayers = {tuple(name.split(".")[:3]) for name in param_shapes(GPT2Config()) if ".c_" in name}
    check(say("corrections in GPT-2 small", "GPT-2 small 的修正次数"), len(sublayers), "24")
    L = opened.model.config.n_layer
    title = say("corrections; mean norms over the tokens", "次修正；范数对 token 取平均")
    heading("9.1", f"{opened.name}: L = {L}, 2 L = {2 * L} {title}")
    rows = corrections(opened, text)
    print(" " * 12 + say("    trunk  correction   ratio", "     主干      修正量    比值"))
    for part, trunk, correction in rows:
        ratio = correction / trunk
        bar = "█" * round(20 * min(ratio, 2)) + "▶" * (ratio > 2)
        print(f"  {part:10} {trunk:9.2f} {correction:11.2f} {ratio:7.2f}  {bar}")
    smaller = sum(correction < trunk for _, trunk, correction in rows)
    claim(
        say(
            f"{smaller} of {2 * L} corrections are smaller than the trunk they are added to",
            f"{2 * L} 次修正里有 {smaller} 次比它所加到的主干小",
        ),
        smaller > L,
    )
    _, trunk, correction = rows[1]
    if (times := correction / trunk) > 10:
        print(
            say(
                f"  h.0.mlp, {times:.0f} times its trunk, rewrites the token: see ch09_scale.py.",
                f"  h.0.mlp 是主干的 {times:.0f} 倍：它把 token 重写一遍，见 ch09_scale.py。",
            )
        )


def layer_norm() -> None:
    """9.2: by hand, per token, γ and β."""
    heading(
        "9.2",
        say(
            "LayerNorm of (2, 4, 4, 6): minus the mean, over the standard deviation",
            "(2, 4, 4, 6) 的 LayerNorm：减均值，除以标准差",
        ),
    )
    x, one, zero = np.array([[2.0, 4, 4, 6]]), np.ones(4), np.zeros(4)
    y, (x_hat, rstd, _) = layer_norm_forward(x, one, zero, eps=0.0)
    check(say("mean: what it has subtracted", "均值：它减掉的"), (x - x_hat / rstd)[0, 0], "4")
    check(say("variance: 1 / rstd²", "方差：1 / rstd²"), 1 / rstd.item() ** 2, "2")
    same(y, [[-1.41, 0, 0, 1.41]])
    gamma, beta = np.array([1.0, 2, 1, 0.5]), np.array([0.0, 1, 0, 0])
    stretched, _ = layer_norm_forward(x, gamma, beta, eps=1e-5)
    same(stretched, [[-1.41, 1, 0, 0.71]])
    matrices(
        ("x", x), (say("normalised: x̂", "归一化：x̂"), y), ("γ", gamma[None]), ("β", beta[None])
    )
    matrices(("y = x̂ γ + β", stretched))
    claim(
        say(
            "10 x + 7 comes out the same: shift and scale are gone",
            "10 x + 7 得到一样的结果：平移与尺度都消失了",
        ),
        np.allclose(layer_norm_forward(10 * x + 7, one, zero, eps=1e-5)[0], y, atol=1e-5),
    )
    rows = np.random.default_rng(0).standard_normal((2, 3, 4))  # [B, T, d]
    other = rows.copy()
    other[0, 1] = [9, 9, 0, 0]
    before, after = (layer_norm_forward(z, one, zero, eps=1e-5)[0] for z in (rows, other))
    claim(
        say(
            "each token by itself: change one of 2 x 3, and no other changes",
            "每个 token 自己归一化：2 x 3 个里改一个，别的都不变",
        ),
        moved(before, after).tolist() == [[False, True, False], [False] * 3],
    )


def rms_norm() -> None:
    """9.2: Llama's."""
    heading(
        "9.2",
        say(
            "RMSNorm, Llama's: no mean, only the root mean square",
            "Llama 的 RMSNorm：不减均值，只除均方根",
        ),
    )
    x, one = np.array([[2.0, 4, 4, 6]]), np.ones(4)
    divided, (_, rrms, _) = rms_norm_forward(x, one, eps=0.0)
    check(
        say("root mean square of (2, 4, 4, 6): √18", "(2, 4, 4, 6) 的均方根：√18"),
        1 / rrms.item(),
        "4.24",
    )
    matrices(("x", x), ("x / rms", divided))
    claim(
        say("its square mean is 1, its mean is not 0", "均方为 1，均值不是 0"),
        np.isclose(np.square(divided).mean(), 1) and divided.mean() > 0.9,
    )
    centred, _ = rms_norm_forward(x - x.mean(), one, eps=1e-5)
    y, _ = layer_norm_forward(x, one, np.zeros(4), eps=1e-5)
    claim(
        say(
            "where the mean is 0 already, LayerNorm gives the same",
            "均值已经是 0 时，与 LayerNorm 相同",
        ),
        np.allclose(centred, y),
    )


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    residual_stream(open_model(args.model), args.text)
    layer_norm()
    rms_norm()
    return 0


if __name__ == "__main__":
    sys.exit(run("ch09_residual_layernorm.py", main))
