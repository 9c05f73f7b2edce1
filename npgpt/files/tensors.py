"""Which stored tensor is which parameter, as far as that is alike in all architectures."""

from __future__ import annotations

from pathlib import Path

from npgpt.files.safetensors_file import Entry

WRAPPERS = ("module", "_orig_mod")  # of DistributedDataParallel and torch.compile
FLOATS = ("F32", "F16", "BF16", "F64")


def check_entry(name: str, entry: Entry, expected: tuple[int, ...], source: Path) -> None:
    """Raise ValueError unless a stored tensor has the shape expected and holds floats."""
    if entry.shape != expected:
        raise ValueError(
            f"{source}: {name!r} has shape {list(entry.shape)}, "
            f"but by config.json it must have {list(expected)}."
        )
    if entry.dtype not in FLOATS:
        raise ValueError(
            f"{source}: {name!r} is stored as {entry.dtype}, but a weight must be one of "
            f"{', '.join(FLOATS)}; save the checkpoint without quantisation."
        )
