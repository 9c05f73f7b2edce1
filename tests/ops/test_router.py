"""top_k, renormalise and load_balance: by hand, with ties, and against transformers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from npgpt.ops import ties
from npgpt.ops.load_balance import load_balance_backward, load_balance_forward
from npgpt.ops.router import renormalise_forward, top_k_backward, top_k_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward
from npgpt.ops.ties import places_of_largest
from tests.gradcheck import relative_error

SIZES = [*range(1, 21), 32, 33, 60, 64, 127, 128, 200]


def test_by_hand() -> None:
    probs = np.array([[0.5, 0.1, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4]])
    weights, saved = top_k_forward(probs, k=2)
    assert weights.tolist() == [[0.5, 0, 0.3, 0], [0, 0, 0.3, 0.4]]
    shares, _ = renormalise_forward(weights)
    np.testing.assert_allclose(shares, [[5 / 8, 0, 3 / 8, 0], [0, 0, 3 / 7, 4 / 7]], rtol=1e-15)
    assert top_k_backward(np.ones((2, 4)), saved).tolist() == [[1, 0, 1, 0], [0, 0, 1, 1]]


def test_renormalised_is_the_softmax_of_the_scores_chosen(rng: np.random.Generator) -> None:
    scores = rng.standard_normal((5, 7))
    weights, kept = top_k_forward(softmax_forward(scores, axis=-1)[0], k=3)
    want, _ = softmax_forward(np.where(kept, scores, -np.inf), axis=-1)
    assert relative_error(renormalise_forward(weights)[0], want) <= 1e-15


@pytest.mark.parametrize("k", [0, 5, -1])
def test_as_many_as_there_are(k: int) -> None:
    with pytest.raises(ValueError, match=f"^{k} of 4 experts cannot be chosen; choose 1 to 4"):
        top_k_forward(np.ones((2, 4)), k=k)


def test_ties_have_always_as_many_as_asked_for(rng: np.random.Generator) -> None:
    """The larger ones and, of those that tie for the last place, some."""
    for E in SIZES:
        values = rng.integers(0, 4, E)
        for k in {1, min(2, E), E // 2 + 1, E}:
            places = places_of_largest(values.tolist(), k)
            assert len(set(places)) == len(places) == k
            assert sorted(values[places]) == sorted(values)[E - k :]


def test_eight_equal_numbers() -> None:
    """Whatever the leading axes."""
    for lead in [(), (3,), (2, 3)]:
        _, kept = top_k_forward(np.ones((*lead, 8)), k=2)
        assert np.broadcast_to([0, 0, 0, 0, 0, 1, 1, 0], kept.shape).tolist() == kept.tolist()


@pytest.mark.hf
@pytest.mark.skipif(sys.platform != "linux", reason="torch asks the C++ library of the system")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_as_torch_chooses(hf: None, dtype: type[np.floating]) -> None:
    import torch

    rng = np.random.default_rng(5)
    for E in SIZES:
        for k in sorted({*range(1, min(E, 9)), E // 2 or 1, max(E - 1, 1), E}):
            steps = [1, 2, 3, 7, 30, E + 1]
            drawn = np.concatenate([rng.integers(0, n, (2, E)) for n in steps])
            up = np.sort(drawn, axis=-1)  # parted so badly that the heap takes over
            pipes = np.concatenate([up[:, ::2], up[:, 1::2][:, ::-1]], axis=-1)
            x = np.concatenate([drawn, up, up[:, ::-1], pipes, pipes[:, ::-1]])
            probs, _ = softmax_forward(x.astype(dtype), axis=-1)
            want = torch.zeros(probs.shape, dtype=torch.bool)
            want.scatter_(-1, torch.from_numpy(probs).topk(k).indices, True)
            np.testing.assert_array_equal(top_k_forward(probs, k=k)[1], want.numpy())


def test_load_balance_by_hand() -> None:
    """Equal shares cost k; where all tokens choose one of four experts, up to 4."""
    equal, one = np.full((4, 4), 0.25), np.eye(4)[[2, 2, 2, 2]]
    assert load_balance_forward(equal, np.eye(4, dtype=bool))[0] == 1
    assert load_balance_forward(equal, np.ones((4, 4), bool))[0] == 4
    loss, saved = load_balance_forward(one, one.astype(bool))
    assert loss == 4
    assert load_balance_backward(1.0, saved).tolist() == np.eye(4)[[2, 2, 2, 2]].tolist()


def test_load_balance_counts_no_padding(rng: np.random.Generator) -> None:
    probs, chosen = rng.random((3, 2, 5, 4)), rng.random((3, 2, 5, 4)) < 0.5
    counted = rng.random((2, 5)) < 0.5
    loss, saved = load_balance_forward(probs, chosen, counted=counted)
    want_loss, saved_alone = load_balance_forward(probs[:, counted], chosen[:, counted])
    assert loss == pytest.approx(want_loss, rel=1e-14)
    dprobs = load_balance_backward(0.7, saved)
    assert not dprobs[:, ~counted].any()
    want = load_balance_backward(0.7, saved_alone)
    np.testing.assert_allclose(dprobs[:, counted], want, rtol=1e-14)
    nothing, saved = load_balance_forward(probs, chosen, counted=np.zeros((2, 5), bool))
    assert nothing == 0
    assert not load_balance_backward(0.7, saved).any()


@pytest.mark.hf
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_load_balance_is_that_of_transformers(
    hf: None, k: int, padded: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which adds up in float32: told not to, it has the same loss and gradient."""
    import torch
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    scores = rng.standard_normal((2, 3, 7, 5))  # two layers, three texts
    mask = rng.random((3, 7)) < 0.7 if padded else None
    probs, saved_softmax = softmax_forward(scores, axis=-1)
    loss, saved = load_balance_forward(probs, top_k_forward(probs, k=k)[1], counted=mask)
    dscores = softmax_backward(load_balance_backward(1.0, saved), saved_softmax)
    layers = tuple(torch.tensor(layer.reshape(-1, 5), requires_grad=True) for layer in scores)
    tensor = None if mask is None else torch.from_numpy(mask)
    want = load_balancing_loss_func(layers, 5, k, tensor)
    want.backward()
    assert loss == pytest.approx(want.item(), rel=1e-14)
    wanted = np.stack([layer.grad.numpy().reshape(3, 7, 5) for layer in layers])
    assert relative_error(dscores, wanted) <= 1e-13


def test_a_row_that_is_parted_badly_goes_through_a_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    row = [float(n) for n in range(24)]
    row[3], row[23] = row[23], row[3]
    largest = {*range(12, 23), 3}
    assert {*places_of_largest(row, 12)} == largest
    monkeypatch.setattr(ties, "_by_heap", lambda entries, k: [])
    assert {*places_of_largest(row, 12)} != largest
