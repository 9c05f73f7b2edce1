"""What can go wrong between here and the hub, each as one sentence that says what to do."""

from __future__ import annotations

import errno

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


class Absent(FileNotFoundError):
    """The repository lacks a file."""


class Unreachable(Absent):
    """The cache lacks a file, and the hub could not be asked for it."""


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
