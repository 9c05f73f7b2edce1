"""The page: complete by itself, and maps that show where Δ is."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from npgpt.compare.page import COLUMNS, ROWS, as_page, flat, heat_map, pooled, shades_of
from tests.compare.planted import compared, cut_off, port, scaled
from tests.compare.ports import edited, run


def page_of(faults) -> str:
    found = compared("gpt2", "float32", port("gpt2", "float32", faults), local=True, maps=True)
    return as_page(found, lambda _: "<b>&")


def test_it_needs_nothing_else_and_is_well_formed() -> None:
    page = page_of({"h.1.mlp.act": scaled, "grad.h.0.attn": cut_off})
    assert not re.search(r"https?:|src=|<script|<link|@import|url\(", page)
    assert "&lt;b&gt;&amp;" in page
    open_tags: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Checker().feed(page.replace("/>", "></path>"))
    assert open_tags == []


def test_it_says_what_the_text_says() -> None:
    page = page_of({"h.1.mlp.act": scaled, "grad.h.0.attn": cut_off})
    assert page.count("verdict: beyond tolerance: h.1.mlp.act, grad.h.0.attn") == 2
    assert page.count("<tr class=wrong>") == 2
    assert page.count("<svg") == 2
    assert "<figcaption>h.1.mlp.act: |Δ|, 6 × 48, at most" in page
    assert "wrong: grad.h.0.attn, computed from grad.h.0, grad.h.0.ln_2" in page
    right = page_of({})
    assert "<svg" not in right
    assert 'class="verdict"' in right


def test_a_map_by_hand() -> None:
    """Two shades, a gap, and a number that is none."""
    apart = np.array([[1.0, -1.0, 0.0, 1e-2], [0.0, 0.0, np.nan, 0.0]])
    svg = heat_map(apart)
    assert 'viewBox="0 0 4 2"' in svg
    paths = dict(re.findall(r'<path fill="(.*?)" d="(.*?)"/>', svg))
    assert len(paths) == 3
    assert paths["#00f"] == "M2 1h1v1h-1z"
    assert "M0 0h2v1h-2z" in paths.values()
    assert "M3 0h1v1h-1z" in paths.values()


@pytest.mark.parametrize("shape", [(), (7,), (3, 500), (900, 2), (2, 5, 5), (1000, 1000)])
def test_large_arrays_are_drawn_in_blocks(shape) -> None:
    apart = np.zeros(shape)
    apart[(-1,) * len(shape)] = 1
    blocks = pooled(flat(apart))
    assert blocks.shape[0] <= ROWS
    assert blocks.shape[1] <= COLUMNS
    assert blocks[-1, -1] == 1
    assert blocks.sum() == 1
    assert shades_of(blocks).max() == 9


def test_the_command_writes_it(folder, dumped, tmp_path) -> None:
    path = tmp_path / "a.html"
    edited(dumped, **{"h.1.mlp": np.full((5, 12), np.inf, np.float32)})
    code, out, _ = run("--model", folder, "--against", dumped, "--html", path)
    assert code == 1
    assert "verdict: beyond tolerance" in out
    page = path.read_text(encoding="utf-8")
    assert "h.1.mlp: |Δ|, 5 × 12" in page
    for option in (["--html", path], ["--local"]):
        code, _, err = run("hello", "--model", folder, "--list", *option)
        assert (code, err.count("\n")) == (2, 1)
        assert "need the other side" in err
