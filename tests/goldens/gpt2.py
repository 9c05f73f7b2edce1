"""Random GPT-2s of transformers, and what is computed of them."""

from __future__ import annotations

from contextlib import nullcontext as in_float64
from typing import Any

import numpy as np

from npgpt.models.gpt2.config import GPT2Config as CONFIG
from npgpt.models.gpt2.model import GPT2 as MODEL
from tests.goldens.common import array
from tests.goldens.common import causal_computed as computed
from tests.goldens.common import causal_input as random_input
from tests.goldens.common import causal_outputs as reference_outputs

__all__ = ["CONFIG", "MODEL", "computed", "in_float64", "random_input", "reference_outputs"]

REAL = "attention_mask"
# name -> options, lengths of the rows, the side that is padded
CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "tied": (
        {"vocab_size": 19, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3},
        [8, 3, 5],
        "left",
    ),
    "untied": (
        {
            "vocab_size": 17,
            "n_positions": 9,
            "n_embd": 10,
            "n_layer": 3,
            "n_head": 2,
            "n_inner": 14,
            "activation_function": "gelu",
            "layer_norm_epsilon": 1e-3,
            "scale_attn_by_inverse_layer_idx": True,
            "tie_word_embeddings": False,
        },
        [4, 7],
        "right",
    ),
    "unscaled": (
        {
            "vocab_size": 23,
            "n_positions": 6,
            "n_embd": 14,
            "n_layer": 1,
            "n_head": 1,
            "n_inner": 9,
            "activation_function": "silu",
            "scale_attn_weights": False,
        },
        [6],  # as long as the context
        "right",
    ),
}


def reference_model(options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random GPT2LMHeadModel with the scales of a trained one.

    Biases and gains are off their 0 and 1, some LayerNorm gains are 10, some rows 50 times larger.
    """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = GPT2Config(**{**special, **options}, attn_implementation="eager")
    model = GPT2LMHeadModel(config).double().eval()
    for name, param in model.named_parameters():
        if param.ndim == 1:
            param.data += 0.1 * torch.randn_like(param)
        else:
            param.data[1::6] *= 50
        if "ln_" in name and name.endswith("weight"):
            param.data[::5] = 10
    return model.to(getattr(torch, dtype))


def reference_params(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """The parameters or their gradients under npgpt's names, a tied head left out."""
    return {
        name.removeprefix("transformer."): array(param, gradients)
        for name, param in model.named_parameters()
    }
