"""Pictures of training: the loss (next article), and what depth does to gradients (9.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from any_model import Opened
from next_training_and_inference import CONFIG, tiny
from plots import BLUE, GREY, ORANGE, caption, pyplot
from two_stacks import DEPTHS, DRAWS, by_depth

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


def loss(opened: Opened) -> Any:
    """The loss by step; a running mean makes the trend visible in the noise."""
    train, val = (logged_losses(opened, column) for column in ("train_loss", "val_loss"))
    vocabulary = opened.model.config.vocab_size
    title = caption(f"training of {opened.name}", f"{opened.name} 的训练")
    if not train:
        train, vocabulary = tiny_losses(), CONFIG.vocab_size
        title = caption("1,952 parameters learn to count", "1,952 个参数学数数")
    figure, ax = pyplot().subplots(figsize=(7, 4), layout="constrained")
    steps, losses = zip(*train, strict=True)
    each = caption("each step", "每一步")
    ax.plot(steps, losses, color="#9ecae1", linewidth=0.8, label=each)
    window = max(1, len(train) // 30)
    mean = np.convolve(losses, np.ones(window) / window, "valid")
    label = caption(f"mean of {window}", f"{window} 步的平均")
    ax.plot(steps[window // 2 :][: len(mean)], mean, color=BLUE, label=label)
    if val:
        held_back = caption("on text held back", "在留出的文字上")
        ax.plot(*zip(*val, strict=True), "o-", color=ORANGE, label=held_back)
    guessing = caption(f"ln {vocabulary}: guessing", f"ln {vocabulary}：全靠猜")
    ax.axhline(np.log(vocabulary), color=GREY, linestyle=":", label=guessing)
    ax.set(title=title, xlabel=caption("step", "步"), ylim=(0, None))
    ax.set_ylabel(caption("loss (nats per token)", "loss（每个 token 的 nat 数）"))
    ax.legend()
    return figure


def gradients() -> Any:
    """Pre-norm against post-norm: at the first block, at the last, and what comes down directly."""
    figure, axes = pyplot().subplots(1, 3, figsize=(12, 4), layout="constrained")
    for name, colour in (("pre-norm", BLUE), ("post-norm", ORANGE)):
        measured = by_depth(pre=name == "pre-norm")
        for k, ax in enumerate(axes):
            values = measured[..., k]
            mean = np.exp(np.log(values).mean(axis=1))
            ax.plot(DEPTHS, mean, "o-", color=colour, label=name)
            ax.fill_between(DEPTHS, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2)
    titles = (
        caption("what reaches the first block", "传到第一个 block 的"),
        caption("what the last block's weights get", "最后一个 block 的权重得到的"),
        caption('what comes down the "+" alone', "只沿“+”直通下来的"),
    )
    labels = (
        caption("norm of ∂L/∂x", "∂L/∂x 的范数"),
        caption("norm of ∂L/∂(W_Q, W_K, W_V)", "∂L/∂(W_Q, W_K, W_V) 的范数"),
        caption("share of the gradient at the top", "占顶端梯度的比例"),
    )
    for ax, title, label in zip(axes, titles, labels, strict=True):
        ax.set(title=title, xlabel=caption("depth in blocks", "深度（block 数）"), ylabel=label)
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(DEPTHS, map(str, DEPTHS))
        ax.minorticks_off()
    for ax in axes[:2]:
        ax.set_ylim(1, 200)
        ax.set_yticks([1, 10, 100], ["1", "10", "100"])
    starts = caption(
        f"line: geometric mean\nband: range of {DRAWS} starts",
        f"线：几何平均\n带：{DRAWS} 次初始化的范围",
    )
    axes[0].legend(title=starts, loc="lower left")
    return figure
