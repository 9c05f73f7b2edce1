"""A checkpoint in several files: every shard is read, and whatever does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npgpt.files.checkpoint import read_index, shortened
from npgpt.files.safetensors_file import write_tensors
from npgpt.models.gpt2.checkpoint import load_checkpoint
from tests.builders.checkpoints import SMALL, assert_same, random_params, write_checkpoint

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def write_index(folder: Path, weight_map: object) -> Path:
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    (folder / INDEX).write_text(text, encoding="utf-8")
    return folder


def write_sharded(folder: Path) -> dict[str, str]:
    """The small model, block 1 and what follows in the second shard; returns the weight map."""
    write_checkpoint(folder, {}, SMALL)
    (folder / "model.safetensors").unlink()
    params = random_params()
    weight_map = {name: SECOND if name.startswith(("h.1", "ln")) else FIRST for name in params}
    for shard in (FIRST, SECOND):
        write_tensors(folder / shard, {n: a for n, a in params.items() if weight_map[n] == shard})
    write_index(folder, weight_map)
    return weight_map


def test_every_shard_is_read(tmp_path):
    write_sharded(tmp_path)
    assert_same(load_checkpoint(tmp_path)[1], random_params())


def test_safetensors_beside_the_index_are_ignored(tmp_path):
    write_sharded(tmp_path)
    write_tensors(tmp_path / "consolidated.safetensors", {"wte.weight": np.zeros((2, 2))})
    (tmp_path / "model-00003-of-00002.safetensors").write_bytes(b"damaged")
    assert_same(load_checkpoint(tmp_path)[1], random_params())


def test_a_missing_shard_is_named_with_a_tensor_and_the_index(tmp_path):
    write_sharded(tmp_path)
    (tmp_path / SECOND).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load_checkpoint(tmp_path)
    for part in (SECOND, INDEX, "'h.1.ln_1.weight'"):
        assert part in str(caught.value)


def test_a_tensor_its_shard_lacks_is_named_with_both_files(tmp_path):
    weight_map = write_sharded(tmp_path)
    write_index(tmp_path, {**weight_map, "ln_f.bias": FIRST})
    with pytest.raises(ValueError, match=r"lacks 'ln_f.bias'") as caught:
        load_checkpoint(tmp_path)
    assert FIRST in str(caught.value)
    assert INDEX in str(caught.value)


def test_a_tensor_the_index_does_not_list_is_ignored_aloud(tmp_path):
    weight_map = write_sharded(tmp_path)
    write_tensors(
        tmp_path / FIRST,
        {
            "extra": np.zeros(2),
            "ln_f.bias": np.zeros(2),
            **{n: a for n, a in random_params().items() if weight_map[n] == FIRST},
        },
    )
    with pytest.warns(UserWarning, match=f"{FIRST}: ignored, .*: extra, ln_f.bias") as caught:
        found = load_checkpoint(tmp_path)[1]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert_same(found, random_params())


def test_a_damaged_shard_is_named(tmp_path):
    write_sharded(tmp_path)
    whole = (tmp_path / SECOND).read_bytes()
    (tmp_path / SECOND).write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=rf"{SECOND}: tensor .* it is cut off"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "shard",
    ["../o.safetensors", "/o.safetensors", "..\\o.safetensors", "C:o.safetensors", "a.bin", 3],
)
def test_an_index_that_leads_elsewhere_or_to_a_pickle_is_refused(tmp_path, shard):
    write_index(tmp_path, {"wte.weight": shard})
    with pytest.raises(ValueError, match=r"must be in a \.safetensors file beside the index"):
        read_index(tmp_path / INDEX)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}'])
def test_an_index_without_a_weight_map_is_refused(tmp_path, content):
    (tmp_path / INDEX).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{INDEX}: has no 'weight_map'"):
        read_index(tmp_path / INDEX)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not valid JSON"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "'a' stands there twice"),
    ],
)
def test_an_index_that_is_not_json_is_refused(tmp_path, content, says):
    (tmp_path / INDEX).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=INDEX) as caught:
        read_index(tmp_path / INDEX)
    assert says in str(caught.value)


def test_names_are_listed_on_one_line_and_not_whole_if_they_are_long() -> None:
    assert shortened(["a b", "猫", "", "a\nb"]) == r"a b, 猫, '', 'a\nb'"
    assert shortened(["x" * 5000] * 7) == ", ".join(["x" * 80] * 5) + " and 2 more"


@pytest.mark.parametrize("shard", ["x" * 250 + ".safetensors", "a\n.safetensors", "\0.safetensors"])
def test_an_index_with_names_that_no_file_has(tmp_path, shard) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": shard}}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"index\.json: 'a' is said to be in") as caught:
        read_index(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200
