"""generation_config.json: what counts, what is refused, what is named, and what is saved."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import npgpt
from npgpt.models.generation import KEYS, Generation
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.llama import write_tiny_llama
from tests.builders.transformer import random_transformer


def write_bart(folder: Path, **options: Any) -> Path:
    model = random_transformer(np.random.default_rng(0), np.float32, model_type="bart", **options)
    model.save_pretrained(folder)
    return folder


WRITERS = {"gpt2": write_tiny_gpt2, "llama": write_tiny_llama, "bart": write_bart}


def say(folder: Path, **settings: Any) -> Path:
    """Write generation_config.json; an `eos_token_id` that is there needs no warning."""
    text = json.dumps({"eos_token_id": 2, **settings})
    (folder / "generation_config.json").write_text(text, encoding="utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"config\.json: ") as caught:
        npgpt.from_pretrained(folder)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


COUNT = "an integer >= 0"
FACTOR = "a number from 0.001 to 1000"
# name -> values that are refused, what it must be
KINDS: dict[str, tuple[list[Any], str]] = {
    **dict.fromkeys(
        ("min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
        ([-1, 2.0, "2", True, 2**31, math.nan, [1]], COUNT),
    ),
    **dict.fromkeys(
        ("max_length", "max_new_tokens"), ([0, -1, "20", 1e400, True], "a positive integer or null")
    ),
    **dict.fromkeys(
        ("repetition_penalty", "encoder_repetition_penalty"),
        ([0, -1.0, math.nan, math.inf, "1.2", 1e300, 10**400, True], FACTOR),
    ),
    "length_penalty": (["2.0", math.inf, -(10**10), False], "a number from -50 to 50"),
    "num_beams": ([0, 2**31, 1001, 1.0, "3"], "an integer from 1 to 1000"),
    "early_stopping": (["soon", 1, 0], "one of True, False, never"),
    "temperature": ([-1, math.nan, "1", math.inf], "a number >= 0"),
    "top_p": ([1.1, -0.1, math.nan, "0.9"], "a number from 0 to 1"),
    "top_k": ([-1, 3.0, "50"], COUNT),
    **dict.fromkeys(("do_sample", "renormalize_logits"), ([1, 0, "false"], "true or false")),
    **dict.fromkeys(
        ("eos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"),
        (["2", 2.0, [1, None], {"a": 1}, True], "an id, or an array of ids or null"),
    ),
    **dict.fromkeys(
        ("bos_token_id", "decoder_start_token_id", "forced_bos_token_id"),
        (["2", 2.0, [1], True], "the id of a token or null"),
    ),
    "bad_words_ids": (
        [[], 3, [3], [[]]][1:],
        "an array in which each value is an array of at least one id",
    ),
    "exponential_decay_length_penalty": (
        [5, [5], [5, 0], [-1, 1.2], [1.5, 1.2], [5, math.nan], [1, 2, 3], [1, 1e9]],
        f"an array of {COUNT} and {FACTOR}",
    ),
}


@pytest.mark.parametrize("name", Generation.__dataclass_fields__)
def test_every_setting_has_a_kind_and_null_is_its_default(name) -> None:
    wrong, says = KINDS[name]
    for value in wrong:
        with pytest.raises(ValueError, match=r"^a/b\.json: ") as caught:
            Generation.from_dict({name: value}, "a/b.json")
        assert f"a/b.json: {name} is {value!r:.60}, but must be {says}" in str(caught.value)
    assert Generation.from_dict({name: None}, "a/b.json") == Generation()


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"length_penalty": "2.0"}, "length_penalty is '2.0', but must be a number"),
        ({"bad_words_ids": [[3], [4, 19]]}, "bad_words_ids has 19, but the model has 19 ids"),
        ({"bad_words_ids": [[-1]]}, "bad_words_ids has -1"),
        ({"forced_bos_token_id": 19}, "forced_bos_token_id has 19, but the model has 19 ids"),
        ({"forced_eos_token_id": [2, 99]}, "forced_eos_token_id has 99"),
        ({"decoder_start_token_id": 19}, "decoder_start_token_id has 19"),
        (
            {"suppress_tokens": [2, 3], "forced_eos_token_id": 2},
            "suppress_tokens forbids what forced_eos_token_id demands",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence_with_file_and_key(tmp_path, file, settings, says) -> None:
    folder = write_bart(tmp_path)
    if file == "generation_config.json":
        say(folder, **settings)
    else:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    assert f"{folder / file}: {says}" in refusal(folder)


@pytest.mark.parametrize("text", ["[]", "7", "{", "", '{"a": 1, "a": 2}', '{"a":' * 9999])
def test_what_is_no_json_object_is_said(tmp_path, text) -> None:
    folder = write_tiny_gpt2(tmp_path)
    (folder / "generation_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"generation_config\.json is not"):
        npgpt.from_pretrained(folder)


@pytest.mark.parametrize("kind", WRITERS)
def test_the_second_end_of_a_text_stands_beside_config_json(tmp_path, kind) -> None:
    """Where Llama 3 says that a turn is over."""
    folder = WRITERS[kind](tmp_path, eos_token_id=2)
    model = npgpt.from_pretrained(folder)
    free = [*model.generate([5, 6, 7], max_new_tokens=6)]
    end = next(token for token in free[1:] if token != 2)
    for settings, ends in ({"eos_token_id": [2, end]}, end), ({"eos_token_id": end}, end):
        model = npgpt.from_pretrained(say(folder, **settings))
        assert model.config.eos_token_id == 2
        assert [*model.generate([5, 6, 7], max_new_tokens=6)] == free[: free.index(ends) + 1]


def test_without_the_file_config_json_counts_and_with_it_alone_the_file(tmp_path) -> None:
    folder = write_bart(tmp_path, num_beams=3, max_length=9, length_penalty=2.0)
    found = npgpt.from_pretrained(folder).generation
    assert (found.num_beams, found.max_length, found.length_penalty) == (3, 9, 2.0)
    found = npgpt.from_pretrained(say(folder, max_length=None, min_length=4)).generation
    assert found == Generation(eos_token_id=2, min_length=4)


def test_an_end_of_text_that_no_longer_counts_is_said(tmp_path) -> None:
    folder = say(write_tiny_gpt2(tmp_path), eos_token_id=None)
    with pytest.warns(UserWarning, match="has no eos_token_id, so no token ends a text") as caught:
        assert npgpt.from_pretrained(folder).generation.eos_token_id is None
    assert len(caught) == 1


def test_settings_of_a_model_in_memory_follow_its_configuration(rng) -> None:
    model = random_transformer(rng, model_type="bart", num_beams=2)
    assert model.generation == Generation(
        eos_token_id=2, decoder_start_token_id=1, num_beams=2, bos_token_id=0
    )
    model.config = replace(model.config, eos_token_id=[3, 4])
    assert model.generation.eos_token_id == [3, 4]
    model.generation = Generation(num_beams=4)
    model.config = replace(model.config, eos_token_id=5)
    assert model.generation == Generation(num_beams=4)


def test_the_start_is_decoder_start_else_begin_of_text_else_the_configurations(tmp_path) -> None:
    folder = write_bart(tmp_path, decoder_start_token_id=1)
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 1),
        ({"bos_token_id": 7}, 7),
        ({"bos_token_id": 8, "decoder_start_token_id": 6}, 6),
    ]
    for settings, start in cases:
        model = npgpt.from_pretrained(say(folder, **settings))
        with mock.patch.object(model, "decode", wraps=model.decode) as decode:
            model.generate([4, 5, 6], max_new_tokens=1)
        assert decode.call_args[0][0].tolist() == [start]


def test_barts_old_name_of_a_forced_begin() -> None:
    old = {"force_bos_token_to_be_generated": True, "bos_token_id": 3}
    assert Generation.from_dict(old, "config.json").forced_bos_token_id == 3
    old["force_bos_token_to_be_generated"] = False
    assert Generation.from_dict(old, "config.json").forced_bos_token_id is None


NAMED: dict[str, list[dict[str, Any]]] = {
    "gpt2": [
        {"num_beams": 4},
        {"guidance_scale": 1.5, "stop_strings": ["x"]},
        {"do_sample": True, "typical_p": 0.9, "min_p": 0.05},
        {"num_beam_groups": 2, "something_new": 3},
        {"num_return_sequences": 3, "max_time": 1.0, "remove_invalid_values": True},
    ],
    "bart": [
        {"do_sample": True, "min_p": 0.1},
        {"num_beam_groups": 2, "diversity_penalty": 1.0},
        {"constraints": ["x"], "penalty_alpha": 0.6, "sequence_bias": [[[3], 1.0]]},
        {"watermarking_config": {"bias": 2.0}, "something_new": [1]},
    ],
}


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize(
    ("kind", "settings"), [(kind, each) for kind, cases in NAMED.items() for each in cases]
)
def test_what_is_not_followed_is_named_in_one_warning(tmp_path, kind, settings, file) -> None:
    folder = WRITERS[kind](tmp_path)
    names = [name for name in settings if (kind, name) != ("gpt2", "do_sample")]
    if file == "generation_config.json":
        say(folder, **settings)
    else:
        settings = {name: settings[name] for name in settings if name != "something_new"}
        names = [name for name in names if name != "something_new"]
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.warns(UserWarning, match="npgpt does not follow .*; texts may differ") as caught:
        npgpt.from_pretrained(folder)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text.startswith(f"{folder / file}: ")
    assert all(f"{name} {json.dumps(settings[name])}" in text for name in names)


# What published models say.
PLAIN: dict[str, list[dict[str, Any]]] = {
    "gpt2": [
        {"_from_model_config": True, "bos_token_id": 50256, "transformers_version": "4.26.0"},
        {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "pad_token_id": 0},
        {"max_length": 4096, "do_sample": False, "min_p": 0.1, "typical_p": 0.5},
        {"use_cache": True, "output_attentions": False, "cache_implementation": "dynamic"},
        {"num_beams": 1, "num_beam_groups": 1, "guidance_scale": None, "typical_p": 1.0},
        {"num_beams": 1, "guidance_scale": 1.0, "diversity_penalty": 0.0, "something_new": False},
        {"repetition_penalty": 1.05, "top_k": 20, "length_penalty": 2.0, "early_stopping": True},
    ],
    "bart": [
        {
            "early_stopping": True,
            "no_repeat_ngram_size": 3,
            "num_beams": 4,
            "forced_bos_token_id": 0,
            "forced_eos_token_id": 2,
            "length_penalty": 2.0,
            "min_length": 5,
            "max_length": 14,
            "pad_token_id": 1,
        },
        {"bad_words_ids": [[18]], "num_beams": 6, "renormalize_logits": True, "top_k": 50},
        {"do_sample": False, "num_return_sequences": 1, "temperature": 1.0},
    ],
}


@pytest.mark.parametrize(
    ("kind", "settings"), [(kind, each) for kind, cases in PLAIN.items() for each in cases]
)
def test_what_published_models_say_needs_no_warning(tmp_path, kind, settings) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = npgpt.from_pretrained(say(WRITERS[kind](tmp_path), **settings))
        assert [*model.generate([3, 4], max_new_tokens=3)]


def test_a_bert_has_no_use_for_the_file(tmp_path, rng) -> None:
    from tests.builders.bert import random_bert

    random_bert(rng).save_pretrained(tmp_path)
    say(tmp_path, num_beams="many")
    npgpt.from_pretrained(tmp_path)


def test_sampling_is_as_the_file_says_unless_told_otherwise(tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path, scale=4.0)
    settings = {"temperature": 1.7, "top_p": 0.95, "eos_token_id": 256}
    greedy = list(npgpt.from_pretrained(folder).generate([1], 9))
    model = npgpt.from_pretrained(say(folder, **settings))
    assert list(model.generate([1], 9)) == greedy  # do_sample is not said
    model = npgpt.from_pretrained(say(folder, **settings, do_sample=True))
    plain = npgpt.from_pretrained(say(folder, eos_token_id=256))

    def both(**options: Any) -> tuple[list[int], list[int]]:
        sampling = {"temperature": 1.7, "top_k": 50, "top_p": 0.95, **options}
        wanted = list(plain.generate([1], 20, seed=3, **sampling))
        return list(model.generate([1], 20, seed=3, **options)), wanted

    for options in ({}, {"temperature": 0.9}, {"top_k": 3}, {"top_k": 0, "top_p": 1.0}):
        got, wanted = both(**options)
        assert got == wanted
    assert list(model.generate([1], 9, temperature=0)) == greedy
    assert both()[0] != both(top_k=0)[0]  # top_k is 50 where the file does not say


@pytest.mark.parametrize(
    ("settings", "new"),
    [
        ({}, 40),
        ({"max_new_tokens": 5}, 5),
        ({"max_length": 12}, 9),
        ({"max_length": 12, "max_new_tokens": 4}, 4),
        ({"max_length": 10**9}, 46),  # as many as there are positions, and one
    ],
)
def test_how_many_tokens_come_unless_told(tmp_path, settings, new) -> None:
    folder = say(write_tiny_gpt2(tmp_path, n_positions=48), eos_token_id=None, **settings)
    with pytest.warns(UserWarning, match="no eos_token_id"):
        model = npgpt.from_pretrained(folder)
    assert len(list(model.generate([1, 2, 3]))) == new
    assert len(list(model.generate([1, 2, 3], 7))) == 7


def test_a_prompt_beyond_max_length_is_said(tmp_path) -> None:
    model = npgpt.from_pretrained(say(write_tiny_gpt2(tmp_path), max_length=3))
    with pytest.raises(ValueError, match="prompt has 3 tokens, but max_length of the model's fil"):
        model.generate([1, 2, 3])
    assert len(list(model.generate([1, 2, 3], 2))) == 2


def test_a_translation_is_as_long_as_the_file_allows(rng) -> None:
    model = random_transformer(rng, model_type="bart", eos_token_id=None)
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 17),
        ({"max_new_tokens": 5}, 5),
        ({"max_length": 5}, 4),
        ({"max_length": 5, "max_new_tokens": 9}, 9),
        ({"max_new_tokens": 2**31 - 1}, 17),
    ]
    for settings, new in cases:
        model.generation = Generation(decoder_start_token_id=1, **settings)
        assert len(model.generate([3, 4])) == new


def test_the_file_is_kept_byte_for_byte_and_only_what_is_changed_is_changed(tmp_path) -> None:
    folder = say(write_tiny_gpt2(tmp_path / "a"), eos_token_id=[256, 3], author="x")
    path = folder / "generation_config.json"
    path.write_bytes(path.read_bytes().replace(b", ", b" ,\n"))
    with pytest.warns(UserWarning, match="does not follow author"):
        model = npgpt.from_pretrained(folder)
    model.save_pretrained(tmp_path / "b")
    assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["eos_token_id"] == 256
    model.generation = replace(model.generation, eos_token_id=7, min_length=3)
    model.save_pretrained(tmp_path / "c")
    written = json.loads((tmp_path / "c" / path.name).read_text())
    assert written == {"eos_token_id": 7, "author": "x", "min_length": 3}


def test_settings_of_a_model_without_the_file_are_saved_in_one(tmp_path, rng) -> None:
    model = random_transformer(rng, np.float32, model_type="bart", num_beams=2)
    model.save_pretrained(tmp_path / "a")
    assert not (tmp_path / "a" / "generation_config.json").exists()
    model.generation = replace(model.generation, num_beams=3, eos_token_id=[2, 4])
    model.save_pretrained(tmp_path / "b")
    assert npgpt.from_pretrained(tmp_path / "b").generation == model.generation


@pytest.mark.hf
def test_every_setting_that_transformers_knows_is_in_a_list(hf) -> None:
    from transformers import GenerationConfig

    theirs = {*vars(GenerationConfig()), *GenerationConfig()._get_default_generation_params()}
    assert not theirs - KEYS
    ours = {name: value for name, value in vars(Generation()).items() if value is not None}
    defaults = GenerationConfig()._get_default_generation_params()
    assert {n: defaults[n] for n in ours if n in defaults} == {
        n: ours[n] for n in ours if n in defaults
    }


@pytest.mark.hf
@pytest.mark.parametrize(
    "settings",
    [None, {}, {"eos_token_id": [2, 9]}, {"num_beams": 2, "max_length": 9, "bos_token_id": None}],
)
@pytest.mark.parametrize(
    "more",
    [{}, {"num_beams": 3, "no_repeat_ngram_size": 2}, {"force_bos_token_to_be_generated": True}],
)
def test_which_file_counts_as_for_transformers(hf, tmp_path, settings, more) -> None:
    from transformers import BartForConditionalGeneration

    folder = write_bart(tmp_path, bos_token_id=5)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    if settings is not None:
        (folder / "generation_config.json").write_text(json.dumps(settings))
    theirs = BartForConditionalGeneration.from_pretrained(folder).generation_config
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where no end of text counts
        ours = npgpt.from_pretrained(folder).generation
    said = {n: v for n, v in vars(theirs).items() if v is not None and hasattr(ours, n)}
    assert ours == replace(Generation(), **said)
