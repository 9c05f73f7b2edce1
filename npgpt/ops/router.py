"""The router of a mixture of experts: a few large probabilities stay, all others are 0 (8.3).

scores = x W (`project`)  ->  `softmax` over the E experts  ->  `top_k`  [->  `renormalise`]
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.ties import places_of_largest


def top_k_forward(probs: np.ndarray, *, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Keep the k largest of each row, put 0 for the others: the experts that a token goes to.

        weights_e = probs_e  if e is among the k largest,  else 0

    Where the last place is shared by equal numbers, those get it that `torch.topk` chooses: see
    `npgpt.ops.ties`.

    Args:
        probs: [..., E].
        k: how many, 1..E.

    Returns:
        weights [..., E], and which are kept (bool [..., E]), which backward reads.

    Raises:
        ValueError: k outside 1..E.
    """
    E = probs.shape[-1]
    if not 1 <= k <= E:
        raise ValueError(f"{k} of {E} experts cannot be chosen; choose 1 to {E}.")
    smallest = np.partition(probs, E - k, axis=-1)[..., E - k]
    kept = probs >= smallest[..., None]
    for row in map(tuple, np.argwhere(kept.sum(axis=-1) > k)):
        kept[row] = False
        kept[row][places_of_largest(probs[row].tolist(), k)] = True
    return probs * kept, kept


def top_k_backward(dweights: np.ndarray, saved: np.ndarray) -> np.ndarray:
    """Gradient of probs: what is kept passes, what is not gets nothing.

    The choice itself gets nothing, either. A small step of probs does not change who is chosen: as
    a function of probs the choice is constant, but for jumps at ties, so its derivative is 0. This
    is why a router learns from the experts it has chosen alone, and never how good another would
    have been; see `npgpt.ops.load_balance`.

    Args:
        dweights: [..., E].

    Returns:
        dprobs [..., E].
    """
    return dweights * saved


def renormalise_forward(
    weights: np.ndarray,
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Make the weights that were kept sum to 1.

        shares_e = weights_e / Σ_j weights_j

    Behind `softmax` and `top_k` this is the softmax over the scores of those chosen.

    Args:
        weights: [..., E], ≥ 0, in each row one > 0.

    Returns:
        shares, like weights, and what backward reads.
    """
    total = weights.sum(axis=-1, keepdims=True)
    shares = weights / total
    return shares, (shares, total)


def renormalise_backward(dshares: np.ndarray, saved: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Gradient of weights.

    From ∂shares_e/∂weights_j = (δ_ej - shares_e) / total,

        dweights_j = (dshares_j - Σ_e dshares_e shares_e) / total

    so all weights larger by the same factor change nothing.

    Args:
        dshares: [..., E].

    Returns:
        dweights [..., E].
    """
    shares, total = saved
    return (dshares - (dshares * shares).sum(axis=-1, keepdims=True)) / total
