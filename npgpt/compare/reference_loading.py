"""A checkpoint loaded by Hugging Face transformers itself, with nothing left to chance.

Attention is eager, because the other ways of it have no weights to show. Needs the extra `hf`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npgpt.compare.reference_names import Names
from npgpt.files.checkpoint import shortened


def load_reference(folder: Path, dtype: str, names: Names) -> Any:
    """A model of this class from the folder, in evaluation mode: no dropout.

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


@contextmanager
def everything_in(dtype: str) -> Iterator[None]:
    """Let torch make in `dtype` what transformers names no dtype for: transformers 4 its masks."""
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
