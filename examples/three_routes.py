"""Three routes side by side on one sentence: what each may see, what it is asked (chapters 3, 4).

One attention layer serves all three (one_layer.py). What changes is the mask, whose keys and values
are looked at, and the targets. The weights are random: the losses show where a route learns, not
how well.
"""

from __future__ import annotations

import math

import numpy as np
from one_layer import EVERYTHING, embed, losses, one_text, reached, two_texts
from show import claim, heading, moved, table

from npgpt.cli import left
from npgpt.ops.mask import causal_mask

CAUSAL = causal_mask(6, 6)
SENTENCE, HIDDEN, MASKED = "the cat sat on the mat", "the cat [MASK] on the mat", "· · sat · · ·"
SHIFTED, UNASKED = "<s> the cat sat on the", "· · · · · ·"
CHINESE, NEXT = "<s> 猫 坐 在 垫子 上", "猫 坐 在 垫子 上 </s>"


def panel(
    title: str, text: str, masks: dict[str, np.ndarray], x: np.ndarray, asked: str
) -> list[str]:
    """A line for each position: the word read, what it sees, the word asked for, its loss."""
    found = iter(losses(x, asked))
    loss = ["" if word == "·" else f"{next(found):.2f}" for word in asked.split()]
    columns = [["reads", *text.split()]]
    columns += [[head, *table(mask)] for head, mask in masks.items()]
    if any(loss):
        columns += [["asked", *asked.split()], ["loss", *loss]]
    widths = [8, *[14] * len(masks), 8, 5]
    cells = [[left(cell, n) for cell in column] for column, n in zip(columns, widths, strict=False)]
    return [title, *("".join(line) for line in zip(*cells, strict=True))]


def side_by_side(*panels: list[str]) -> None:
    """Panels of the same height beside each other."""
    for lines in zip(*panels, strict=True):
        print("  " + "".join(left(line, 40) for line in lines).rstrip())
    print()


heading("3", f"one sentence, three routes: {SENTENCE}")
encoded, decoded = one_text(HIDDEN, EVERYTHING), one_text(SHIFTED, CAUSAL)
source, translated = one_text(SENTENCE, EVERYTHING), two_texts(SENTENCE, CHINESE)
at_both = {"sees": CAUSAL, "the source": EVERYTHING}
side_by_side(
    panel("encoder-only (BERT)", HIDDEN, {"sees": EVERYTHING}, encoded, MASKED),
    panel("decoder-only (GPT)", SHIFTED, {"sees": CAUSAL}, decoded, SENTENCE),
)
side_by_side(
    panel("encoder-decoder: encoder", SENTENCE, {"sees": EVERYTHING}, source, UNASKED),
    panel("encoder-decoder: decoder", CHINESE, at_both, translated, NEXT),
)
routes = (encoded, MASKED), (decoded, SENTENCE), (translated, NEXT)
asked = [len(losses(*route)) for route in routes]
claim(
    "an encoder learns from its masks, a decoder from all T positions of one pass",
    asked == [1, 6, 6],
)
mean = np.mean([loss for route in routes for loss in losses(*route)])
claim(
    f"their mean is {mean:.2f}, near ln 15 = 2.71: blind guessing", abs(mean - math.log(15)) < 0.3
)
prefixes = [two_texts(SENTENCE, " ".join(CHINESE.split()[: t + 1]))[-1] for t in range(6)]
claim("one pass over the target equals six, one for each prefix", np.allclose(prefixes, translated))

heading("3, 4", "a word changes, cat -> dog or 猫 -> 狗: which positions notice")
for what, before, after, wanted in (
    ("encoder-only", encoded, one_text(HIDDEN.replace("cat", "dog"), EVERYTHING), "■ ■ ■ ■ ■ ■"),
    ("decoder-only", decoded, one_text(SHIFTED.replace("cat", "dog"), CAUSAL), "· · ■ ■ ■ ■"),
    (
        "encoder-decoder, a word of the source",
        translated,
        two_texts(SENTENCE.replace("cat", "dog"), CHINESE),
        "■ ■ ■ ■ ■ ■",
    ),
    (
        "encoder-decoder, a word of the target",
        translated,
        two_texts(SENTENCE, CHINESE.replace("猫", "狗")),
        "· ■ ■ ■ ■ ■",
    ),
):
    notice = table(moved(before, after)[None])[0]
    claim(f"{left(what, 44)}{notice}", notice == wanted)

heading("4", "the way back: where the gradient of the third position goes")
for what, text, memory, mask, wanted in (
    ("encoder-only, to its own text", HIDDEN, embed(HIDDEN), EVERYTHING, "■ ■ ■ ■ ■ ■"),
    ("decoder-only, to its own text", SHIFTED, embed(SHIFTED), CAUSAL, "■ ■ ■ · · ·"),
    ("encoder-decoder, to the source", CHINESE, source, EVERYTHING, "■ ■ ■ ■ ■ ■"),
):
    goes = table(reached(text, memory, mask, 2)[None])[0]
    claim(f"{left(what, 44)}{goes}", goes == wanted)
