"""The page from Python: in a notebook, or as a string."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.explore.data import Wishes, collect
from npgpt.explore.page import page
from npgpt.files.io import replacing
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama

INSTEAD = (
    "explore takes a GPT2 or a Llama, not a {}; what works on it: npgpt.compare and npgpt.describe."
)


class Explored:
    """A page; a notebook shows it where it is the last value of a cell."""

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all."""
        with replacing(Path(path)) as (temporary,):
            temporary.write_text(self.html, encoding="utf-8", newline="\n")

    def _repr_html_(self) -> str:
        style = "width:100%;height:85vh;border:0"
        return f'<iframe style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def explore(
    model: GPT2 | Llama,
    ids: Any,
    *,
    bytes_of: Mapping[int, bytes] | None = None,
    name: str | None = None,
    position: int | None = None,
    target: int | None = None,
    foil: int | None = None,
    full: bool = False,
) -> Explored:
    """One pass of a model over a text, there and back, as a page.

    Args:
        ids: [T], at least two.
        bytes_of: id -> bytes, as `tokenizer.bytes_of`; None: that of the folder from which the
            model was loaded, if it has one.
        name: of the model, as the page calls it.
        position: which token is followed at first.
        target, foil: two tokens whose logits are compared there.
        full: the tables of all heads, however large the page becomes.

    Raises:
        ValueError: another model, fewer than two tokens, what `forward` refuses.
    """
    if not isinstance(model, GPT2 | Llama):
        raise ValueError(INSTEAD.format(type(model).__name__))
    if bytes_of is None:
        bytes_of = _vocabulary(model)
    if name is None:
        name = "model" if model.source is None else model.source.name
    wishes = Wishes(position, target, foil, full)
    return Explored(page(collect(model, [int(i) for i in np.asarray(ids)], bytes_of, name, wishes)))


def _vocabulary(model: GPT2 | Llama) -> Mapping[int, bytes]:
    if model.source is None:
        return {}
    try:
        from npgpt.text.tokenizer import load_tokenizer

        return load_tokenizer(model.source).bytes_of
    except (ValueError, OSError, ImportError):
        return {}
