"""Cross-entropy with label smoothing: the loss that the paper of 2017 trains with (section 5.4).

The model is not asked to be certain: a share of each target is spread over the whole vocabulary.
"""

from __future__ import annotations

import numpy as np

from npgpt.ops import cross_entropy
from npgpt.ops.cross_entropy import IGNORE_INDEX, cross_entropy_backward, cross_entropy_forward

Saved = tuple[cross_entropy.Saved, float]  # what cross-entropy saved, smoothing


def label_smoothing_forward(
    logits: np.ndarray,
    targets: np.ndarray,
    *,
    smoothing: float,
    ignore_index: int = IGNORE_INDEX,
) -> tuple[np.floating, Saved]:
    """Cross-entropy against (1 - ε) one-hot + ε/V, the smoothed target.

        loss = (1 - ε) cross_entropy + ε/N Σ_t ( log Σ_v exp(logits[t, v]) - mean_v logits[t, v] )

    N counts the targets that are not `ignore_index`. With ε = 0 this is cross-entropy.

    Args:
        logits: [..., V].
        targets: [...] integers in 0..V-1, or ignore_index.
        smoothing: ε in [0, 1); the paper's is 0.1.

    Returns:
        loss, a scalar of the logits' dtype, and what backward reads.

    Raises:
        ValueError: ε outside [0, 1); targets that `cross_entropy_forward` refuses.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"label smoothing must be in [0, 1), but is {smoothing}.")
    smoothing = float(smoothing)  # an np.float64 would make float64 of float32
    sharp, saved = cross_entropy_forward(logits, targets, ignore_index=ignore_index)
    _, logits_max, total, _, _ = saved
    keep = targets != ignore_index
    surprise = np.log(total) - (logits - logits_max).mean(axis=-1)  # of a token drawn blindly
    blind = np.where(keep, surprise, logits.dtype.type(0)).sum() / max(int(keep.sum()), 1)
    return sharp * (1 - smoothing) + blind * smoothing, (saved, smoothing)


def label_smoothing_backward(dloss: float, saved: Saved) -> np.ndarray:
    """Gradient of the logits: probabilities minus the smoothed target.

    The one-hot of cross-entropy's gradient gives ε of itself to all V tokens alike:

        dlogits[t, v] = dloss / N (softmax(logits[t])[v] - (1 - ε) [v = targets[t]] - ε/V)

    Args:
        dloss: gradient of the loss, usually 1.0.

    Returns:
        dlogits [..., V]; 0 for ignored t.
    """
    saved_sharp, smoothing = saved
    _, _, _, targets, ignore_index = saved_sharp
    dlogits = cross_entropy_backward(dloss, saved_sharp)
    V = dlogits.shape[-1]
    keep = targets != ignore_index
    share = smoothing * float(dloss) / max(int(keep.sum()), 1)
    spread = (keep * share).astype(dlogits.dtype)
    dlogits -= spread[..., None] / V
    rows = dlogits.reshape(-1, V)  # a view: cross_entropy_backward returns C order
    rows[np.arange(len(rows)), np.where(keep, targets, 0).reshape(-1)] += spread.reshape(-1)
    return dlogits
