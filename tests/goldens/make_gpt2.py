"""Makes the golden values gpt2-*.safetensors: what transformers computes, in float64.

    python -m tests.goldens.make_gpt2

Each file holds a small random model (`param.NAME`), its input (`ids`, `attention_mask`, `targets`)
and what came out (`logits`, `loss`, `grad.NAME`); its metadata holds config.json. Needs torch and
transformers (extra `hf`); the test that reads the files does not. `reference_model` and
`reference_values` also serve the live comparison.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent

CASES: dict[str, dict[str, Any]] = {
    "tied": {"vocab_size": 19, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3},
    "untied": {
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
    "unscaled": {
        "vocab_size": 23,
        "n_positions": 6,
        "n_embd": 14,
        "n_layer": 1,
        "n_head": 1,
        "n_inner": 9,
        "activation_function": "silu",
        "scale_attn_weights": False,
    },
}
PADDING = {  # lengths of the rows, the side that is padded
    "tied": ([8, 3, 5], "left"),
    "untied": ([4, 7], "right"),
    "unscaled": ([6], "right"),  # as long as the context
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


def reference_values(
    model: Any, ids: np.ndarray, targets: np.ndarray, attention_mask: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """`logits`, `loss` and `grad.NAME` of every parameter, as transformers computes them."""
    import torch

    mask = np.ones_like(ids) if attention_mask is None else attention_mask
    positions = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
    model.zero_grad()
    logits = model(
        torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=torch.tensor(positions)
    ).logits
    flat_targets = torch.tensor(targets).reshape(-1)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), flat_targets)
    loss.backward()
    values = {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}
    for name, param in model.named_parameters():
        values["grad." + name.removeprefix("transformer.")] = param.grad.numpy().copy()
    return values


def reference_params(model: Any) -> dict[str, np.ndarray]:
    """The parameters of a GPT2LMHeadModel under npgpt's names, a tied head left out."""
    return {
        name.removeprefix("transformer."): param.detach().numpy()
        for name, param in model.named_parameters()
    }


def random_input(
    lengths: list[int], side: str, vocab_size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids, targets and attention_mask [B, T] of rows padded on one side; some targets ignored."""
    T = max(lengths)
    ids, targets = rng.integers(0, vocab_size, (2, len(lengths), T))
    real = np.arange(T) < np.array(lengths)[:, None]
    real = real[:, ::-1] if side == "left" else real
    ignored = ~real | (rng.random(real.shape) < 0.2)
    ignored[0, -1 if side == "left" else 0] = False  # one target there is in any case
    return ids, np.where(ignored, -100, targets), real.astype(np.int64)


def main() -> None:
    """Write all files."""
    import torch
    from safetensors.numpy import save_file

    torch.set_num_threads(1)  # the order of a sum, and with it the last bit, depends on it
    for seed, (name, options) in enumerate(CASES.items()):
        model = reference_model(options, seed)
        rng = np.random.default_rng(seed)
        ids, targets, attention_mask = random_input(*PADDING[name], options["vocab_size"], rng)
        tensors = {"ids": ids, "targets": targets, "attention_mask": attention_mask}
        tensors |= {"param." + key: value for key, value in reference_params(model).items()}
        tensors |= reference_values(model, ids, targets, attention_mask)
        tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
        save_file(tensors, FOLDER / f"gpt2-{name}.safetensors", {"config": json.dumps(options)})


if __name__ == "__main__":
    main()
