"""The part of `benchmark.py` that sets programs against each other, and its table."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking import IDS, MODELS, PROGRAMS, QUICK_WORKS, TINY, WORKS
from benchmarking.machine import is_installed
from npgpt.cli import table
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.config import init_params as gpt2_params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import init_params as llama_params
from npgpt.models.llama.model import Llama

EXAMPLES = str(Path(__file__).parents[1])
# Of the largest logit. Engines that compute in float32 are off by 1e-6, with weights in float16 by
# 3e-4, with the other form of GELU by 2e-4.
TOLERANCE = 1e-5
Row = dict[str, Any]


def run(command: list[str], threads: int, cwd: Path | None = None) -> Any:
    """A program from start to end, with so many threads."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    env = {**os.environ, **dict.fromkeys(counts, str(threads))}
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [EXAMPLES, os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)


def measure(name: str, program: str, folder: str, args: argparse.Namespace) -> Row:
    """What one process says; for the first token, the seconds since its start."""
    slow = program == "picoGPT"
    repeats = 1 if args.quick or slow else args.repeats
    command = [sys.executable, "-m", "benchmarking", name, program, folder, str(repeats)]
    command += [args.picogpt] if slow else []
    start = time.time()
    done = run(command, args.threads)
    if done.returncode:
        raise SystemExit(f"{program} failed at {name}:\n{done.stderr}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return {**found, "seconds": found["seconds"] or [found["done"] - start]}


def check(name: str, program: str, folder: str) -> float:
    """How far logits are from npgpt's, as a share of the largest; SystemExit if that is too far.

    All are counted from the largest of their row, as llama.cpp tells their log-softmax only.
    """
    ours, theirs = (np.load(Path(folder) / f"{who}, {name}.npy") for who in ("npgpt", program))
    if WORKS[name].kind != "train":
        ours, theirs = (a - a.max(axis=-1, keepdims=True) for a in (ours, theirs))
    difference = float(np.abs(ours - theirs).max() / np.abs(ours).max())
    if not difference < TOLERANCE:
        what = "losses" if WORKS[name].kind == "train" else "logits"
        raise SystemExit(
            f"{program} does not compute the same model at {name}: its {what} are off by "
            f"{difference:.1e} of npgpt's largest, where {TOLERANCE:.0e} is allowed."
        )
    return difference


def llm_c(program: str, threads: int) -> list[float]:
    """Seconds of each step that a train_gpt2 prints, the first left out."""
    path = Path(program).resolve()
    done = run([str(path)], threads, path.parent)
    steps = [float(ms) / 1000 for ms in re.findall(r"took ([\d.]+) ms", done.stdout)]
    if len(steps) < 2:
        raise SystemExit(f"{program} printed no steps:\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return steps[1:]


def missing(args: argparse.Namespace) -> list[str]:
    """Programs that cannot take part."""
    absent = [name for name, program in PROGRAMS.items() if not is_installed(program.packages)]
    return absent + ([] if args.picogpt else ["picoGPT"])


def measured(name: str, folder: str, args: argparse.Namespace) -> Row:
    """A row: npgpt and every program that can do the work, by turns."""
    able = [each for each, program in PROGRAMS.items() if re.fullmatch(program.works, name)]
    runs: dict[str, list[Row]] = {each: [] for each in able if each not in missing(args)}
    row: Row = {"work": name, "what": WORKS[name].what}
    for _ in range(1 if args.quick else args.rounds * (2 if name == "first" else 1)):
        for program, results in runs.items():
            if program == "picoGPT" and results:
                continue  # far too slow to be asked twice
            results.append(measure(name, program, folder, args))
            if program not in ("npgpt", "products") and WORKS[name].kind != "first":
                row.setdefault(program, {"difference": check(name, program, folder)})
    seconds = {
        each: [s for run in results for s in run["seconds"]] for each, results in runs.items()
    }
    for exe in args.llm_c:
        if f"train {' '.join(re.findall(r'[0-9]+', Path(exe).name)[-2:])}" == name:
            seconds["llm.c"] = llm_c(exe, args.threads)
    for program, each in seconds.items():
        row[program] = {
            **row.get(program, {}),
            "seconds": (median := statistics.median(each)),
            "tokens_per_second": WORKS[name].tokens / median,
            "least": min(each),
            "most": max(each),
            "measured": len(each),
            "ratio": statistics.median(seconds["npgpt"]) / median,
        }
        peaks = [result["peak"] for result in runs.get(program, [])]
        if peaks and all(peaks):
            row[program]["peak"] = max(peaks)
    return row


def report(row: Row) -> None:
    """A line for each program: median, spread, tokens a second, memory, ratios."""
    work, ours = WORKS[row["work"]], row["npgpt"]
    print(f"  {work.what}")
    for program in [name for name in (*PROGRAMS, "llm.c") if name in row]:
        found = row[program]
        spread = f"({found['least']:.3f} … {found['most']:.3f})"
        line = f"    {program:<12} {found['seconds']:8.3f} s {spread:<18} n={found['measured']:<3}"
        if work.kind != "first":
            line += f" {found['tokens_per_second']:9,.1f} tokens/s"
        memory = row["work"] in ("first", "train 1 1024") and "peak" in found
        line += f" {found['peak'] / 1e6:7,.0f} MB" if memory else ""
        if program != "npgpt":
            line += f"   npgpt takes {found['ratio']:.2f}"
            line += f", of memory {ours['peak'] / found['peak']:.2f}" if memory else ""
        print(line, flush=True)


def ratios(rows: list[Row]) -> str:
    """npgpt's time as a multiple of that of each program, a line for each work."""
    others = [name for name in (*PROGRAMS, "llm.c") if name not in ("npgpt", "products")]
    columns = [name for name in (*others, "products") if any(name in row for row in rows)]
    lines = [["", "npgpt s", *columns]]
    for row in rows:
        cells = [f"{row[name]['ratio']:.2f}" if name in row else "" for name in columns]
        lines.append([row["work"], f"{row['npgpt']['seconds']:.3f}", *cells])
    return table(lines, "l" + "r" * (len(columns) + 1))


def save_model(name: str, folder: Path, quick: bool) -> None:
    """The model with random weights."""
    kind, sizes = MODELS[name]
    sizes = {**(TINY[kind] if quick else sizes), **IDS}
    rng = np.random.default_rng(0)
    if kind == "llama":
        config = LlamaConfig(**sizes)
        Llama(config, llama_params(config, rng)).save_pretrained(folder)
    else:
        small = GPT2Config(**sizes)
        GPT2(small, gpt2_params(small, rng)).save_pretrained(folder)


def speed(args: argparse.Namespace) -> list[Row]:
    """All works, and the table of ratios."""
    if absent := [name for name in missing(args) if name != "picoGPT"]:
        print("  not installed, so left out:", end=" ")
        print(", ".join(f"{name} ({' '.join(PROGRAMS[name].packages)})" for name in absent))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.works or (QUICK_WORKS if args.quick else WORKS):
            place = Path(folder) / WORKS[name].model
            if not place.is_dir():
                save_model(WORKS[name].model, place, args.quick)
            rows.append(measured(name, str(place), args))
            report(rows[-1])
    print("\n  npgpt's time as a multiple of the other's; products: NumPy's alone\n")
    print(textwrap.indent(ratios(rows), "  "))
    return rows
