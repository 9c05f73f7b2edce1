"""Token embedding: an id takes a row of a table (article chapter 5).

With --model gpt2 or --vocabulary (a folder with GPT-2's vocabulary) the ids come from the text;
otherwise they are the article's. Ends with the nearest rows of a trained table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, labels, open_model, options
from show import check, claim, heading

import npgpt
from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.lookup import lookup_backward, lookup_forward

LIKE = [
    ("cat", "dog"),
    ("king", "queen"),
    ("mother", "father"),
    ("red", "white"),
    ("two", "three"),
    ("said", "cried"),
    ("he", "she"),
    ("day", "night"),
]
ARTICLE_TEXT, ARTICLE_IDS = "The cat sat on the", [464, 3797, 3332, 319, 262]


def token_ids(vocabulary: str | None) -> None:
    """5.1: text -> ids."""
    heading("5.1", "the model does not see words but ids")
    if vocabulary is None:
        print(f"  {ARTICLE_TEXT!r} -> {ARTICLE_IDS}  (to check: --vocabulary gpt2)")
        return
    ids = npgpt.load_tokenizer(vocabulary).encode(ARTICLE_TEXT)
    claim(f"{ARTICLE_TEXT!r} -> {ids}", ids == ARTICLE_IDS)


def lookup() -> None:
    """5.1, 5.2: taking rows, against multiplying by one-hot vectors; the gradient."""
    heading("5.1", "wte: 50257 rows of 768 numbers; id 464 takes row 464")
    V, d = param_shapes(GPT2Config())["wte.weight"]
    check("V", V, "50257")
    check("d", d, "768")
    check("parameters of wte", V * d, "38,597,376")
    wte = np.random.default_rng(0).standard_normal((V, d), np.float32)
    ids = np.array(ARTICLE_IDS)
    x, _ = lookup_forward(ids, wte)
    claim(f"x is [T, d] = {[*x.shape]}, and its first row is row 464", (x[0] == wte[464]).all())

    heading("5.2", "the same as one-hot times matrix, which nobody multiplies")
    one_hot = np.zeros((len(ids), V), np.float32)
    one_hot[np.arange(len(ids)), ids] = 1
    claim("one_hot [5, 50257] @ wte equals the rows", np.array_equal(one_hot @ wte, x))
    check("multiplications that the lookup saves", one_hot.size * d, "192,986,880")

    heading("5.2", "backward: only the rows that were used get a gradient")
    twice = np.array([*ARTICLE_IDS, 262])  # "the" once more
    _, saved = lookup_forward(twice, wte)
    dy = np.random.default_rng(1).standard_normal((len(twice), d), np.float32)
    dwte = lookup_backward(dy, saved)
    used = np.flatnonzero(dwte.any(axis=1)).tolist()
    claim(f"rows with a gradient: {used}", used == sorted(set(ARTICLE_IDS)))
    claim("'the' stands at 4 and 5: row 262 gets the sum", np.array_equal(dwte[262], dy[4] + dy[5]))


def nearest_rows(opened: Opened) -> None:
    """5.1: rows of words with like meaning lie close, in a trained table."""
    heading("5.1", f"after training, rows of like words lie close: {opened.name}")
    if not opened.trained:
        print("  A random table knows nothing of meaning; run with a trained --model.")
        return
    wte = opened.model.params["wte.weight"]
    wte = wte / np.linalg.norm(wte, axis=1, keepdims=True)

    def row(word: str) -> np.ndarray | None:
        ids = opened.tokenizer.encode(" " + word)
        return wte[ids[0]] if len(ids) == 1 else None

    for word in ("cat", "king", "mother", "red", "three", "said"):
        if (vector := row(word)) is not None:
            cosine = wte @ vector
            nearest = np.argsort(-cosine)[1:7].tolist()
            names = labels(opened.tokenizer, nearest)
            print(
                f"  {word:8}",
                *(f"{n} {cosine[i]:.2f} " for n, i in zip(names, nearest, strict=True)),
            )
    pairs = [(row(a), row(b)) for a, b in LIKE]
    like = [float(a @ b) for a, b in pairs if a is not None and b is not None]
    a, b = np.random.default_rng(0).integers(0, len(wte), (2, 2000))
    usual = float((wte[a] * wte[b]).sum(axis=1).mean())
    found = f"{np.mean(like):.2f}, of any two rows {usual:.2f}"
    claim(f"mean cosine of pairs such as cat and dog {found}", np.mean(like) > usual)


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("--vocabulary", help="folder or hub id with GPT-2's vocabulary")
    args = parser.parse_args(argv)
    opened = open_model(args.model)
    is_gpt2 = opened.model.config.vocab_size == GPT2Config().vocab_size
    token_ids(args.vocabulary or (opened.name if is_gpt2 else None))
    lookup()
    nearest_rows(opened)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch05_token_embedding.py", main))
