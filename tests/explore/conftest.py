"""One page of the shipped model for all tests, and a way to open a page that tells what it does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import npgpt
from npgpt.explore.data import Wishes, collect
from npgpt.explore.page import page
from npgpt.trace import command as trace

TEXT = "The cat sat on the mat because it was tired"
POSITION, TARGET, FOIL = 7, 373, 547  # it; was, were


@pytest.fixture(scope="session")
def tales() -> tuple[Any, Any]:
    """The model that ships, and its tokenizer."""
    return npgpt.from_pretrained("weights/tales"), npgpt.load_tokenizer("weights/tales")


@pytest.fixture(scope="session")
def record(tales) -> dict[str, Any]:
    """What the page of TEXT shows."""
    model, tokenizer = tales
    ids = tokenizer.encode(TEXT)
    wishes = Wishes(POSITION, TARGET, FOIL)
    return collect(model, ids, tokenizer.bytes_of, "weights/tales", wishes)


@pytest.fixture(scope="session")
def file(record, tmp_path_factory) -> Path:
    """The page of TEXT."""
    path = tmp_path_factory.mktemp("explore") / "page.html"
    path.write_text(page(record), encoding="utf-8")
    return path


@pytest.fixture
def traced(run_command) -> Callable[..., dict[str, Any]]:
    """What `trace --json` says of TEXT."""

    def call(*arguments: object) -> dict[str, Any]:
        _, out, _ = run_command(trace, TEXT, "--position", POSITION, "--json", *arguments)
        return json.loads(out)

    return call


class Opened:
    """A page in a window, and everything that it asked for or complained of."""

    def __init__(self, window: Any, address: str) -> None:
        self.window, self.address = window, address
        self.asked: list[str] = []
        self.said: list[str] = []
        window.on("request", lambda request: self.asked.append(request.url))
        window.on("console", lambda message: self.said.append(message.text))
        window.on("pageerror", lambda error: self.said.append(str(error)))
        window.on("dialog", self._refuse)
        self.go("lang=en")

    def _refuse(self, dialog: Any) -> None:
        self.said.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, state: str) -> None:
        """Open the page at another address after #."""
        self.window.goto("about:blank")
        self.window.goto(f"{self.address}#{state}")
        self.window.wait_for_selector("html[data-ready]")

    def set(self, state: str) -> None:
        """Change what stands after #, without opening it again."""
        self.window.evaluate("state => { location.hash = state }", state)
        self.window.wait_for_function("() => new Promise(done => requestAnimationFrame(done))||1")

    def cost(self, selector: str) -> float:
        """Seconds that the page itself works after a click, until it is painted.

        The processor's, so that other work on the machine does not count.
        """
        session = self.window.context.new_cdp_session(self.window)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

        before = spent()
        self.window.evaluate("selector => document.querySelector(selector).click()", selector)
        painted = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
        self.window.evaluate(painted)
        return spent() - before

    def text(self, selector: str) -> str:
        """The text of an element."""
        return self.window.locator(selector).first.text_content()


@pytest.fixture
def open_page(chromium) -> Iterator[Callable[..., Opened]]:
    """Open a file: `open_page(file, width=1280, **options of a context)`."""
    contexts = []

    def call(path: Path, width: int = 1280, **options: Any) -> Opened:
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        return Opened(context.new_page(), path.as_uri())

    yield call
    for context in contexts:
        context.close()
