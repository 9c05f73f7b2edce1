"""How well poems keep their form: those that a model writes, and those that people wrote.

    python weights/poem_form.py --model weights/poems --held-out FILE --train FOLDER

Half of the samples go on from title, author and first line of held-out poems in lines of five
characters, half from those in lines of seven. FILE and FOLDER are those of `make_poems.py`.
Needs the library pypinyin for the rhymes.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import npgpt
from npgpt.cli import run

END_OF_TEXT = "<|endoftext|>"
STOPS = re.compile("[，。！？；、：\n]+")
# Finals that rhyme today, of which the poems' own rhymes (of the Tang) are a finer or an older cut.
RHYMES = (
    *("a ia ua", "o e uo", "ie ve", "i er", "u", "v", "ai uai", "ei uei", "ao iao", "ou iou"),
    *("an ian uan van", "en in uen vn", "ang iang uang", "eng ing ueng", "ong iong"),
)
RHYME_OF = {final: group for group in RHYMES for final in group.split()}


class Form(NamedTuple):
    """What is counted of a poem: whether all is as it should be, and its lines but the first."""

    lengths: bool
    ended: bool
    rhymes: bool
    lines: list[str]


def main(argv: Sequence[str]) -> int:
    """Print a table: the model's poems, the held-out ones."""
    parser = argparse.ArgumentParser(prog="poem_form.py", description="Do poems keep their form?")
    parser.add_argument("--model", default="weights/poems")
    parser.add_argument("--held-out", type=Path, required=True, help="file of poems")
    parser.add_argument("--train", type=Path, required=True, help="folder of poems")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="how many to print of each length")
    args = parser.parse_args(argv)
    if importlib.util.find_spec("pypinyin") is None:
        raise ImportError("Rhymes need the library pypinyin: pip install pypinyin")
    known = {line for path in args.train.glob("*.txt") for poem in poems(path) for line in poem[1]}
    print(f"{'':24}  in all  lengths kept  even end  both  rhymes  lines of the training text")
    for n in (5, 7):
        own = [(title, lines) for title, lines in poems(args.held_out) if regular(lines, n)]
        rng = np.random.default_rng(args.seed)
        chosen = rng.choice(len(own), args.samples // 2, replace=False)
        written = list(write(args, [(own[i][0], own[i][1][0]) for i in chosen]))
        report(f"{n} characters, model", [form(text, n) for text in written], known)
        report(
            f"{n} characters, held out",
            [form("\n".join(lines) + END_OF_TEXT, n) for _, lines in own],
            known,
        )
        print(*written[: args.show], sep="\n\n", end="\n\n")
    return 0


def poems(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Title line and lines of each poem of a file."""
    for poem in path.read_text(encoding="utf-8").split(END_OF_TEXT)[:-1]:
        title, _, text = poem.partition("\n")
        yield title, [line for line in STOPS.split(text) if line]


def regular(lines: list[str], n: int) -> bool:
    """Whether a poem has an even number of lines, four or more, of n characters each."""
    return len(lines) >= 4 and len(lines) % 2 == 0 and {len(line) for line in lines} == {n}


def write(args: argparse.Namespace, starts: list[tuple[str, str]]) -> Iterator[str]:
    """A poem from each title and first line: all its text but the title; END_OF_TEXT if it ends."""
    model, tokenizer = npgpt.from_pretrained(args.model), npgpt.load_tokenizer(args.model)
    for number, (title, first) in enumerate(starts):
        ids = tokenizer.encode(f"{title}\n{first}，")
        room = model.context - len(ids)
        new = model.generate(ids, room, temperature=args.temperature, seed=args.seed + number)
        yield tokenizer.decode([*ids, *new]).partition("\n")[2]


def form(text: str, n: int) -> Form:
    """What there is to count of a poem in lines of n characters."""
    body, end, _ = text.partition(END_OF_TEXT)
    lines = [line for line in STOPS.split(body) if line]
    last = [rhymes_of(line[-1]) for line in lines[1::2]]
    return Form(
        lengths={len(line) for line in lines} == {n},
        ended=bool(end) and len(lines) % 2 == 0,
        rhymes=len(last) > 1 and bool(set.intersection(*last)),
        lines=lines[1:],
    )


def rhymes_of(character: str) -> set[str]:
    """The groups of RHYMES that a character belongs to, in any of its readings."""
    from pypinyin import Style, pinyin

    (finals,) = pinyin(character, style=Style.FINALS, heteronym=True, errors=lambda _: [[""]])
    return {RHYME_OF[final] for final in finals if final in RHYME_OF}


def report(name: str, forms: list[Form], known: set[str]) -> None:
    """A line of the table, in percent."""
    lines = [line for each in forms for line in each.lines]
    shares = (
        np.mean([each.lengths for each in forms]),
        np.mean([each.ended for each in forms]),
        np.mean([each.lengths and each.ended for each in forms]),
        np.mean([each.rhymes for each in forms]),
        np.mean([line in known for line in lines]),
    )
    print(
        f"{name:24}{len(forms):8}",
        *(f"{100 * x:{w}.1f}" for x, w in zip(shares, (13, 9, 5, 7, 15), strict=True)),
    )


if __name__ == "__main__":
    sys.exit(run("poem_form.py", main))
