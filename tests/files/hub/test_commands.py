"""What commands download: nothing that they do not need, all of it from one commit."""

from __future__ import annotations

import json

import pytest

from npgpt import translate


@pytest.mark.parametrize(
    ("model_type", "argument", "vocabulary"),
    [
        ("marian", ["a text"], ["source.spm", "target.spm", "vocab.json"]),
        ("marian", ["--ids", "1 2"], []),
        ("bart", ["a text"], []),
    ],
)
def test_translate_downloads_the_vocabulary_that_the_text_needs(
    environment, hub, whole, model_type, argument, vocabulary
):
    spm = dict.fromkeys(["source.spm", "target.spm"], b"a")
    config = json.dumps({"model_type": model_type}).encode()
    hub.add("owner/model", {**whole, **spm, "config.json": config})
    with pytest.raises(ValueError, match=r"lacks|missing|tensor"):  # the weights are a GPT-2's
        translate.main([*argument, "--model", "owner/model"])
    beside = ["config.json", *vocabulary, "model.safetensors", "generation_config.json"]
    assert hub.asked("HEAD") == beside
