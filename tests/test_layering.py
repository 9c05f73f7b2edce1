"""Imports point one way, without a circle, and heavy packages wait until they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

import npgpt
from npgpt.__main__ import COMMANDS

ROOT = Path(npgpt.__file__).parent
# Package (or module): which others it may import. Each names only what stands above it.
MAY_IMPORT = {
    "ops": (),
    "cli": (),
    "layers": ("ops",),
    "decoding": ("ops",),
    "files": (),
    "models": ("ops", "layers", "decoding", "files"),
    "text": ("files", "models"),
    "describe": ("cli", "ops", "files", "models"),
    "trace": ("cli", "ops", "models", "text"),
    "explore": ("cli", "ops", "files", "models", "text", "trace"),
    "compare": ("cli", "ops", "files", "models", "text"),
    "train": ("cli", "ops", "decoding", "files", "models", "text"),
    "vectors": ("cli", "ops", "layers", "files", "models", "text", "train"),  # train's AdamW
    "generate": ("cli", "decoding", "files", "models", "text"),
    "evaluate": ("cli", "ops", "decoding", "files", "models", "text"),
    "fill_mask": ("cli", "ops", "files", "models", "text"),
    "translate": ("cli", "files", "models", "text"),
    "__init__": ("models", "text", "trace"),
    "__main__": ("cli", *COMMANDS),
}
OUTSIDE = {  # package -> where it may be imported; inside functions only, but for AT_THE_TOP
    "tiktoken": ("text",),
    "safetensors": ("files",),
    "huggingface_hub": ("files",),
    "filelock": ("files",),
    "tqdm": ("train", "evaluate"),
    "tokenizers": ("text",),
    "sentencepiece": ("text",),
    "gguf": ("files",),
    "matplotlib": ("train",),
    "mpi4py": ("train",),
    "torch": ("compare", "evaluate"),
    "transformers": ("compare", "evaluate"),
}
AT_THE_TOP = {"numpy", "tiktoken", "tqdm"}


class Import(NamedTuple):
    """`name` is the whole dotted path; lazy means inside a function."""

    name: str
    lazy: bool


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
        found[".".join(parts)] = list(
            imports_of(path.read_text(encoding="utf-8"), ".".join(parts[:-1]))
        )
    return found


MODULES = modules()


def test_packages_import_only_what_the_table_allows() -> None:
    wrong = []
    for name, imports in MODULES.items():
        own = name.split(".")[1]
        for top, *rest in (i.name.split(".") for i in imports):
            if top == "npgpt" and rest[0] not in (own, *MAY_IMPORT[own]):
                wrong.append(f"{name} imports {'.'.join((top, *rest))}")
    assert wrong == []


def test_the_table_is_that_of_the_package_and_has_no_circle() -> None:
    assert {name.split(".")[1] for name in MODULES} == MAY_IMPORT.keys()
    before: set[str] = set()
    for name, allowed in MAY_IMPORT.items():
        assert set(allowed) <= before, name
        before.add(name)


def test_modules_import_each_other_without_a_circle() -> None:
    """Lazy imports count: a circle that waits is still one."""
    files = set(MODULES)

    def file_of(name: str) -> str | None:
        for candidate in (name, name.rpartition(".")[0]):
            if candidate in files:
                return candidate
        return None

    graph = {
        name: {file_of(i.name) for i in imports} - {None, name} for name, imports in MODULES.items()
    }
    while free := [name for name, wanted in graph.items() if not wanted]:
        graph = {n: wanted - {*free} for n, wanted in graph.items() if n not in free}
    assert graph == {}


def test_other_packages_stay_in_their_places() -> None:
    wrong = []
    for name, imports in MODULES.items():
        own = name.split(".")[1]
        for i in imports:
            top = i.name.split(".")[0]
            if top in sys.stdlib_module_names or top in ("npgpt", "numpy"):
                continue
            if own not in OUTSIDE.get(top, ()) or not (i.lazy or top in AT_THE_TOP):
                wrong.append(f"{name} imports {i.name}")
    assert wrong == []


@pytest.mark.parametrize("package", ["tqdm", "filelock"])
def test_a_package_that_is_not_declared_comes_with_one_that_is(package) -> None:
    """huggingface_hub cannot be installed without it."""
    wanted = requires("huggingface_hub") or []
    assert [each for each in wanted if each.startswith(package) and "extra" not in each]


def test_operations_need_nothing_but_numpy() -> None:
    allowed = {"npgpt", "numpy", "__future__"}
    allowed |= {"math", "collections", "functools", "heapq", "typing"}
    outside = [
        (name, i.name)
        for name, imports in MODULES.items()
        for i in imports
        if name.startswith("npgpt.ops.") and i.name.split(".")[0] not in allowed
    ]
    assert {name for name, _ in outside} == {"npgpt.ops.threads"}  # which is no operation


def test_import_npgpt_is_light() -> None:
    """In a fresh interpreter it loads none of the packages that are slow or may be missing."""
    code = f"import sys, npgpt; print(sorted({set(OUTSIDE)!r} & set(sys.modules)))"
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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_a_module_that_runs(command: str) -> None:
    assert {f"npgpt.{command}", f"npgpt.{command}.__main__"} & MODULES.keys()
