"""Attention does not know the order; a table of positions tells it (article 6.1, 6.2 method 1).

The table is GPT-2's way, npgpt's `ops/position.py`. Method 2, rotation, is in ch06_rope.py.
"""

from __future__ import annotations

import numpy as np
from show import check, claim, heading, matrices, refused, same, say
from toy import EVERYTHING, X, six_steps

from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.position import position_forward

heading(
    "6.1",
    say(
        "without mask and position, outputs only move with their tokens",
        "没有 mask 和位置时换序：输出只是跟着换位置",
    ),
)
out = six_steps(EVERYTHING)
order = [2, 0, 1]
swapped = six_steps(EVERYTHING, x=X[order])
matrices((say("in the order t0 t1 t2", "顺序 t0 t1 t2"), out), rows=["t0", "t1", "t2"])
matrices((say("in the order t2 t0 t1", "顺序 t2 t0 t1"), swapped), rows=["t2", "t0", "t1"])
same(out, [[0.92, 0.43, 0.57, 0.08], [0.43, 0.92, 0.08, 0.57], [0.73, 0.73, 0.27, 0.27]])
claim(
    say("each token has the output that it had before", "每个 token 的输出与换序前相同"),
    np.allclose(swapped, out[order]),
)

heading(
    "6.2", say("method one: add a row of a table, by position", "方法一：再查一张表，按位置加一行")
)
vectors = {"猫": (2.0, 0.0), "追": (0.0, 2.0), "狗": (2.0, 1.0)}
table = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
print(
    say(
        "  猫 (2, 0)   追 (0, 2)   狗 (2, 1)      rows 0 to 3: (1, 0) (0, 1) (-1, 0) (0, -1)",
        "  猫 (2, 0)   追 (0, 2)   狗 (2, 1)      位置 0 到 3 的行：(1, 0) (0, 1) (-1, 0) (0, -1)",
    )
)


def placed(words: str, first: int = 0) -> np.ndarray:
    x = np.array([vectors[word] for word in words])
    return position_forward(x, np.arange(first, first + len(words)), table)[0]


for words, first, printed in (
    ("猫追狗", 0, [[3, 0], [0, 3], [1, 1]]),
    ("狗追猫", 0, [[3, 1], [0, 3], [1, 0]]),
    ("猫追狗", 1, [[2, 1], [-1, 2], [2, 0]]),
):
    x = placed(words, first)
    same(x, printed)
    named = zip(words, x.astype(int).tolist(), strict=True)
    texts = [f"{word}@{first + t} ({a}, {b})" for t, (word, (a, b)) in enumerate(named)]
    begins = say(f"from position {first}:", f"从位置 {first} 开始：")
    print(f"  {words} {begins}   {'   '.join(texts)}")
claim(
    say("the same 猫 is another vector at another place", "同一个猫，换个位置就是另一个向量"),
    not np.array_equal(placed("猫追狗")[0], placed("狗追猫")[2]),
)
claim(
    say(
        "absolute: shifted by one, all three vectors are others",
        "记的是绝对位置：整句后移一位，三个向量全变了",
    ),
    (placed("猫追狗") != placed("猫追狗", first=1)).any(axis=1).all(),
)

rows, d = param_shapes(GPT2Config())["wpe.weight"]
check(say("GPT-2's table: rows", "GPT-2 的位置表：行数"), rows, "1024")
check(say("and numbers in a row", "一行几个数"), d, "768")
x, wpe = np.zeros((1, d)), np.zeros((rows, d))
refused(
    say("the 1025th position", "第 1025 个位置"),
    lambda: position_forward(x, np.array([1024]), wpe),
)
