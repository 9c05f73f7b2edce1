"""The same stations from Hugging Face transformers, with eager attention: what npgpt is held to.

Loads the model's folder by transformers' own code, so that loading is compared as well. Needs the
extra `hf`; torch and transformers are imported here and nowhere else.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.checkpoint import model_type
from npgpt.llama_tensors import is_matrix
from npgpt.shards import shortened
from npgpt.stations import GRAD, next_token_targets


class Names(NamedTuple):
    """What transformers calls a model's class and its modules."""

    cls: str
    trunk: str
    embed: str  # the module whose output is the beginning of the residual stream
    blocks: str
    attn: str
    norm: str


MODELS = {
    "gpt2": Names("GPT2LMHeadModel", "transformer", "drop", "h", "attn", "ln_f"),
    "llama": Names("LlamaForCausalLM", "model", "embed_tokens", "layers", "self_attn", "norm"),
}


def hf_stations(
    folder: Path, ids: np.ndarray, *, dtype: str, gradients: bool
) -> dict[str, np.ndarray]:
    """What `npgpt.stations.collect_stations` returns, computed by transformers.

    Args:
        folder: config.json and safetensors.
        ids: [T] integers.
        dtype: "float32" or "float64", of the parameters and of everything returned.

    Raises:
        ImportError: torch or transformers is not installed.
        ValueError: transformers cannot load the folder, or leaves parameters at random.
    """
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "comparing with Hugging Face needs torch and transformers: pip install 'npgpt[hf]', or "
            "compare with a file (--against FILE)."
        ) from error

    kind = model_type(folder / "config.json")
    model = _load(folder, dtype, MODELS[kind].cls)
    stations: dict[str, np.ndarray] = {"ids": ids}
    _observe(model, stations, MODELS[kind])
    with torch.set_grad_enabled(gradients):
        output = model(
            torch.tensor(ids)[None],
            position_ids=torch.arange(len(ids))[None],
            use_cache=False,
            output_attentions=True,
        )
    stations["logits"] = _array(output.logits)
    for n, probs in enumerate(output.attentions):
        stations[f"{MODELS[kind].blocks}.{n}.{MODELS[kind].attn}.probs"] = _array(probs)
    if gradients:
        targets = torch.tensor(next_token_targets(ids))
        loss = torch.nn.functional.cross_entropy(output.logits[0], targets)  # -100 is ignored
        loss.backward()
        stations["loss"] = loss.detach().numpy()
        for name, param in model.named_parameters():
            bare, grad = name.removeprefix(MODELS[kind].trunk + "."), param.grad.numpy()
            turned = kind == "llama" and is_matrix(bare, grad)
            stations[GRAD + bare] = grad.T if turned else grad
    return stations


def _load(folder: Path, dtype: str, cls: str) -> Any:
    """A model of this class from the folder, in evaluation mode: no dropout."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        model, info = getattr(transformers, cls).from_pretrained(
            folder,
            attn_implementation="eager",
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are reported, and refused below
            **_precision(folder, dtype),
        )
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{folder}: transformers cannot load it ({reason:.300}).") from error
    unfit = sorted([*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])])
    if unfit:
        raise ValueError(
            f"{folder}: transformers finds missing or misshapen there {shortened(unfit)}, and "
            "would start from random numbers; save the model anew with npgpt's save_pretrained, or "
            "compare with a file (--against FILE)."
        )
    return model.eval()


def _precision(folder: Path, dtype: str) -> dict[str, Any]:
    """The options that make all of transformers' pass run in `dtype`."""
    import torch
    import transformers

    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    options = {name: getattr(torch, dtype)}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if dtype == "float64" and config.get("reorder_and_upcast_attn"):
        warnings.warn(
            f"{folder}: reorder_and_upcast_attn is switched off in transformers, which would "
            "compute the attention weights in float32; all that changes is that rounding.",
            UserWarning,
            stacklevel=2,
        )
        options["reorder_and_upcast_attn"] = False
    return options


def _observe(model: Any, stations: dict[str, np.ndarray], names: Names) -> None:
    """Have the modules write their outputs into `stations` as they compute them."""

    def hook(name: str) -> Callable[..., None]:
        def write(_module: Any, _inputs: Any, output: Any) -> None:
            stations[name] = _array(output[0] if isinstance(output, tuple) else output)

        return write

    trunk = getattr(model, names.trunk)
    getattr(trunk, names.embed).register_forward_hook(hook("embed"))
    for n, block in enumerate(getattr(trunk, names.blocks)):
        for part in (names.attn, "mlp"):
            getattr(block, part).register_forward_hook(hook(f"{names.blocks}.{n}.{part}"))
        block.register_forward_hook(hook(f"{names.blocks}.{n}"))
    getattr(trunk, names.norm).register_forward_hook(hook(names.norm))


def _array(tensor: Any) -> np.ndarray:
    """A batch of one as an array without the batch axis."""
    array: np.ndarray = tensor.detach()[0].numpy()
    return array
