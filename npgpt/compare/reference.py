"""The same stations from Hugging Face transformers, with eager attention: what npgpt is held to.

Loads the model's folder by transformers' own code, so that loading is compared as well. Needs the
extra `hf`, which is imported here and in `reference_loading.py` alone; what transformers calls the
modules is in `reference_names.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.compare.activations import GRAD, next_token_targets
from npgpt.compare.dump import Dump
from npgpt.compare.reference_loading import everything_in, load_reference
from npgpt.compare.reference_names import Names, names_of
from npgpt.models.auto import model_type

# transformers computes a Llama's norms, angles and softmax, and makes a marian's sinusoids, in
# float32 whatever the dtype.
IN_FLOAT32 = ("llama", "marian")


def hf_stations(
    folder: Path,
    ids: np.ndarray,
    target_ids: np.ndarray | None = None,
    *,
    params: Collection[str] = (),
    dtype: str,
    gradients: bool,
) -> Dump:
    """What `npgpt.compare.activations.collect_stations` returns, computed by transformers.

    Args:
        folder: config.json and safetensors.
        ids, target_ids: [T] integers, see `collect_stations`; transformers shifts the target.
        params: the names of npgpt's parameters, see `names_of`.
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

    kind = model_type(folder)
    names = names_of(kind, params)
    model = load_reference(folder, dtype, names)
    stations: dict[str, np.ndarray] = {}
    _observe(model, stations, names)
    if gradients:
        _prepare_gradients(model, kind, ids)
    with torch.set_grad_enabled(gradients), everything_in(dtype):
        output = model(output_attentions=True, **_inputs(kind, ids, target_ids))
    stations |= _tables(output, names)
    logits = output.get("logits", output.get("prediction_logits"))
    if logits is not None:
        stations["logits"] = _array(logits)
    if gradients:
        asked = torch.tensor(_asked(kind, ids, target_ids))
        loss = torch.nn.functional.cross_entropy(logits[0], asked)  # -100 is ignored
        loss.backward()
        stations["loss"] = loss.detach().numpy()
        stations |= _gradients(model, names)
    return Dump(stations, dict.fromkeys(stations, "float32" if kind in IN_FLOAT32 else dtype))


def _inputs(kind: str, ids: np.ndarray, target_ids: np.ndarray | None) -> dict[str, Any]:
    import torch

    read: dict[str, Any] = {"input_ids": torch.tensor(ids)[None]}
    if target_ids is not None:
        return read | {"labels": torch.tensor(target_ids)[None]}
    if kind == "bert":
        return read
    return read | {"position_ids": torch.arange(len(ids))[None], "use_cache": False}


def _asked(kind: str, ids: np.ndarray, target_ids: np.ndarray | None) -> np.ndarray:
    """The token that the loss asks for at each position: that of the target, itself, the next."""
    if target_ids is not None:
        return target_ids
    return ids if kind == "bert" else next_token_targets(ids)


def _observe(model: Any, stations: dict[str, np.ndarray], names: Names) -> None:
    """Have the modules write their outputs into `stations` as they compute them."""

    def keep_output(module: Any, name: str) -> None:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            stations[name] = _array(output[0] if isinstance(output, tuple) else output)

        module.register_forward_hook(hook)

    def keep_input(module: Any, name: str) -> None:
        def hook(_module: Any, inputs: Any) -> None:
            stations[name] = _array(inputs[0])

        module.register_forward_pre_hook(hook)

    for stack in names.stacks:
        layers = model.base_model.get_submodule(stack.layers)
        keep_input(layers[0], stack.embed)
        for n, layer in enumerate(layers):
            for part in stack.parts:
                keep_output(layer.get_submodule(part), f"{stack.layers}.{n}.{part}")
            keep_output(layer, f"{stack.layers}.{n}")
    for name in names.last:
        keep_output(model.base_model.get_submodule(name), name)


def _tables(output: Any, names: Names) -> dict[str, np.ndarray]:
    """The attention weights of every layer."""
    return {
        f"{stack.layers}.{n}.{station}": _array(probs)
        for stack in names.stacks
        for station, key in stack.tables.items()
        for n, probs in enumerate(output[key])
    }


def _prepare_gradients(model: Any, kind: str, ids: np.ndarray) -> None:
    """Have transformers differentiate all that npgpt does."""
    if kind in ("bart", "marian"):
        model.final_logits_bias.requires_grad_(True)  # no parameter there, but added all the same
    padding = model.config.pad_token_id
    if kind == "bert" and padding in ids:
        warnings.warn(
            f"the text has the padding token, id {padding}, whose row of the word table would get "
            "no gradient from the lookup in transformers; here it gets one like all others.",
            UserWarning,
            stacklevel=3,
        )
        model.get_input_embeddings().padding_idx = None


def _gradients(model: Any, names: Names) -> dict[str, np.ndarray]:
    """`grad.NAME` under npgpt's names, a Linear's [out, in] turned unless it is the head.

    Zeros for what the loss does not depend on.
    """
    import torch

    grads = {}
    for name, param in [*model.named_parameters(), *model.named_buffers()]:
        if not param.requires_grad or name.startswith(names.spare):
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        turned = isinstance(owner, torch.nn.Linear) and owner is not model.get_output_embeddings()
        grad = (torch.zeros_like(param) if param.grad is None else param.grad).numpy()
        bare = name.removeprefix(model.base_model_prefix + ".")
        grads[GRAD + bare] = grad.T if turned else grad
    bias = GRAD + "cls.predictions.decoder.bias"  # an untied BERT's, whose other bias does nothing
    if bias in grads:
        grads[GRAD + "cls.predictions.bias"] = grads.pop(bias)
    return grads


def _array(tensor: Any) -> np.ndarray:
    """A batch of one as an array without the batch axis."""
    array: np.ndarray = tensor.detach()[0].numpy()
    return array
