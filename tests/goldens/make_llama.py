"""Makes the golden values llama-*.safetensors: what transformers computes, in float64.

    python -m tests.goldens.make_llama

Each file holds a small random model (`param.NAME`, matrices [in, out]), its input (`ids`,
`attention_mask`, `targets`) and what came out (`logits`, `loss`, `grad.NAME`); its metadata holds
config.json. Needs torch and transformers (extra `hf`); the test that reads the files does not.
`reference_model` and `reference_values` also serve the live comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tests.goldens.make_gpt2 import FOLDER, random_input

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
CASES: dict[str, dict[str, Any]] = {
    "tied": {**SMALLER, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    "llama3": {
        **SMALLER,
        "num_hidden_layers": 1,
        "num_key_value_heads": 3,
        "head_dim": 10,
        "rope_theta": 500.0,
        "rope_scaling": LLAMA3,
    },
}
PADDING = {"tied": ([8, 3, 5], "left"), "llama3": ([4, 7], "right")}


@contextmanager
def all_in_float64() -> Iterator[None]:
    """transformers computes RMSNorm, softmax and angles in float32 whatever the dtype; not here."""
    import safetensors.torch  # noqa: F401  # its table of dtypes must not be made in here
    import torch

    with mock.patch.multiple(torch, float=torch.float64, float32=torch.float64):
        yield


def reference_model(options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random LlamaForCausalLM with the scales of a trained one: gains off their 1."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = LlamaConfig(**{**special, **options}, attn_implementation="eager")
    model = LlamaForCausalLM(config).double().eval()
    for param in model.parameters():
        if param.ndim == 1:
            param.data += 0.3 * torch.randn_like(param)
        else:
            param.data *= 6
            param.data[1::6] *= 3
    return model.to(getattr(torch, dtype))


def reference_values(
    model: Any, ids: np.ndarray, targets: np.ndarray, attention_mask: np.ndarray
) -> dict[str, np.ndarray]:
    """`logits`, `loss` and `grad.NAME` of every parameter, as transformers computes them."""
    import torch

    positions = np.maximum(np.cumsum(attention_mask, axis=-1) - 1, 0)
    model.zero_grad()
    logits = model(
        torch.tensor(ids),
        attention_mask=torch.tensor(attention_mask),
        position_ids=torch.tensor(positions),
    ).logits
    flat_targets = torch.tensor(targets).reshape(-1)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), flat_targets)
    loss.backward()
    grads = _named(model, lambda param: param.grad)
    values = {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}
    return values | {"grad." + name: grad for name, grad in grads.items()}


def reference_params(model: Any) -> dict[str, np.ndarray]:
    """The parameters of a LlamaForCausalLM as npgpt has them, a tied head left out."""
    return _named(model, lambda param: param.detach())


def _named(model: Any, value: Any) -> dict[str, np.ndarray]:
    """Arrays under npgpt's names, the blocks' matrices [in, out]."""
    arrays = {}
    for name, param in model.named_parameters():
        bare = name.removeprefix("model.")
        array = value(param).numpy()
        arrays[bare] = array.T.copy() if bare.startswith("layers.") else array.copy()
    return arrays


def main() -> None:
    """Write all files."""
    import torch
    from safetensors.numpy import save_file

    torch.set_num_threads(1)  # the order of a sum, and with it the last bit, depends on it
    for seed, (name, options) in enumerate(CASES.items()):
        rng = np.random.default_rng(seed)
        ids, targets, attention_mask = random_input(*PADDING[name], options["vocab_size"], rng)
        with all_in_float64():
            model = reference_model(options, seed)
            values = reference_values(model, ids, targets, attention_mask)
        tensors = {"ids": ids, "targets": targets, "attention_mask": attention_mask, **values}
        tensors |= {"param." + key: value for key, value in reference_params(model).items()}
        tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
        metadata = {"config": json.dumps({**options, "eos_token_id": None, "bos_token_id": None})}
        save_file(tensors, FOLDER / f"llama-{name}.safetensors", metadata)


if __name__ == "__main__":
    main()
