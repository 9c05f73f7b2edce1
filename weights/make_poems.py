"""Tang and Song poems -> the text that the model `poems` is trained with.

    python weights/make_poems.py --poems FOLDER --out FOLDER

The folder has UTF-8 files of poems, an empty line between two: `《title》author`, then a couplet a
line. `held-out.txt` goes to `held-out/`, the others to `train/`, each poem ended by <|endoftext|>.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from npgpt.cli import run

END_OF_TEXT = "<|endoftext|>"


def main(argv: Sequence[str]) -> int:
    """Write the folders, print their sizes."""
    parser = argparse.ArgumentParser(prog="make_poems.py", description="Text of weights/poems.")
    parser.add_argument("--poems", type=Path, required=True, help="folder of poems")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args(argv)
    files = sorted(args.poems.glob("*.txt"))
    if not files:
        raise FileNotFoundError(f"{args.poems} has no .txt files: name the folder of the poems.")
    for path in files:
        poems = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
        text = "".join(f"{poem}\n{END_OF_TEXT}" for poem in poems)
        folder = args.out / ("held-out" if path.name == "held-out.txt" else "train")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).write_bytes(text.encode("utf-8"))
        print(f"{path.name:16}{len(poems):8,} poems{len(''.join(poems)):12,} characters")
    return 0


if __name__ == "__main__":
    sys.exit(run("make_poems.py", main))
