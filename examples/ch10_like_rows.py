"""Like inputs, like outputs: what a table shared with the lm_head does (article 10.2).

Along a text, the score of a token is compared with that of the token whose row lies nearest. On a
trained --model these are words of like meaning.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, labels, open_model, options
from show import claim, heading, say

from npgpt.cli import left, run
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.lm_head import lm_head_forward

TEXT = (
    "Once upon a time there was a king who had a son and a daughter, and the mother said to the "
    "father: I will go out into the forest with the cat, and he shall see the house by the water."
)
SHOWN = (" son", " mother", " he", " said", " cat")


def alike(x: np.ndarray, head: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Correlation along the text of the scores of each pair, without what all tokens share."""
    scores, _ = lm_head_forward(x, head)
    scores = scores - scores.mean(axis=1, keepdims=True)
    z = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    return (z[:, pairs[0]] * z[:, pairs[1]]).mean(axis=0)


def print_words(opened: Opened, tokens: np.ndarray, nearest: np.ndarray, r: np.ndarray) -> None:
    """Some of the tokens, as far as each is a word."""
    for word in SHOWN:
        token, *more = opened.tokenizer.encode(word)
        if more or token not in tokens:
            continue
        i = int(np.flatnonzero(tokens == token)[0])
        both = labels(opened.tokenizer, (token, int(nearest[i])))
        scores = say("scores move together: r =", "分数同升同降：r =")
        print("  " + "".join(left(label, 14) for label in both) + f"{scores} {r[i]:.2f}")


def like_rows(opened: Opened, text: str) -> None:
    """10.2: tokens with like rows get like scores, wherever the text stands."""
    title = say("a token and the one with the nearest row", "一个 token 与行最相近的那个")
    heading("10.2", say("like inputs, like outputs: ", "输入端相近，输出端也相近：") + title)
    ids, table = np.array(opened.tokenizer.encode(text)), opened.model.params[GPT2.TABLE]
    stations: dict[str, np.ndarray] = {}
    opened.model.forward(ids, observe=stations.__setitem__)
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    tokens = np.unique(ids)
    cosines = unit[tokens] @ unit.T
    cosines[np.arange(len(tokens)), tokens] = -1
    nearest = cosines.argmax(axis=1)
    fresh_table = np.random.default_rng(7).normal(0, table.std(), table.shape)
    own, fresh = (alike(stations["ln_f"], head, (tokens, nearest)) for head in (table, fresh_table))
    if opened.trained:
        print_words(opened, tokens, nearest, own)
    claim(
        say(
            f"{len(tokens)} tokens, each with its nearest row: r = {own.mean():.2f} on average",
            f"{len(tokens)} 个 token 与各自最近的行：平均 r = {own.mean():.2f}",
        ),
        own.mean() > 0.3,
    )
    claim(
        say(
            f"the table does that: with fresh rows for the lm_head r = {fresh.mean():.2f}",
            f"这是同一张表的功劳：lm_head 换一张新表，r = {fresh.mean():.2f}",
        ),
        abs(fresh.mean()) < 0.2,
    )


def main(argv: Sequence[str]) -> int:
    args = options(__doc__, TEXT).parse_args(argv)
    like_rows(open_model(args.model), args.text)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch10_like_rows.py", main))
