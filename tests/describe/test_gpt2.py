"""The structure drawn from a configuration: boxes that fit, what they cost, how that grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from npgpt.describe.gpt2 import Axes, flops, memory, structure_of
from npgpt.models.gpt2.config import init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.activation import ACTIVATIONS
from tests.builders.gpt2 import byte_gpt2_config


def test_what_is_linear_in_t_and_what_is_not():
    """The letters against the amounts for twice as many tokens."""
    structure, factor = structure_of(byte_gpt2_config()), {"": 1, "T": 2, "T²": 4}
    for costs in (lambda n: flops(structure, n, 1), lambda n: memory(structure, n, 1, 4)):
        for once, twice in zip(costs(7), costs(14), strict=True):
            if once.grows == "T and T²":
                assert 2 * once.amount < twice.amount < 4 * once.amount
            else:
                assert twice.amount == factor[once.grows] * once.amount
    grows = {c.name: c.grows for c in [*flops(structure, 7, 1), *memory(structure, 7, 1, 4)]}
    assert [name for name, g in grows.items() if g == "T²"] == [
        "scores and weighted sums",
        "weight tables of a layer",
        "weight tables of all layers",
    ]
    assert grows["KV cache"] == grows["matrices of the blocks"] == grows["lm_head"] == "T"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_kept_for_backward_is_what_the_forward_pass_keeps(rng, activation, dtype):
    config = byte_gpt2_config(activation_function=activation, n_inner=31)
    model = GPT2(config, init_params(config, rng, dtype))
    saved = model.forward(rng.integers(0, 257, (2, 9))).saved
    floats = {id(a): a for a in buffers(saved) if a.dtype == dtype}
    for param in model.params.values():
        floats.pop(id(param), None)
    bytes_ = {c.name: c.amount for c in memory(structure_of(config), 9, 2, dtype().itemsize)}
    assert bytes_["kept for backward, with tables"] == sum(a.nbytes for a in floats.values())


def buffers(saved: Any) -> Iterator[np.ndarray]:
    """The arrays that own the memory of everything in nested tuples and lists."""
    if isinstance(saved, np.ndarray):
        while isinstance(saved.base, np.ndarray):
            saved = saved.base
        yield saved
    elif isinstance(saved, (tuple, list)):
        for part in saved:
            yield from buffers(part)


@pytest.mark.parametrize(
    "options", [{}, {"n_inner": 31}, {"tie_word_embeddings": False}, {"n_layer": 1, "n_head": 4}]
)
def test_boxes_fit_together_and_carry_all_parameters(rng, options):
    config = byte_gpt2_config(**options)
    structure = structure_of(config)
    arrays = init_params(config, rng).values()
    assert sum(box.parameters for box in structure.all_boxes()) == sum(a.size for a in arrays)
    flowing: list[Axes] = [("T",)]
    for box in structure.all_boxes():  # all that comes out goes into the next, "+" also takes x
        assert set(flowing) <= set(box.inputs)
        flowing = list(box.outputs)
    assert flowing == [("T", 257)]
