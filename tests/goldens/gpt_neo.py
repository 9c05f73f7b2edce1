"""Random GPT-Neos of transformers, and what is computed of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.models.gpt2.config import param_shapes
from npgpt.models.gpt_neo.config import GPTNeoConfig as CONFIG
from npgpt.models.gpt_neo.model import GPTNeo as MODEL
from tests.goldens import llama
from tests.goldens.common import array
from tests.goldens.common import causal_computed as computed
from tests.goldens.common import causal_input as random_input
from tests.goldens.common import causal_outputs as reference_outputs
from tests.goldens.llama import in_float64  # scores and softmax are in float32 here, too

__all__ = [
    "CONFIG",
    "MODEL",
    "computed",
    "in_float64",
    "param_shapes",
    "random_input",
    "reference_outputs",
]

REAL = "attention_mask"


def reference_model(options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random GPTNeoForCausalLM with the scales of a trained one, biases and gains off 0 and 1."""
    options = {"model_type": "gpt_neo", "pad_token_id": 0, **options}
    return llama.reference_model(options, seed, dtype)


def reference_params(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """The parameters or their gradients under npgpt's names, the blocks' matrices [in, out]."""
    arrays = {
        name.removeprefix("transformer."): array(param, gradients)
        for name, param in model.named_parameters()
    }
    return {name: a.T if name.startswith("h.") else a for name, a in arrays.items()}
