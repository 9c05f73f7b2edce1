"""What npgpt does not read, and the way from there: weights of other kinds, quantised weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"  # what npgpt does read
PICKLE = (
    "a pickle, which could run any code and is not opened: convert it to safetensors as "
    "transformers' save_pretrained does"
)
OTHER_FRAMEWORK = (
    "of another framework: have transformers 4 load it ({}=True) and save it with save_pretrained"
)
KINDS = {  # pattern of a file's name -> what it is, and what to do; the first that fits counts
    "*.gguf": "a model by itself: name that file",
    "adapter_model.*": "an adapter (LoRA), not a model: merge it into its base model "
    "(merge_and_unload of the package peft) and save that",
    "consolidated*": "in its maker's own layout: take the model as converted for transformers",
    "diffusion_*": "a part of a diffusion model, of which npgpt reads none",
    "*-of-*.safetensors": f"a part of the weights, and {INDEX}, which says what is where, is "
    "missing: download it too",
    "*.safetensors": f"not called {WEIGHTS}: rename it, if it is all of the model's weights",
    **dict.fromkeys(("*.bin", "*.bin.index.json", "*.pt", "*.pth", "*.ckpt"), PICKLE),
    "*.onnx": "a program that computes a model: take the checkpoint that it was made from",
    "*.h5": OTHER_FRAMEWORK.format("from_tf"),
    "*.msgpack": OTHER_FRAMEWORK.format("from_flax"),
}
NO_WEIGHTS = ("optimizer*", "scheduler*", "training_args*", "rng_state*", "state.safetensors")
# Ends of the names that MLX, GPTQ, AWQ, bitsandbytes and those who store eight bits give to the
# scales beside packed numbers.
SCALES = (
    *(".scales", ".biases", ".qweight", ".qzeros", ".g_idx", ".absmax", ".quant_map", ".SCB"),
    *(".weight_scale", ".weight_scale_inv", ".weight_packed", ".input_scale"),
)
PLAIN = "which npgpt does not read: name the model that they were made from, or a .gguf of it"


def kind_of(names: Iterable[str]) -> tuple[str, str] | None:
    """The file among these that has weights of another kind, and what it is; None without one."""
    files = sorted(n for n in names if not any(fnmatch(n, other) for other in NO_WEIGHTS))
    found = ((name, kind) for like, kind in KINDS.items() for name in files if fnmatch(name, like))
    return next(found, None)


def other_weights(folder: Path) -> str | None:
    """What a folder has in place of weights that npgpt reads, as the end of a sentence."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    found = None if {WEIGHTS, INDEX} & {*names} else kind_of(names)
    return found and "its {} is {}".format(*found)


def check_plain_config(raw: Mapping[str, Any], path: Path) -> None:
    """Raise ValueError for a config.json that says that the weights are quantised."""
    for key in ("quantization_config", "quantization"):
        if given := raw.get(key):
            method = given.get("quant_method") if isinstance(given, dict) else None
            how = f"{key} {method}" if isinstance(method, str) else key
            raise ValueError(f"{path}: the weights are quantised ({how}), {PLAIN}.")


def check_plain_names(names: Iterable[str], source: Path) -> None:
    """Raise ValueError for names of tensors that only quantised weights have."""
    for name in names:
        if name.endswith(SCALES) or ".quant_state." in name:
            raise ValueError(f"{source}: the weights are quantised (it has {name!r}), {PLAIN}.")
