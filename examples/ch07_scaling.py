"""Why the scores are divided by √d (article 7.4).

Every case of d = 4 terms of ±1, then random vectors, then what a softmax makes of scores that are
too far apart. The article's standard deviations come from one random sample, ours from another;
both scatter around √d by the standard error that is printed.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from show import check, claim, heading, say

from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward

heading("7.4", say("d = 4 terms of ±1: every case", "d = 4，四项各为 ±1：所有情形"))
signs = np.array([*itertools.product([1.0, -1.0], repeat=4)])  # [16, 4]
S, _ = scores_forward(signs, signs)  # each q with each k: all 256 pairs
sums, cases = np.unique(S, return_counts=True)
print(f"  q · k     {''.join(f'{value:6.0f}' for value in sums)}")
print(f"  {say('cases', '情形')}      {''.join(f'{count:6}' for count in cases)}")
check(say("smallest", "最小"), S.min(), "-4")
check(say("largest", "最大"), S.max(), "4")
check(say("standard deviation: √4", "标准差：√4"), S.std(), "2.00")
variances = [scores_forward(signs[:, :n], signs[:, :n])[0].var() for n in (1, 2, 3, 4)]
claim(
    say(
        "1, 2, 3, 4 terms: variance 1, 2, 3, 4; it adds up",
        "1、2、3、4 项：方差 1、2、3、4，可以相加",
    ),
    variances == [1, 2, 3, 4],
)

heading("7.4", say("standard deviation of q · k, drawn at random", "随机的 q 与 k：q · k 的标准差"))
PAIRS, CHUNK = 40_000, 5_000
rng = np.random.default_rng(0)
print(
    say(
        "       d       √d   ± error   measured   article   after / √d",
        "       d       √d    ± 误差       实测      文章    除以 √d 后",
    )
)
for d, article in ((4, 1.99), (64, 8.01), (128, 11.33), (1024, 32.01)):
    root = math.sqrt(d)
    scores = []
    for _ in range(PAIRS // CHUNK):
        q, k = rng.standard_normal((2, CHUNK, 1, d), np.float32)
        scores.append(scores_forward(q, k)[0])
    measured = float(np.std(scores))
    scaled = float(np.std(scale_forward(np.array(scores), divisor=root)[0]))
    error = root * math.sqrt((2 + 6 / d) / PAIRS) / 2  # the products have heavier tails at small d
    close = max(abs(measured - root), abs(article - root)) < 4 * error
    claim(
        f"{d:6} {root:8.2f} {error:9.2f} {measured:10.2f} {article:9.2f} {scaled:12.2f}",
        close and round(scaled, 2) == 1.00,
    )

heading(
    "7.4",
    say(
        "undivided, the softmax saturates: d = 128, two scores 10 apart",
        "不除，softmax 就饱和：d = 128，两个分数相差 10",
    ),
)
apart = np.array([[10.0, 0.0]])
divided_by_root, _ = scale_forward(apart, divisor=math.sqrt(128))
check("10 / √128", divided_by_root[0, 0], "0.88")
for title, scores, p_1, p_2, slope in (
    ("softmax([10, 0])", apart, "0.99995", "0.00005", "0.00005"),
    ("softmax([0.88, 0])", divided_by_root, "0.71", "0.29", "0.21"),
):
    probs, saved = softmax_forward(scores, axis=-1)
    gradient = softmax_backward(np.array([[1.0, 0.0]]), saved)[0, 0]  # of p_1 with respect to s_1
    nudge = np.array([[1e-5, 0]])
    up, down = (softmax_forward(scores + step, axis=-1)[0][0, 0] for step in (nudge, -nudge))
    print(f"  {title}")
    check("    p_1", probs[0, 0], p_1)
    check("    p_2", probs[0, 1], p_2)
    check("    ∂p_1/∂s_1 = p_1 (1 - p_1)", gradient, slope)
    claim(
        say("    p_1 (1 - p_1), and central differences", "    p_1 (1 - p_1) 与中心差分也都是它"),
        np.allclose([probs[0, 0] * probs[0, 1], (up - down) / 2e-5], gradient, rtol=1e-5),
    )
