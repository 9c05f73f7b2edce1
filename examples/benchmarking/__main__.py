"""One kind of work of `benchmark.py`, done by one program, alone in its process.

    python -m benchmarking WORK PROGRAM FOLDER REPEATS [PICOGPT]

Prints a line of JSON: seconds of each repeat after one that does not count, and the peak of memory.
FOLDER holds the model that all programs load, and gets what they compute of it, to be compared;
PICOGPT is a checkout of picoGPT.

A program is a function of a work and the folder that returns a `Step`.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from pathlib import Path

from benchmarking import CHECKED, PROGRAMS, WORKS, processors, threads


def peak_memory() -> int | None:
    """The most bytes that this process had; None on Windows, where Python cannot tell.

    Linux is asked another way: there the resource would count what the parent had at the start.
    """
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        return 1024 * int(found[1])
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)  # bytes there, kibibytes elsewhere


def main(name: str, program: str, folder: str, repeats: str, *checkout: str) -> None:
    work = WORKS[name]
    if hasattr(os, "sched_setaffinity"):  # for programs with no other setting
        os.sched_setaffinity(0, processors()[: threads()])
    if work.kind != "first":  # there what a program imports counts
        from npgpt.cli import keep_freed_memory

        keep_freed_memory()  # all the same, so that none gains by how memory is handed out
    module, function = PROGRAMS[program].where.split(".")
    new_step = getattr(importlib.import_module(f"benchmarking.{module}"), function)
    step = new_step(work, folder, *checkout)
    computed, seconds = [step(min(work.new, CHECKED), work.kind != "first")], []
    done = time.time()
    if work.kind == "train":  # the loss after an update
        computed.append(step(0, True))
    elif work.new > CHECKED:
        step(work.new, False)
    for _ in range(0 if work.kind == "first" else int(repeats)):
        start = time.perf_counter()
        step(work.new, False)
        seconds.append(time.perf_counter() - start)
    peak = peak_memory()
    if computed[0] is not None:
        import numpy as np

        np.save(Path(folder) / f"{program}, {name}.npy", np.array(computed, np.float64))
    print(json.dumps({"seconds": seconds, "peak": peak, "done": done}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:  # show.py would end it, but its imports would count in "first"
        sys.exit(130)
