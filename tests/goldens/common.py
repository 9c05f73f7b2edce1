"""What the architectures share: rows of several lengths, the loss, a tensor as an array."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def real_positions(lengths: list[int], side: str = "right") -> np.ndarray:
    """True where a row has a token; rows are padded on this side: [B, T]."""
    real = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return real[:, ::-1] if side == "left" else real


def loss_of(logits: Any, targets: np.ndarray, **options: Any) -> Any:
    """torch's mean cross-entropy."""
    import torch

    flat = logits.reshape(-1, logits.shape[-1]), torch.tensor(targets).reshape(-1)
    return torch.nn.functional.cross_entropy(*flat, **options)


def array(param: Any, gradients: bool) -> np.ndarray:
    """A parameter or its gradient."""
    return (param.grad if gradients else param.detach()).numpy().copy()


def causal_input(
    options: dict[str, Any], lengths: list[int], side: str, rng: np.random.Generator
) -> Arrays:
    """ids, targets and attention_mask [B, T] of rows padded on one side; some targets ignored."""
    real = real_positions(lengths, side)
    ids, targets = rng.integers(0, options["vocab_size"], (2, *real.shape))
    ignored = ~real | (rng.random(real.shape) < 0.2)
    ignored[0, -1 if side == "left" else 0] = False  # one target there is in any case
    targets = np.where(ignored, -100, targets)
    return {"ids": ids, "targets": targets, "attention_mask": real.astype(np.int64)}


def causal_outputs(model: Any, given: Arrays) -> Arrays:
    """`logits` and `loss` of a model that reads from left to right, after its backward pass."""
    import torch

    mask = given["attention_mask"]
    positions = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
    model.zero_grad()
    logits = model(
        torch.tensor(given["ids"]),
        attention_mask=torch.tensor(mask),
        position_ids=torch.tensor(positions),
    ).logits
    loss = loss_of(logits, given["targets"])
    loss.backward()
    return {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}


def causal_computed(
    model: Any, given: Arrays, rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """The same by npgpt, and `grad.NAME` of every parameter."""
    ids, mask = given["ids"], given["attention_mask"]
    loss, grads = model.loss_and_grads(ids, given["targets"], mask, rng=rng)
    return {"logits": model(ids, mask), "loss": loss, **under_grad(grads)}


def under_grad(grads: Arrays) -> Arrays:
    return {f"grad.{name}": grad for name, grad in grads.items()}
