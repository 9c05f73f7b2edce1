"""Why the scores are divided by √d (article 7.4).

The article's standard deviations come from one random sample, ours from another; both scatter
around √d by the standard error that is printed.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading

from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward

heading("7.4", "standard deviation of q · k for random q and k: a sum of d products is √d wide")
PAIRS, CHUNK = 40_000, 5_000
rng = np.random.default_rng(0)
MEASURED: dict[int, tuple[float, float]] = {}  # d -> standard deviation before and after
print(f"  {'d':>6} {'√d':>8} {'± error':>9} {'measured':>10} {'article':>9} {'after / √d':>12}")
for d, article in ((4, 1.99), (64, 8.01), (128, 11.33), (1024, 32.01)):
    root = math.sqrt(d)
    scores = []
    for _ in range(PAIRS // CHUNK):
        q, k = rng.standard_normal((2, CHUNK, 1, d), np.float32)
        scores.append(scores_forward(q, k)[0])
    measured = float(np.std(scores))
    scaled = float(np.std(scale_forward(np.array(scores), divisor=root)[0]))
    MEASURED[d] = measured, scaled
    error = root * math.sqrt((2 + 6 / d) / PAIRS) / 2  # the products have heavier tails at small d
    print(f"  {d:6} {root:8.2f} {error:9.2f} {measured:10.2f} {article:9.2f} {scaled:12.2f}")
    if not max(abs(measured - root), abs(article - root)) < 4 * error or round(scaled, 2) != 1.00:
        raise AssertionError(
            f"d = {d}: {measured} or {article} is not √d within the error of a sample"
        )

heading("7.4", "undivided, the softmax saturates: d = 128, two scores 10 apart")
for title, scores, printed, slope in (
    ("softmax([10, 0])", np.array([[10.0, 0.0]]), ("0.99995", "0.00005"), "0.00005"),
    (
        "softmax([10, 0] / √128)",
        scale_forward(np.array([[10.0, 0.0]]), divisor=math.sqrt(128))[0],
        ("0.71", "0.29"),
        "0.21",
    ),
):
    probs, saved = softmax_forward(scores, axis=-1)
    gradient = softmax_backward(np.array([[1.0, 0.0]]), saved)[0, 0]  # of p_1 with respect to s_1
    print(f"  {title}")
    check("    scores", scores[0, 0], "10" if slope == "0.00005" else "0.88")
    check("    p_1", probs[0, 0], printed[0])
    check("    p_2", probs[0, 1], printed[1])
    check("    ∂p_1/∂s_1 = p_1 (1 - p_1)", gradient, slope)
    claim("    softmax_backward gives just that", np.isclose(gradient, probs[0, 0] * probs[0, 1]))
