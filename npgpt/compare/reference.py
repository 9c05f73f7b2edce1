"""The same stations from Hugging Face transformers, with eager attention: the reference.

transformers' own code loads the model's folder, so that loading is compared as well. Needs the
extra `hf`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.compare.activations import GRAD, Stations, next_token_targets
from npgpt.compare.dump import Dump
from npgpt.compare.hf_modules import Names, names_of, one_by_one, watched
from npgpt.files.checkpoint import read_raw_config, shortened
from npgpt.models import auto
from npgpt.models.bert.families import FAMILIES as BERTS
from npgpt.models.llama.families import FAMILIES as LLAMAS

# transformers computes the norms, angles and softmax of Llama's kind, a GPT-Neo's scores and
# softmax, and a marian's sinusoids in float32 whatever the dtype.
IN_FLOAT32 = (*LLAMAS, "gpt_neo", "marian")


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
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'comparing with Hugging Face needs torch and transformers: pip install "npgpt[hf]", or '
            "compare with a file (--against FILE)."
        ) from error

    model_type = auto.model_type(folder)
    names = names_of(model_type, params)
    model = _load(folder, dtype, names)
    with _default_dtype(dtype):
        stations = observed(model, model_type, names, ids, target_ids, gradients=gradients)
    precision = "float32" if model_type in IN_FLOAT32 else dtype
    return Dump(stations, dict.fromkeys(stations, precision))


def observed(
    model: Any,
    model_type: str,
    names: Names,
    ids: np.ndarray,
    target_ids: np.ndarray | None,
    *,
    gradients: bool,
) -> Stations:
    """The stations of one pass of a model of transformers', with eager attention."""
    import torch

    inputs, targets = _inputs_and_targets(model_type, ids, target_ids)
    if gradients:
        _prepare_gradients(model, model_type, ids)
    with watched(model, names) as seen, torch.set_grad_enabled(gradients):
        output = model(**inputs)
    logits = output.get("logits", output.get("prediction_logits"))
    if logits is not None:
        seen.note("logits", logits)
    stations = seen.stations()
    if gradients:
        loss = torch.nn.functional.cross_entropy(logits[0], targets)  # -100 is ignored
        loss.backward()
        stations["loss"] = loss.detach().numpy()
        stations |= seen.gradients() | _gradients(model, names)
    return stations


def check_counterpart(model_type: str) -> None:
    """Raise ValueError for a `model_type` that transformers does not know."""
    if model_type == "transformer":
        raise ValueError(
            "transformers has no counterpart of the paper's own layout (model_type 'transformer'); "
            "compare with a file (--against FILE), or write npgpt's stations to one (--dump FILE)."
        )


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
            **_precision(folder, dtype, names),
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


def _precision(folder: Path, dtype: str, names: Names) -> dict[str, Any]:
    """The options that make all of transformers' pass run in `dtype`."""
    import torch
    import transformers

    is_5 = int(transformers.__version__.split(".")[0]) >= 5
    options = {"dtype" if is_5 else "torch_dtype": getattr(torch, dtype)}
    if is_5 and names.experts is not None:  # its grouped products cannot do float64
        options["experts_implementation"] = "eager"
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
    if model_type in BERTS:
        return inputs, torch.tensor(ids)
    inputs |= {"position_ids": torch.arange(len(ids))[None], "use_cache": False}
    return inputs, torch.tensor(next_token_targets(ids))


def _prepare_gradients(model: Any, model_type: str, ids: np.ndarray) -> None:
    """Have transformers differentiate all that npgpt does."""
    if model_type in ("bart", "marian"):
        model.final_logits_bias.requires_grad_(True)  # a buffer there, but a term of the logits
    padding = model.config.pad_token_id
    if model_type in BERTS and padding in ids:
        warnings.warn(
            f"the text has the padding token, id {padding}, whose row of a table would get no "
            "gradient from the lookup in transformers; here it gets one like all others.",
            UserWarning,
            stacklevel=3,
        )
        for table in model.base_model.embeddings.children():
            table.padding_idx = None  # the word table's; a RoBERTa's positions have one, too


def _gradients(model: Any, names: Names) -> dict[str, np.ndarray]:
    """`grad.NAME` under npgpt's names, a matrix [out, in] transposed unless it is the head.

    Zeros for what the loss does not depend on.
    """
    import torch

    head = model.get_output_embeddings()
    grads: dict[str, np.ndarray] = {}
    for name, param in [*model.named_parameters(), *model.named_buffers()]:
        if not param.requires_grad or name.startswith(names.spare):
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        transposed = isinstance(owner, torch.nn.Linear) and owner is not head
        grad = (torch.zeros_like(param) if param.grad is None else param.grad).numpy()
        bare = name.removeprefix(model.base_model_prefix + ".")
        if transposed or bare.endswith("mlp.gate.weight"):
            grad = grad.T
        named = one_by_one(bare, grad, names.experts) if names.experts else {bare: grad}
        grads |= {GRAD + ours: array for ours, array in named.items()}
    if (family := BERTS.get(model.config.model_type)) is not None:
        # An untied head has a bias of its own, and the other does nothing; a tied table may be
        # listed as the head's.
        alike = {f"{family.decoder}.bias": family.bias}
        if model.config.tie_word_embeddings:
            alike[f"{family.decoder}.weight"] = "embeddings.word_embeddings.weight"
        for theirs, ours in alike.items():
            if GRAD + theirs in grads:
                grads[GRAD + ours] = grads.pop(GRAD + theirs)
    return grads
