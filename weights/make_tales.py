"""Old stories -> the plain text and the vocabulary that the model `tales` is trained with.

    python weights/make_tales.py --corpus FOLDER... --vocab GPT2_VOCAB_FOLDER --out FOLDER [--ids N]

The corpus are books of Project Gutenberg without its licence, named `pgNUMBER-TITLE.txt`, and the
like; files without a dash in the name are passed over. `train/`, `held-out/`, whose authors wrote
books in `train/`, too, and `held-out-strangers/`, whose authors did not, are cleaned as
`tales_text.py` says. Each of the two has an `-ascii/`, the same with the quotes of a typewriter.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tales_text import ascii_quotes, clean, story

from npgpt.cli import run
from npgpt.text.tokenizer import tokenizer_from_folder

HELD_OUT = {
    **dict.fromkeys(("pg11", "pg55", "pg708"), "held-out"),
    **dict.fromkeys(("pg1154", "pg7478", "pg35458"), "held-out-strangers"),
}
SIZES = (6144, 7168, 8192)
END_OF_TEXT = "<|endoftext|>"


def main(argv: Sequence[str]) -> int:
    """Write the folders, print their sizes."""
    parser = argparse.ArgumentParser(
        prog="make_tales.py", description="Text and vocabulary of weights/tales."
    )
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="folders of books")
    parser.add_argument(
        "--vocab", type=Path, required=True, help="folder of GPT-2's vocab.json, merges.txt"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--ids", type=int, default=8192, help="size of the vocabulary (default %(default)s)"
    )
    args = parser.parse_args(argv)
    for folder in args.corpus:
        if not any(folder.glob("*-*.txt")):
            raise FileNotFoundError(
                f"{folder} has no books, pgNUMBER-TITLE.txt: name their folder."
            )
    for path in sorted(path for folder in args.corpus for path in folder.glob("*-*.txt")):
        name = path.name.split("-")[0]
        text = clean(story(path.read_text(encoding="utf-8").split("\n"), name))
        part = HELD_OUT.get(name, "train")
        write(args.out / part / path.name, text)
        if part != "train":
            write(args.out / f"{part}-ascii" / path.name, ascii_quotes(text))
    write_vocabulary(args.vocab, args.out / f"vocab-{args.ids}", args.ids)
    print_sizes(args.out, args.vocab)
    return 0


def write_vocabulary(source: Path, folder: Path, size: int) -> None:
    """The first `size` ids of GPT-2's vocabulary with their merges; the end of a text is id `size`.

    Raises ValueError when it has not that many, or too few for the single bytes.
    """
    vocab = json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    if not 256 <= size < len(vocab):
        raise ValueError(f"--ids {size} must be from 256, the single bytes, to {len(vocab) - 1}.")
    kept = {token: number for token, number in vocab.items() if number < size}
    merges = (source / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [line for line in merges if "".join(line.split()) in kept]
    kept[END_OF_TEXT] = size
    special = {"content": END_OF_TEXT, "special": True, "normalized": True}
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(size): special | dict.fromkeys(("lstrip", "rstrip", "single_word"), False)
        },
        **dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT),
    }
    write(folder / "vocab.json", json.dumps(kept, ensure_ascii=False) + "\n")
    write(folder / "merges.txt", "\n".join(["#version: 0.2", *merges]) + "\n")
    write(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


def print_sizes(out: Path, vocab: Path) -> None:
    """Books, characters, bytes; tokens and bytes per token with several sizes of the vocabulary."""
    with TemporaryDirectory() as folder:
        for size in SIZES:
            write_vocabulary(vocab, Path(folder) / str(size), size)
        tokenizers = [tokenizer_from_folder(Path(folder) / str(size)) for size in SIZES]
    parts = [part for name in dict.fromkeys(HELD_OUT.values()) for part in (name, f"{name}-ascii")]
    print(
        f"{'':25}{'books':>6}{'characters':>12}{'bytes':>12}",
        *(f"{f'{size} ids':>18}" for size in SIZES),
    )
    for name in ("train", *parts):
        texts = [path.read_text(encoding="utf-8") for path in sorted((out / name).glob("*.txt"))]
        size = sum(len(text.encode()) for text in texts)
        tokens = [sum(len(tokenizer.encode(text)) for text in texts) for tokenizer in tokenizers]
        columns = (f"{f'{count} ({size / count:.3f})':>18}" for count in tokens)
        print(f"{name:25}{len(texts):6}{sum(map(len, texts)):12}{size:12}", *columns)


def write(path: Path, text: str) -> None:
    r"""UTF-8 with "\n" whatever the system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))


if __name__ == "__main__":
    sys.exit(run("make_tales.py", main))
