"""The files of a checkpoint, whatever the architecture: config.json, and tensors by name.

Tensors are in one safetensors file, or in several that `model.safetensors.index.json` lists:

    {"weight_map": {"wte.weight": "model-00001-of-00002.safetensors", ...}}

Which tensor is which parameter, each architecture's own `checkpoint.py` knows. A save leaves the
same mark in config.json and in the weights, so that those of two saves are told apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.foreign import INDEX, WEIGHTS, other_weights
from npgpt.files.io import parse_json, replacing
from npgpt.files.safetensors_file import Entry, read_header, read_metadata, write_in_place

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",  # BERT's word pieces
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
)
VOCABULARY = (  # whatever a vocabulary may consist of
    *TOKENIZER_FILES,
    "source.spm",  # this and the two below: Marian's
    "target.spm",
    "target_vocab.json",
    "tokenizer.model",  # SentencePiece, of the first Llamas
    "tekken.json",  # Mistral's own
    "chat_template.jinja",
)
COMPANIONS = (*VOCABULARY, GENERATION_CONFIG)  # beside configuration and weights
TRAINING_FILES = ("state.safetensors", "log.csv")  # of a run of npgpt.train
LONGEST_NAME = 200  # characters of a file's name; systems take 255 bytes
MARK = "npgpt_save"  # key of the mark, in config.json and in the metadata of the weights


def read_raw_config(path: Path) -> dict[str, Any]:
    """The object in a `config.json`, unchecked, without the mark of the save."""
    if not path.is_file():
        hint = other_weights(path.parent) or "a model's folder has it beside the weights"
        raise FileNotFoundError(f"{path} is missing; {hint}.")
    raw = parse_json(path.read_bytes(), str(path))
    if not isinstance(raw, dict):
        raise ValueError(f"{path} is not a JSON object.")
    raw.pop(MARK, None)
    return raw


def float_type(dtype: DTypeLike) -> np.dtype:
    """float32 or float64, however it is called; else ValueError."""
    for choice in (np.dtype(np.float32), np.dtype(np.float64)):
        if dtype is not None and dtype in (choice, choice.type, choice.name):
            return choice
    raise ValueError(f"dtype {dtype!r} is not offered; choose float32 or float64.")


def stored_tensors(folder: Path) -> tuple[Path, dict[str, Entry]]:
    """The file with a folder's weights, or its index, and where each tensor is."""
    single, index = folder / WEIGHTS, folder / INDEX
    if single.is_file():
        return single, read_header(single)
    if index.is_file():
        return index, read_sharded_header(index)
    others = other_weights(folder)
    hint = f"; {others}" if others else ""
    raise FileNotFoundError(f"{folder} has neither {single.name} nor {index.name}{hint}.")


def read_sharded_header(index: Path) -> dict[str, Entry]:
    """Name -> place of every tensor that the index names.

    Raises FileNotFoundError for a missing shard, ValueError for an index or a shard that is wrong.
    """
    weight_map = read_index(index)
    headers: dict[str, dict[str, Entry]] = {}
    for name, shard in weight_map.items():
        path = index.with_name(shard)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing, but {index.name} says that it holds {name!r:.80}: "
                "download it too."
            )
        if shard not in headers:
            headers[shard] = read_header(path)
        if name not in headers[shard]:
            raise ValueError(f"{path} lacks {name!r:.80}, which {index.name} says that it holds.")
    for shard, header in headers.items():
        if unlisted := [name for name in header if weight_map.get(name) != shard]:
            warnings.warn(
                f"{index.with_name(shard)}: ignored, since {index.name} does not list them there: "
                f"{shortened(unlisted)}.",
                UserWarning,
                stacklevel=5,
            )
    return {name: headers[shard][name] for name, shard in weight_map.items()}


def read_index(index: Path) -> dict[str, str]:
    """Tensor name -> shard file name, as `model.safetensors.index.json` says; else ValueError."""
    table = parse_json(index.read_bytes(), str(index))
    weight_map = table.get("weight_map") if isinstance(table, dict) else None
    if not isinstance(weight_map, dict):
        raise ValueError(f"{index}: has no 'weight_map' from tensor names to files.")
    for name, shard in weight_map.items():
        # A shard is a file beside the index: nothing that leads elsewhere, and never a pickle.
        if (
            not isinstance(shard, str)
            or not shard.endswith(".safetensors")
            or set(shard) & set("/\\:")  # C:x is in another folder, on Windows
            or not shard.isprintable()
            or len(shard) > LONGEST_NAME
        ):
            raise ValueError(
                f"{index}: {name!r:.80} is said to be in {shard!r:.80}, "
                "but must be in a .safetensors file beside the index."
            )
    return weight_map


def write_checkpoint(
    folder: str | os.PathLike[str],
    raw: dict[str, Any],
    tensors: Mapping[str, np.ndarray],
    beside: Mapping[str, bytes] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a model's folder: config.json, the weights, and what lies beside them.

    All files are first written beside and then renamed, the weights first and config.json last, so
    that a full disk or a kill leaves what was there. Only a death between the renames leaves files
    of two saves, which `of_one_save` refuses.

    Args:
        raw: the content of config.json; names the `dtype`.
        tensors: name -> array, as stored.
        beside: see `npgpt.files.hub.companions`; companions that it lacks are removed. None: those
            that are there stay.
        overwrite: replace a training run and another model's vocabulary too.

    Raises ValueError, before anything is written, for a folder that holds one of these; OSError
    where the folder cannot be written.
    """
    folder = Path(folder)
    if "torch_dtype" in raw:  # what transformers 4 called it
        raw["torch_dtype"] = raw["dtype"]
    before = _stored_config(folder)
    there = {name: (folder / name).read_bytes() for name in COMPANIONS if (folder / name).is_file()}
    mark = _new_mark(raw, beside, before)
    if not overwrite:
        own = beside is None and (before is None or before.get(MARK) == mark)
        _check_replaceable(folder, {} if own else there, beside or {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{folder} cannot be made a folder ({error.strerror}).") from error
    changed = {name: data for name, data in (beside or {}).items() if there.get(name) != data}
    gone = [folder / name for name in there if beside is not None and name not in beside]
    paths = [folder / name for name in (WEIGHTS, *changed, CONFIG)]
    with replacing(*paths, gone=gone) as (weights, *others, config):
        write_in_place(weights, tensors, {"format": "pt", MARK: mark})
        for path, data in zip(others, changed.values(), strict=True):
            path.write_bytes(data)
        config.write_text(json.dumps({**raw, MARK: mark}, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def of_one_save(folder: Path) -> Iterator[None]:
    """Let the block read a model's folder, whose files must be those of one save.

    Raises ValueError, one sentence, if config.json and the weights bear the marks of two saves, as
    after a death between the renames of `write_checkpoint`, or if they were replaced meanwhile. A
    mark in config.json alone is sound: transformers keeps it when it writes new weights.
    """
    versions = _versions(folder)  # first, so that the marks are of these
    config, mark = _stored_config(folder), None
    with contextlib.suppress(OSError, ValueError):  # whoever reads the weights says what is wrong
        mark = read_metadata(folder / WEIGHTS).get(MARK)
    if config is not None and mark not in (None, config.get(MARK)):
        raise ValueError(
            f"{folder}: {WEIGHTS} comes from another save than {CONFIG}, one that broke off or is "
            f"still going on: save the model again, or, if {CONFIG} is right, set {MARK!r} in it "
            f"to {mark!r}."
        )
    try:
        yield
    finally:
        if _versions(folder) != versions:
            raise ValueError(f"{folder} was saved again while it was read: load it once more.")


def _stored_config(folder: Path) -> dict[str, Any] | None:
    """The object in config.json with the mark, None where there is none; damage is no matter."""
    with contextlib.suppress(OSError, ValueError):
        raw = parse_json((folder / CONFIG).read_bytes(), CONFIG)
        return raw if isinstance(raw, dict) else None
    return None


def _versions(folder: Path) -> list[tuple[int, ...] | None]:
    """What changes when one of the files is replaced."""
    paths = [folder / name for name in (CONFIG, WEIGHTS, INDEX)]
    found = [path.stat() if path.is_file() else None for path in paths]
    return [s and (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in found]


def _new_mark(
    raw: dict[str, Any], beside: Mapping[str, bytes] | None, before: dict[str, Any] | None
) -> str:
    """A digest of what is saved, so that saving the same model again gives the same bytes.

    `before`: what config.json says now. If it has this mark, but was edited since, the mark is
    another one: the two have to be told apart.
    """
    text = json.dumps(raw, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for name, data in (beside or {}).items():
        digest.update(f"\n{name} {len(data)}\n".encode())
        digest.update(data)
    mark = digest.hexdigest()[:16]
    if before and before.get(MARK) == mark:
        edited = json.dumps({k: v for k, v in before.items() if k != MARK}, sort_keys=True)
        return mark if edited == text else hashlib.sha256(edited.encode()).hexdigest()[:16]
    return mark


def _check_replaceable(
    folder: Path, there: Mapping[str, bytes], beside: Mapping[str, bytes]
) -> None:
    """Raise ValueError if a save would replace a training run or another model's vocabulary."""
    way_out = "choose another folder, or pass overwrite=True"
    if run := [name for name in TRAINING_FILES if (folder / name).exists()]:
        raise ValueError(f"{folder} holds a training run ({run[0]}): {way_out}.")
    if others := [name for name in VOCABULARY if name in there and beside.get(name) != there[name]]:
        raise ValueError(f"{folder} holds another vocabulary ({others[0]}): {way_out}.")


def check_names(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the parameters are the ones that the configuration wants."""
    if differing := sorted(shapes.keys() ^ params.keys()):
        raise ValueError(
            f"Not saved: parameters and configuration disagree about {shortened(differing)}."
        )


def check_saved(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The one dtype of all parameters; ValueError unless they are those of the configuration."""
    check_names(params, shapes)
    for name, shape in shapes.items():
        if params[name].shape != shape:
            raise ValueError(
                f"Not saved: {name!r} has shape {list(params[name].shape)}, "
                f"but by the configuration it must have {list(shape)}."
            )
    dtypes = sorted({array.dtype.name for array in params.values()})
    if dtypes not in (["float16"], ["float32"], ["float64"]):
        raise ValueError(
            f"Not saved: parameters are {', '.join(dtypes)}, "
            "not all float32, float64, or float16 to halve the file."
        )
    return dtypes[0]


def shortened(names: Iterable[str], most: int = 5) -> str:
    """The first few names, on one line, and how many more there are."""
    names = [name if name and name.isprintable() else repr(name) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"{name:.80}" for name in names[:most]) + more
