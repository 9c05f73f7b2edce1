"""Text files -> token ids, which are kept beside them until file or tokenizer change.

Leaves out: windows and batches (`windows.py`), downloading data, formats other than UTF-8 text,
corpora larger than memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npgpt.files.io import replacing

if TYPE_CHECKING:
    from npgpt.text.tokenizer import Tokenizer

SUFFIX = ".ids.npy"


def text_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or all `.txt` files of a folder and its folders, sorted by name.

    Raises FileNotFoundError for a path that is not there, or a folder without any.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not there; name a text file or a folder of .txt files.")
    files = sorted(file for file in path.rglob("*.txt") if file.is_file())
    if not files:
        raise FileNotFoundError(f"{path} holds no .txt file.")
    return files


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
    tokenizer: Tokenizer,
    *,
    end_of_text: int | None = None,
    special: bool = False,
    spare_folder: Path | None = None,
) -> np.ndarray:
    """The ids of all files, one behind the other.

    Each file's ids are kept beside it as `NAME.….ids.npy` and read from there as long as neither
    the file nor the tokenizer changes.

    Args:
        end_of_text: the id put before the first file, between files, and after the last one.
        special: `<|endoftext|>` in a text is the token; otherwise it is plain text.
        spare_folder: where to keep ids if the files' own folder cannot be written.

    Returns:
        ids [N], uint16 where every id of the vocabulary fits, else uint32.
    """
    dtype = np.dtype(np.uint16 if max(tokenizer.bytes_of) < 2**16 else np.uint32)
    mark = np.array([] if end_of_text is None else [end_of_text], dtype)
    key = _tokenizer_key(tokenizer, special)
    parts = [mark]
    for file in files:
        parts += [_file_ids(file, tokenizer, key, dtype, special, spare_folder), mark]
    return np.concatenate(parts)


def _file_ids(
    file: Path,
    tokenizer: Tokenizer,
    key: str,
    dtype: np.dtype,
    special: bool,
    spare_folder: Path | None,
) -> np.ndarray:
    text = read_text(file)
    content = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
    folders = [file.parent, *([] if spare_folder is None else [spare_folder])]
    for folder in folders:
        with contextlib.suppress(OSError, ValueError, EOFError):  # damaged is as good as none
            ids = np.load(folder / f"{file.name}.{key}-{content}{SUFFIX}", allow_pickle=False)
            if ids.dtype == dtype and ids.ndim == 1:
                return ids
    try:
        encoded = tokenizer.encode(text, allowed_special="all" if special else frozenset())
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    ids = np.array(encoded, dtype)
    for folder in folders:
        with contextlib.suppress(OSError):
            _keep(folder, file.name, f"{key}-{content}", ids)
            break
    return ids


def _keep(folder: Path, name: str, key: str, ids: np.ndarray) -> None:
    """Store ids under their key in place of those of the same file's former content."""
    path = folder / f"{name}.{key}{SUFFIX}"
    with replacing(path) as (temporary,), temporary.open("wb") as file:
        np.save(file, ids)
    prefix = f"{name}.{key.partition('-')[0]}-"
    for other in folder.iterdir():
        if other.name.startswith(prefix) and other.name.endswith(SUFFIX) and other != path:
            other.unlink()


def _tokenizer_key(tokenizer: Tokenizer, special: bool) -> str:
    """Eight characters that change when anything does that decides about ids."""
    ranks = sorted((token, text.hex()) for token, text in tokenizer.bytes_of.items())
    names = sorted(tokenizer.special_tokens_set), sorted(tokenizer.added_words)
    described = repr((ranks, names, special)).encode("utf-8", errors="surrogatepass")
    return hashlib.sha256(described).hexdigest()[:8]


def ids_key(*ids: np.ndarray) -> str:
    """A fingerprint of training data: equal for equal ids only."""
    sums = [hashlib.sha256(part.astype("<u4").tobytes()).hexdigest() for part in ids]
    return "-".join(part[:16] for part in sums)


def token_sizes(tokenizer: Tokenizer, size: int) -> np.ndarray:
    """int64 [size]: the bytes of text that each id stands for; 0 for special and missing tokens."""
    sizes = np.zeros(size, np.int64)
    special = {text.encode("utf-8") for text in tokenizer.special_tokens_set}
    special -= {text.encode("utf-8") for text in tokenizer.added_words}
    for token, text in tokenizer.bytes_of.items():
        if token < size and text not in special:
            sizes[token] = len(text)
    return sizes
