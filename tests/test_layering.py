"""Imports point downward only, and heavy packages wait until they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

import npgpt

ROOT = Path(npgpt.__file__).parent
CLIS = {
    f"npgpt.{name}"
    for name in (
        "generate",
        "compare",
        "describe",
        "trace",
        "train",
        "evaluate",
        "fill_mask",
        "translate",
    )
}
EDGES = CLIS | {
    f"npgpt.{name}"
    for name in (
        "tokenizer",
        "checkpoint",
        "checkpoint_files",
        "safetensors_file",
        "hub",
        "hub_errors",
        "training_log",
    )
}
AT_THE_EDGES = {"tiktoken", "safetensors", "huggingface_hub", "tqdm"}
EXTRAS = {
    "torch",
    "transformers",
    "matplotlib",
    "scipy",
    "datasets",
    "mpi4py",
    "gguf",
    "tokenizers",
    "sentencepiece",
}
RUNTIME = {"numpy", "npgpt"} | AT_THE_EDGES


class Import(NamedTuple):
    """`name` is the whole dotted path; lazy means inside a function."""

    name: str
    lazy: bool

    def within(self, packages: set[str]) -> bool:
        return any(f"{self.name}.".startswith(f"{package}.") for package in packages)


def imports_of(source: str, package: str) -> Iterator[Import]:
    """Every import of a module of `package`, wherever it stands."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, lazy) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                start = resolve_name("." * child.level + (child.module or ""), package)
                yield from (Import(f"{start}.{alias.name}", lazy) for alias in child.names)
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from walk(child, lazy or inside)

    return walk(ast.parse(source), lazy=False)


def modules() -> dict[str, list[Import]]:
    """Dotted name -> imports, of every file of the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        package = ".".join(parts[:-1])
        name = package if path.name == "__init__.py" else ".".join(parts)
        found[name] = list(imports_of(path.read_text(encoding="utf-8"), package))
    return found


MODULES = modules()


def names_in(package: str) -> list[str]:
    return [name for name in MODULES if Import(name, lazy=False).within({package})]


@pytest.mark.parametrize("name", names_in("npgpt.ops"))
def test_operations_import_numpy_threads_and_each_other(name: str) -> None:
    allowed = {"numpy", "math", "collections", "functools", "typing", "__future__"}
    allowed |= {"npgpt.ops", "npgpt.threads"}
    assert [i.name for i in MODULES[name] if not i.within(allowed)] == []


@pytest.mark.parametrize("name", names_in("npgpt.layers"))
def test_layers_import_operations_and_each_other(name: str) -> None:
    ours = [i for i in MODULES[name] if i.within({"npgpt"})]
    assert [i.name for i in ours if not i.within({"npgpt.ops", "npgpt.layers"})] == []


@pytest.mark.parametrize("name", names_in("npgpt.models"))
def test_models_import_layers_and_their_own_tools(name: str) -> None:
    tools = {"kv_cache", "decoding", "sampling", "checkpoint", "llama_tensors", "bert_tensors"}
    tools |= {"seq2seq_decoding", "transformer_tensors"}
    allowed = {f"npgpt.{part}" for part in {"ops", "layers", "models"} | tools}
    ours = [i for i in MODULES[name] if i.within({"npgpt"})]
    assert [i.name for i in ours if not i.within(allowed)] == []


@pytest.mark.parametrize("name", sorted(MODULES.keys() - CLIS))
def test_nothing_imports_a_command(name: str) -> None:
    assert [i.name for i in MODULES[name] if i.within(CLIS)] == []


@pytest.mark.parametrize("name", MODULES)
def test_other_packages_stay_at_the_edges(name: str) -> None:
    outside = [i for i in MODULES[name] if i.name.split(".")[0] not in sys.stdlib_module_names]
    assert [i.name for i in outside if not i.within(RUNTIME | EXTRAS)] == []
    assert [i.name for i in outside if i.within(EXTRAS) and not i.lazy] == []
    if name not in EDGES:
        assert [i.name for i in outside if i.within(AT_THE_EDGES)] == []


def test_import_npgpt_is_light() -> None:
    """In a fresh interpreter it loads none of the packages that are slow or may be missing."""
    code = f"import sys, npgpt; print(sorted({AT_THE_EDGES | EXTRAS!r} & set(sys.modules)))"
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def test_the_reader_of_imports_sees_all_of_them() -> None:
    source = """
import numpy as np, os.path
from . import linear
from ..layers.attention import attention_forward
if True:
    import torch
class A:
    try:
        from scipy import special
    except ImportError:
        def f(self):
            import transformers.models as m
"""
    assert list(imports_of(source, "npgpt.ops")) == [
        ("numpy", False),
        ("os.path", False),
        ("npgpt.ops.linear", False),
        ("npgpt.layers.attention.attention_forward", False),
        ("torch", False),
        ("scipy.special", False),
        ("transformers.models", True),
    ]
    assert Import("npgpt.ops.linear", False).within({"npgpt.ops"})
    assert not Import("npgpt.opsimist", False).within({"npgpt.ops"})
    assert names_in("npgpt.ops")
