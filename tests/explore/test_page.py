"""The file: its parts, what may not stand in it, and Chinese for every English sentence."""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files

import numpy as np
import pytest

from npgpt.explore.page import MODULES, encoded, page
from tests.builders.bert import random_bert

SOURCES = files("npgpt.explore") / "page"


def source(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def test_every_module_is_joined_once_and_is_short() -> None:
    there = sorted(each.name for each in SOURCES.iterdir() if each.name.endswith(".js"))
    assert sorted(MODULES) == there
    for name in MODULES:
        assert source(name).startswith("// "), name
        assert len(source(name).splitlines()) <= 250, name


def test_no_name_is_defined_by_two_modules() -> None:
    """They share one scope, and the later of two functions would win in silence."""
    pattern = re.compile(r"^(?:async )?(?:function|const|let) (\w+)", re.MULTILINE)
    names = [name for module in MODULES for name in pattern.findall(source(module))]
    assert sorted(names) == sorted(set(names))


def test_every_sentence_is_there_in_both_languages() -> None:
    pairs = []
    for name in MODULES:
        if name.startswith("words_"):
            text = source(name)
            found = re.findall(
                r'(\w+): \[\s*("(?:[^"\\]|\\.)*"),\s*("(?:[^"\\]|\\.)*"),?\s*\]', text
            )
            assert len(found) == len(re.findall(r"^  \w+: ", text, re.MULTILINE)), name
            pairs += found
    assert len(pairs) > 100
    same = {key for key, english, chinese in pairs if english == chinese}
    assert same == {"token", "step5", "saliency"}
    for key, english, chinese in pairs:
        fillings = [set(re.findall(r"\{(\w+)\}", text)) for text in (english, chinese)]
        counts = {name.lower() for name in fillings[0]}
        assert {name.lower() for name in fillings[1]} == counts, key
        if key not in same:
            assert re.search(r"[\u4e00-\u9fff]|[dP]", chinese), key
    used = set(re.findall(r'\b(?:t|say)\(\s*"(\w+)"', "".join(map(source, MODULES))))
    assert used <= {key for key, _, _ in pairs}


def test_nothing_is_fetched(record) -> None:
    text = page(record)
    assert "default-src 'none'" in text
    code = re.sub(r'<script id="data".*?</script>', "", text, flags=re.DOTALL)
    addresses = set(re.findall(r"https?://[^\"'\s)]+", code))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG
    assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|\beval\(|innerHTML", code)


def test_size(record) -> None:
    assert len(page(record).encode()) < 700_000


def test_text_is_never_markup(record) -> None:
    bad = "</script><script>alert(1)</script><!--"
    shown = page({**record, "text": bad, "model": bad, "labels": {**record["labels"], "1": bad}})
    assert bad not in shown
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', shown)
    assert "<" not in data
    assert json.loads(data)["text"] == bad
    assert "<title>&lt;/script&gt;" in shown


def test_text_that_looks_like_a_place_to_fill_stays(record) -> None:
    assert "{{STYLE}}" in page({**record, "text": "{{STYLE}} {{DATA}}"})


def test_arrays_keep_their_digits() -> None:
    array = np.array([[0.1, -2.5], [np.pi, 1e-8]], np.float32)
    found = encoded({"a": array, "b": [np.arange(3)], "c": float("nan"), "d": None})
    raw = np.frombuffer(base64.b64decode(found["a"]["base64"]), "<f4")
    np.testing.assert_array_equal(raw.reshape(found["a"]["shape"]), array)
    assert found["b"][0]["kind"] == "i4"
    assert found["c"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert encoded(array.astype(np.float16))["kind"] == "f2"


def test_explore_takes_no_other_model(rng) -> None:
    from npgpt.explore import explore

    with pytest.raises(ValueError, match=r"not a BERT; what works on it: npgpt.compare"):
        explore(random_bert(rng), [1, 2, 3])  # type: ignore[arg-type]
