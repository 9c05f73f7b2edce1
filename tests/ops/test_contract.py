"""What every operation promises, whatever it computes (the contract in `npgpt/ops/__init__.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.gradcheck import check_gradients, relative_error
from tests.ops.cases import CASES, Case, cast, operations

# Not dropout, which draws one mask for the whole array, nor losses, which take one mean: their own
# files test batches.
WHOLE = ("dropout", "cross_entropy", "lm_head_loss", "label_smoothing", "load_balance")
STACKABLE = [name for name in CASES if name not in WHOLE]
DTYPES = [np.float32, np.float64]


def test_every_operation_is_listed() -> None:
    assert operations() == {name.split()[0] for name in CASES}


@pytest.mark.parametrize(
    ("name", "lead"),
    [(name, lead) for name in CASES for lead in [(), (2,)]] + [(name, (2, 6)) for name in WHOLE],
    ids=str,
)
def test_gradients_against_central_differences(
    name: str, lead: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Two leading axes only where a batch is not its rows stacked, which another test asserts."""
    data, params = CASES[name].inputs(rng, lead)
    check_gradients(CASES[name].run, CASES[name].backward, (*data, *params), rng)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_dtype_follows_the_inputs(
    name: str, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    y, saved, grads = _results(CASES[name], dtype, rng)
    assert y.dtype == dtype
    for array in (*arrays_in(saved), *grads):
        assert array.dtype == dtype or array.dtype.kind != "f", array.dtype


@pytest.mark.parametrize("name", CASES)
def test_settings_that_are_numpy_scalars_change_nothing(name: str) -> None:
    """np.float64 for every number that may have a fraction, dloss included, np.int64 for others."""
    case = CASES[name]
    plain = case._replace(settings=lambda: {**defaults(case.forward), **case.settings()})
    scalars = case._replace(
        settings=lambda: {key: as_scalar(value) for key, value in plain.settings().items()}
    )
    data, params = case.inputs(np.random.default_rng(1), (2, 6), np.float32)
    (y, saved), (want, want_saved) = (each.run(*data, *params) for each in (scalars, plain))
    dy = np.random.default_rng(2).standard_normal(np.shape(y), np.float32)
    dloss, want_dy = (np.float64(dy), float(dy)) if np.ndim(y) == 0 else (dy, dy)
    floats = [x for x in arrays_in(saved) if x.ndim > 0 and x.dtype.kind == "f"]
    assert all(x.dtype == np.float32 for x in floats)
    got = y, *case.grads(dloss, saved)
    for array, wanted in zip(got, (want, *case.grads(want_dy, want_saved)), strict=True):
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("name", CASES)
def test_float32_loses_only_its_own_digits(name: str) -> None:
    rough = _results(CASES[name], np.float32, np.random.default_rng(1))
    exact = _results(CASES[name], np.float64, np.random.default_rng(1))
    assert relative_error(rough[0], exact[0]) <= 5e-7
    for got, want in zip(rough[2], exact[2], strict=True):
        assert relative_error(got, want) <= 5e-7


@pytest.mark.parametrize("lead", [(2,), (2, 6)], ids=str)
@pytest.mark.parametrize("name", STACKABLE)
def test_a_batch_is_its_rows_stacked(
    name: str, lead: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Row by row gives the same values and gradients; gradients of parameters add up."""
    case = CASES[name]
    data, params = case.inputs(rng, lead)
    y, saved = case.run(*data, *params)
    dy = rng.standard_normal(y.shape)
    rows = list(np.ndindex(lead))
    single = {}
    for row in rows:
        y_row, saved_row = case.run(*(x[row] for x in data), *params)
        assert relative_error(y[row], y_row) <= 1e-14
        single[row] = case.grads(dy[row], saved_row)
    floats = [x for x in data if x.dtype.kind == "f"]
    for i, grad in enumerate(case.grads(dy, saved)):
        if i < len(floats):
            assert all(relative_error(grad[row], single[row][i]) <= 1e-14 for row in rows)
        else:
            assert relative_error(grad, np.sum([single[row][i] for row in rows], axis=0)) <= 1e-14


@pytest.mark.parametrize("name", CASES)
def test_no_argument_is_changed(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]
    data, params = case.inputs(rng, (2,))
    inputs = (*data, *params)
    before = [x.copy() for x in inputs]
    y, saved = case.run(*inputs)
    y_before, saved_before = y.copy(), [a.copy() for a in arrays_in(saved)]
    dy = np.asarray(rng.standard_normal(y.shape))
    dy_before = dy.copy()
    first = [grad.copy() for grad in case.grads(dy, saved)]
    second = case.grads(dy, saved)
    same = np.array_equal
    assert all(same(a, b) for a, b in zip(inputs, before, strict=True))
    assert all(same(a, b) for a, b in zip(arrays_in(saved), saved_before, strict=True))
    assert same(y, y_before)
    assert same(dy, dy_before)
    assert all(same(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_layout_in_memory_does_not_matter(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]
    data, params = case.inputs(rng, (2, 6))
    inputs = (*data, *params)
    y, saved = case.run(*inputs)
    dy = np.asarray(rng.standard_normal(y.shape))
    y_other, saved_other = case.run(*(np.asarray(x, order="F") for x in inputs))
    assert relative_error(y_other, y) <= 1e-14
    grads_other = case.grads(np.asarray(dy, order="F"), saved_other)
    for got, want in zip(grads_other, case.grads(dy, saved), strict=True):
        assert relative_error(got, want) <= 1e-14


def _results(
    case: Case, dtype: type[np.floating], rng: np.random.Generator
) -> tuple[Any, Any, Any]:
    """Output, saved and gradients in dtype; the inputs are numbers that float32 holds exactly."""
    data, params = case.inputs(rng, (2, 6), np.float32)
    y, saved = case.run(*cast((*data, *params), dtype))
    dy = np.asarray(rng.standard_normal(np.shape(y)), np.float32).astype(dtype)
    return y, saved, case.grads(dy, saved)


def arrays_in(saved: Any) -> Iterator[np.ndarray]:
    """The arrays in nested tuples."""
    if isinstance(saved, (np.ndarray, np.generic)):
        yield np.asarray(saved)
    elif isinstance(saved, tuple):
        for part in saved:
            yield from arrays_in(part)


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only settings that need not be given."""
    settings = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in settings if each.default is not each.empty}


def as_scalar(value: Any) -> Any:
    """A number as NumPy's scalar, anything else as it is."""
    kinds = {float: np.float64, int: np.int64}
    return kinds[type(value)](value) if type(value) in kinds else value
