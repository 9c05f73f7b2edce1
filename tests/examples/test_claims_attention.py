"""The claims of chapter 7's examples can fail: each of these faults is noticed, and by its claim.

FAULTS has for each script: what is replaced, as module.name; a function from the true one to the
wrong one; words of the error. REWRITTEN has a script, a piece of its text, what is put in its
place, and words of the error. The scripts also run whole, in both languages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.cli import width

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = (
    *("ch07_attention_six_steps", "ch07_flash_attention", "ch07_gqa", "ch07_heads"),
    *("ch07_heads_of_a_model", "ch07_heads_switched_off", "ch07_heatmap", "ch07_mask"),
    *("ch07_query_and_key", "ch07_scaling"),
)
Fault = Callable[[Any], Any]  # from what is true to what is wrong


def change(of_result: Callable[[Any], Any], place: int = 0) -> Fault:
    """One result of a function goes through `of_result`."""

    def fault(true: Any) -> Any:
        def wrong(*args: Any, **settings: Any) -> Any:
            results = true(*args, **settings)
            if not isinstance(results, tuple):
                return of_result(results)
            return tuple(of_result(r) if n == place else r for n, r in enumerate(results))

        return wrong

    return fault


def given(of_arguments: Callable[..., Any]) -> Fault:
    """The arguments without a name go through `of_arguments`."""
    return lambda true: lambda *args, **settings: true(*of_arguments(*args), **settings)


def uneven(x: np.ndarray) -> np.ndarray:
    """Later columns are too large, by up to 1 %."""
    return x * np.linspace(1, 1.01, x.shape[-1]).astype(x.dtype)


def positional(S: np.ndarray) -> np.ndarray:
    """Scores that know how far to the left a key is."""
    return S + 0.1 * np.arange(S.shape[-1])


def one_head(true: Any) -> Any:
    return lambda x, *, n_head: true(x, n_head=1)


def copied(true: Any) -> Any:
    """Every head gets the whole vector, not its piece."""
    return lambda x, *, n_head: (np.stack([x] * n_head), None)


def sized(name: str, shape: tuple[int, ...]) -> Fault:
    """A parameter that the model has not, or has in another shape."""
    return change(lambda shapes: {**shapes, name: shape})


EVERYONE = change(np.ones_like)
OPS, LAYERS = "npgpt.ops", "npgpt.layers"
STEPS = (
    *("linear.linear", "scores.scores", "scores.scale", "mask.mask", "softmax.softmax"),
    "weighted_sum.weighted_sum",
)
FAULTS: dict[str, tuple[tuple[str, Fault, str], ...]] = {
    "ch07_attention_six_steps": tuple(
        (f"{OPS}.{step}_{way}", change(uneven), words)
        for step in STEPS
        for way, words in (("forward", "article prints"), ("backward", "central differences"))
    ),
    "ch07_flash_attention": (
        (f"{LAYERS}.attention.attention_forward", change(uneven), "whole table"),
        (
            f"{OPS}.flash_attention.flash_attention_forward",
            change(lambda saved: (*saved[:4], 2 * saved[4], *saved[5:]), 1),
            "log Σ exp",
        ),
        *(
            (f"{LAYERS}.attention.attention_backward", change(uneven, n), f"hold: {name}")
            for n, name in enumerate(("dq", "dk", "dv"))
        ),
    ),
    "ch07_gqa": (
        (
            "npgpt.models.llama.config.param_shapes",
            given(lambda c: [dataclasses.replace(c, num_key_value_heads=32)]),
            "heads of Q for one",
        ),
        (
            "npgpt.models.llama.config.param_shapes",
            sized("layers.0.mlp.up_proj.bias", (14336,)),
            "no bias",
        ),
        (
            "npgpt.decoding.kv_cache._room",
            given(lambda room, dtype: (room, np.dtype(np.float32))),
            "heads kept: 32",
        ),
        (
            f"{LAYERS}.grouped_attention.share_heads_forward",
            change(lambda k: k[..., ::-1, :, :, :]),
            "ordinary attention",
        ),
        (
            f"{LAYERS}.grouped_attention.share_heads_backward",
            lambda true: lambda dy, saved: dy[..., 0, :, :],
            "sum of its copies",
        ),
    ),
    "ch07_heads": (
        (f"{OPS}.heads.split_heads_forward", one_head, "heads: 1 "),
        (f"{OPS}.heads.split_heads_forward", copied, "numbers each: 768"),
        (
            f"{OPS}.heads.split_heads_forward",
            change(lambda heads: heads[::-1]),
            "the 12 pieces of x W_Q",
        ),
        (
            f"{OPS}.linear.linear_forward",
            given(lambda x, W, b: (x * (np.arange(x.shape[-1]) > 0), W, b)),
            "change one number of x",
        ),
        *(
            ("npgpt.models.gpt2.config.param_shapes", sized(name, shape), words)
            for name, shape, words in (
                ("h.0.attn.c_proj.weight", (768, 64), "W_O: d² parameters"),
                ("h.0.attn.c_attn.bias", (768,), "W_Q, W_K, W_V: 768"),
                ("h.0.attn.rotary.weight", (64,), "together"),
            )
        ),
        (f"{OPS}.scores.scores_forward", change(lambda S: S[..., :-1]), "scores, T = 1024"),
        (f"{LAYERS}.self_attention.attend_forward", change(uneven), "W_V W_O folds"),
        (f"{LAYERS}.self_attention.split_heads_forward", one_head, "12 heads it does not"),
        (
            "npgpt.decoding.kv_cache._room",
            given(lambda room, dtype: ((*room[:-1], max(room[-1], 64)), dtype)),
            "hold: heads 1: ",
        ),
    ),
    "ch07_heads_of_a_model": (
        (
            "npgpt.models.gpt2.model.self_attention_backward",
            change(uneven, 1),
            "head 1 a copy of head 0",
        ),
        (
            "npgpt.models.gpt2.model.self_attention_backward",
            change(np.zeros_like, 1),
            "head 2, drawn on its own",
        ),
    ),
    "ch07_heads_switched_off": (
        (
            f"{LAYERS}.self_attention.merge_heads_forward",
            given(lambda heads: [heads[::-1]]),
            "takes away its P V W_O",
        ),
    ),
    "ch07_heatmap": (
        ("npgpt.models.causal.attention_mask_for", EVERYONE, "lower triangular"),
        (
            f"{LAYERS}.attention.softmax_forward",
            change(lambda saved: (uneven(saved[0]), saved[1]), 1),
            "each row sums to 1",
        ),
        (f"{LAYERS}.self_attention.split_heads_forward", one_head, "6 blocks x 4 heads"),
    ),
    "ch07_mask": (
        (f"{OPS}.mask.causal_mask", EVERYONE, "changed: ■ ■ ■"),
        (f"{OPS}.mask.mask_forward", lambda true: lambda x, mask: (x, mask), "■ ■ ■"),
        ("npgpt.models.causal.attention_mask_for", EVERYONE, "logits of one pass"),
        (
            f"{OPS}.cross_entropy.cross_entropy_forward",
            lambda true: lambda x, t: (true(x, t)[0] * t.size, None),
            "the mean of the 10 separate losses",
        ),
        (
            f"{LAYERS}.attention.attention_forward",
            lambda true: lambda *qkv, **settings: true(*qkv, **{**settings, "divisor": 1e9}),
            "copier without mask",
        ),
        (
            f"{LAYERS}.attention.attention_forward",
            lambda true: lambda *qkv, mask, **settings: true(*qkv, mask=mask | True, **settings),
            "copier with the mask: 6 of 6",
        ),
        (f"{OPS}.scores.scores_forward", change(positional), "t2 gets the same"),
        (
            f"{OPS}.position.position_forward",
            lambda true: lambda x, positions, wpe: (x, None),
            "t2 notices",
        ),
        (
            f"{OPS}.scores.scores_forward",
            change(lambda S: positional(S) if len(S) == 6 else S),
            "five tokens in 20 orders",
        ),
    ),
    "ch07_query_and_key": (
        (f"{OPS}.scores.scores_forward", change(positional), "x xᵀ is symmetric"),
        (f"{OPS}.scores.scores_forward", change(np.negative), "itself highest"),
        (f"{OPS}.project.project_forward", change(lambda y: y[::-1]), "S is not"),
    ),
    "ch07_scaling": (
        (f"{OPS}.scores.scores_forward", change(lambda S: 2 * S), "smallest: -8"),
        (f"{OPS}.scores.scores_forward", change(lambda S: np.minimum(S, 3)), "largest"),
        (
            f"{OPS}.scores.scores_forward",
            lambda true: lambda q, k: (np.sqrt(q.shape[-1] / 4) * true(q, k)[0], None),
            "variance 1, 2, 3, 4",
        ),
        (
            f"{OPS}.scores.scores_forward",
            lambda true: lambda q, k: ((1 + (q.shape[-1] > 4) / 40) * true(q, k)[0], None),
            "hold:     64 ",
        ),
        (f"{OPS}.scores.scale_forward", change(lambda S: S / 2), "hold:      4 "),
        (f"{OPS}.softmax.softmax_forward", change(np.sqrt), "p_1: "),
        (f"{OPS}.softmax.softmax_backward", change(lambda dx: 2 * dx), "∂p_1/∂s_1"),
    ),
}
REWRITTEN = (
    ("ch07_attention_six_steps", "p = P[1, 0] * P[1, 1]", "p = P[1, 0]", "t0 has one weight"),
    ("ch07_attention_six_steps", "dmasked[2] < 0", "dmasked[0] < 0", "t2 would look away"),
    ("ch07_flash_attention", "TILE = 16", "TILE = 4096", "2 times as many numbers"),
    (
        "ch07_flash_attention",
        "return log_total.size",
        "return log_total.size**2",
        "2 times as many",
    ),
    (
        "ch07_flash_attention",
        "tracemalloc.stop()\n",
        "tracemalloc.stop()\n    peak = 4.5 * peak\n",
        "one table alone",
    ),
    ("ch07_gqa", "other[:, :D_H] += 1", "other[:, D_H:] += 1", "weight tables that change · · ■ ■"),
    ("ch07_gqa", "saved.probs[1]", "saved.probs[0]", "still look elsewhere"),
    ("ch07_heads", "(W_Q, W_K, W_V), strict", "(W_Q, W_V, W_K), strict", "K of the model"),
    ("ch07_heatmap", "*previous_token_head(tables)[:2]", "0, 0", "looking at all alike"),
    ("ch07_mask", "changed[-1] = (ids[-1] + 1)", "changed[0] = (ids[-1] + 1)", "a different last"),
    ("ch07_heads_switched_off", "silenced[list(off)] = 0", "pass", "takes away its P V W_O"),
    ("ch07_heads_switched_off", "- whole for h", "* 0 for h", "every head changes something"),
    (
        "ch07_heads_switched_off",
        "{n: range(H) for n in range(L)}",
        "{}",
        "all together they cannot",
    ),
    ("ch07_query_and_key", "ask = np.array(", "ask = np.eye(3) + 0 * np.array(", "it finds cat"),
    (
        "ch07_query_and_key",
        "words = np.eye(3)",
        "words = np.array([[3.0, 0, 0], [0, 1, 0], [1, 0, 1]])",
        "finds only",
    ),
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Runs a script, or another text of it, in this process; returns what it prints."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setitem(sys.modules, "torch", None)

    def call(name: str, text: str | None = None, *, lang: str = "en") -> str:
        for each in EXAMPLES.glob("*.py"):  # one that is loaded has the true functions
            monkeypatch.delitem(sys.modules, each.stem, raising=False)
        path = EXAMPLES / f"{name}.py"
        source = path.read_text("utf-8") if text is None else text
        model = ["--model", "weights/tales"] if "open_model" in source else []
        monkeypatch.setattr(sys, "argv", [str(path), *model, "--lang", lang])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            exec(compile(source, path, "exec"), {"__name__": "__main__", "__doc__": ""})
        return printed.getvalue()

    yield call
    for each in EXAMPLES.glob("*.py"):  # and one that was loaded here may have wrong ones
        sys.modules.pop(each.stem, None)


@pytest.mark.parametrize(
    ("name", "target", "fault", "words"),
    [(name, *row) for name, rows in FAULTS.items() for row in rows],
)
def test_a_fault_is_noticed(
    name: str,
    target: str,
    fault: Fault,
    words: str,
    run: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, _, attribute = target.rpartition(".")
    true = getattr(importlib.import_module(module), attribute)
    monkeypatch.setattr(target, fault(true))
    with pytest.raises(AssertionError, match=words):
        run(name)


@pytest.mark.parametrize(("name", "text", "wrong", "words"), REWRITTEN)
def test_a_rewritten_line_is_noticed(
    name: str, text: str, wrong: str, words: str, run: Callable[..., str]
) -> None:
    source = (EXAMPLES / f"{name}.py").read_text("utf-8")
    assert source.count(text) == 1
    with pytest.raises(AssertionError, match=words):
        run(name, source.replace(text, wrong))


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_languages_say_the_same(name: str, run: Callable[..., str]) -> None:
    """As many checks, the same numbers in the tables, and every heading and check translated."""
    english, chinese = (run(name, lang=lang) for lang in ("en", "zh"))
    assert english.count("✓") == chinese.count("✓") > 0
    assert len(re.findall("^──", english, re.M)) == len(re.findall("^──", chinese, re.M))
    assert [line for line in chinese.splitlines() if width(line) > 98] == []
    headings = [line for line in chinese.splitlines() if line.startswith("──")]
    assert [line for line in headings if not re.search("[一-鿿]", line.split("── ")[2])] == []
