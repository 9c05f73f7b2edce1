"""Small BERTs for the tests, and how far two sets of results are apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npgpt.models.bert.config import BERTConfig, init_params
from npgpt.models.bert.model import BERT
from tests.gradcheck import check_direction, relative_error

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES = {
    "vocab_size": 19,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 14,
    "max_position_embeddings": 11,
    "type_vocab_size": 2,
}


def tiny_config(**options: Any) -> BERTConfig:
    """A configuration that computes in a millisecond."""
    return BERTConfig.from_dict({**SIZES, **options})


def random_bert(
    rng: np.random.Generator,
    dtype: type[np.floating] = np.float64,
    *,
    pooler: bool = True,
    mlm_head: bool = True,
    **options: Any,
) -> BERT:
    """A model whose biases and gains are not 0 and 1 either, and whose attention is not flat."""
    config = tiny_config(**options)
    params = init_params(config, rng, np.float64, pooler=pooler, mlm_head=mlm_head)
    for param in params.values():
        param += 0.3 * rng.standard_normal(param.shape)
    return BERT(config, {name: param.astype(dtype) for name, param in params.items()})


def worst(got: Mapping[str, Any], want: Mapping[str, Any]) -> tuple[float, str]:
    """The largest relative error of all tensors, and which it is.

    A key's bias shifts all scores of a row alike, so its gradient is zero but for rounding, which
    is measured by the gradient of the key's weight.
    """
    assert got.keys() == want.keys()
    errors = {name: relative_error(got[name], want[name]) for name in want}
    for name in want:
        if name.endswith("key.bias"):
            size = np.linalg.norm(want[name.replace("bias", "weight")]) or 1.0
            errors[name] = float(np.linalg.norm(got[name] - want[name]) / size)
    return max((error, name) for name, error in errors.items())


def check_all_directions(
    loss_fn: Callable[[dict[str, np.ndarray]], float],
    params: dict[str, np.ndarray],
    grads: dict[str, np.ndarray],
    rng: np.random.Generator,
) -> None:
    """`check_direction` for all parameters; the keys' biases must have no gradient, see `worst`."""
    biases = {name: params[name] for name in params if name.endswith("key.bias")}
    assert biases
    for name in biases:
        size = np.linalg.norm(grads[name.replace("bias", "weight")])
        assert np.linalg.norm(grads[name]) < 1e-13 * size, name
    others = {name: param for name, param in params.items() if name not in biases}
    check_direction(
        lambda moved: loss_fn({**moved, **biases}), others, {n: grads[n] for n in others}, rng
    )
    moved = {name: bias + rng.standard_normal(bias.shape) for name, bias in biases.items()}
    unmoved = loss_fn(params)
    assert abs(loss_fn({**params, **moved}) - unmoved) < 1e-12 * abs(unmoved)
