"""What the figures of `benchmark.py` hold for: machine, versions, and the kernels of NumPy's BLAS.

To be imported before NumPy: it unsets what OpenBLAS reads then.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import re
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarking import processors

# What chooses kernels in OpenBLAS's place, and is not right for every version of it.
FORCED = {
    name: os.environ.pop(name)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    if name in os.environ
}


def is_installed(packages: Iterable[str]) -> bool:
    return all(importlib.util.find_spec(name) for name in packages)


def blas() -> str:
    """Name, version and core of NumPy's BLAS, as far as it can be asked."""
    import numpy as np  # not above: `FORCED` is taken away first

    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return "unknown"
    # As the wheels of NumPy name it, and as it is named by those who build it themselves.
    for name in ("scipy_openblas_get_{}64_", "openblas_get_{}"):
        ask = [getattr(library, name.format(what), None) for what in ("config", "corename")]
        if None not in ask:
            for function in ask:
                function.restype = ctypes.c_char_p
            built, core = (function().decode() for function in ask)
            return f"{' '.join(built.split()[:2])}, kernels for {core}"
    return "unknown"


def machine(threads: int, packages: Iterable[str]) -> dict[str, Any]:
    """Processor, system, threads, BLAS, and versions of those of the packages that there are."""
    info = Path("/proc/cpuinfo")
    forced = " ".join(f"{name}={value}" for name, value in FORCED.items())
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.is_file() else None
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{len(processors())} x {model[1] if model else platform.processor()}",
        "threads": threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "BLAS": blas(),
        **{name: version(name) for name in packages if is_installed([name])},
        **({"warning": f"unset {forced}, which slows a current NumPy down"} if FORCED else {}),
    }
