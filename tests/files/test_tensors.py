"""Which stored tensor becomes which parameter, in every architecture: names, turns, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import npgpt
from npgpt.files.checkpoint import read_raw_config
from npgpt.files.safetensors_file import read_tensors
from npgpt.files.tensors import broken_names
from npgpt.models.bert.checkpoint import load_bert
from npgpt.models.gpt2.checkpoint import load_checkpoint
from npgpt.models.llama.checkpoint import load_llama
from npgpt.models.transformer.checkpoint import load_transformer
from tests.builders.bert import random_bert
from tests.builders.checkpoints import assert_same, change
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer

# Parts of the names of what is not a Linear's matrix.
TABLES = ("embed", "wte", "wpe", "shared", "lm_head", "decoder.weight", "logits_bias")


class Case(NamedTuple):
    """An architecture, and some of its parameters: the vector and the matrix are in one block."""

    make: Callable[..., Any]
    load: Callable[..., Any]
    prefix: str
    table: str
    head: str
    vector: str
    matrix: str  # not square
    blocks: str  # the setting that counts them

    def stored(self, name: str) -> str:
        return name if name.startswith(("lm_head", "cls", "final_logits")) else self.prefix + name


CASES = {
    "gpt2": Case(
        random_gpt2,
        load_checkpoint,
        "transformer.",
        "wte.weight",
        "lm_head.weight",
        "h.1.ln_2.bias",
        "h.1.mlp.c_fc.weight",
        "n_layer",
    ),
    "llama": Case(
        random_llama,
        load_llama,
        "model.",
        "embed_tokens.weight",
        "lm_head.weight",
        "layers.1.input_layernorm.weight",
        "layers.1.self_attn.k_proj.weight",
        "num_hidden_layers",
    ),
    "bert": Case(
        random_bert,
        load_bert,
        "bert.",
        "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.weight",
        "encoder.layer.1.output.LayerNorm.bias",
        "encoder.layer.1.output.dense.weight",
        "num_hidden_layers",
    ),
    "bart": Case(
        partial(random_transformer, model_type="bart"),
        load_transformer,
        "model.",
        "shared.weight",
        "lm_head.weight",
        "decoder.layers.2.final_layer_norm.bias",
        "decoder.layers.2.fc1.weight",
        "decoder_layers",
    ),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


def save(folder: Path, case: Case, tied: bool = True, **options: Any) -> Any:
    """A random float32 model in a folder."""
    rng = np.random.default_rng(8)
    model = case.make(rng, np.float32, tie_word_embeddings=tied, **options)
    model.save_pretrained(folder)
    return model


def refusal(folder: Path) -> str:
    """The one sentence with which a folder is refused."""
    with pytest.raises(ValueError, match=r"model\.safetensors: ") as caught:
        npgpt.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_saved_is_loaded_again(tmp_path, case, tied, dtype) -> None:
    model = save(tmp_path, case, tied)
    found = npgpt.from_pretrained(tmp_path, dtype=dtype)
    assert type(found) is type(model)
    assert found.config.to_dict().items() >= model.config.to_dict().items()
    assert list(found.params) == list(model.params)
    assert_same(found.params, {name: a.astype(dtype) for name, a in model.params.items()})
    assert all(a.flags.c_contiguous and a.flags.writeable for a in found.params.values())
    assert read_raw_config(tmp_path / "config.json")["dtype"] == "float32"


def test_stored_names_and_the_side_on_which_matrices_lie(tmp_path, case) -> None:
    """By value: many matrices are square."""
    model = save(tmp_path, case, tied=False)
    tensors = read_tensors(tmp_path / "model.safetensors")
    tensors.pop("cls.predictions.decoder.bias", None)  # a second one, of BERT's untied head
    assert tensors.keys() == {case.stored(name) for name in model.params}
    for name, param in model.params.items():
        is_out_in = param.ndim == 2 and case.prefix != "transformer."
        turned = is_out_in and not any(part in name for part in TABLES)
        np.testing.assert_array_equal(tensors[case.stored(name)], param.T if turned else param)


@pytest.mark.parametrize(
    ("wrapper", "prefix", "inner"),
    [
        ("", "", ""),
        ("module.", "{}", ""),
        ("_orig_mod.", "", ""),
        ("module._orig_mod.", "{}", ""),
        ("_orig_mod.module.", "{}", ""),
        ("", "{}", "_orig_mod."),
        ("", "{}{}", ""),
    ],
)
def test_prefixes_are_stripped_however_nested(tmp_path, case, wrapper, prefix, inner) -> None:
    model = save(tmp_path, case, tied=False)
    prefix = prefix.format(case.prefix, case.prefix)
    tensors = read_tensors(tmp_path / "model.safetensors")
    renamed: dict[str, Any] = dict.fromkeys(tensors)
    for name, array in tensors.items():
        bare = name.removeprefix(case.prefix)
        renamed[wrapper + (name if bare == name else prefix + inner + bare)] = array
    assert_same(npgpt.from_pretrained(change(tmp_path, renamed)).params, model.params)


def test_two_tensors_that_become_one_parameter_are_refused(tmp_path, case) -> None:
    model = save(tmp_path, case)
    text = refusal(change(tmp_path, {f"module.{case.vector}": model.params[case.vector]}))
    assert f"'module.{case.vector}'" in text
    assert f"{case.stored(case.vector)!r}" in text
    assert f"are both {case.vector!r}." in text


def test_what_is_missing_is_named_and_counted(tmp_path, case) -> None:
    model = save(tmp_path, case)
    shape = list(read_tensors(tmp_path / "model.safetensors")[case.stored(case.matrix)].shape)
    change(tmp_path, {case.stored(case.matrix): None})
    assert refusal(tmp_path).endswith(f": lacks {case.matrix!r} of shape {shape}.")
    change(tmp_path, {case.stored(case.vector): None})
    assert refusal(tmp_path).endswith(" and 1 more.")
    change(tmp_path, {case.stored(case.table): None})
    shape = list(model.params[case.table].shape)
    assert refusal(tmp_path).endswith(f": lacks {case.table!r} of shape {shape} and 2 more.")


@pytest.mark.parametrize("which", ["table", "vector", "matrix"])
def test_shapes_and_dtypes_that_do_not_fit_are_named(tmp_path, case, which) -> None:
    name = getattr(case, which)
    save(tmp_path, case)
    right = read_tensors(tmp_path / "model.safetensors")[case.stored(name)]
    wrong = right[..., :-1]
    text = refusal(change(tmp_path, {case.stored(name): wrong}))
    assert f"{name!r} has shape {[*wrong.shape]}, but by config.json it must have" in text
    assert text.endswith(f" {[*right.shape]}.")
    text = refusal(change(tmp_path, {case.stored(name): right.astype(np.int8)}))
    assert f"{name!r} is stored as I8, but a weight must be one of F32, F16, BF16, F64" in text


def test_a_matrix_that_lies_the_other_way_is_refused(tmp_path, case) -> None:
    save(tmp_path, case)
    right = read_tensors(tmp_path / "model.safetensors")[case.stored(case.matrix)]
    text = refusal(change(tmp_path, {case.stored(case.matrix): right.T}))
    assert f"{case.matrix!r}" in text
    assert f"[{right.shape[1]}, {right.shape[0]}]" in text or "as [out, in]" in text


def test_another_number_of_blocks_is_refused(tmp_path, case) -> None:
    save(tmp_path, case)
    fewer: dict[str, Any] = {case.blocks: 1}
    text = refusal(change(tmp_path, **fewer))
    assert f"but {case.blocks} is 1 in config.json; set it to the number of " in text
    more: dict[str, Any] = {case.blocks: 4}
    assert ": lacks " in refusal(change(tmp_path, **more))


def test_unused_tensors_are_named_and_may_have_any_shape(tmp_path, case) -> None:
    model = save(tmp_path, case)
    extra = {
        "score.weight": np.zeros((2, 6), np.float32),
        case.stored(case.matrix.replace("weight", "rotary")): np.zeros((0, 4), np.float32),
        "steps": np.array(7),
    }
    change(tmp_path, extra)
    with pytest.warns(UserWarning, match="not part of .* and not used.*: ") as caught:
        found = case.load(tmp_path)[1]
    assert all(name.removeprefix(case.prefix) in str(caught[0].message) for name in extra)
    assert caught[0].filename == __file__
    assert_same(found, model.params)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_load_with_a_warning_that_names_them(
    tmp_path, case, value
) -> None:
    model = save(tmp_path, case)
    model.params[case.vector][3] = value
    model.save_pretrained(tmp_path)
    names = re.escape(f": NaN or infinite values in {case.vector}.") + "$"
    with pytest.warns(UserWarning, match=names) as caught:
        found = case.load(tmp_path)[1]
    assert caught[0].filename == __file__
    assert_same(found, model.params)


def test_half_precision_is_widened_exactly(tmp_path, case) -> None:
    model = save(tmp_path, case)
    half = {name: param.astype(np.float16) for name, param in model.params.items()}
    type(model)(model.config, half).save_pretrained(tmp_path)
    found = npgpt.from_pretrained(tmp_path).params
    assert_same(found, {name: param.astype(np.float32) for name, param in half.items()})


def test_a_head_that_is_tied_may_be_stored_and_must_be_equal(tmp_path, case) -> None:
    model = save(tmp_path, case)
    table = model.params[case.table]
    change(tmp_path, {case.head: table})
    assert_same(npgpt.from_pretrained(tmp_path).params, model.params)
    for other in (table + 1, table[:-1]):
        text = refusal(change(tmp_path, {case.head: other}))
        assert f"{case.head!r} differs from {case.table!r}, but by config.json the two are" in text
        assert "set tie_word_embeddings to false to keep " in text


def test_a_head_that_is_untied_must_be_there(tmp_path, case) -> None:
    model = save(tmp_path, case)
    shape = list(model.params[case.table].shape)
    text = refusal(change(tmp_path, tie_word_embeddings=False))
    assert f"lacks {case.head!r} of shape {shape}, but tie_word_embeddings is " in text
    assert "; set it to true if the head is " in text


def test_parameters_that_do_not_fit_are_not_saved(tmp_path, case) -> None:
    model = case.make(np.random.default_rng(8), np.float32)
    longer = np.zeros(len(model.params[case.vector]) + 1, np.float32)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({case.vector: None}, f"disagree about {case.vector}."),
        ({"more.weight": longer}, "disagree about more.weight."),
        ({case.vector: longer}, f"{case.vector!r} has shape [{len(longer)}], but by the config"),
        ({case.vector: np.zeros(len(longer) - 1)}, "parameters are float32, float64, not all"),
    ]
    for changes, says in wrong:
        params = {n: a for n, a in {**model.params, **changes}.items() if a is not None}
        with pytest.raises(ValueError, match="Not saved: ") as caught:
            type(model)(model.config, params).save_pretrained(tmp_path / "new")
        assert says in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_file_where_the_folder_should_be_is_named(tmp_path, case) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(OSError, match="taken cannot be made a folder"):
        save(tmp_path / "taken", case)


def test_broken_is_what_is_not_finite_and_not_what_is_large():
    sound: dict[str, np.ndarray] = {
        "large": np.full(9, 1e30, np.float32),
        "empty": np.zeros((0, 3)),
        "none": np.zeros(2),
    }
    broken = {name: np.zeros((5, 4), np.float32) for name in ("nan", "inf", "-inf")}
    for name, array in broken.items():
        array[4, 3] = float(name)
    assert broken_names(sound | broken) == ["nan", "inf", "-inf"]
