"""What the pictures share: matplotlib, imported late, and labels that it has glyphs for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHINESE_FONTS = (
    "Noto Sans CJK SC",
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


def pyplot() -> Any:
    """matplotlib.pyplot, drawing to files, with a Chinese font behind its own if there is one.

    Raises ImportError, saying what to install.
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError('pictures need matplotlib: pip install "npgpt[plot]"') from None
    matplotlib.use("Agg")
    from matplotlib import font_manager, pyplot

    installed = {font.name for font in font_manager.fontManager.ttflist}
    chinese = [name for name in CHINESE_FONTS if name in installed][:1]
    pyplot.rcParams.update(
        {
            "font.family": ["DejaVu Sans", *chinese],
            "axes.spines.top": False,
            "axes.spines.right": False,
            "savefig.dpi": 150,
        }
    )
    return pyplot


def drawable(text: str) -> str:
    """`text` with the code points of characters that no font in use can draw, such as U+732B."""
    from matplotlib import font_manager, rcParams

    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in rcParams["font.family"]]
    return "".join(
        char if any(font.get_char_index(ord(char)) for font in fonts) else f"U+{ord(char):04X}"
        for char in text
    )


def save(figure: Any, path: Path) -> None:
    """Write the figure; the ending of the name says in which format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    if path.suffix == ".png":  # with a palette it shows the same in a third of the bytes
        from PIL import Image  # which matplotlib brings along

        Image.open(path).convert("RGB").quantize(256, kmeans=8).save(path, optimize=True)
    print(f"  drawn: {path}")
