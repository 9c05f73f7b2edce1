"""Loading a folder: exact values in the dtype asked for, and what is refused."""

from __future__ import annotations

import json
import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from npgpt.models.auto import from_pretrained
from npgpt.models.gpt2.checkpoint import load_checkpoint
from tests.builders.checkpoints import (
    SMALL,
    assert_same,
    random_params,
    write_checkpoint,
    write_raw,
)

NOT_ON_WINDOWS = pytest.mark.skipif(os.name == "nt", reason="Windows replaces no mapped file")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float16, np.float32, np.float64])
def test_parameters_have_the_dtype_asked_for(tmp_path, stored, dtype):
    params = random_params(dtype=stored)
    found = load_checkpoint(write_checkpoint(tmp_path, params), dtype=dtype)[1]
    assert_same(found, {name: array.astype(dtype) for name, array in params.items()})
    for array in found.values():
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bf16_is_exact(tmp_path, dtype):
    bits = {n: (a.view(np.uint32) >> 16).astype("<u2") for n, a in random_params().items()}
    header, stop = {}, 0
    for name, array in bits.items():
        start, stop = stop, stop + array.nbytes
        offsets = [start, stop]
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": offsets}
    write_checkpoint(tmp_path, {})
    data = b"".join(array.tobytes() for array in bits.values())
    write_raw(tmp_path / "model.safetensors", header, data)
    wanted = {n: (a.astype(np.uint32) << 16).view(np.float32) for n, a in bits.items()}
    found = load_checkpoint(tmp_path, dtype=dtype)[1]
    assert_same(found, {name: array.astype(dtype) for name, array in wanted.items()})


@pytest.mark.parametrize("dtype", [np.float16, np.int32, "junk", None, ">f4", "complex64"])
def test_other_dtypes_are_refused(tmp_path, dtype):
    folder = write_checkpoint(tmp_path, random_params())
    for load in (load_checkpoint, from_pretrained):
        with pytest.raises(ValueError, match="choose float32 or float64"):
            load(folder, dtype=dtype)


def test_a_tied_head_full_of_nan_is_still_tied(tmp_path):
    params = random_params()
    params["wte.weight"][2] = np.nan
    folder = write_checkpoint(tmp_path, {**params, "lm_head.weight": params["wte.weight"]})
    with pytest.warns(UserWarning, match=r"NaN or infinite values in wte\.weight\."):
        assert_same(load_checkpoint(folder)[1], params)


def test_float64_beyond_float32_is_reported(tmp_path):
    params = random_params(dtype=np.float64)
    params["wpe.weight"][0, 0] = 1e300
    folder = write_checkpoint(tmp_path, params)
    assert load_checkpoint(folder, dtype=np.float64)[1]["wpe.weight"][0, 0] == 1e300
    with pytest.warns(UserWarning, match=r"NaN or infinite values in wpe\.weight\."):
        load_checkpoint(folder)


@pytest.mark.parametrize("metadata", [{}, {"__metadata__": {}}, {"__metadata__": {"x": "y"}}])
def test_metadata_is_not_needed(tmp_path, metadata):
    params = random_params(replace(SMALL, n_layer=1))
    write_checkpoint(tmp_path, params, n_layer=1)
    path = tmp_path / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    write_raw(path, {**metadata, **json.loads(raw[8 : 8 + length])}, raw[8 + length :])
    assert_same(load_checkpoint(tmp_path)[1], params)


@pytest.mark.parametrize(
    ("dtype", "copies"), [(np.float64, 1), pytest.param(np.float32, 0, marks=NOT_ON_WINDOWS)]
)
def test_loading_holds_the_model_once(tmp_path, dtype, copies):
    """In another dtype a copy is made; in the file's own, its pages are the parameters."""
    config = replace(SMALL, n_embd=64, n_layer=24, n_inner=256)
    params = random_params(config)
    size = sum(array.size for array in params.values()) * np.dtype(dtype).itemsize
    write_checkpoint(tmp_path, params, config)
    tracemalloc.start()
    try:
        load_checkpoint(tmp_path, dtype=dtype)
        assert copies * size <= tracemalloc.get_traced_memory()[1] < (copies + 0.2) * size
    finally:
        tracemalloc.stop()


@NOT_ON_WINDOWS
def test_a_checkpoint_may_have_more_tensors_than_a_process_may_have_files(tmp_path):
    """macOS allows 256 at first, and GPT-2 medium has 292 tensors."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    config = replace(SMALL, n_layer=4)
    params = random_params(config)
    write_checkpoint(tmp_path, params, config)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "config.json").open("rb") as file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno() + len(params) // 2, hard))
    try:
        found = load_checkpoint(tmp_path)[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert_same(found, params)


@NOT_ON_WINDOWS
def test_what_is_written_to_parameters_never_reaches_the_file(tmp_path):
    params = random_params()
    model = from_pretrained(write_checkpoint(tmp_path, params))
    model.params["wte.weight"] += 1
    assert_same(load_checkpoint(tmp_path)[1], params)
    model.save_pretrained(tmp_path)  # in place of the file that the parameters lie in
    assert np.array_equal(model.params["wte.weight"], params["wte.weight"] + 1)
    assert_same(load_checkpoint(tmp_path)[1], model.params)


def test_from_pretrained_is_the_model_of_a_folder(tmp_path):
    params = random_params()
    model = from_pretrained(write_checkpoint(tmp_path, params), dtype=np.float64)
    assert model.config == load_checkpoint(tmp_path)[0]
    assert_same(model.params, {name: a.astype(np.float64) for name, a in params.items()})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"n_layer": 1, "n_layer": 2}', "'n_layer' stands there twice"),
        ('{"model_type": "bart"}', "model_type is 'bart'"),
        ('{"n_head": 0}', "n_head is 0"),
        ('{"n_layer": -1}', "n_layer is -1"),
        ('{"n_embd": 10, "n_head": 3}', "n_embd 10 cannot be cut into n_head 3"),
        ('{"activation_function": "swish"}', "activation_function is 'swish', but must be one of"),
        ('{"add_cross_attention": true}', "add_cross_attention"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path, content, says):
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json") as caught:
        load_checkpoint(tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"has neither model\.safetensors nor"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_a_pickle_is_refused_unopened(tmp_path, name):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(FileNotFoundError, match=rf"{name} is a pickle.*convert it to safetensors"):
        load_checkpoint(tmp_path)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "count", "tied"),
    [("llm-viz", 85_728, False), ("slm4096", 211_712, True), ("capp-gpt", 236_224, True)],
)
def test_real_checkpoints_have_the_published_number_of_parameters(data_dir, name, count, tied):
    config, params = load_checkpoint(data_dir / "checkpoints" / name)
    assert sum(array.size for array in params.values()) == count
    assert config.tie_word_embeddings is tied
