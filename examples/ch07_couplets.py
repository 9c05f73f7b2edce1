"""Heads that look into the line before, to where the next character will stand (article 7.1, 7.6).

In a couplet of regulated verse the second line answers the first, place by place: 无边 is answered
by 不尽, 落木 by 长江. Nobody told the model so. --model and --text name others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import labels
from ch07_heatmap import weight_tables
from show import WIDTH, arguments, claim, heading, new_parser, say

import npgpt
from npgpt.cli import run
from npgpt.trace.report import attention_table

POEM = """《登高》杜甫
风急天高猿啸哀，渚清沙白鸟飞回。
无边落木萧萧下，不尽长江滚滚来。
万里悲秋常作客，百年多病独登台。
艰难苦恨繁霜鬓，潦倒新停浊酒杯。
"""


def answers(names: list[str]) -> np.ndarray:
    """[n, 2]: positions i and j, where j stands in the first line of a couplet as i + 1 will stand
    in the second.

    A couplet is a line, ，, a line of the same length, 。.
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


def strongest(tables: np.ndarray, pairs: np.ndarray) -> list[tuple[int, int]]:
    """(block, head) of the heads that look there, the strongest first."""
    weights = mean_weights(tables, pairs)
    order = np.argsort(-weights, axis=None)
    return [divmod(int(at), weights.shape[1]) for at in order]


def main(argv: Sequence[str]) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--model", default="weights/poems", help="a GPT-2 that knows couplets")
    parser.add_argument("--text", default=POEM, help="a poem; default: 《登高》")
    args = parser.parse_args(argv)
    model, tokenizer = npgpt.from_pretrained(args.model), npgpt.load_tokenizer(args.model)
    ids = tokenizer.encode(args.text)
    names = labels(tokenizer, ids)
    pairs = answers(names)
    if not len(pairs):
        raise ValueError("--text has no couplet: a line, ，, a line of the same length, 。")
    tables = weight_tables(model.forward(ids).saved)
    order = strongest(tables, pairs)

    heading(
        "7.1", say("who looks at the same place in the line before", "谁在看上一句的同一个位置")
    )
    print(
        say(
            "  mean weight:     on it  before  behind", "  平均权重：        正对    前一字  后一字"
        )
    )
    three = [mean_weights(tables, pairs, shift) for shift in (0, -1, 1)]
    for n, h in order[:5]:
        row = "".join(f"{table[n, h]:8.2f}" for table in three)
        print(f"  block {n} head {h} {row}")
    n, h = order[0]
    there, *beside = (table[n, h] for table in three)
    claim(
        say(
            f"block {n} head {h} looks there more than at both places beside it",
            f"第 {n} 层第 {h} 头看正对的字，多于它左右两个字之和",
        ),
        there > sum(beside),
    )
    i, j = pairs[len(pairs) // 2]
    heading(
        "7.6",
        say(
            f"block {n} head {h} at {names[i]}: next is {names[i + 1]}, and it looks at {names[j]}",
            f"第 {n} 层第 {h} 头读到 {names[i]}：下一个是 {names[i + 1]}，它在看 {names[j]}",
        ),
    )
    print(attention_table(tables[n, h], names, int(i), WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_couplets.py", main, arguments))
