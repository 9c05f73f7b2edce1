"""Three pictures: loss, residual stream, gradients by depth (article chapter 9).

    python examples/pictures.py FOLDER [--model MODEL]

Needs matplotlib (pip install "npgpt[plot]"). The picture of heads is ch07_heatmap.py's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from any_model import Opened, open_model, options
from ch09_pre_and_post_norm import DEPTHS, by_depth
from ch09_residual_layernorm import corrections
from next_training_and_inference import CONFIG, tiny
from plots import pyplot, save

from npgpt.cli import run
from npgpt.files.hub import find_model
from npgpt.train.log import read_log
from npgpt.train.optim import adamw_step, new_adamw_state

Curve = list[tuple[int, float]]  # step, loss


def logged_losses(opened: Opened, column: str) -> Curve:
    """A column of the log beside the model; empty where there is none."""
    rows = read_log(find_model(opened.name)) if opened.trained else []
    return [(int(row["step"]), float(row[column])) for row in rows if row[column]]


def tiny_losses() -> Curve:
    """A model of 1,952 parameters learns to count: 3 4 5 6 …"""
    model, rng, V = tiny(), np.random.default_rng(0), CONFIG.vocab_size
    state, losses = new_adamw_state(model.params), []
    for step in range(1, 121):
        batch = (rng.integers(0, V, (8, 1)) + np.arange(9)) % V
        loss, grads = model.loss_and_grads(batch[:, :-1], batch[:, 1:])
        adamw_step(model.params, grads, state, step=step, lr=2e-2)
        losses.append((step, float(loss)))
    return losses


def draw_loss(opened: Opened, path: Path) -> None:
    """The loss by step; a running mean makes the trend visible in the noise."""
    train, val = (logged_losses(opened, column) for column in ("train_loss", "val_loss"))
    vocabulary, title = opened.model.config.vocab_size, f"training of {opened.name}"
    if not train:
        train, vocabulary = tiny_losses(), CONFIG.vocab_size
        title = "1,952 parameters learn to count"
    figure, ax = pyplot().subplots(figsize=(7, 4), layout="constrained")
    steps, losses = zip(*train, strict=True)
    ax.plot(steps, losses, color="#9ecae1", linewidth=0.8, label="each step")
    window = max(1, len(train) // 30)
    mean = np.convolve(losses, np.ones(window) / window, "valid")
    ax.plot(steps[window // 2 :][: len(mean)], mean, color="#08519c", label=f"mean of {window}")
    if val:
        ax.plot(*zip(*val, strict=True), "o-", color="#d94801", label="on text held back")
    ax.axhline(np.log(vocabulary), color="grey", linestyle=":", label=f"ln {vocabulary}: guessing")
    ax.set(title=title, xlabel="step", ylabel="loss (nats per token)", ylim=(0, None))
    ax.legend(frameon=False)
    save(figure, path)


def draw_residual(opened: Opened, text: str, path: Path) -> None:
    """Trunk and corrections by sublayer, on a logarithmic scale."""
    rows = corrections(opened, text)
    names, trunk, correction = zip(*rows, strict=True)
    figure, ax = pyplot().subplots(figsize=(max(6, 0.32 * len(rows) + 2), 4), layout="constrained")
    x = np.arange(len(rows))
    colours = ["#6baed6" if name.endswith("attn") else "#fd8d3c" for name in names]
    bars = ax.bar(x, correction, color=colours)
    (line,) = ax.plot(x, trunk, "o-", color="black", markersize=4)
    ax.set_xticks(x, names, rotation=90)
    ax.set(yscale="log", ylabel="mean norm", title=f"the residual stream of {opened.name}")
    names = ["trunk", "correction: attention", "correction: FFN"]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.3), "ncols": 3}
    ax.legend([line, bars[0], bars[1]], names, frameon=False, **below)
    save(figure, path)


def draw_gradients(path: Path) -> None:
    """Pre-norm against post-norm: at the first block, at the last, and what comes down directly."""
    figure, axes = pyplot().subplots(1, 3, figsize=(11, 3.8), layout="constrained")
    titles = ("gradient at the first block", "gradient at the last block", 'direct path: "+" alone')
    for name, colour in (("pre-norm", "#08519c"), ("post-norm", "#d94801")):
        measured = by_depth(pre=name == "pre-norm")
        for k, ax in enumerate(axes):
            values = measured[..., k]
            mean = np.exp(np.log(values).mean(axis=1))
            ax.plot(DEPTHS, mean, "o-", color=colour, label=name)
            ax.fill_between(DEPTHS, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2)
    for ax, title in zip(axes, titles, strict=True):
        ax.set(title=title, xlabel="blocks", xscale="log", yscale="log")
        ax.set_xticks(DEPTHS, map(str, DEPTHS))
        ax.minorticks_off()
    for ax in axes[:2]:
        ax.set_ylim(1, 200)
    axes[0].legend(frameon=False, title="mean and range of 8 starts", loc="lower left")
    save(figure, path)


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="where to draw")
    args = parser.parse_args(argv)
    pyplot()
    opened = open_model(args.model)
    draw_loss(opened, args.folder / "loss.png")
    draw_residual(opened, args.text, args.folder / "residual.png")
    draw_gradients(args.folder / "gradients.png")
    return 0


if __name__ == "__main__":
    sys.exit(run("pictures.py", main))
