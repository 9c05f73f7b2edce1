"""`from_pretrained`: from a model's name to the model, whatever its architecture.

Where it lies is found by `files/hub.py`; each architecture's `checkpoint.py` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import float_type, of_one_save, read_raw_config
from npgpt.files.foreign import check_plain_config
from npgpt.files.gguf_reader import read_gguf_header
from npgpt.files.hub import Files, find_model
from npgpt.models.bert.checkpoint import load_bert
from npgpt.models.bert.families import FAMILIES as BERTS
from npgpt.models.bert.model import BERT
from npgpt.models.generation import read_generation
from npgpt.models.gguf import LLAMAS as GGUF_LLAMAS
from npgpt.models.gguf import load_gguf
from npgpt.models.gpt2.checkpoint import load_checkpoint
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.checkpoint import LAYOUT as NEO_LAYOUT
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.checkpoint import load_llama
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.families import FAMILIES as LLAMAS
from npgpt.models.llama.model import Llama
from npgpt.models.not_here import NOT_HERE
from npgpt.models.settings import find_model_type
from npgpt.models.transformer.checkpoint import load_transformer
from npgpt.models.transformer.model import Transformer

WRITING = ("generate", "evaluate", "compare", "describe", "train", "trace", "explore")
# model_type -> the commands that work on it.
MODEL_TYPES = {
    **dict.fromkeys(("gpt2", *LLAMAS), WRITING),
    **dict.fromkeys(BERTS, ("fill_mask", "compare", "describe")),
    "gpt_neo": WRITING,
    "bart": ("translate", "compare", "describe"),
    "marian": ("translate", "compare", "describe"),
    "transformer": ("translate", "compare", "describe"),
}


def from_pretrained(
    name: str | os.PathLike[str], *, dtype: DTypeLike = np.float32, revision: str | None = None
) -> Any:
    """The model in a folder, in `weights/NAME`, on the hub, or in a `.gguf` file.

    A `GPT2`, `Llama`, `BERT`, a relative of these, or (bart, marian) a `Transformer`, by the
    `model_type` of its config.json or the architecture that the file names. Raises as
    `load_checkpoint`, `npgpt.models.gguf.load_gguf` and `npgpt.files.checkpoint.of_one_save` do.
    """
    dtype = float_type(dtype)  # before a download
    place = find_model(name, revision, check=_check_plain)
    model: GPT2 | Llama | BERT | Transformer
    if place.suffix == ".gguf":
        config, params = load_gguf(place, dtype)
        model = Llama(config, params) if isinstance(config, LlamaConfig) else GPT2(config, params)
    else:
        with of_one_save(place):
            match model_type(place):
                case kind if kind in LLAMAS:
                    model = Llama(*load_llama(place, dtype=dtype))
                case "bart" | "marian" | "transformer":
                    model = Transformer(*load_transformer(place, dtype=dtype))
                case kind if kind in BERTS:
                    model = BERT(*load_bert(place, dtype=dtype))
                case "gpt_neo":
                    model = GPTNeo(
                        *load_checkpoint(place, dtype=dtype, cls=GPTNeoConfig, layout=NEO_LAYOUT)
                    )
                case _:
                    model = GPT2(*load_checkpoint(place, dtype=dtype))
    if place.suffix != ".gguf" and not isinstance(model, BERT):
        searches, raw = isinstance(model, Transformer), model.config.to_dict()
        settings = read_generation(place, raw, model.written_ids, searches=searches)
        if settings is not None:
            model.generation = settings
    model.source = place.absolute()  # whose vocabulary `save_pretrained` takes along
    return model


def find_supported(
    command: str,
    name: str | os.PathLike[str],
    revision: str | None = None,
    files: Sequence[Files] | Callable[[Path], Sequence[Files]] = ("tokenizer", "model"),
) -> Path:
    """The place of a model, see `find_model`, on which a command works.

    Raises ValueError, before anything but config.json is downloaded or read, where the command
    cannot work on it: "trace" on a BERT, for example.
    """
    return find_model(
        name, revision, files=files, check=lambda place: check_supported(command, name, place)
    )


def check_supported(command: str, name: str | os.PathLike[str], place: Path) -> None:
    """ValueError where a command cannot work on a model: by its kind, or for quantised weights."""
    kind = model_type(place)
    working = MODEL_TYPES.get(kind, (command,))  # else loading says what is unknown
    if command not in working:
        raise ValueError(
            f"{os.fspath(name)!r} is a {kind}, on which npgpt.{command} does not work; "
            f"what does: {', '.join(f'npgpt.{each}' for each in working)}."
        )
    if command != "describe":  # which reads no weights
        _check_plain(place)


def _check_plain(place: Path) -> None:
    if place.suffix != ".gguf":
        check_plain_config(read_raw_config(place / "config.json"), place / "config.json")


def model_type(place: Path) -> str:
    """The `model_type` of the model at a place, see `find_model`, without reading its weights.

    Of a `.gguf` its architecture; else as config.json says, which may also be named itself, see
    `find_model_type`. ValueError for an unknown one.
    """
    if place.suffix == ".gguf":
        architecture = str(read_gguf_header(place).settings.get("general.architecture"))
        return GGUF_LLAMAS.get(architecture, architecture)
    path = place / "config.json" if place.suffix != ".json" else place
    kind = find_model_type(read_raw_config(path))
    if kind is None:
        raise ValueError(
            f"{path}: has neither a model_type, nor architectures that name one, nor sizes of a "
            f"GPT-2; set model_type to one of {', '.join(MODEL_TYPES)}."
        )
    if kind not in list(MODEL_TYPES):  # a list takes any JSON value
        what, nearest = NOT_HERE.get(str(kind), ("", ""))
        near = f"; {kind} has {what}; nearest is {nearest}" if nearest else ""
        raise ValueError(
            f"{path}: model_type is {kind!r:.60}, but npgpt knows {', '.join(MODEL_TYPES)}{near}."
        )
    return str(kind)
