"""Text files -> token ids. Leaves out formats other than UTF-8 text, corpora larger than memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npgpt.files.io import expanded
from npgpt.text.unknown import warn_of_unknown

if TYPE_CHECKING:
    from npgpt.text.tokenizer import TextTokenizer

VOCABULARY_TEXTS = ("merges.txt", "vocab.txt")  # no texts where one of these lies beside them:
BESIDE_VOCABULARIES = ("config.json", "vocab.json", "tokenizer.json")


def text_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or all `.txt` files of a folder and its folders, sorted by name.

    They are the same on every system: `.TXT` is `.txt`, capitals come first, and what begins with
    a dot is left out, such as the `._a.txt` that macOS puts beside `a.txt` on other file systems.
    So are the vocabulary files of models and of training runs, which may lie in these folders.

    Raises FileNotFoundError for a path that is not there, or a folder without any.
    """
    path = expanded(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not there; name a text file or a folder of .txt files.")
    found = [file for file in path.rglob("*") if file.suffix.lower() == ".txt" and file.is_file()]
    names = sorted(file.relative_to(path).parts for file in found)
    files = [path.joinpath(*name) for name in names if not any(p.startswith(".") for p in name)]
    files = [file for file in files if not _is_vocabulary(file)]
    if not files:
        raise FileNotFoundError(f"{path} holds no .txt file.")
    return files


def _is_vocabulary(file: Path) -> bool:
    beside = (file.with_name(name) for name in BESIDE_VOCABULARIES)
    return file.name in VOCABULARY_TEXTS and any(other.is_file() for other in beside)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, every byte of it (line ends stay as they are).

    Raises ValueError for a file that is empty or not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}; convert it first."
        ) from None
    if not text:
        raise ValueError(f"{path} is empty.")
    return text


def read_ids(
    files: Sequence[Path],
    tokenizer: TextTokenizer,
    *,
    end_of_text: int | None = None,
    special: bool = False,
) -> np.ndarray:
    """The ids of all files, one after the other.

    Args:
        end_of_text: the id put before the first file, between files, and after the last one, as far
            as the vocabulary itself does not put tokens there.
        special: `<|endoftext|>` in a text is the token; otherwise it is plain text.

    Returns:
        ids [N], uint16 where every id of the vocabulary fits, else uint32.

    Raises:
        ValueError: a file that `read_text` refuses, or that the vocabulary cannot write.
    """
    dtype = np.dtype(np.uint16 if max(tokenizer.bytes_of) < 2**16 else np.uint32)
    mark = np.array([] if end_of_text is None else [end_of_text], dtype)
    start, end = (mark[:0] if given else mark for given in tokenizer.frame)
    parts = [start]
    for file in files:
        text = read_text(file)
        try:
            ids = tokenizer.encode(text, allowed_special="all" if special else frozenset())
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        parts += [np.array(ids, dtype), end]
    read = np.concatenate(parts)
    warn_of_unknown(read, tokenizer)
    return read


def text_before_tail(files: Sequence[Path], fraction: float, cut_at: str | None) -> list[str]:
    """The texts of all files without the last `fraction` of their characters; none is empty.

    A text is cut in two wherever `cut_at` stands, which belongs to neither part.

    Raises ValueError for a file that `read_text` refuses.
    """
    whole = [read_text(file) for file in files]
    parts = [part for text in whole for part in (text.split(cut_at) if cut_at else [text])]
    left = sum(map(len, parts))
    left -= round(left * fraction)
    kept = []
    for part in parts:
        kept.append(part[:left])
        left -= len(kept[-1])
    return list(filter(None, kept))


def source_key(tokenizer: TextTokenizer, special: bool, *groups: Sequence[Path]) -> str:
    """A fingerprint of what `read_ids` makes ids from: the vocabulary and the bytes of all files.

    Args:
        groups: files that are read together, such as those to train on and those held out.
    """
    ranks = sorted((token, text.hex()) for token, text in tokenizer.bytes_of.items())
    names = sorted(tokenizer.special_tokens_set), sorted(tokenizer.added_words)
    contents = [[hashlib.sha256(file.read_bytes()).hexdigest() for file in g] for g in groups]
    described = repr((ranks, names, tokenizer.rules, special, contents)).encode(
        "utf-8", errors="surrogatepass"
    )
    return hashlib.sha256(described).hexdigest()


def ids_key(*ids: np.ndarray) -> str:
    """A fingerprint of training data: equal for equal ids only."""
    sums = [hashlib.sha256(part.astype("<u4").tobytes()).hexdigest() for part in ids]
    return "-".join(part[:16] for part in sums)


def token_sizes(tokenizer: TextTokenizer, size: int) -> np.ndarray:
    """int64 [size]: the bytes of text that each id stands for; 0 for special and missing tokens."""
    sizes = np.zeros(size, np.int64)
    for token, text in tokenizer.bytes_of.items():
        if token < size and token not in tokenizer.special_ids:
            sizes[token] = len(text)
    return sizes
