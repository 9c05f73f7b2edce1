"""Sums over all rows, and the gradients that are such sums: many rows cost no digits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from npgpt.ops.row_sum import BLOCK, sum_rows
from tests.builders.transformer import random_transformer
from tests.gradcheck import relative_error
from tests.ops.cases import CASES, cast


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [0, 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 1000])
def test_every_row_counts_once(n: int, order: Literal["C", "F"]) -> None:
    """Whole numbers, whose sums are exact."""
    x = np.random.default_rng(n).integers(-99, 99, (n, 3))
    want = [sum(x[i, j] for i in range(n)) for j in range(3)]
    for dtype in (np.float32, np.float64):
        got = sum_rows(np.asarray(x, dtype, order=order))
        assert got.dtype == dtype
        assert got.tolist() == want


@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (3, 50, 2)], ids=str)
def test_all_axes_but_the_last(lead: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.standard_normal((*lead, 7))
    np.testing.assert_allclose(sum_rows(x), x.sum(axis=tuple(range(len(lead)))), rtol=1e-13)


@pytest.mark.parametrize(("mean", "error"), [(0, 1.5e-7), (1, 7e-8)])
def test_as_exact_as_torch(mean: float, error: float, rng: np.random.Generator) -> None:
    """torch is off by 1.5e-7 and 5e-8; a running total by 3.4e-6 and 2.4e-6."""
    x = (rng.standard_normal((32_768, 16)) + mean).astype(np.float32)
    assert relative_error(sum_rows(x), x.sum(axis=0, dtype=np.float64)) <= error


@pytest.mark.parametrize("name", ["linear", "layer_norm", "rms_norm"])
def test_gradients_of_biases_and_gains(name: str, rng: np.random.Generator) -> None:
    """Of 32,770 tokens, against the same in float64."""
    case = CASES[name]
    data, params = case.inputs(rng, (6554,), np.float32)
    y, saved = case.run(*data, *params)
    dy = rng.standard_normal(y.shape).astype(np.float32)
    _, exact_saved = case.run(*cast((*data, *params), np.float64))
    pairs = zip(case.grads(dy, saved), case.grads(dy.astype(float), exact_saved), strict=True)
    errors = [relative_error(got, want) for got, want in pairs if got.ndim == 1]
    assert errors
    assert all(error <= 2e-7 for error in errors), errors


def test_gradient_of_the_logits_bias(rng: np.random.Generator) -> None:
    """BART's; of 4,200 tokens."""
    model = random_transformer(rng, np.float32, model_type="bart")
    logits, saved = model.forward(*rng.integers(3, 12, (2, 300, 14)))
    dlogits = rng.standard_normal(logits.shape).astype(np.float32)
    got = model.backward(dlogits, saved)["final_logits_bias"]
    assert relative_error(got, dlogits.sum(axis=(0, 1), dtype=np.float64)[None]) <= 1.5e-7
