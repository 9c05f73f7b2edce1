"""How fast and how large: npgpt against what else is installed, on the same random GPT-2 small.

    python examples/benchmark.py [--quick] [--json FILE] [--llm-c PROGRAM …] [--picogpt FOLDER]

Every program works alone in a new process, npgpt and its peer by turns; the figure is the median.
transformers takes part where it is installed. Of llm.c and picoGPT, name your own: `--llm-c` a
train_gpt2 built for the batch in its name, as `train_gpt2_4x64` or `train_gpt2_1x1024`, which runs
in its folder; `--picogpt` a checkout.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from npgpt.cli import keep_freed_memory  # before NumPy, whose threads npgpt sets up

# isort: split
import numpy as np
from benchmark_growth import attention_memory, growth, picture, profile
from benchmark_work import NEW, PROMPT
from show import heading

from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2

WORKER = Path(__file__).with_name("benchmark_work.py")
# Work -> what is measured, and what peers can do it.
WORKS = {
    "decode": f"decode: {PROMPT} tokens of prompt, {NEW} new",
    "prefill 256": "prefill of 256 tokens",
    "prefill 1024": "prefill of 1,024 tokens",
    "train 4 64": "training step 4 x 64 with AdamW",
    "train 1 1024": "training step 1 x 1,024 with AdamW",
    "first": "process start to first token",
}
PARTS = ["speed", "profile", "memory", "growth"]
QUICK = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 500}


def measure(work: str, program: str, folder: str, repeats: int, *more: str) -> dict[str, Any]:
    """What one process says; for the first token, the seconds since its start."""
    command = [sys.executable, str(WORKER), work, program, folder, str(repeats), *more]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    start = time.time()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} failed at {work}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "seconds": found["seconds"] or [found["done"] - start]}


def llm_c(program: str) -> list[float]:
    """Seconds of each step that a train_gpt2 prints, the first left out."""
    path = Path(program).resolve()
    done = subprocess.run([str(path)], cwd=path.parent, capture_output=True, text=True, check=False)
    steps = [float(ms) / 1000 for ms in re.findall(r"took ([\d.]+) ms", done.stdout)]
    if len(steps) < 2:
        raise SystemExit(f"{program} printed no steps:\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return steps[1:]


def pairs(args: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """A row for each work: npgpt and every peer that can do it, by turns."""
    rows = []
    installed = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    for work, what in WORKS.items():
        programs = ["npgpt", *(["transformers"] if installed else [])]
        if args.picogpt and (work == "decode" or work == "prefill 1024"):
            programs.append("picoGPT")
        runs: dict[str, list[dict[str, Any]]] = {program: [] for program in programs}
        rounds = 1 if args.quick else args.rounds * (2 if work == "first" else 1)
        for _ in range(rounds):
            for program in programs:
                slow = program == "picoGPT"
                if slow and runs[program]:
                    continue  # far too slow to be asked twice
                more = [args.picogpt] if slow else []
                repeats = 1 if args.quick or slow else args.repeats
                runs[program].append(measure(work, program, folder, repeats, *more))
        row: dict[str, Any] = {"work": work, "what": what}
        for program, results in runs.items():
            seconds = [s for result in results for s in result["seconds"]]
            row[program] = {
                "seconds": statistics.median(seconds),
                "least": min(seconds),
                "most": max(seconds),
                "measured": len(seconds),
            }
            if all(result["peak"] for result in results):
                row[program]["peak"] = max(result["peak"] for result in results)
        for exe in args.llm_c:
            if f"train {' '.join(re.findall(r'[0-9]+', Path(exe).name)[-2:])}" == work:
                seconds = llm_c(exe)
                row["llm.c"] = {"seconds": statistics.median(seconds), "measured": len(seconds)}
        rows.append(row)
        report(row)
    return rows


def report(row: dict[str, Any]) -> None:
    """A line for each program: median, spread, ratio."""
    ours = row["npgpt"]
    print(f"  {row['what']}")
    for program in [name for name in row if name not in ("work", "what")]:
        found = row[program]
        spread = f"({found['least']:.3f} … {found['most']:.3f})" if "least" in found else ""
        line = f"    {program:<14} {found['seconds']:9.3f} s {spread:<20} n={found['measured']:<3}"
        if row["work"] == "decode":
            line += f" {NEW / found['seconds']:6.1f} tokens/s"
        if row["work"] in ("first", "train 1 1024") and "peak" in found:
            line += f" {found['peak'] / 1e6:7,.0f} MB"
        if program != "npgpt":
            line += f"   npgpt takes {ours['seconds'] / found['seconds']:.2f} of its time"
            if row["work"] in ("first", "train 1 1024") and "peak" in found:
                line += f", {ours['peak'] / found['peak']:.2f} of its memory"
        print(line, flush=True)


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    names = ("numpy", "torch", "transformers")
    versions = {n: version(n) for n in names if importlib.util.find_spec(n)}
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.is_file() else None
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{cpus} x {model[1] if model else platform.processor()}",
        "system": platform.platform(),
        "python": platform.python_version(),
        **versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a tiny model: only to see that it runs"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes of each program (3)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements in each process (3)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="(all)")
    parser.add_argument("--json", metavar="FILE", help="write everything there as well")
    parser.add_argument("--plot", metavar="FILE", help="draw the growth (extra `plot`)")
    parser.add_argument("--llm-c", nargs="+", default=[], metavar="PROGRAM")
    parser.add_argument("--picogpt", metavar="FOLDER")
    args = parser.parse_args()
    config = GPT2Config(**QUICK) if args.quick else GPT2Config()
    found: dict[str, Any] = {"machine": machine()}
    heading("benchmark", "where and when")
    print("\n".join(f"  {name:<14} {value}" for name, value in found["machine"].items()))
    if "speed" in args.parts:
        heading("speed", f"{config.n_layer} layers of {config.n_embd}, random weights, float32")
        with tempfile.TemporaryDirectory() as folder:
            rng = np.random.default_rng(0)
            GPT2(config, init_params(config, rng, np.float32)).save_pretrained(folder)
            found["pairs"] = pairs(args, folder)
    keep_freed_memory()  # as all commands of npgpt do
    if "profile" in args.parts:
        heading("profile", "where the time goes, by operation")
        found["profile"] = profile(args.quick)
    if "memory" in args.parts:
        heading("memory", "attention alone, 12 heads of 64: beyond its inputs and outputs")
        lengths = [64, 128] if args.quick else [512, 1024, 2048, 4096, 8192]
        found["attention"] = attention_memory(lengths)
    if "growth" in args.parts:
        heading("growth", "a forward pass, and a training step with its optimizer")
        found["growth"] = growth(args.quick)
    if args.plot:
        picture(found.get("growth", []), found.get("attention", []), args.plot)
        print(f"  drawn: {args.plot}")
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
