"""One file of a page: its HTML, style and modules joined, and the data in it.

Nothing is loaded from anywhere, which the page itself forbids (Content-Security-Policy), and no
text of a token is markup: in the data, `<` is written as \\u003c.
"""

from __future__ import annotations

import base64
import html
import json
import math
from importlib.resources import files
from typing import Any

import numpy as np

# In the order in which they build on each other; together they are one function's body.
MODULES = (
    "data.js",
    "words.js",
    "words_frame.js",
    "words_attention.js",
    "words_chapters.js",
    "format.js",
    "state.js",
    "draw.js",
    "columns.js",
    "formulas.js",
    "margin.js",
    "title.js",
    "strip.js",
    "tokens.js",
    "stream.js",
    "lens.js",
    "paint.js",
    "gallery.js",
    "steps.js",
    "products.js",
    "reading.js",
    "head.js",
    "neurons.js",
    "answers.js",
    "waterfall.js",
    "silent.js",
    "keys.js",
    "save.js",
    "main.js",
)


def page(record: dict[str, Any]) -> str:
    """The HTML of a record from `npgpt.explore.data.collect`."""
    script = "\n".join(_source(name) for name in MODULES)
    data = json.dumps(encoded(record), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "TITLE": html.escape(f"{record['text'][:60] or record['model']} · npgpt explore"),
        "STYLE": _source("page.css"),
        "DATA": data.replace("<", "\\u003c"),
        "SCRIPT": f'(() => {{\n"use strict";\n{script}\n}})();',
    }
    before, *rest = _source("page.html").split("{{")
    return before + "".join(
        parts[name] + after for name, after in (piece.split("}}", 1) for piece in rest)
    )


def encoded(value: Any) -> Any:
    """For JSON: an array as kind, shape and base64; NaN and infinity, which JSON lacks, as null."""
    if isinstance(value, dict):
        return {key: encoded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(each) for each in value]
    if isinstance(value, np.ndarray):
        kind = "<f2" if value.dtype == np.float16 else "<f4" if value.dtype.kind == "f" else "<i4"
        raw = np.ascontiguousarray(value, kind).tobytes()
        return {
            "kind": kind[1:],
            "shape": list(value.shape),
            "base64": base64.b64encode(raw).decode("ascii"),
        }
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _source(name: str) -> str:
    return (files("npgpt.explore") / "page" / name).read_text(encoding="utf-8")
