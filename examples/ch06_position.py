"""Attention does not know the order; two ways to tell it (article chapter 6).

Method 1, a learned table, is npgpt's `ops/position.py`. Method 2, rotation, is first written with
2 x 2 matrices, then taken from `ops/rope.py`: Llama uses it, GPT-2 does not.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, matrices, refused, same
from toy import EVERYTHING, X, six_steps

from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.linear import linear_forward
from npgpt.ops.position import position_forward
from npgpt.ops.rope import default_frequencies, rope_forward, rotation
from npgpt.ops.scores import scores_forward

heading("6.1", "without mask and position, outputs only move with their tokens")
out = six_steps(EVERYTHING)
order = [2, 0, 1]
swapped = six_steps(EVERYTHING, x=X[order])
matrices(("in the order t0 t1 t2", out), rows=["t0", "t1", "t2"])
matrices(("in the order t2 t0 t1", swapped), rows=["t2", "t0", "t1"])
same(out, [[0.92, 0.43, 0.57, 0.08], [0.43, 0.92, 0.08, 0.57], [0.73, 0.73, 0.27, 0.27]])
claim("each token has the output that it had before", np.allclose(swapped, out[order]))

heading("6.2", "method 1: add a row of a table, by position")
vectors = {"猫": (2.0, 0.0), "追": (0.0, 2.0), "狗": (2.0, 1.0)}
table = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
print("  猫 (2, 0)   追 (0, 2)   狗 (2, 1)      rows 0 to 3: (1, 0) (0, 1) (-1, 0) (0, -1)")


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
    print(f"  {words} from position {first}:   {'   '.join(texts)}")
first, last = placed("猫追狗")[0], placed("狗追猫")[2]
claim("the same 猫 is another vector at another place", not np.array_equal(first, last))

rows, d = param_shapes(GPT2Config())["wpe.weight"]
check("GPT-2's table: rows", rows, "1024")
check("and numbers in a row", d, "768")
x, wpe = np.zeros((1, d)), np.zeros((rows, d))
refused("the 1025th position", lambda: position_forward(x, np.array([1024]), wpe))

heading("6.2", "method 2: rotate q and k by 30° a position; the table is not needed")


def R(degrees: float) -> np.ndarray:
    """The rotation of the plane by an angle."""
    a = math.radians(degrees)
    return np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])


def rotated(vector: tuple[float, ...], degrees: float) -> np.ndarray:
    return linear_forward(np.array([vector]), R(degrees).T, np.zeros(2))[
        0
    ]  # a row, so R from behind


def score(query: int, key: int, step: float = 30) -> float:
    """猫 at position `query` looks at 狗 at position `key`."""
    q, k = rotated(vectors["猫"], step * query), rotated(vectors["狗"], step * key)
    return scores_forward(q, k)[0].item()


right, left = score(0, 2), score(2, 0)
check("猫 looks at 狗, two to the right", right, "0.268")
check("猫 looks at 狗, two to the left", left, "3.732")
check("without positions", score(0, 2, step=0), "4")
shifted = [(score(s, s + 2), score(s + 2, s)) for s in (1, 5, 1000)]
claim("the sentence shifted by 1, 5, 1000: the same scores", np.allclose(shifted, (right, left)))
claim("because R(a)ᵀ R(b) = R(b - a); here a = 20°, b = 70°", np.allclose(R(20).T @ R(70), R(50)))

heading("6.2", "real models: the 128 numbers of a head are 64 pairs, each at its own speed")
q_and_k = np.random.default_rng(0).standard_normal((2, 128))
speeds = default_frequencies(128, 10_000.0)  # radians a position: 1 for the first pair


def score_of_pairs(query: int, key: int) -> float:
    cos, sin = rotation(np.array([query, key]), speeds)
    turned, _ = rope_forward(q_and_k, cos=cos, sin=sin)
    return scores_forward(turned[:1], turned[1:])[0].item()


check("pairs", len(speeds), "64")
same_distance = [score_of_pairs(s, s + 2) for s in (0, 7, 5000)]
claim("the score depends on the distance only", np.allclose(same_distance, same_distance[0]))
claim("and changes with it", not np.isclose(score_of_pairs(0, 3), same_distance[0]))
