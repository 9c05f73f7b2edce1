"""nanoGPT's GELU in GPT-2's place: 1.4e-2 in the logits, and relative to what (the next article).

nanoGPT has the exact form of GELU, GPT-2 the tanh form. --model gpt2 measures on the real weights.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np
from any_model import open_model, options
from show import claim, heading, say

from npgpt.cli import run
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.softmax import softmax_forward

THERE = 155  # the article's largest logit of GPT-2 small, in size


def logits_with(activation: str, model: GPT2, ids: list[int]) -> np.ndarray:
    """The model's logits with another activation in its FFN, as float64 [T, V]."""
    config = dataclasses.replace(model.config, activation_function=activation)
    return GPT2(config, model.params)(ids).astype(float)


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    ids = tokenizer.encode(args.text)
    logits, exact, relu = (logits_with(act, model, ids) for act in ("gelu_new", "gelu", "relu"))
    apart, scale = np.abs(exact - logits).max(), np.abs(logits).max()
    by_relu = np.abs(relu - logits).max()

    heading(
        say("next", "下一篇"),
        say(f"the exact GELU in GPT-2's place: {name}", f"把 GPT-2 的 GELU 换成精确形式：{name}"),
    )
    print(
        say(
            "  article, nanoGPT against Hugging Face: 1.4e-2 on a scale of 155, relative 8.9e-5\n"
            f"  here: {apart:.1e} on a scale of {scale:.0f}, relative {apart / scale:.1e}",
            "  文中，nanoGPT 对 Hugging Face：最大差 1.4e-2，logits 大到 155，相对 8.9e-5\n"
            f"  这里：最大差 {apart:.1e}，logits 大到 {scale:.0f}，相对 {apart / scale:.1e}",
        )
    )
    claim(
        say(
            f"ReLU in its place changes the logits by {by_relu:.1f}, over 100 times as much",
            f"换成 ReLU，logits 就变了 {by_relu:.1f}，是它的 100 倍以上",
        ),
        0 < 100 * apart < by_relu,
    )

    heading(
        say("next", "下一篇"),
        say(
            f"why so unlike: {scale:.0f} here, 155 there",
            f"为什么差这么多：这里 {scale:.0f}，那里 155",
        ),
    )
    print(
        say(
            "  Softmax does not see what all V logits have in common; training lets it drift.\n"
            "  GPT-2's lie far below 0: after 'One two three four' the best of them is -69.5.\n"
            f"  Here their mean is {logits.mean():.1f}.",
            "  全部 V 个 logits 共有的那部分，softmax 看不见，训练也就不管。\n"
            "  GPT-2 的 logits 整体远低于 0：'One two three four' 之后，最高的才 -69.5。\n"
            f"  这里的平均是 {logits.mean():.1f}。",
        )
    )
    lower = THERE + logits.min()
    probs, of_lower = (softmax_forward(x, axis=-1)[0] for x in (logits, logits - lower))
    claim(
        say(
            f"all logits lower by {lower:.0f}: same probabilities", f"一起减 {lower:.0f}，概率不变"
        ),
        np.allclose(probs, of_lower, rtol=1e-10, atol=0),
    )
    print(
        say(
            f"  but on a scale of {THERE} the same difference is relative {apart / THERE:.1e}:\n"
            f"  compare the differences themselves, 1.4e-2 there and {apart:.1e} here.",
            f"  但 logits 大到 {THERE} 了，同一个差就成了相对 {apart / THERE:.1e}：\n"
            f"  要比的是差本身，那里 1.4e-2，这里 {apart:.1e}。",
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(run("next_gelu.py", main))
