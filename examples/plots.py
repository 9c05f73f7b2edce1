"""What the pictures share: matplotlib, imported late; fonts; captions in two languages; saving."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from show import LANGUAGE, say

CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # the same file, as matplotlib before 3.11 names it
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Arial Unicode MS",
)
BLUE, ORANGE, GREEN, GREY = "#08519c", "#d94801", "#238b45", "#737373"
NO_GLYPH = "□"


def pyplot() -> Any:
    """matplotlib.pyplot, drawing to files, with a Chinese font behind its own if there is one.

    Raises ImportError, saying what to install.
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError('pictures need matplotlib: pip install "npgpt[plot]"') from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    font = chinese_font()
    if font is None and LANGUAGE == "zh":
        say_what_is_missing()
    pyplot.rcParams.update(
        {
            "font.family": ["DejaVu Sans", *([font] if font else [])],
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "legend.frameon": False,
            "savefig.dpi": 120,
        }
    )
    return pyplot


@functools.cache
def chinese_font() -> str | None:
    """The name of a font with Chinese characters, or None."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    # matplotlib keeps a list of fonts, which does not know those installed since.
    for path in {*findSystemFonts()} - {font.fname for font in fontManager.ttflist}:
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            fontManager.addfont(path)
    installed = {font.name for font in fontManager.ttflist}
    return next((name for name in CHINESE_FONTS if name in installed), None)


@functools.cache
def say_what_is_missing() -> None:
    """Once: which font, and how to get it."""
    sentence = say(
        "no Chinese font: install Noto Sans CJK, e.g. apt install fonts-noto-cjk; until then "
        f"captions are English, and {NO_GLYPH} stands for each Chinese character.",
        "没有中文字体：请安装 Noto Sans CJK，例如 apt install fonts-noto-cjk；"
        f"在那之前，图上的说明用英文，汉字用 {NO_GLYPH} 代替。",
    )
    print(sentence, file=sys.stderr)


def caption(english: str, chinese: str) -> str:
    """The one of the two that this run speaks, and that can be drawn."""
    return chinese if LANGUAGE == "zh" and chinese_font() else english


def drawable(text: str) -> str:
    """`text` with □ for each character that no font in use has."""
    from matplotlib import font_manager, rcParams

    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in rcParams["font.family"]]
    missing = {
        char
        for char in text.replace("\n", "")
        if not any(font.get_char_index(ord(char)) for font in fonts)
    }
    if any("㐀" <= char <= "鿿" for char in missing):
        say_what_is_missing()
    return "".join(NO_GLYPH if char in missing else char for char in text)


def numbers_of(example: str) -> ModuleType:
    """Another example, run without what it prints: its numbers are the module's."""
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module(example)


def save(figure: Any, path: Path) -> None:
    """Write the figure; the ending of the name says in which format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    if path.suffix == ".png":  # with a palette it shows the same in a third of the bytes
        from PIL import Image  # which matplotlib brings along

        Image.open(path).convert("RGB").quantize(128, kmeans=8).save(path, optimize=True)
    print(say(f"  drawn: {path}", f"  已画出：{path}"))
