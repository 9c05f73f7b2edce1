"""The picture of a page in both READMEs: python -m tests.explore.still docs/pictures/explore.png

It needs Chromium and the extra `browser`, as the tests of the page do.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import npgpt
from npgpt.explore import explore

TEXT = "The cat sat on the mat because it was tired"
WIDTH, HEIGHT = 1280, 1290
# Where the attention begins, below the strip that stays in sight.
SCROLL = "scrollTo(0, document.getElementById('c-attention').offsetTop - 48)"


def still(path: Path) -> None:
    """Write a PNG of the attention chapter, in the light scheme."""
    from playwright.sync_api import sync_playwright

    model, tokenizer = npgpt.from_pretrained("weights/tales"), npgpt.load_tokenizer("weights/tales")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "page.html"
        explore(model, tokenizer.encode(TEXT), name="weights/tales", position=7).save(page)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
        )
        window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        window.goto(f"{page.as_uri()}#lang=en&head=4.2")
        window.wait_for_selector("html[data-ready]")
        window.evaluate(SCROLL)
        window.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    still(Path(sys.argv[1]))
