"""What grows with the text, and how; where the time goes: the parts that look at npgpt alone."""

from __future__ import annotations

import cProfile
import pstats
import re
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking import LEARNING_RATE, TINY
from npgpt.layers.attention import attention_backward, attention_forward
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.flash_attention import flash_attention_backward, flash_attention_forward
from npgpt.ops.mask import causal_mask
from npgpt.train.optim import adamw_step, new_adamw_state

H, D_H = 12, 64
SIZES: dict[str, dict[str, Any]] = {
    "6 x 256": {"n_layer": 6, "n_embd": 256, "n_head": 4},
    "6 x 512": {"n_layer": 6, "n_embd": 512, "n_head": 8},
    "12 x 768": {},
    "24 x 1024": {"n_layer": 24, "n_embd": 1024, "n_head": 16},
}
OPERATION = re.compile(r"_(forward|backward)$|^adamw_step$")
Rows = list[dict[str, Any]]


def peak_of(call: Callable[[], Any]) -> int:
    """Bytes that NumPy holds at the most during the call, beyond what was there before."""
    tracemalloc.start()
    try:
        result = call()
        peak = tracemalloc.get_traced_memory()[1]
        del result
        return peak
    finally:
        tracemalloc.stop()


def attention_memory(lengths: list[int]) -> Rows:
    """Peak of forward and backward for each T, in tiles and in six steps (these up to T 2048)."""
    rows: Rows = []
    print(f"  {'T':>6} {'tiles: forward':>18} {'backward':>10} {'six steps: forward':>20} ", end="")
    print(f"{'backward':>10}")
    for T in lengths:
        tiles = memory_of(flash_attention_forward, flash_attention_backward, T)
        six = memory_of(attention_forward, attention_backward, T) if T <= 2048 else ()
        names = ("tiles forward", "tiles backward", "six steps forward", "six steps backward")
        rows.append({"T": T, **dict(zip(names, (*tiles, *six), strict=False))})
        cells = [f"{n / 1e6:,.1f} MB" for n in (*tiles, *six)] + ["", ""]
        print(f"  {T:6,} {cells[0]:>18} {cells[1]:>10} {cells[2]:>20} {cells[3]:>10}", flush=True)
    return rows


def memory_of(
    forward: Callable[..., tuple[np.ndarray, Any]], backward: Callable[..., Any], T: int
) -> tuple[int, int]:
    """Peaks of the two ways of an attention over T tokens, causal."""
    rng = np.random.default_rng(0)
    q, k, v, dcontext = (rng.standard_normal((H, T, D_H), np.float32) for _ in range(4))
    mask = causal_mask(T, T)
    there = peak_of(lambda: forward(q, k, v, divisor=8.0, mask=mask))
    saved = forward(q, k, v, divisor=8.0, mask=mask)[1]
    return there, peak_of(lambda: backward(dcontext, saved))


def random_model(**sizes: Any) -> GPT2:
    config = GPT2Config(**sizes)
    return GPT2(config, init_params(config, np.random.default_rng(0), np.float32))


def works_of(model: GPT2, B: int, T: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A forward pass over B x T tokens, and a training step."""
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, (B, T + 1))
    state = new_adamw_state(model.params)

    def step() -> None:
        _, grads = model.loss_and_grads(ids[:, :-1], ids[:, 1:])
        adamw_step(model.params, grads, state, step=1, lr=LEARNING_RATE)

    return lambda: model(ids[:, :-1], last_only=True), step


def median_seconds(call: Callable[[], object]) -> float:
    """Of three calls, after one that does not count."""
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def growth(quick: bool) -> Rows:
    """Seconds, and the peak of a step beside parameters and moments, by T, B and size alone."""
    cases = [("T", 1, T, "12 x 768") for T in (64, 128, 256, 512, 1024)]
    cases += [("B", B, 64, "12 x 768") for B in (1, 2, 4, 8)]
    cases += [("model", 1, 256, name) for name in SIZES]
    rows: Rows = []
    print(f"  {'':5} {'model':>10} {'B':>3} {'T':>6} {'forward':>10} {'step':>10} {'its peak':>16}")
    for along, B, T, name in cases[:2] if quick else cases:
        forward, step = works_of(random_model(**(TINY["gpt2"] if quick else SIZES[name])), B, T)
        row = {"forward": median_seconds(forward), "step": median_seconds(step)}
        row["peak"] = peak_of(step)
        rows.append({"along": along, "model": name, "B": B, "T": T, **row})
        print(
            f"  {along:5} {name:>10} {B:3} {T:6,} {row['forward']:8.3f} s {row['step']:8.3f} s "
            f"{row['peak'] / 1e6:13,.0f} MB",
            flush=True,
        )
    return rows


def profile(quick: bool) -> Rows:
    """Where the time goes, by operation and call: a prefill, a training step, 64 tokens decoded."""
    model, T = (random_model(**TINY["gpt2"]), 64) if quick else (random_model(), 1024)
    prefill, step = works_of(model, 1, T)
    works: dict[str, Callable[[], object]] = {
        f"prefill of {T:,} tokens": prefill,
        f"step of {T:,} tokens": step,
        "64 tokens after 1": lambda: list(model.generate([1], 64, stop_ids=())),
    }
    rows: Rows = []
    for work, call in works.items():
        call()
        profiler = cProfile.Profile()
        profiler.runcall(call)
        stats = pstats.Stats(profiler).get_stats_profile()
        named = {
            name: (f.cumtime, int(f.ncalls))
            for name, f in stats.func_profiles.items()
            if OPERATION.search(name) and Path(f.file_name).parent.name in ("ops", "train")
        }
        seconds, calls = (sum(numbers) for numbers in zip(*named.values(), strict=True))
        rows.append({"work": work, "all": stats.total_tt, "calls": calls, "operations": named})
        print(f"  {work}: {stats.total_tt:.3f} s, {calls:,} operations")
        named["around them"] = (stats.total_tt - seconds, 0)
        for name, (seconds, calls) in sorted(named.items(), key=lambda part: -part[1][0]):
            how_often = f"{calls:8,} calls" if calls else ""
            print(f"    {name:<26} {seconds:8.3f} s {seconds / stats.total_tt:7.1%} {how_often}")
    return rows


def picture(rows: Rows, attention: Rows, path: str) -> None:
    """Time by T and by B, memory of a step by T, memory of attention alone."""
    from plots import pyplot

    plt = pyplot()
    figure, ((by_length, by_batch), (of_step, of_attention)) = plt.subplots(
        2, 2, figsize=(11, 8), layout="constrained"
    )
    for panel, along in ((by_length, "T"), (by_batch, "B")):
        chosen = [row for row in rows if row["along"] == along]
        for name in ("forward", "step"):
            lengths = [row[along] for row in chosen]
            panel.plot(lengths, [row[name] for row in chosen], "o-", label=name)
        panel.set(xlabel=along, ylabel="seconds", title=f"time against {along} (GPT-2 small)")
    chosen = [row for row in rows if row["along"] == "T"]
    of_step.plot([r["T"] for r in chosen], [r["peak"] / 1e6 for r in chosen], "o-", label="step")
    of_step.set(xlabel="T", ylabel="MB", title="memory of a step beside parameters and moments")
    for name in ("tiles forward", "tiles backward", "six steps forward", "six steps backward"):
        chosen = [row for row in attention if name in row]
        megabytes = [row[name] / 1e6 for row in chosen]
        of_attention.plot([row["T"] for row in chosen], megabytes, "o-", label=name)
    of_attention.set(xlabel="T", ylabel="MB", title="memory of attention alone")
    of_attention.set(xscale="log", yscale="log")
    lengths = [row["T"] for row in attention]
    of_attention.set_xticks(lengths, [f"{T:,}" for T in lengths])
    of_attention.minorticks_off()
    for panel in figure.axes:
        panel.legend()
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
