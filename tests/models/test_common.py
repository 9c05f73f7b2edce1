"""What all models share: weight and bias by name, and what `repr` says."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.models.common import of, put
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer

REPR = {
    random_gpt2: "GPT2(2 blocks, 3 heads, d 12, V 19, {} parameters, float32)",
    random_llama: "Llama(2 blocks, 6 heads on 3, d 18, V 19, {} parameters, float32)",
    random_bert: "BERT(2 layers, 3 heads, d 12, V 19, {} parameters, float32)",
    random_transformer: "Transformer(transformer, 2 + 3 layers, 2 heads, d 12, V 19, "
    "{} parameters, float32)",
}


@pytest.mark.parametrize("random_model", REPR, ids=lambda make: make.__name__)
def test_repr_says_what_it_is(rng, random_model) -> None:
    model = random_model(rng, np.float32)
    assert repr(model) == REPR[random_model].format(f"{model.num_params():,}")


def test_parameters_come_in_the_order_in_which_gradients_are_put() -> None:
    params = {name: np.array(i) for i, name in enumerate(["a.weight", "a.bias", "b.weight"])}
    assert of(params, "b", "a") == [2, 0, 1]
    grads: dict[str, np.ndarray] = {}
    put(grads, "a", of=of(params, "a"))
    put(grads, "b", of=of(params, "b"))
    assert grads == params


def test_parts_must_all_have_a_bias_or_none() -> None:
    with pytest.raises(ValueError, match="zip"):
        put({}, "a", "b", of=[np.zeros(1)] * 3)
    with pytest.raises(KeyError, match=r"c\.weight"):
        of({"c.bias": np.zeros(1)}, "c")
