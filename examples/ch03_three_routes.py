"""Three routes side by side on one sentence: what each sees, what it is asked (article chapter 3).

The weights are random (one_sentence.py): the losses show where a route learns, not how well.
"""

from __future__ import annotations

import math

import numpy as np
from one_sentence import (
    CAUSAL,
    CHINESE,
    EVERYTHING,
    HIDDEN,
    MASKED,
    NEXT,
    SENTENCE,
    SHIFTED,
    V,
    ids,
    logits,
    notice,
    one_text,
    two_texts,
)
from show import claim, heading, moved, say, table

from npgpt.cli import left
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward

UNASKED = "· · · · · ·"


def losses(x: np.ndarray, targets: str) -> list[float]:
    """The loss of each position that is asked."""
    each = zip(logits(x), ids(targets), strict=True)
    return [float(cross_entropy_forward(row[None], t[None])[0]) for row, t in each if t >= 0]


def panel(
    title: str, text: str, masks: dict[str, np.ndarray], x: np.ndarray, asked: str
) -> list[str]:
    """A line for each position: the word read, what it sees, the word asked for, its loss."""
    found = iter(losses(x, asked))
    loss = ["" if word == "·" else f"{next(found):.2f}" for word in asked.split()]
    columns = [[say("reads", "读到"), *text.split()]]
    columns += [[head, *table(mask)] for head, mask in masks.items()]
    if any(loss):
        columns += [[say("asked", "要答"), *asked.split()], ["loss", *loss]]
    widths = [8, *[14] * len(masks), 8, 5]
    cells = [[left(cell, n) for cell in column] for column, n in zip(columns, widths, strict=False)]
    return [title, *("".join(line) for line in zip(*cells, strict=True))]


def side_by_side(*panels: list[str]) -> None:
    """Panels of the same height beside each other."""
    for lines in zip(*panels, strict=True):
        print("  " + "".join(left(line, 40) for line in lines).rstrip())
    print()


heading("3", say("one sentence, three routes: ", "同一句话，三条路线：") + SENTENCE)
encoded, decoded = one_text(HIDDEN, EVERYTHING), one_text(SHIFTED, CAUSAL)
source, translated = one_text(SENTENCE, EVERYTHING), two_texts(SENTENCE, CHINESE)
sees, at_source = say("sees", "看得到"), say("the source", "源句")
bidirectional, causal = {sees: EVERYTHING}, {sees: CAUSAL}
side_by_side(
    panel("encoder-only (BERT)", HIDDEN, bidirectional, encoded, MASKED),
    panel("decoder-only (GPT)", SHIFTED, causal, decoded, SENTENCE),
)
side_by_side(
    panel("encoder-decoder: encoder", SENTENCE, bidirectional, source, UNASKED),
    panel("encoder-decoder: decoder", CHINESE, {**causal, at_source: EVERYTHING}, translated, NEXT),
)
routes = (encoded, MASKED), (decoded, SENTENCE), (translated, NEXT)
mean = np.mean([loss for route in routes for loss in losses(*route)])
claim(
    say(
        f"their mean is {mean:.2f}, near ln {V} = {math.log(V):.2f}: blind guessing",
        f"平均 {mean:.2f}，接近 ln {V} = {math.log(V):.2f}：还只是瞎猜",
    ),
    abs(mean - math.log(V)) < 0.1,
)

heading("3", say("which positions the loss teaches", "loss 教到哪些位置"))
for name, route, wanted in zip(
    (
        say("encoder-only: the masked token", "encoder-only：被遮住的 token"),
        say("decoder-only: the next token, T losses", "decoder-only：下一个 token，T 个 loss"),
        say("encoder-decoder: likewise, in the target", "encoder-decoder：目标句里，同样 T 个"),
    ),
    routes,
    ("· · ■ · · ·", "■ ■ ■ ■ ■ ■", "■ ■ ■ ■ ■ ■"),
    strict=True,
):
    _, saved = cross_entropy_forward(logits(route[0]), ids(route[1]))
    notice(name, cross_entropy_backward(1.0, saved).any(axis=-1), wanted)

heading(
    "3",
    say(
        "a word changes, cat -> dog or 猫 -> 狗: which positions notice",
        "换一个词，cat -> dog 或 猫 -> 狗：哪些位置看得到",
    ),
)
dog, other_target = SENTENCE.replace("cat", "dog"), CHINESE.replace("猫", "狗")
changed = moved(encoded, one_text(HIDDEN.replace("cat", "dog"), EVERYTHING))
notice(say("encoder-only", "encoder-only：处处"), changed, "■ ■ ■ ■ ■ ■")
changed = moved(decoded, one_text(SHIFTED.replace("cat", "dog"), CAUSAL))
notice(say("decoder-only", "decoder-only：它和右边的"), changed, "· · ■ ■ ■ ■")
changed = moved(translated, two_texts(dog, CHINESE))
what = say("encoder-decoder, a word of the source", "encoder-decoder，源句里的词")
notice(what, changed, "■ ■ ■ ■ ■ ■")
changed = moved(translated, two_texts(SENTENCE, other_target))
what = say("encoder-decoder, a word of the target", "encoder-decoder，目标句里的词")
notice(what, changed, "· ■ ■ ■ ■ ■")
