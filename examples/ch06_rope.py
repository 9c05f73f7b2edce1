"""Rotary positions: the score knows how far apart two tokens stand (article 6.2, method 2).

npgpt's `ops/rope.py`, as Llama uses it, first on the article's pair of numbers, 30° a position,
then on the 64 pairs of a real head.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, matrices, same, say

from npgpt.ops.rope import default_frequencies, rope_forward, rotation
from npgpt.ops.scores import scores_forward

heading(
    "6.2",
    say(
        "method two: no table; q and k turn by 30° a position",
        "方法二：不要那张表，q、k 每个位置转 30°",
    ),
)


CAT, DOG = (2, 0), (2, 1)
print(f"  猫 {CAT}   狗 {DOG}")


def turned(vector: tuple[float, ...], position: int, step: float) -> np.ndarray:
    """A vector of the plane where npgpt's RoPE turns it, `step` degrees a position. [1, 2]"""
    cos, sin = rotation(np.array([position]), np.array([math.radians(step)]))
    return rope_forward(np.array([vector], float), cos=cos, sin=sin)[0]


def score(query: int, key: int, step: float = 30) -> float:
    """猫 at position `query` looks at 狗 at position `key`."""
    q, k = turned(CAT, query, step), turned(DOG, key, step)
    return scores_forward(q, k)[0].item()


right, left = score(0, 2), score(2, 0)
check(say("猫 looks at 狗, two to the right", "猫看右边两格的狗"), right, "0.268")
check(say("猫 looks at 狗, two to the left", "猫看左边两格的狗"), left, "3.732")
check(say("without positions", "不加位置"), score(0, 2, step=0), "4")
shifted = [(score(s, s + 2), score(s + 2, s)) for s in (1, 5, 1000)]
claim(
    say(
        "relative: the sentence shifted by 1, 5, 1000, the same scores",
        "记的是相对位置：整句后移 1、5、1000 位，分数不变",
    ),
    np.allclose(shifted, (right, left)),
)


def R(degrees: int) -> np.ndarray:
    """The matrix of a turn: its columns are where (1, 0) and (0, 1) end."""
    return np.vstack([turned((1, 0), degrees, 1), turned((0, 1), degrees, 1)]).T


matrices(("R(20°)ᵀ", R(20).T), ("R(70°)", R(70)), ("R(50°) = R(20°)ᵀ R(70°)", R(50)), digits=3)
same(R(50), [[0.643, -0.766], [0.766, 0.643]], digits=3)
claim(
    say("because R(a)ᵀ R(b) = R(b - a)", "因为 R(a)ᵀ R(b) = R(b - a)"),
    np.allclose(R(20).T @ R(70), R(50)),
)

heading(
    "6.2",
    say(
        "real models: the 128 numbers of a head are 64 pairs, each at its own speed",
        "真实模型：一个头 128 维分成 64 对，各有各的转速",
    ),
)
q_and_k = np.random.default_rng(0).standard_normal((2, 128))
speeds = default_frequencies(128, 10_000.0)  # radians a position: 1 for the first pair


def score_of_pairs(query: int, key: int) -> float:
    cos, sin = rotation(np.array([query, key]), speeds)
    both, _ = rope_forward(q_and_k, cos=cos, sin=sin)
    return scores_forward(both[:1], both[1:])[0].item()


check(say("pairs", "有几对"), len(speeds), "64")
fastest, slowest = np.degrees(speeds[[0, -1]])
print(
    say(
        f"  from {fastest:.1f}° a position, the first pair, to {slowest:.3f}°, the last",
        f"  每个位置转的角度：第一对 {fastest:.1f}°，最后一对 {slowest:.3f}°",
    )
)
same_distance = [score_of_pairs(s, s + 2) for s in (0, 7, 5000)]
claim(
    say("the score depends on the distance only", "分数只和位置差有关"),
    np.allclose(same_distance, same_distance[0]),
)
claim(
    say("and changes with it", "位置差变了，分数也变"),
    not np.isclose(score_of_pairs(0, 3), same_distance[0]),
)
