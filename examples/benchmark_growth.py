"""What grows with the text, and how: the part of `benchmark.py` that looks at npgpt alone."""

from __future__ import annotations

import cProfile
import pstats
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from npgpt.layers.attention import attention_backward, attention_forward
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.flash_attention import flash_attention_backward, flash_attention_forward
from npgpt.ops.mask import causal_mask
from npgpt.train.optim import adamw_step, new_adamw_state

H, D_H = 12, 64
SMALL: dict[str, Any] = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 500}
OPERATIONS = {
    *(f"{name}_{way}" for way in ("forward", "backward") for name in (
        "linear", "flash_attention", "gelu_tanh", "layer_norm", "lm_head", "lookup"
    )),
    "lm_head_loss_forward", "adamw_step",
}  # fmt: skip
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


def growth(quick: bool) -> Rows:
    """Seconds and peak memory against T, B and the size of the model, each alone."""
    sizes: dict[str, dict[str, Any]] = {
        "6 x 256": {"n_layer": 6, "n_embd": 256, "n_head": 4},
        "6 x 512": {"n_layer": 6, "n_embd": 512, "n_head": 8},
        "12 x 768": {},
        "24 x 1024": {"n_layer": 24, "n_embd": 1024, "n_head": 16},
    }
    cases = [("T", 1, T, "12 x 768") for T in (64, 128, 256, 512, 1024)]
    cases += [("B", B, 64, "12 x 768") for B in (1, 2, 4, 8)]
    cases += [("model", 1, 256, name) for name in sizes]
    rows: Rows = []
    print(f"  {'':5} {'model':>10} {'B':>3} {'T':>6} {'forward':>10} {'step':>10} {'its peak':>16}")
    for along, B, T, name in cases[:2] if quick else cases:
        model = random_model(**(SMALL if quick else sizes[name]))
        rows.append({"along": along, "model": name, "B": B, "T": T, **cost(model, B, T)})
        row = rows[-1]
        print(
            f"  {along:5} {name:>10} {B:3} {T:6,} {row['forward']:8.3f} s {row['step']:8.3f} s "
            f"{row['peak'] / 1e6:13,.0f} MB",
            flush=True,
        )
    return rows


def random_model(**sizes: Any) -> GPT2:
    config = GPT2Config(**sizes)
    return GPT2(config, init_params(config, np.random.default_rng(0), np.float32))


def cost(model: GPT2, B: int, T: int) -> dict[str, float]:
    """Median seconds of three, and the peak of a step beside parameters and both moments."""
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, (B, T + 1))
    state = new_adamw_state(model.params)

    def step() -> None:
        _, grads = model.loss_and_grads(ids[:, :-1], ids[:, 1:])
        adamw_step(model.params, grads, state, step=1, lr=1e-4)

    def median(call: Callable[[], object]) -> float:
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds[1:])

    forward = median(lambda: model(ids[:, :-1], last_only=True))
    return {"forward": forward, "step": median(step), "peak": peak_of(step)}


def profile(quick: bool) -> Rows:
    """Where the time goes, by operation: a prefill, a training step, 64 tokens decoded."""
    model, T = (random_model(**SMALL), 64) if quick else (random_model(), 1024)
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, (1, T + 1))
    state = new_adamw_state(model.params)

    def step() -> None:
        _, grads = model.loss_and_grads(ids[:, :-1], ids[:, 1:])
        adamw_step(model.params, grads, state, step=1, lr=1e-4)

    rows: Rows = []
    works: list[tuple[str, Callable[[], object]]] = [
        (f"prefill of {T:,} tokens", lambda: model(ids[:, :-1], last_only=True)),
        (f"step of {T:,} tokens", step),
        ("64 tokens after 1", lambda: list(model.generate(ids[0, :1], 64, stop_ids=()))),
    ]
    for work, call in works:
        call()
        profiler = cProfile.Profile()
        profiler.runcall(call)
        stats = pstats.Stats(profiler).get_stats_profile()
        named = {name: f.cumtime for name, f in stats.func_profiles.items() if name in OPERATIONS}
        row = {"work": work, "all": stats.total_tt, **named}
        rows.append(row)
        parts = sorted(named.items(), key=lambda part: -part[1])
        print(f"  {work}: {stats.total_tt:.3f} s")
        for name, seconds in parts:
            print(f"    {name:<26} {seconds:8.3f} s {seconds / stats.total_tt:7.1%}")
    return rows


def picture(rows: Rows, attention: Rows, path: str) -> None:
    """Four panels: time and memory against T, time against B and model, memory of attention."""
    from plots import pyplot

    plt = pyplot()
    figure, panels = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    along_t = [row for row in rows if row["along"] == "T"]
    for panel, along, axis in ((panels[0, 0], "T", "T"), (panels[0, 1], "B", "B")):
        chosen = [row for row in rows if row["along"] == along]
        for name in ("forward", "step"):
            panel.plot(
                [row[axis] for row in chosen], [row[name] for row in chosen], "o-", label=name
            )
        panel.set(xlabel=along, ylabel="seconds", title=f"time against {along} (GPT-2 small)")
    panels[1, 0].plot(
        [r["T"] for r in along_t], [r["peak"] / 1e6 for r in along_t], "o-", label="step"
    )
    panels[1, 0].set(
        xlabel="T", ylabel="MB", title="memory of a step beside parameters and moments"
    )
    for name in ("tiles forward", "tiles backward", "six steps forward", "six steps backward"):
        chosen = [row for row in attention if name in row]
        panels[1, 1].plot(
            [r["T"] for r in chosen], [r[name] / 1e6 for r in chosen], "o-", label=name
        )
    panels[1, 1].set(xlabel="T", ylabel="MB", title="memory of attention alone")
    panels[1, 1].set(xscale="log", yscale="log")
    lengths = [row["T"] for row in attention]
    panels[1, 1].set_xticks(lengths, [f"{T:,}" for T in lengths])
    panels[1, 1].minorticks_off()
    for panel in panels.flat:
        panel.legend()
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
