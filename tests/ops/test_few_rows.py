"""few_rows: as `@`, and no less exact, on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops import few_rows
from npgpt.ops.few_rows import times_matrix, times_table


@pytest.fixture(params=[1, 2, 3])
def count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(few_rows, "thread_count", lambda: request.param)
    monkeypatch.setattr(few_rows, "is_openblas", lambda: True)
    return request.param


@pytest.mark.parametrize("N", [0, 1, 2, 3, 16, 31, 64, 65])
@pytest.mark.parametrize("d", [16, 100, 800])
def test_the_same_products(rng: np.random.Generator, N: int, d: int, count: int) -> None:
    x, table = rng.standard_normal((N, d)), rng.standard_normal((5003, d))
    for y in (times_table(x, table), times_matrix(x, np.ascontiguousarray(table.T))):
        assert y.flags.c_contiguous
        np.testing.assert_allclose(y, x @ table.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("N", [1, 2, 3, 9, 16, 64])
def test_errors_of_float32_are_not_above_those_of_blas(
    rng: np.random.Generator, N: int, count: int
) -> None:
    x, table = rng.standard_normal((N, 3072)), rng.standard_normal((800, 3072))
    x_32, table_32 = x.astype(np.float32), table.astype(np.float32)
    exact = x_32.astype(float) @ table_32.astype(float).T
    W = np.ascontiguousarray(table_32.T)

    def error(y: np.ndarray) -> float:
        assert y.dtype == np.float32
        return float(np.square(y - exact).mean() ** 0.5)

    assert error(times_table(x_32, table_32)) <= 1.05 * error(x_32 @ table_32.T)
    assert error(times_matrix(x_32, W)) <= 1.05 * error(x_32 @ W)


def test_matrices_of_any_layout(rng: np.random.Generator) -> None:
    W, table = rng.standard_normal((512, 320)), rng.standard_normal((640, 512))
    for x in (rng.standard_normal((1, 512)), rng.standard_normal((1024, 3))[::2].T):
        for order in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2]):
            np.testing.assert_allclose(times_matrix(x, order(W)), x @ W, rtol=0, atol=1e-12)
            np.testing.assert_allclose(
                times_table(x, order(table)), x @ table.T, rtol=0, atol=1e-12
            )


def test_few_rows_really_go_another_way(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the tests above would compare BLAS with itself."""
    x, W = rng.standard_normal((1, 768), np.float32), rng.standard_normal((768, 768), np.float32)
    small = np.ascontiguousarray(W[:, :512])
    assert (times_table(x, W) != x @ W.T).any()
    monkeypatch.setattr(few_rows, "is_openblas", lambda: True)
    for threads, matrix, blas in [(1, W, False), (2, W, True), (2, small, False)]:
        monkeypatch.setattr(few_rows, "thread_count", lambda count=threads: count)
        assert (times_matrix(x, matrix) == x @ matrix).all() == blas
    for N, blas in [(2, False), (3, False), (4, True)]:
        x = rng.standard_normal((N, 768), np.float32)
        assert (times_matrix(x, W) == x @ W).all() == blas
    monkeypatch.setattr(few_rows, "is_openblas", lambda: False)
    for N in (1, 2):
        assert (times_matrix(x[:N], small) == x[:N] @ small).all()
