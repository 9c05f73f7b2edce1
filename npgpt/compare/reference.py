"""The same stations from Hugging Face transformers, with eager attention: the reference.

transformers' own code loads the model's folder, so that loading is compared as well. Needs the
extra `hf`. Stations have the names of transformers' modules, so a table of names per architecture
is enough to find them.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.compare.activations import GRAD, next_token_targets
from npgpt.compare.dump import Dump
from npgpt.files.checkpoint import read_raw_config, shortened
from npgpt.models import auto

# transformers computes a Llama's norms, angles and softmax, and makes a marian's sinusoids, in
# float32 whatever the dtype.
IN_FLOAT32 = ("llama", "marian")


class Stack(NamedTuple):
    """Layers one after the other."""

    embed: str  # the station of what the first layer reads
    layers: str  # the module that lists them
    outputs: tuple[str, ...]  # those modules of a layer whose outputs are stations
    weights: dict[str, str]  # station of a layer's attention weights -> where the output has them


class Names(NamedTuple):
    """One class of transformers."""

    cls: str
    stacks: tuple[Stack, ...]
    last: tuple[str, ...] = ()  # the module behind the layers whose output is a station
    spare: tuple[str, ...] = ()  # prefixes of parameters that npgpt does not have


BERT_STACK = Stack(
    "embed",
    "encoder.layer",
    ("attention.output.dense", "attention.output.LayerNorm", "output.dense"),
    {"attention.self.probs": "attentions"},
)
SEQ2SEQ_STACKS = (
    Stack(
        "encoder.embed",
        "encoder.layers",
        ("self_attn", "self_attn_layer_norm", "fc2"),
        {"self_attn.probs": "encoder_attentions"},
    ),
    Stack(
        "decoder.embed",
        "decoder.layers",
        ("self_attn", "self_attn_layer_norm", "encoder_attn", "encoder_attn_layer_norm", "fc2"),
        {"self_attn.probs": "decoder_attentions", "encoder_attn.probs": "cross_attentions"},
    ),
)
NAMES = {
    "gpt2": Names(
        "GPT2LMHeadModel",
        (Stack("embed", "h", ("attn", "mlp"), {"attn.probs": "attentions"}),),
        last=("ln_f",),
    ),
    "llama": Names(
        "LlamaForCausalLM",
        (Stack("embed", "layers", ("self_attn", "mlp"), {"self_attn.probs": "attentions"}),),
        last=("norm",),
    ),
    "bart": Names("BartForConditionalGeneration", SEQ2SEQ_STACKS),
    "marian": Names(
        "MarianMTModel",
        SEQ2SEQ_STACKS,
        spare=("model.encoder.embed_positions.", "model.decoder.embed_positions."),
    ),
}


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
        params: the names of npgpt's parameters, which say what heads and tables the model has.
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
            'comparing with Hugging Face needs torch and transformers: pip install "npgpt[hf]", or '
            "compare with a file (--against FILE)."
        ) from error

    model_type = auto.model_type(folder)
    names = _names_of(model_type, params)
    model = _load(folder, dtype, names)
    inputs, targets = _inputs_and_targets(model_type, ids, target_ids)
    stations: dict[str, np.ndarray] = {}
    _observe(model, stations, names)
    if gradients:
        _prepare_gradients(model, model_type, ids)
    with torch.set_grad_enabled(gradients), _default_dtype(dtype):
        output = model(output_attentions=True, **inputs)
    stations |= _attention_weights(output, names)
    logits = output.get("logits", output.get("prediction_logits"))
    if logits is not None:
        stations["logits"] = _array(logits)
    if gradients:
        loss = torch.nn.functional.cross_entropy(logits[0], targets)  # -100 is ignored
        loss.backward()
        stations["loss"] = loss.detach().numpy()
        stations |= _gradients(model, names)
    precision = "float32" if model_type in IN_FLOAT32 else dtype
    return Dump(stations, dict.fromkeys(stations, precision))


def check_counterpart(model_type: str) -> None:
    """Raise ValueError for a `model_type` that transformers does not know."""
    if model_type == "transformer":
        raise ValueError(
            "transformers has no counterpart of the paper's own layout (model_type 'transformer'); "
            "compare with a file (--against FILE), or write npgpt's stations to one (--dump FILE)."
        )


def _names_of(model_type: str, params: Collection[str]) -> Names:
    if model_type == "bert":
        return _names_of_bert(params)
    if model_type == "bart" and "shared.weight" not in params:
        return NAMES["bart"]._replace(spare=("model.shared.",))  # each side has a table of its own
    return NAMES[model_type]


def _names_of_bert(params: Collection[str]) -> Names:
    last = ("pooler",) if "pooler.dense.weight" in params else ()
    if "cls.predictions.bias" not in params:
        return Names("BertModel", (BERT_STACK,), last, () if last else ("pooler.",))
    if last:
        return Names("BertForPreTraining", (BERT_STACK,), last, ("cls.seq_relationship.",))
    return Names("BertForMaskedLM", (BERT_STACK,))


def _load(folder: Path, dtype: str, names: Names) -> Any:
    """The model in evaluation mode: no dropout. Eager attention, because only it returns weights.

    Raises ValueError where transformers cannot load it, or would leave parameters at random.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        model, info = getattr(transformers, names.cls).from_pretrained(
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
    if unfit := [key for key in unfit if not key.startswith(names.spare)]:
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
    config = read_raw_config(folder / "config.json")
    if dtype == "float64" and config.get("reorder_and_upcast_attn"):
        warnings.warn(
            f"{folder}: reorder_and_upcast_attn is switched off in transformers, which would "
            "compute the attention weights in float32; all that changes is that rounding.",
            UserWarning,
            stacklevel=2,
        )
        options["reorder_and_upcast_attn"] = False
    return options


@contextmanager
def _default_dtype(dtype: str) -> Iterator[None]:
    """torch's dtype where transformers names none, as transformers 4 for its masks."""
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def _inputs_and_targets(
    model_type: str, ids: np.ndarray, target_ids: np.ndarray | None
) -> tuple[dict[str, Any], Any]:
    """As `npgpt.compare.activations.inputs_and_targets`, for transformers."""
    import torch

    inputs: dict[str, Any] = {"input_ids": torch.tensor(ids)[None]}
    if target_ids is not None:
        targets = torch.tensor(target_ids)
        return inputs | {"labels": targets[None]}, targets
    if model_type == "bert":
        return inputs, torch.tensor(ids)
    inputs |= {"position_ids": torch.arange(len(ids))[None], "use_cache": False}
    return inputs, torch.tensor(next_token_targets(ids))


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
            for part in stack.outputs:
                keep_output(layer.get_submodule(part), f"{stack.layers}.{n}.{part}")
            keep_output(layer, f"{stack.layers}.{n}")
    for name in names.last:
        keep_output(model.base_model.get_submodule(name), name)


def _attention_weights(output: Any, names: Names) -> dict[str, np.ndarray]:
    return {
        f"{stack.layers}.{n}.{station}": _array(probs)
        for stack in names.stacks
        for station, key in stack.weights.items()
        for n, probs in enumerate(output[key])
    }


def _prepare_gradients(model: Any, model_type: str, ids: np.ndarray) -> None:
    """Have transformers differentiate all that npgpt does."""
    if model_type in ("bart", "marian"):
        model.final_logits_bias.requires_grad_(True)  # a buffer there, but a term of the logits
    padding = model.config.pad_token_id
    if model_type == "bert" and padding in ids:
        warnings.warn(
            f"the text has the padding token, id {padding}, whose row of the word table would get "
            "no gradient from the lookup in transformers; here it gets one like all others.",
            UserWarning,
            stacklevel=3,
        )
        model.get_input_embeddings().padding_idx = None


def _gradients(model: Any, names: Names) -> dict[str, np.ndarray]:
    """`grad.NAME` under npgpt's names, a Linear's [out, in] transposed unless it is the head.

    Zeros for what the loss does not depend on.
    """
    import torch

    head, grads = model.get_output_embeddings(), {}
    for name, param in [*model.named_parameters(), *model.named_buffers()]:
        if not param.requires_grad or name.startswith(names.spare):
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        transposed = isinstance(owner, torch.nn.Linear) and owner is not head
        grad = (torch.zeros_like(param) if param.grad is None else param.grad).numpy()
        bare = name.removeprefix(model.base_model_prefix + ".")
        grads[GRAD + bare] = grad.T if transposed else grad
    bias = GRAD + "cls.predictions.decoder.bias"  # an untied BERT's, whose other bias does nothing
    if bias in grads:
        grads[GRAD + "cls.predictions.bias"] = grads.pop(bias)
    return grads


def _array(tensor: Any) -> np.ndarray:
    """A batch of one as an array without the batch axis."""
    array: np.ndarray = tensor.detach()[0].numpy()
    return array
