"""Random Llamas and relatives of transformers, and what is computed of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from npgpt.models.llama.config import LlamaConfig as CONFIG
from npgpt.models.llama.config import param_shapes
from npgpt.models.llama.model import Llama as MODEL
from tests.goldens.common import array
from tests.goldens.common import causal_computed as computed
from tests.goldens.common import causal_input as random_input
from tests.goldens.common import causal_outputs as reference_outputs

__all__ = ["CONFIG", "MODEL", "computed", "param_shapes", "random_input", "reference_outputs"]

REAL = "attention_mask"
SIZES: dict[str, Any] = {
    "vocab_size": 19,
    "hidden_size": 24,
    "intermediate_size": 22,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 0.1,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 8,
}
SMALLER = {**SIZES, "hidden_size": 12, "intermediate_size": 10}
NO_MARKS = {"eos_token_id": None, "bos_token_id": None}
# name -> options, lengths of the rows, the side that is padded
CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "tied": (
        {**SMALLER, "tie_word_embeddings": True, "rms_norm_eps": 1e-3, **NO_MARKS},
        [8, 3, 5],
        "left",
    ),
    "llama3": (
        {
            **SMALLER,
            "num_hidden_layers": 1,
            "num_key_value_heads": 3,
            "head_dim": 10,
            "rope_theta": 500.0,
            "rope_scaling": LLAMA3,
            **NO_MARKS,
        },
        [4, 7],
        "right",
    ),
}


@contextmanager
def in_float64() -> Iterator[None]:
    """transformers computes RMSNorm, softmax and angles in float32 whatever the dtype; not here."""
    import safetensors.torch  # noqa: F401  # its table of dtypes must not be made in here
    import torch

    longer = mock.patch.object(torch.Tensor, "float", torch.Tensor.double)
    with longer, mock.patch.multiple(torch, float=torch.float64, float32=torch.float64):
        yield


def reference_model(options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random model with the scales of a trained one: gains off their 1, biases off their 0."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    special = {"model_type": "llama", **NO_MARKS, "pad_token_id": None, **options}
    config = AutoConfig.for_model(**special)
    kinds = dict.fromkeys(("attn_implementation", "experts_implementation"), "eager")
    model = AutoModelForCausalLM.from_config(config, **kinds).double().eval()
    for param in model.parameters():
        if param.ndim == 1:
            param.data += 0.3 * torch.randn_like(param)
        else:
            param.data *= 6
            param.data[1::6] *= 3
    return model.to(getattr(torch, dtype))


def reference_params(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """The parameters or their gradients under npgpt's names, the blocks' matrices [in, out]."""
    arrays = {
        name.removeprefix("model."): array(param, gradients)
        for name, param in model.named_parameters()
    }
    turned = {name: a.T if name.startswith("layers.") else a for name, a in arrays.items()}
    return turned if not hasattr(model.config, "num_local_experts") else one_by_one(turned, model)


def one_by_one(arrays: dict[str, np.ndarray], model: Any) -> dict[str, np.ndarray]:
    """Experts as the checkpoint has them; [out, in, E] of transformers' stacks, turned."""
    is_mixtral, named = model.config.model_type == "mixtral", {}
    for name, a in arrays.items():
        at, _, stack = name.partition(".mlp.")
        mlp = f"{at}.block_sparse_moe" if is_mixtral else f"{at}.mlp"
        for e in range(a.shape[-1] if "experts" in stack else 0):
            expert, W = f"{mlp}.experts.{e}", a[..., e]
            if stack == "experts.down_proj":
                named[f"{expert}.{'w2' if is_mixtral else 'down_proj'}.weight"] = W
                continue
            gate, up = np.split(W, 2, axis=1)
            named[f"{expert}.{'w1' if is_mixtral else 'gate_proj'}.weight"] = gate
            named[f"{expert}.{'w3' if is_mixtral else 'up_proj'}.weight"] = up
        if "experts" not in stack:
            named[f"{mlp}.{stack}" if stack else name] = a
    return named
