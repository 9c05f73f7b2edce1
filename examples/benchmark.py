"""How fast and how large: npgpt against what else is installed, on the same random weights.

    python examples/benchmark.py [--quick] [--works "prefill 256" …] [--threads N] [--json FILE]
                                 [--llm-c PROGRAM …] [--picogpt FOLDER]

Every program works alone in a new process, npgpt and its peers by turns; the figure is the median.
The engines that are installed take part, see docs/performance.md, once they have computed the
logits that npgpt computes. Of llm.c and picoGPT, name your own: `--llm-c` a train_gpt2 built for
the batch in its name, as `train_gpt2_4x64` or `train_gpt2_1x1024`, which runs in its folder;
`--picogpt` a checkout.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarking.machine import machine  # before NumPy

from npgpt.cli import keep_freed_memory  # the same: npgpt sets up NumPy's threads

# isort: split
from benchmarking import PROGRAMS, WORKS, processors
from benchmarking.growth import attention_memory, growth, picture, profile
from benchmarking.speed import Row, speed
from show import heading

PARTS = ["speed", "profile", "memory", "growth"]


def main() -> None:
    cores = len(processors())
    works = f"some of: {'; '.join(WORKS)}"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="tiny models: only to see that it runs"
    )
    parser.add_argument("--works", nargs="+", choices=WORKS, metavar="WORK", help=works)
    parser.add_argument(
        "--threads", type=int, choices=range(1, cores + 1), default=cores, metavar="N",
        help=f"of every program that is compared (all: {cores})",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="processes of each program (3)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements in each process (3)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="(all)")
    parser.add_argument("--json", metavar="FILE", help="write everything there as well")
    parser.add_argument("--plot", metavar="FILE", help="draw the growth (extra `plot`)")
    parser.add_argument("--llm-c", nargs="+", default=[], metavar="PROGRAM")
    parser.add_argument("--picogpt", metavar="FOLDER")
    args = parser.parse_args()
    packages = dict.fromkeys(name for program in PROGRAMS.values() for name in program.packages)
    found: Row = {"machine": machine(args.threads, packages)}
    heading("benchmark", "where and when")
    print("\n".join(f"  {name:<14} {value}" for name, value in found["machine"].items()))
    if "speed" in args.parts:
        heading("speed", "random weights, float32")
        found["pairs"] = speed(args)
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
