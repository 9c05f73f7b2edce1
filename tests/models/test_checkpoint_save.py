"""Saving a folder: what it says is true, and a save that fails half-way changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npgpt.files.safetensors_file import read_header
from npgpt.models.gpt2.checkpoint import load_checkpoint, save_checkpoint
from tests.builders.checkpoints import SMALL, assert_same, random_params


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_is_loaded_again(tmp_path, tied, dtype):
    config = replace(SMALL, tie_word_embeddings=tied, other={"summary_type": "last", "n_ctx": [1]})
    params = random_params(config, dtype)
    save_checkpoint(tmp_path / "new" / "folder", config, params)
    found_config, found = load_checkpoint(tmp_path / "new" / "folder", dtype=dtype)
    assert_same(found, params)
    assert replace(found_config, other={}) == replace(config, other={})
    assert config.other.items() <= found_config.other.items()
    assert found_config.other["dtype"] == np.dtype(dtype).name


def test_saved_names_are_those_of_transformers(tmp_path):
    config = replace(SMALL, tie_word_embeddings=False)
    save_checkpoint(tmp_path, config, random_params(config))
    names = read_header(tmp_path / "model.safetensors").keys()
    assert {"lm_head.weight", "transformer.wte.weight", "transformer.h.1.ln_2.bias"} < names
    assert len(names) == 4 + 12 * 2 + 1
    assert b'"__metadata__":{"format":"pt",' in (tmp_path / "model.safetensors").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_saved_sizes_are_those_of_the_tables_and_old_dtype_keys_stay_true(tmp_path):
    params = random_params(replace(SMALL, vocab_size=16, n_positions=7))
    save_checkpoint(tmp_path, replace(SMALL, other={"torch_dtype": "float16"}), params)
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (raw["vocab_size"], raw["n_positions"]) == (16, 7)
    assert raw["dtype"] == raw["torch_dtype"] == "float32"
    assert_same(load_checkpoint(tmp_path)[1], params)


def test_parameters_that_do_not_lie_in_order_are_saved_by_value(tmp_path):
    params = random_params()
    turned = {name: np.asfortranarray(array) for name, array in params.items()}
    save_checkpoint(tmp_path, SMALL, turned)
    assert_same(load_checkpoint(tmp_path)[1], params)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lm_head.weight": np.zeros((11, 6), np.float32)}, "disagree about lm_head.weight"),
        ({"ln_f.bias": None}, "disagree about ln_f.bias"),
        ({"ln_f.bias": np.zeros(7, np.float32)}, "'ln_f.bias' has shape [7]"),
        ({"ln_f.bias": np.zeros(6)}, "float32, float64"),
        ({"wte.weight": np.zeros((3, 6, 1), np.float32)}, "'wte.weight' has shape [3, 6, 1]"),
    ],
)
def test_parameters_that_do_not_fit_are_not_saved(tmp_path, change, says):
    params = {n: a for n, a in {**random_params(), **change}.items() if a is not None}
    with pytest.raises(ValueError, match="Not saved") as caught:
        save_checkpoint(tmp_path / "new", SMALL, params)
    assert says in str(caught.value)
    assert not (tmp_path / "new").exists()


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_full_disk_leaves_the_old_checkpoint_and_no_litter(tmp_path):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    save_checkpoint(tmp_path, SMALL, random_params())
    before = listing(tmp_path)
    large = replace(SMALL, vocab_size=20_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match=r"could not be written .*what was there .* unchanged"):
            save_checkpoint(tmp_path, large, random_params(large))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert listing(tmp_path) == before


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_the_old_checkpoint_and_no_litter(tmp_path, monkeypatch, error):
    save_checkpoint(tmp_path, SMALL, random_params())
    before = listing(tmp_path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        save_checkpoint(
            tmp_path, replace(SMALL, n_layer=1), random_params(replace(SMALL, n_layer=1))
        )
    assert listing(tmp_path) == before


def test_a_kill_while_saving_leaves_the_old_checkpoint(tmp_path):
    params = random_params()
    save_checkpoint(tmp_path, SMALL, params)
    script = """
        import os, sys
        from dataclasses import replace
        from npgpt.models.gpt2.checkpoint import load_checkpoint, save_checkpoint
        config, params = load_checkpoint(sys.argv[1])
        os.fsync = lambda _: os._exit(9)
        save_checkpoint(sys.argv[1], config, {name: 0 * a for name, a in params.items()})
    """
    code = textwrap.dedent(script)
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == 9
    assert_same(load_checkpoint(tmp_path)[1], params)


def test_a_file_where_the_folder_should_be_is_named(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(OSError, match="taken cannot be made a folder"):
        save_checkpoint(tmp_path / "taken", SMALL, random_params())
