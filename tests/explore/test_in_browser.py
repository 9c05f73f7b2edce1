"""A page opened in Chromium: quiet, right to the digits shown, and usable without a mouse."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.explore import explore
from npgpt.models.gpt2.config import init_params
from npgpt.trace import lens
from tests.builders.gpt_neo import random_gpt_neo
from tests.builders.llama import random_llama
from tests.explore.conftest import TEXT, Opened

pytestmark = pytest.mark.browser

FOLDS = "lens=1&bytes=1&moreHeads=1&moreNeurons=1&moreParts=1&open=0,2"
NUMBER = re.compile(r"[+−-]?\d*\.?\d+")


def number(text: str) -> tuple[float, float]:
    """What a text says, and by how much its digits may be off."""
    found = NUMBER.search(text)
    assert found, text
    digits = found[0].replace("−", "-")
    return float(digits), 0.5001 * 10.0 ** -len(digits.partition(".")[2])


def assert_shows(text: str, value: float) -> None:
    shown, half = number(text)
    assert abs(shown - value) <= half + 1e-5 * abs(value), (text, value)


@pytest.fixture
def opened(open_page, file) -> Opened:
    return open_page(file)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_asks_for_nothing_and_has_no_error(opened, lang) -> None:
    for back in (0, 1):
        for step, position in zip((1, 2, 3, 4, 5, 6), (0, 1, 3, 5, 9, 10), strict=True):
            opened.set(f"lang={lang}&back={back}&step={step}&p={position}&{FOLDS}")
        for order in ("job", "moved", "gradient"):
            opened.set(f"lang={lang}&back={back}&sort={order}")
    assert opened.said == []
    outside = [url for url in opened.asked if not url.startswith(("about:", opened.address))]
    assert [url for url in outside if not url.startswith(("data:", "blob:"))] == []
    body = opened.text("main") + opened.text("aside")
    assert not re.search(r"undefined|NaN|\[object|null", body)


def test_sixty_cells_are_those_of_trace(opened, traced) -> None:
    checked = 0
    for layer, head in ((0, 1), (2, 3), (4, 2), (5, 2), (5, 0)):
        probs = traced("--layer", layer, "--head", head)["head"]["probs"]
        opened.set(f"lang=en&head={layer}.{head}&p=7&step=5")
        for i, j in ((0, 0), (3, 1), (5, 5), (6, 2), (7, 0), (7, 1), (7, 6), (10, 8), (10, 10)):
            cell = opened.window.locator(f'#v-head [data-cell="{i} {j}"] + text')
            assert_shows(cell.text_content(), probs[i][j])
            checked += 1
    trace = traced()
    rows = opened.window.locator("#v-stream svg").text_content()
    assert len(trace["corrections"]) == 12
    opened.set("lang=en&p=7&back=0")
    for correction in trace["corrections"]:
        assert f"{correction['added'][7]:.1f}" in rows
        checked += 1
    for place, guess in enumerate(trace["guesses"][-1]["likeliest"][:3]):
        assert guess["label"].replace("␣", "·") in rows, place
        checked += 1
    assert checked >= 60


def test_gradients_are_those_of_backward(opened, record, tales) -> None:
    """All cells of a head at step 5 on the way back, in the power of ten that its legend names."""
    model, tokenizer = tales
    ids = tokenizer.encode(TEXT)
    seen: dict[str, np.ndarray] = {}
    back: dict[str, np.ndarray] = {}
    out = model.forward(ids, observe=seen.__setitem__)
    exps = np.exp(out.logits - out.logits.max(axis=-1, keepdims=True))
    dlogits = exps / exps.sum(axis=-1, keepdims=True)
    dlogits[range(10), ids[1:]] -= 1
    dlogits[10] = 0
    model.backward(dlogits / 10, out.saved, observe=back.__setitem__)
    opened.set("lang=en&head=4.2&back=1&step=5")
    cells = opened.window.locator("#v-head [data-cell][data-text]")
    found = cells.evaluate_all("all => all.map(x => [x.dataset.cell, x.dataset.text])")
    assert len(found) == 55
    for cell, text in found:
        i, j = map(int, cell.split())
        shown, half = number(text)
        assert abs(shown - 1000 * back["h.4.attn.probs"][2, i, j]) <= 1.01 * half, (cell, text)


@pytest.mark.parametrize("back", [0, 1])
def test_the_python_of_the_margin_prints_what_it_says(opened, back) -> None:
    names: dict[str, Any] = {}
    exec(opened.text("#setup pre"), names)
    for step in range(1, 7):
        opened.set(f"lang=en&back={back}&step={step}")
        for code in opened.window.locator("[data-python]").all_text_contents():
            call, _, shown = code.partition("\n→ ")
            power = 1e-3 if "10⁻³" in shown else 1e-6 if "10⁻⁶" in shown else 1
            assert_shows(shown, eval(call, names) / power)


def test_parts_sum_to_the_difference_of_the_logits(opened, record) -> None:
    opened.set("lang=en&open=0,1,2,3,4,5")
    shares = opened.window.locator("#v-waterfall [data-share]").evaluate_all(
        "all => all.map(x => [x.dataset.share, x.textContent])"
    )
    values = {name: number(text)[0] for name, text in shares}
    total = values.pop("sum")
    heads = {name: x for name, x in values.items() if "·H" in name}
    parts = {name: x for name, x in values.items() if name not in heads}
    assert len(heads) == 30
    assert sum(parts.values()) == pytest.approx(total, abs=0.5e-3 * len(parts))
    for n in range(6):
        own = [x for name, x in heads.items() if name.startswith(f"{n}·")]
        assert sum(own) == pytest.approx(parts[f"{n}·attn"], abs=0.5e-3 * 6)
    logits = record["answers"]["logits"][7]
    place = {int(i): k for k, i in enumerate(record["answers"]["ids"][7])}
    assert total == pytest.approx(logits[place[373]] - logits[place[547]], abs=1e-3)


def test_chapter_seven_is_answered_by_clicks(opened) -> None:
    """Which head, what it moves, the loss without it, the weight it pulls: see docs/explore.md."""
    opened.window.click('#strip [data-token="7"]')
    opened.window.click("text=head 4 of block 3")
    facts = opened.window.locator("[data-fact]").evaluate_all(
        "all => Object.fromEntries(all.map(x => [x.dataset.fact, x.textContent]))"
    )
    assert facts["looksAt"] == "sat .84"
    assert facts["movesThere"] == "16.6"
    assert facts["lossWithout"] == "+0.0078"
    assert facts["foretold"] == "+0.0063"
    assert facts["hardest"] == "−0.0548"
    assert 'grads["h.3.attn.c_attn.weight"][115, 954]' in opened.text("[data-python=weight]")


def test_the_keyboard_alone_leads_everywhere(opened) -> None:
    window = opened.window
    reached = []
    for _ in range(80):
        window.keyboard.press("Tab")
        reached.append(window.evaluate("document.activeElement.id"))
    views = ["tokens", "stream", "gallery", "head", "neurons", "answers", "waterfall", "silent"]
    assert [x for x in dict.fromkeys(reached) if x[2:] in views] == [f"v-{x}" for x in views]
    window.focus("#v-head")
    window.keyboard.press("ArrowRight")
    assert opened.text("#spoken") == "it looks at on, 0.016"
    window.keyboard.press("ArrowUp")
    assert opened.text("#spoken").startswith("because looks at on, 0.01")
    window.keyboard.press("2")
    assert "q · k" in opened.text("#v-head")
    window.keyboard.press("b")
    assert window.evaluate("document.documentElement.className") == "back"
    assert window.evaluate("document.activeElement.id") == "v-head"
    window.keyboard.press("Escape")
    assert window.evaluate("document.activeElement === document.body")
    window.focus("#v-gallery")
    window.keyboard.press("ArrowLeft")
    assert opened.text("#v-head").startswith("2·H4")


@pytest.mark.parametrize("back", [0, 1])
def test_a_telephone_needs_no_sideways_scrolling(open_page, file, back) -> None:
    opened = open_page(file, width=390)
    for lang in ("en", "zh"):
        for step in (1, 2, 5):
            opened.set(f"lang={lang}&back={back}&step={step}&{FOLDS}")
            sizes = "[document.documentElement.scrollWidth, innerWidth]"
            assert opened.window.evaluate(sizes) == [390, 390]


def test_turning_back_moves_nothing(opened) -> None:
    places = "[...document.querySelectorAll('figure')].map(x => x.offsetTop)"
    opened.set("lang=en&back=0")
    before = opened.window.evaluate(places)
    opened.window.click("text=↑ Back")
    assert opened.window.evaluate(places) == before


def test_both_schemes_by_the_system_and_by_hand(open_page, file) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    for scheme, colour in (("light", "rgb(251, 250, 247)"), ("dark", "rgb(21, 23, 26)")):
        opened = open_page(file, color_scheme=scheme)
        assert opened.window.evaluate(paper) == colour
    opened.window.click("[aria-label='Dark or light']")
    assert opened.window.evaluate(paper) == "rgb(251, 250, 247)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("back", [0, 1])
def test_axe_finds_no_serious_fault(open_page, file, scheme, back) -> None:
    from axe_playwright_python.sync_playwright import Axe

    opened = open_page(file, color_scheme=scheme)
    opened.go(f"lang=en&back={back}&{FOLDS}")
    found = Axe().run(opened.window).response["violations"]
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in serious] == []


def test_chinese_by_a_switch(opened) -> None:
    opened.window.click("text=中文")
    assert opened.window.evaluate("document.documentElement.lang") == "zh-CN"
    assert "唯一让各列相遇的地方" in opened.text("#c-attention")
    opened.window.wait_for_function("() => location.hash.includes('lang=zh')")
    opened.window.click("text=English")
    assert "The only place where columns meet" in opened.text("#c-attention")


def test_the_address_holds_what_is_seen(open_page, file) -> None:
    opened = open_page(file)
    opened.window.click('#strip [data-token="9"]')
    opened.window.click('[data-step="3"]')
    opened.window.click("text=↑ Back")
    seen = opened.text("main")
    opened.window.wait_for_function("() => location.hash.includes('back=1')")
    state = opened.window.evaluate("location.hash.slice(1)")
    again = open_page(file)
    again.go(state)
    assert again.text("main") == seen


def test_an_address_that_makes_no_sense_does_no_harm(opened) -> None:
    opened.go(
        "lang=xx&p=99&head=9.9&key=-3&step=0&row=400&sort=x&scheme=y&open=z&target=q&neuron=77"
    )
    assert "At ired" in opened.text("#c-stream")
    assert opened.said == []


@pytest.mark.parametrize("view", ["stream", "gallery"])
def test_a_figure_is_saved_as_svg(opened, view, tmp_path) -> None:
    opened.window.evaluate(
        f"document.getElementById('v-{view}').scrollIntoView({{block: 'center'}})"
    )
    with opened.window.expect_download() as download:
        opened.window.evaluate("document.querySelector('.bar button').nextSibling.click()")
    path = tmp_path / "figure.svg"
    download.value.save_as(path)
    assert download.value.suggested_filename == f"{view}.svg"
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    assert len(list(root.iter())) > 40
    assert not re.search(r"var\(|class=\"\w+\" href=\"http", path.read_text(encoding="utf-8"))


def test_tokens_are_never_markup(open_page, tmp_path) -> None:
    text = "猫</script><img src=x onerror=alert(1)><!--&amp;"
    sizes = {"vocab_size": 257, "max_position_embeddings": 100}
    model = random_llama(np.random.default_rng(0), np.float32, **sizes)
    names = {i: bytes([i]) for i in range(256)} | {7: b"</script><img src=x onerror=alert(2)>"}
    page = explore(model, [7, *text.encode()], bytes_of=names, name="<b>bold</b>")
    page.save(tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html")
    opened.go(f"lang=en&{FOLDS}")
    assert opened.said == []
    assert opened.window.evaluate("document.querySelectorAll('img, b b, main script').length") == 0
    assert text in opened.text("h1")
    assert opened.text(".bar").startswith("npgpt explore<b>bold</b>")
    assert "</script><img src=x onerror=alert(2)>" in opened.window.title()


def test_a_llama_shows_angles_and_shared_keys(open_page, tmp_path) -> None:
    sizes = {"vocab_size": 30, "max_position_embeddings": 40}
    model = random_llama(np.random.default_rng(0), np.float32, **sizes)
    explore(model, [3, 1, 4, 1, 5, 9, 2, 6], position=5).save(tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html")
    opened.go("lang=en&head=1.3&step=1&p=5")
    assert "5 × θ from 5.000 down to 0.050 rad" in opened.text("#v-head")
    assert "shares k and v with H2" in opened.text(".card")
    assert "P = softmax(Rq (Rk)⊤" in opened.text("#c-attention aside")
    assert opened.said == []


@pytest.mark.parametrize(
    ("family", "options", "formula"),
    [
        ("mistral", {"sliding_window": 3}, "q = R x WQ"),
        ("qwen2", {}, "q = R (x WQ + bQ)"),
        ("qwen3", {}, "q = R norm(x WQ)"),
    ],
)
def test_relatives_show_what_they_have(open_page, tmp_path, family, options, formula) -> None:
    sizes = {"vocab_size": 30, "max_position_embeddings": 40, **options}
    model = random_llama(np.random.default_rng(0), np.float32, model_type=family, **sizes)
    explore(model, [3, 1, 4, 1, 5, 9, 2, 6], position=6).save(tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html")
    opened.go("lang=en&head=1.3&step=1&p=6")
    assert formula in opened.text("#v-head .formula")
    for step in (2, 3, 4, 5, 6):
        opened.set(f"step={step}&back={step % 2}&key=0")
        assert not re.search(r"undefined|NaN|Infinity|\[object", opened.text("main"))
    opened.set("step=4&back=0&key=0")
    hides = ", j ≤ i − 3" in opened.text("#v-head .formula")
    assert hides == (family == "mistral")
    assert opened.said == []


def test_a_gpt_neo_shows_windows_no_scale_and_its_own_names(open_page, tmp_path) -> None:
    sizes = {"vocab_size": 30, "max_position_embeddings": 40, "window_size": 3}
    model = random_gpt_neo(np.random.default_rng(0), np.float32, **sizes)
    explore(model, [3, 1, 4, 1, 5, 9, 2, 6], position=6).save(tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html")
    opened.go("lang=en&head=1.2&step=1&p=6")
    assert "q = x WQ,  k = x WK,  v = x WV" in opened.text("#v-head .formula")
    assert "P = softmax(q k⊤ + M)" in opened.text("#c-attention aside")
    for step in (2, 3, 4, 5, 6):
        opened.set(f"step={step}&back={step % 2}&key=0")
        assert not re.search(r"undefined|NaN|Infinity|\[object", opened.text("main"))
    opened.set("step=6&back=0&key=5")
    assert "h.1.attn.attention.out_proj.weight" in opened.text("body")
    opened.set("step=4&back=0&key=0")
    assert ", j ≤ i − 3" in opened.text("#v-head .formula")
    assert opened.said == []


def test_a_long_text_folds_columns_and_rows_still_sum_to_one(open_page, tales, tmp_path) -> None:
    model, tokenizer = tales
    ids = tokenizer.encode(" ".join([TEXT] * 6))
    explore(model, ids, bytes_of=tokenizer.bytes_of).save(tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html")
    opened.go("lang=en&head=2.1&p=40&step=5")
    row = opened.window.evaluate(
        """() => [...document.querySelectorAll('#v-head svg[role=img] text')]
            .filter(x => Math.abs(x.getBoundingClientRect().top
                - document.querySelector('#v-head [data-cell="40 40"]').getBoundingClientRect().top)
                < 12).map(x => x.textContent).filter(x => /^[.\\d]+$/.test(x)).map(Number)"""
    )
    assert len(row) >= 8
    assert sum(row) == pytest.approx(1, abs=0.005 * len(row))
    assert opened.window.locator("h1 button").count() == len(ids)
    opened.window.locator("h1 button").nth(30).click()
    assert opened.window.locator('#strip [data-token="30"][aria-pressed="true"]').count() == 1
    assert opened.said == []


def test_a_notebook_shows_it_in_a_frame(chromium, tales, tmp_path) -> None:
    model, tokenizer = tales
    shown = explore(model, tokenizer.encode(TEXT))
    (tmp_path / "notebook.html").write_text(shown._repr_html_(), encoding="utf-8")
    window = chromium.new_page()
    said: list[str] = []
    window.on("pageerror", lambda error: said.append(str(error)))
    window.goto((tmp_path / "notebook.html").as_uri())
    frame = window.frame_locator("iframe")
    frame.locator('[data-token="5"]').click()
    assert frame.locator('[data-token="5"]').get_attribute("aria-pressed") == "true"
    assert said == []
    window.close()


def test_print_shows_the_figures_in_light_and_no_controls(opened) -> None:
    opened.set("lang=en&scheme=dark")
    scheme = "document.documentElement.dataset.scheme"
    opened.window.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.window.evaluate(scheme) == "light"
    opened.window.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.window.evaluate(scheme) == "dark"
    opened.window.emulate_media(media="print")
    assert not opened.window.locator("#strip").is_visible()
    assert opened.window.locator("#v-head svg").first.is_visible()
    assert len(opened.window.pdf()) > 20_000


def test_gpt2_small_is_made_and_shown_in_time(open_page, tmp_path) -> None:
    """A random model of its sizes, 20 tokens: at most 2.5 MB, 30 s, 1 s to paint, 50 ms a step."""
    config = npgpt.GPT2Config.from_dict({})
    model = npgpt.GPT2(config, init_params(config, np.random.default_rng(0)))
    ids = np.random.default_rng(1).integers(0, 50257, 20)
    started = time.process_time()
    explore(model, ids).save(tmp_path / "small.html")
    assert time.process_time() - started < 30 * 2  # of two processors
    assert (tmp_path / "small.html").stat().st_size < 2_500_000
    opened = open_page(tmp_path / "small.html")
    paint = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    paints = []
    for _ in range(3):  # the best of three, as other work on the machine counts here
        opened.go("lang=en")
        opened.window.wait_for_function(paint)
        paints.append(opened.window.evaluate(paint))
    assert min(paints) < 1000
    assert max(opened.cost(f'[data-step="{step}"]') for step in (6, 4, 3, 2, 1, 5)) < 0.05


def test_lens_stations_say_what_trace_says(opened, tales) -> None:
    """The folded grid: the likeliest token after each block, at every position."""
    model, tokenizer = tales
    seen = lens.observe(model, tokenizer.encode(TEXT))
    opened.set("lang=en&lens=1")
    for position in (1, 4, 7):
        for row in lens.logit_lens(seen, position, 0, 1):
            n = 0 if row.station == "embed" else 2 * (int(row.station[2:]) + 1)
            cell = opened.window.locator(f'#v-lens [data-cell="lens {n} {position}"] + text')
            wanted = tokenizer.decode([row.likeliest[0].id]).removeprefix(" ")
            assert cell.text_content().rstrip("…") == wanted[: len(cell.text_content().rstrip("…"))]
