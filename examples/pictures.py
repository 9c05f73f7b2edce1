"""All pictures of docs/pictures.md, in one go, in Chinese or English.

    python examples/pictures.py FOLDER [--only NAME …] [--lang zh|en] [--model MODEL] [--text TEXT]

Needs matplotlib (pip install "npgpt[plot]"). One of them trains a small translator, ten seconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from any_model import Opened, labels, open_model, options, word_position
from ch07_heatmap import chosen_heads, panels, weight_tables
from draw_attention import heads, scaling
from draw_blocks import gelu, residual
from draw_couplets import couplets
from draw_input import rope, words
from draw_parameters import parameters
from draw_steps import six_steps
from draw_training import gradients, loss
from looking_across import who_looks_where
from plots import caption, pyplot, save
from show import heading, in_chinese, say
from train_translation import CONFIG, SHOWN, train

from npgpt.cli import run
from npgpt.models.transformer.config import init_params
from npgpt.models.transformer.model import Transformer


class Picture(NamedTuple):
    """Where it belongs in the article, its title, and how it is drawn: Figure, or None."""

    section: str
    english: str
    chinese: str
    draw: Callable[[], Any]


def translator() -> Any:
    """Who looks where, in an encoder-decoder trained for this picture."""
    rng = np.random.default_rng(1)
    model = Transformer(CONFIG, init_params(CONFIG, rng))
    train(model, 800, rng, warmup=200)
    return who_looks_where(model, SHOWN)


def striking_heads(opened: Opened, text: str) -> Any:
    """The head that looks at the previous token, and the one by which "it" looks at "cat"."""
    ids = opened.tokenizer.encode(text)
    tables = weight_tables(opened.model.forward(ids).saved)
    i, j = (word_position(opened.tokenizer, ids, word) for word in ("it", "cat"))
    return heads(panels(tables, chosen_heads(tables, i, j)), labels(opened.tokenizer, ids))


def pictures(opened: Opened, text: str) -> dict[str, Picture]:
    """By name, in the order of the article."""
    name, of = opened.name, functools.partial
    return {
        "translation": Picture(
            "2", "who looks where in a translator", "翻译时谁在看谁", translator
        ),
        "words": Picture(
            "5.1", f"words in wte of {name}", f"{name} 的 wte 里的词", of(words, opened)
        ),
        "rope": Picture("6.2", "RoPE: arrows that turn", "RoPE：转动的箭头", rope),
        "heads": Picture(
            "7.1", f"two heads of {name}", f"{name} 的两个头", of(striking_heads, opened, text)
        ),
        "couplets": Picture("7.1", "a head that knows couplets", "一个懂对仗的头", couplets),
        "six_steps": Picture("7.3", "six steps, and back", "六步手算，再倒着走一遍", six_steps),
        "scaling": Picture("7.4", "why √d", "为什么除以 √d", scaling),
        "gelu": Picture("8.1", "GELU and ReLU", "GELU 与 ReLU", gelu),
        "residual": Picture(
            "9.1", f"residual stream of {name}", f"{name} 的残差流", of(residual, opened, text)
        ),
        "gradients": Picture("9.3", "pre-norm, post-norm", "pre-norm 与 post-norm", gradients),
        "parameters": Picture(
            "11.2", "where the parameters are", "参数都在哪里", of(parameters, opened)
        ),
        "loss": Picture(
            caption("next article", "下一篇"), "the loss falls", "loss 下降", of(loss, opened)
        ),
    }


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="where to draw")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these and no others")
    args = parser.parse_args(argv)
    plt = pyplot()
    known = pictures(open_model(args.model), args.text)
    for name in args.only or known:
        if name not in known:
            raise ValueError(f"There is no picture {name!r}; there are {', '.join(known)}.")
        section, english, chinese, draw = known[name]
        heading(section, say(english, chinese))
        figure = draw()
        if figure is None:
            print(say("  left out: random weights know no words", "  略去：随机权重不认识词"))
            continue
        title = caption(f"{section}  {english}", f"{in_chinese(section)}  {chinese}")
        figure.suptitle(title, x=0.01, ha="left", color="dimgrey")
        save(figure, args.folder / f"{name}.png")
        plt.close(figure)
    return 0


if __name__ == "__main__":
    sys.exit(run("pictures.py", main))
