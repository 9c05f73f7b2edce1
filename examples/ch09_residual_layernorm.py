"""The residual stream and its corrections; LayerNorm by hand (article 9.1, 9.2).

Where the norm stands, before or after, is in ch09_pre_and_post_norm.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, open_model, options
from show import check, claim, heading, matrices, same

from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config
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
        "embedding + all corrections = what ln_f reads",
        np.allclose(trunk, stations[f"h.{n}"], atol=1e-3),
    )
    return rows


def residual_stream(opened: Opened, text: str) -> None:
    """9.1: 2 L corrections, each added to the trunk."""
    L = opened.model.config.n_layer
    check("GPT-2 small: 12 blocks, corrections", 2 * GPT2Config().n_layer, "24")
    heading("9.1", f"{opened.name}: {L} blocks, {2 * L} corrections; mean norms over the tokens")
    rows = corrections(opened, text)
    print(f"  {'':10} {'trunk':>9} {'correction':>11} {'ratio':>7}")
    for part, trunk, correction in rows:
        bar = "█" * round(20 * min(correction / trunk, 2))
        print(f"  {part:10} {trunk:9.2f} {correction:11.2f} {correction / trunk:7.2f}  {bar}")
    smaller = sum(correction < trunk for _, trunk, correction in rows)
    claim(
        f"{smaller} of {2 * L} corrections are smaller than the trunk they are added to",
        smaller > L,
    )
    if opened.trained:
        print(
            "  Where one is larger, it is the first FFN's as a rule: it gives the trunk its scale."
        )


def layer_norm() -> None:
    """9.2: by hand, per token, γ and β, RMSNorm."""
    heading("9.2", "LayerNorm of (2, 4, 4, 6): minus the mean, divided by the standard deviation")
    x, one, zero = np.array([[2.0, 4, 4, 6]]), np.ones(4), np.zeros(4)
    check("mean", x.mean(), "4")
    check("variance", x.var(), "2")
    y, _ = layer_norm_forward(x, one, zero, eps=1e-5)
    same(y, [[-1.41, 0, 0, 1.41]])
    gamma, beta = np.array([1.0, 2, 1, 0.5]), np.array([0.0, 1, 0, 0])
    stretched, _ = layer_norm_forward(x, gamma, beta, eps=1e-5)
    matrices(("x", x), ("normalised: x̂", y))
    matrices(("γ", gamma[None]), ("β", beta[None]), ("y = x̂ γ + β", stretched))
    claim(
        "10 x + 7 comes out the same: shift and scale are gone",
        np.allclose(layer_norm_forward(10 * x + 7, one, zero, eps=1e-5)[0], y, atol=1e-5),
    )

    rows = np.random.default_rng(0).standard_normal((2, 3, 4))  # [B, T, d]
    other = rows.copy()
    other[0, 1] = [9, 9, 0, 0]
    before, after = (layer_norm_forward(z, one, zero, eps=1e-5)[0] for z in (rows, other))
    changed = (before != after).any(axis=-1)
    claim(
        "each token by itself: change one of 2 x 3, the others stay, in its text and in the batch",
        changed.sum() == 1 and changed[0, 1],
    )

    heading("9.2", "RMSNorm, Llama's: no mean, only the root mean square")
    rms = np.sqrt(np.square(x).mean())
    check("root mean square of (2, 4, 4, 6): √18", rms, "4.24")
    divided, _ = rms_norm_forward(x, one, eps=1e-5)
    matrices(("x", x), ("x / rms", divided))
    claim("each number is divided by it", np.allclose(divided, x / rms, atol=1e-5))
    centred, _ = rms_norm_forward(x - x.mean(), one, eps=1e-5)
    claim("where the mean is 0 already, the two are the same", np.allclose(centred, y, atol=1e-5))


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    residual_stream(open_model(args.model), args.text)
    layer_norm()
    return 0


if __name__ == "__main__":
    sys.exit(run("ch09_residual_layernorm.py", main))
