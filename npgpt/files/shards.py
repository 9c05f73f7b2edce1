"""A checkpoint in several safetensors files, found through `model.safetensors.index.json`.

    {"weight_map": {"wte.weight": "model-00001-of-00002.safetensors", ...}}

Files beside the index that it does not name are left out of account.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from npgpt.files.safetensors_file import Entry, read_header
from npgpt.files.strict_json import parse_json


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
                f"{path} is missing, but {index.name} says that it holds {name!r}: download it too."
            )
        if shard not in headers:
            headers[shard] = read_header(path)
        if name not in headers[shard]:
            raise ValueError(f"{path} lacks {name!r}, which {index.name} says that it holds.")
    for shard, header in headers.items():
        if unlisted := [name for name in header if weight_map.get(name) != shard]:
            warnings.warn(
                f"{index.with_name(shard)}: ignored, for {index.name} does not list them there: "
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
            or set(shard) & set("/\\")
        ):
            raise ValueError(
                f"{index}: {name!r} is said to be in {shard!r}, "
                "but must be in a .safetensors file beside the index."
            )
    return weight_map


def shortened(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
