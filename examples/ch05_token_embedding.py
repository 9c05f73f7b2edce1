"""Token embedding: an id takes a row of a table (article chapter 5).

With --model gpt2 or --vocabulary (a folder with GPT-2's vocabulary) the ids come from the text;
otherwise they are the article's. Ends with the nearest rows of a trained table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, labels, open_model, options
from show import check, claim, heading, say

import npgpt
from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.lookup import lookup_backward, lookup_forward

LIKE = [("cat", "dog"), ("king", "queen"), ("mother", "father"), ("red", "white")]
LIKE += [("two", "three"), ("said", "cried"), ("he", "she"), ("day", "night")]
NEAREST = 10
ARTICLE_TEXT, ARTICLE_IDS = "The cat sat on the", [464, 3797, 3332, 319, 262]


def token_ids(vocabulary: str | None) -> None:
    """5.1: text -> ids."""
    heading("5.1", say("the model does not see words but ids", "模型看到的不是字，是 token 编号"))
    if vocabulary is None:
        check_it = say("to check: --vocabulary gpt2", "要核对：--vocabulary gpt2")
        print(f"  {ARTICLE_TEXT!r} -> {ARTICLE_IDS}  ({check_it})")
        return
    ids = npgpt.load_tokenizer(vocabulary).encode(ARTICLE_TEXT)
    claim(f"{ARTICLE_TEXT!r} -> {ids}{say('', '，与文中相同')}", ids == ARTICLE_IDS)


def lookup() -> None:
    """5.1, 5.2: taking rows, against multiplying by one-hot vectors; the gradient."""
    heading(
        "5.1",
        say(
            "wte: 50257 rows of 768 numbers; id 464 takes row 464",
            "wte：50257 行，每行 768 个数；编号 464 取第 464 行",
        ),
    )
    V, d = param_shapes(GPT2Config())["wte.weight"]
    check(say("V, rows of GPT-2's wte", "V：GPT-2 的 wte 的行数，即词表大小"), V, "50257")
    check(say("d, numbers in a row", "d：一行几个数，即隐藏维度"), d, "768")
    check(say("parameters of wte", "wte 的参数"), V * d, "38,597,376")
    wte = np.random.default_rng(0).standard_normal((V, d), np.float32)
    ids = np.array(ARTICLE_IDS)
    x, _ = lookup_forward(ids, wte)
    claim(
        say(
            f"x is [T, d] = {[*x.shape]}, and its first row is row 464",
            f"x 的形状 [T, d] = {[*x.shape]}，第一行就是第 464 行",
        ),
        x.shape == (len(ids), d) and (x[0] == wte[464]).all(),
    )

    heading(
        "5.2",
        say(
            "the same as one-hot times matrix, which nobody multiplies",
            "等价于 one-hot 乘矩阵，但没人真的去乘",
        ),
    )
    one_hot = np.zeros((len(ids), V), np.float32)
    one_hot[np.arange(len(ids)), ids] = 1
    claim(
        say("one_hot [5, 50257] @ wte equals the rows", "one_hot [5, 50257] @ wte 等于取出的行"),
        np.array_equal(one_hot @ wte, x),
    )
    what = say("multiplications that the lookup saves", "查表省下的乘法次数")
    check(what, one_hot.size * d, "192,986,880")

    what = say("backward: only the rows that were used get a gradient", "反向：只有用到的行有梯度")
    heading("5.2", what)
    twice = np.array([*ARTICLE_IDS, 262])  # "the" once more
    _, saved = lookup_forward(twice, wte)
    dy = np.random.default_rng(1).standard_normal((len(twice), d), np.float32)
    dwte = lookup_backward(dy, saved)
    used = np.flatnonzero(dwte.any(axis=1)).tolist()
    rows = say(f"rows with a gradient: {used}", f"有梯度的行：{used}")
    claim(rows, used == sorted(set(ARTICLE_IDS)))
    claim(
        say(
            "'the' stands at 4 and 5: row 262 gets the sum",
            "'the' 出现在 4 和 5 两个位置：第 262 行得到两份梯度之和",
        ),
        np.array_equal(dwte[262], dy[4] + dy[5]),
    )


def nearest_rows(opened: Opened) -> None:
    """5.1: rows of words with like meaning lie close, in a trained table."""
    heading(
        "5.1",
        say(
            f"after training, rows of like words lie close: {opened.name}",
            f"训练之后，意思相近的词的行靠得很近：{opened.name}",
        ),
    )
    if not opened.trained:
        print(
            say(
                "  A random table knows nothing of meaning; run with a trained --model.",
                "  随机的表不懂意思；请用训练过的 --model。",
            )
        )
        return
    wte = opened.model.params["wte.weight"]
    wte = wte / np.linalg.norm(wte, axis=1, keepdims=True)

    def row(word: str) -> int | None:
        ids = opened.tokenizer.encode(" " + word)
        return ids[0] if len(ids) == 1 else None

    for word in ("cat", "king", "mother", "red", "three", "said"):
        if (at := row(word)) is not None:
            cosine = wte @ wte[at]
            nearest = np.argsort(-cosine)[1:7].tolist()
            named = zip(labels(opened.tokenizer, nearest), nearest, strict=True)
            print(f"  {word:8}", "  ".join(f"{name} {cosine[i]:.2f}" for name, i in named))
    pairs = [(a, b) for a, b in ((row(a), row(b)) for a, b in LIKE) if None not in (a, b)]
    nearer = [(wte @ wte[a] > wte[a] @ wte[b]).sum() for a, b in pairs]  # a itself counts, too
    close = sum(n <= NEAREST for n in nearer)
    claim(
        say(
            f"of {len(pairs)} pairs such as cat and dog, {close} have the second word among the "
            f"{NEAREST} nearest rows",
            f"{len(pairs)} 对词（如 cat 与 dog），{close} 对的后一个是前一个的 {NEAREST} 近邻之一",
        ),
        close > len(pairs) / 2,
    )


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("--vocabulary", help="folder or hub id with GPT-2's vocabulary")
    args = parser.parse_args(argv)
    opened = open_model(args.model)
    has_gpt2s_ids = (  # weights/tales has the first 6144 of them
        opened.name == "weights/tales" or opened.model.config.vocab_size == GPT2Config().vocab_size
    )
    token_ids(args.vocabulary or (opened.name if has_gpt2s_ids else None))
    lookup()
    nearest_rows(opened)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch05_token_embedding.py", main))
