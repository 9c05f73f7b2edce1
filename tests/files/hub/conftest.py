"""Repositories for the stand-in, and an environment in which huggingface_hub knows only it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator

import pytest

from npgpt.files.safetensors_file import write_tensors
from tests.builders.checkpoints import random_params, write_checkpoint
from tests.files.hub.stand_in import INDEX, SHARDS, VOCABULARY, HubStandIn

FOREIGN = ["pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "onnx/model.onnx", "README.md"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """The files of a repository as they lie on the hub, with other frameworks' copies."""
    folder = write_checkpoint(tmp_path_factory.mktemp("whole"), random_params())
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**files, **VOCABULARY, **dict.fromkeys(FOREIGN, b"a copy for others")}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory, whole) -> dict[str, bytes]:
    folder, params = tmp_path_factory.mktemp("sharded"), random_params()
    weight_map = {name: SHARDS[name.startswith("h.1")] for name in params}
    for shard in SHARDS:
        write_tensors(folder / shard, {n: a for n, a in params.items() if weight_map[n] == shard})
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**files, "config.json": whole["config.json"], "pytorch_model.bin": b"a pickle"}


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    with HubStandIn() as stand_in:
        yield stand_in


@pytest.fixture
def environment(monkeypatch, tmp_path, hub) -> Iterator[Callable[..., None]]:
    """Import huggingface_hub afresh under the stand-in's HF_ENDPOINT and what else is given."""
    kept = {name: sys.modules[name] for name in sys.modules if is_hub_module(name)}

    def enter(**variables: str) -> None:
        forget()
        for name in [*os.environ]:
            if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")):
                monkeypatch.delenv(name)
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "*"}
        quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_VERBOSITY": "critical"}
        for name, value in {**own, **quiet, **variables}.items():
            monkeypatch.setenv(name, value)

    def forget() -> None:
        close_session = getattr(sys.modules.get("huggingface_hub"), "close_session", None)
        if close_session:  # from version 1 on
            close_session()
        for name in [name for name in sys.modules if is_hub_module(name)]:
            del sys.modules[name]

    # No folder of this clone's weights may stand in for a repository of the same name.
    monkeypatch.setattr("npgpt.files.hub.PACKAGE", tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    enter()
    yield enter
    forget()
    sys.modules.update(kept)


def is_hub_module(name: str) -> bool:
    return name.split(".")[0] == "huggingface_hub"
