"""Heads that look into the line before, to where the next character will stand (article 7.1, 7.6).

In a couplet of regulated verse the second line answers the first, place by place: 无边 is answered
by 不尽, 落木 by 长江. The model `poems` was never told so. --model, --text name another one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import labels, open_model, options
from ch07_heatmap import weight_tables
from show import WIDTH, claim, heading, say

from npgpt.cli import run
from npgpt.trace.report import attention_table

POEM = """《登高》杜甫
风急天高猿啸哀，渚清沙白鸟飞回。
无边落木萧萧下，不尽长江滚滚来。
万里悲秋常作客，百年多病独登台。
艰难苦恨繁霜鬓，潦倒新停浊酒杯。
"""


def answers(names: list[str]) -> np.ndarray:
    """[n, 2]: positions i and j, j standing in the line before where i + 1 stands in its own.

    Pairs within a couplet only: its first line ends in a comma, its second in a full stop.
    """
    pairs, first, line = [], [], []
    for position, name in enumerate(names):
        if name == "，":
            first, line = line, []
        elif name == "。":
            if len(first) == len(line):
                pairs += [(i - 1, j) for i, j in zip(line, first, strict=True)]
            first, line = [], []
        elif name == "⏎":
            first, line = [], []
        else:
            line.append(position)
    return np.array(pairs).reshape(-1, 2)


def mean_weights(tables: np.ndarray, pairs: np.ndarray, shift: int = 0) -> np.ndarray:
    """[L, H, T, T] -> [L, H]: each head's mean weight from i to j + shift."""
    return tables[:, :, pairs[:, 0], pairs[:, 1] + shift].mean(axis=-1)


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__, POEM)
    parser.set_defaults(model="weights/poems")
    args = parser.parse_args(argv)
    model, tokenizer, name, trained = open_model(args.model)
    ids = tokenizer.encode(args.text)
    names = labels(tokenizer, ids)
    pairs = answers(names)
    if not len(pairs):
        raise ValueError("--text has no couplet: a line, ，, a line of the same length, 。")
    tables = weight_tables(model.forward(ids).saved)
    weights = mean_weights(tables, pairs)
    H = weights.shape[1]

    heading(
        "7.1",
        say(
            f"{name}: who looks at the place in the line before",
            f"{name}：谁在看上一句的同一个位置",
        ),
    )
    print(
        say(
            "  mean weight on it, on the character before it, and on the one after it",
            "  平均权重：正对的字，它前面的字，它后面的字",
        )
    )
    beside = [mean_weights(tables, pairs, shift) for shift in (-1, 1)]
    order = np.argsort(weights, axis=None)[::-1]
    for n, h in (divmod(int(at), H) for at in order[:5]):
        row = "".join(f"{table[n, h]:8.2f}" for table in (weights, *beside))
        print(f"  block {n} head {h}{row}")
    n, h = divmod(int(order[0]), H)
    if trained:
        claim(
            say(
                f"block {n} head {h} looks there more than to both places beside it",
                f"block {n} 的第 {h} 头看正对的字，多于看它左右两个字",
            ),
            weights[n, h] > sum(table[n, h] for table in beside),
        )
    i, j = pairs[len(pairs) // 2]
    heading(
        "7.6",
        say(
            f"block {n} head {h}: after {names[i]} comes {names[i + 1]}, it looks at {names[j]}",
            f"block {n} 的第 {h} 头：{names[i]} 之后是 {names[i + 1]}，它在看 {names[j]}",
        ),
    )
    print(attention_table(tables[n, h], names, int(i), WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_couplets.py", main))
