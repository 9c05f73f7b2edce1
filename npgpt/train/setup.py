"""From options to a run that can start or go on: vocabulary, text, model, state.

Nothing is written before everything has been checked, but for token ids kept beside the texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt import cli
from npgpt.files.io import clear_litter
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.text import corpus as data
from npgpt.text.tokenizer import Tokenizer, load_tokenizer, tokenizer_from_folder
from npgpt.train import windows
from npgpt.train.log import LOG
from npgpt.train.optim import AdamWState, new_adamw_state
from npgpt.train.options import new_settings, resumed_settings
from npgpt.train.state import STATE, export_model, load_state, save_state
from npgpt.train.vocabulary import byte_tokenizer, end_of_text_id, write_vocabulary

INIT_STREAM = 0  # keeps these draws apart from others with the same seed


class Run(NamedTuple):
    """All that `npgpt.train` works on; `model` and `optimizer` change in place."""

    folder: Path
    settings: argparse.Namespace
    model: GPT2 | Llama
    optimizer: AdamWState
    tokenizer: Tokenizer
    end_of_text: int | None
    ids: np.ndarray
    held_out: np.ndarray
    step: int  # steps done
    seconds: float  # time spent on them, in all sittings

    def save(self, step: int, seconds: float) -> None:
        """Write the state, then the model for everyone else."""
        facts = {
            "step": step,
            "seconds": seconds,
            "settings": vars(self.settings),
            "data": data.ids_key(self.ids, self.held_out),
        }
        save_state(self.folder, self.model, self.optimizer, facts)
        export_model(self.folder, self.model, self.settings.save_dtype)


def prepare(folder: Path, given: dict[str, Any], resume: bool) -> Run:
    """Begin a run in `folder`, or go on with the one that is there if `resume`.

    Raises ValueError or OSError, one sentence, for whatever does not fit.
    """
    if (folder / STATE).is_file():
        if not resume:
            raise ValueError(
                f"{folder} holds a run; go on with --resume, or choose another folder for --out."
            )
        clear_litter(folder)
        return _resumed(folder, given)
    if taken := [name for name in ("model.safetensors", LOG) if (folder / name).exists()]:
        raise ValueError(
            f"{folder} holds {taken[0]} but no {STATE} to go on from; choose another folder for "
            "--out (and --init to fine-tune a model)."
        )
    if resume and "data" not in given:
        raise FileNotFoundError(
            f"there is no run in {folder} to resume, and no --data for a new one."
        )
    return _new(folder, given)


def _new(folder: Path, given: dict[str, Any]) -> Run:
    settings = new_settings(given)
    model = _initial_model(settings)
    source = settings.vocab_from or settings.init
    tokenizer = byte_tokenizer() if source is None else load_tokenizer(source)
    end_of_text = end_of_text_id(tokenizer, model)
    if model is None:
        model = _fresh_model(settings, tokenizer, end_of_text)
    _check_context(settings, model)
    ids, held_out = _read_data(settings, tokenizer, end_of_text, folder, model.rows)
    folder.mkdir(parents=True, exist_ok=True)
    clear_litter(folder)  # of a run that was killed before its first save
    write_vocabulary(folder, source, generation_config=settings.vocab_from is None)
    optimizer = new_adamw_state(model.params)
    run = Run(folder, settings, model, optimizer, tokenizer, end_of_text, ids, held_out, 0, 0.0)
    run.save(0, 0.0)
    return run


def _resumed(folder: Path, given: dict[str, Any]) -> Run:
    model, optimizer, facts = load_state(folder)
    settings = resumed_settings(facts["settings"], given)
    tokenizer = tokenizer_from_folder(folder)
    end_of_text = end_of_text_id(tokenizer, model)
    ids, held_out = _read_data(settings, tokenizer, end_of_text, folder, model.rows)
    if data.ids_key(ids, held_out) != facts["data"]:
        raise ValueError(
            f"the texts or the vocabulary have changed since the run in {folder} began; it resumes "
            "only on the same ones."
        )
    return Run(
        folder, settings, model, optimizer, tokenizer, end_of_text, ids, held_out,
        facts["step"], facts["seconds"],
    )  # fmt: skip


def _initial_model(settings: argparse.Namespace) -> GPT2 | Llama | None:
    """The checkpoint to fine-tune, with the dropout asked for."""
    if settings.init is None:
        return None
    place = find_supported("train", settings.init)
    if place.suffix == ".gguf":
        raise ValueError(
            f"a run starts from a folder, whose vocabulary files it keeps, but {settings.init!r} "
            f"is the file {place}."
        )
    model: GPT2 | Llama = from_pretrained(place, dtype=cli.DTYPES[settings.dtype])
    if isinstance(model, Llama):
        model.config = replace(model.config, attention_dropout=settings.dropout)
    else:
        pdrop = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), settings.dropout)
        model.config = replace(model.config, **pdrop)
    settings.context = settings.context or model.context
    return model


def _fresh_model(
    settings: argparse.Namespace, tokenizer: Tokenizer, end_of_text: int | None
) -> GPT2:
    config = GPT2Config.from_dict(
        {
            "vocab_size": max(tokenizer.bytes_of) + 1,
            "n_positions": settings.context,
            "n_embd": settings.n_embd,
            "n_layer": settings.n_layer,
            "n_head": settings.n_head,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), settings.dropout),
            **dict.fromkeys(("bos_token_id", "eos_token_id"), end_of_text),
        },
        "the options",
    )
    rng = np.random.default_rng((settings.seed, INIT_STREAM))
    dtype = np.float64 if settings.dtype == "float64" else np.float32
    return GPT2(config, init_params(config, rng, dtype))


def _check_context(settings: argparse.Namespace, model: GPT2 | Llama) -> None:
    positions = model.context
    if settings.context > positions:
        raise ValueError(f"--context {settings.context} exceeds the model's {positions} positions.")


def _read_data(
    settings: argparse.Namespace,
    tokenizer: Tokenizer,
    end_of_text: int | None,
    folder: Path,
    V: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(training ids, held-out ids); the latter may be empty."""

    def read(files: Sequence[Path]) -> np.ndarray:
        return data.read_ids(
            files, tokenizer, end_of_text=end_of_text, special=settings.special, spare_folder=folder
        )

    held_files = [file for path in settings.val or () for file in data.text_files(path)]
    held = {file.resolve() for file in held_files}
    files = [file for file in data.text_files(settings.data) if file.resolve() not in held]
    if not files:
        raise ValueError(f"--val names every text of {settings.data}; none is left to train on.")
    ids, held_out = windows.split_tail(read(files), settings.val_fraction)
    if held_files:
        held_out = read(held_files)
    windows.windows_per_epoch(len(ids), settings.context)
    if len(held_out) == 1:
        raise ValueError(
            "a single token is held out; hold out more, or nothing (--val-fraction 0)."
        )
    if (largest := int(max(ids.max(), held_out.max(initial=0)))) >= V:
        raise ValueError(f"the vocabulary gives id {largest}, but the model has only {V} ids.")
    return ids, held_out
