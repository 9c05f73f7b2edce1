"""From settings to a run that can start or go on: vocabulary, text, model, state.

Nothing is written before everything has been checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt import cli
from npgpt.decoding.causal import known_ids
from npgpt.decoding.constraints import as_ids
from npgpt.files.checkpoint import GENERATION_CONFIG, shortened
from npgpt.files.hub import companions, find_model
from npgpt.files.io import alone_in, replacing
from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.files.tensors import broken_names
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.text import corpus
from npgpt.text.learning import (
    END_OF_TEXT,
    FEWEST_IDS,
    Merge,
    files_of,
    learn_merges,
    tokenizer_of,
)
from npgpt.text.tokenizer import TextTokenizer, load_tokenizer, tokenizer_from_folder
from npgpt.train import windows
from npgpt.train.log import LOG
from npgpt.train.optim import Moments, new_adamw_state, new_muon_state
from npgpt.train.options import Settings, new_settings, resumed_settings
from npgpt.train.state import STATE, State, export_model, load_state, save_state

IDS = "ids.safetensors"  # the run's token ids
INIT_STREAM = 0  # keeps these draws apart from others with the same seed


class Texts(NamedTuple):
    """What a run reads."""

    ids: np.ndarray  # to train on, [N]
    held_out: np.ndarray  # to evaluate on, perhaps empty


class Run(NamedTuple):
    """All that `npgpt.train` works on; `model` and `optimizer` change in place."""

    folder: Path
    settings: Settings
    model: GPT2 | Llama
    optimizer: Moments
    tokenizer: TextTokenizer
    end_of_text: int | None
    texts: Texts
    data: str  # fingerprint of the texts
    step: int  # steps done
    seconds: float  # spent on them, before and after each --resume

    def save(self, step: int, seconds: float, *, going_on: bool = False) -> None:
        """Write the state, then the model for other programs.

        A model that cannot be written, as where the disk is full, ends no run that is `going_on`:
        it warns, since the next save will write it.
        """
        state = State(self.model, self.optimizer, step, seconds, self.settings, self.data)
        save_state(self.folder, state)
        try:
            export_model(self.folder, self.model, self.settings.save_dtype)
        except (OSError, ValueError) as error:
            if not going_on:
                raise
            warnings.warn(f"after step {step}: {error}", UserWarning, stacklevel=2)


def prepare(
    folder: Path, given: Mapping[str, Any], resume: bool, held: ExitStack | None = None
) -> Run:
    """Begin a run in `folder`, or go on with the one that is there if `resume`.

    Args:
        held: gets the lock of the folder, which keeps other runs out. None: no lock is taken.

    Raises ValueError or OSError, one sentence, for whatever does not fit.
    """
    if (folder / STATE).is_file() and resume:
        if held is not None:
            held.enter_context(alone_in(folder))
        return _resumed(folder, given)
    _check_vacant(folder)
    if resume and "data" not in given:
        raise FileNotFoundError(
            f"there is no run in {folder} to resume, and no --data for a new one."
        )
    return _new(folder, given, held)


def _check_vacant(folder: Path) -> None:
    """Raise ValueError for a folder in which no run can begin."""
    if (folder / STATE).is_file():
        raise ValueError(
            f"{folder} holds a run; go on with --resume, or choose another folder for --out."
        )
    if taken := [name for name in ("model.safetensors", LOG) if (folder / name).exists()]:
        raise ValueError(
            f"{folder} holds {taken[0]} but no {STATE} to go on from; choose another folder for "
            "--out (and --init to fine-tune a model)."
        )


def _new(folder: Path, given: Mapping[str, Any], held: ExitStack | None) -> Run:
    settings = new_settings(given)
    model = None if settings.init is None else _initial_model(settings, settings.init)
    source = settings.init if settings.vocab_from is None else settings.vocab_from
    files = _files(settings)
    merges = _learned_merges(settings, files)
    tokenizer = tokenizer_of(merges) if source is None else load_tokenizer(source)
    if settings.special and not tokenizer.special_tokens_set:
        warnings.warn(
            "--special has no effect: the vocabulary has no such tokens.", UserWarning, stacklevel=2
        )
    _check_prompt(settings, tokenizer)
    if settings.init is not None and settings.vocab_from is not None:
        _check_same_ids(tokenizer, settings.init, settings.vocab_from)
    end_of_text = _end_of_text(tokenizer, model)
    if model is None:
        model = _fresh_model(settings, tokenizer, end_of_text)
    settings = replace(settings, context=settings.context or model.context)
    if settings.context > model.context:
        raise ValueError(
            f"--context {settings.context} exceeds the model's {model.context} positions."
        )
    if settings.context < 2:
        raise ValueError(
            f"{settings.init!r} has a context of {settings.context}, but training needs at least "
            "2; choose another model for --init."
        )
    texts = _read_texts(files, settings, tokenizer, end_of_text)
    _check_texts(texts, settings, model.rows)
    folder.mkdir(parents=True, exist_ok=True)
    if held is not None:
        held.enter_context(alone_in(folder))
    _check_vacant(folder)  # once more: another run may have begun and ended meanwhile
    if source is None:
        _write_merges(folder, merges, settings.vocab_size)
    else:
        _copy_vocabulary(folder, source, generation_config=settings.vocab_from is None)
    _keep_texts(folder, texts, corpus.source_key(tokenizer, settings.special, *files))
    new_state = new_muon_state if settings.optimizer == "muon" else new_adamw_state
    data, optimizer = corpus.ids_key(*texts), new_state(model.params)
    run = Run(folder, settings, model, optimizer, tokenizer, end_of_text, texts, data, 0, 0.0)
    run.save(0, 0.0, going_on=True)
    return run


def _resumed(folder: Path, given: Mapping[str, Any]) -> Run:
    model, optimizer, step, seconds, settings, data = load_state(folder)
    settings = resumed_settings(settings, given, step)
    tokenizer = tokenizer_from_folder(folder)
    _check_prompt(settings, tokenizer)
    end_of_text = _end_of_text(tokenizer, model)
    files = _files(settings)
    texts = _kept_texts(folder, corpus.source_key(tokenizer, settings.special, *files), data)
    if texts is None:
        texts = _read_texts(files, settings, tokenizer, end_of_text)
    if corpus.ids_key(*texts) != data:
        raise ValueError(
            f"the texts or the vocabulary have changed since the run in {folder} began; it resumes "
            "only on the same ones."
        )
    return Run(
        folder, settings, model, optimizer, tokenizer, end_of_text, texts, data, step, seconds
    )


def _initial_model(settings: Settings, name: str) -> GPT2 | Llama:
    """The checkpoint to fine-tune, with the dropout asked for."""
    place = find_supported("train", name)
    if place.suffix == ".gguf":
        raise ValueError(
            f"a run starts from a folder, whose vocabulary files it keeps, but {name!r} "
            f"is the file {place}."
        )
    model: GPT2 | Llama = from_pretrained(place, dtype=cli.DTYPES[settings.dtype])
    if broken := broken_names(model.params):
        raise ValueError(
            f"{name!r} has NaN or infinite values in {shortened(broken)}, which training would "
            "only spread; start from another copy."
        )
    if isinstance(model, Llama):
        model.config = replace(model.config, attention_dropout=settings.dropout)
    else:
        model.config = replace(model.config, **_gpt2_dropout(settings))
    return model


def _fresh_model(settings: Settings, tokenizer: TextTokenizer, end_of_text: int | None) -> GPT2:
    config = GPT2Config.from_dict(
        {
            "vocab_size": max(tokenizer.bytes_of) + 1,
            "n_positions": settings.context,
            "n_embd": settings.n_embd,
            "n_layer": settings.n_layer,
            "n_head": settings.n_head,
            **_gpt2_dropout(settings),
            **dict.fromkeys(("bos_token_id", "eos_token_id"), end_of_text),
        },
        "the options",
    )
    rng = np.random.default_rng((settings.seed, INIT_STREAM))
    return GPT2(config, init_params(config, rng, cli.DTYPES[settings.dtype]))


def _gpt2_dropout(settings: Settings) -> dict[str, Any]:
    return dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), settings.dropout)


def _learned_merges(settings: Settings, files: tuple[list[Path], list[Path]]) -> list[Merge]:
    """The byte pairs of --vocab-size, from the text that is not held out; none without it."""
    if (size := settings.vocab_size) is None:
        return []
    return learn_merges(_training_parts(files, settings), size, merge_cjk=settings.merge_cjk)


def _training_parts(files: tuple[list[Path], list[Path]], settings: Settings) -> list[str]:
    """What a vocabulary is learned from."""
    cut_at = END_OF_TEXT if settings.special else None
    return corpus.text_before_tail(files[0], settings.val_fraction, cut_at)


def _write_merges(folder: Path, merges: list[Merge], asked: int | None) -> None:
    """Write a vocabulary of these merges, and warn where it has fewer ids than were `asked` for."""
    if asked is not None and (found := FEWEST_IDS + len(merges)) < asked:
        warnings.warn(
            f"--vocab-size {asked}: the vocabulary has {found} ids, {len(merges)} of them learned; "
            "no further pair occurs twice in the text.",
            UserWarning,
            stacklevel=2,
        )
    files = files_of(merges)
    with replacing(*(folder / name for name in files)) as temporaries:
        for temporary, text in zip(temporaries, files.values(), strict=True):
            temporary.write_text(text, encoding="utf-8", newline="\n")


def _copy_vocabulary(folder: Path, source: str, *, generation_config: bool) -> None:
    """Copy the vocabulary files of the model `source`.

    `generation_config`: copy that file too, whose ids are those of the vocabulary.
    """
    found = companions(find_model(source, files=("tokenizer",))) or {}
    for name, data in found.items():
        if name != GENERATION_CONFIG or generation_config:
            with replacing(folder / name) as (temporary,):
                temporary.write_bytes(data)


def _check_same_ids(tokenizer: TextTokenizer, init: str, vocab_from: str) -> None:
    """Raise ValueError if an id of the vocabulary beside the model `init` is another token here.

    Tokens may be added. A model without a vocabulary that can be read is not checked.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is compared only
            known = load_tokenizer(init).bytes_of
    except (OSError, ValueError, ImportError):
        return
    if changed := [n for n, text in known.items() if tokenizer.bytes_of.get(n) != text]:
        raise ValueError(
            f"--vocab-from {vocab_from} lacks id {min(changed)} of the vocabulary that {init!r} "
            "has, or gives it to another token; leave out --vocab-from."
        )


def _check_prompt(settings: Settings, tokenizer: TextTokenizer) -> None:
    """Raise ValueError for a --sample-prompt that the vocabulary cannot write."""
    try:
        tokenizer.encode(settings.sample_prompt)
    except ValueError as error:
        raise ValueError(f"--sample-prompt: {error}") from None


def _end_of_text(tokenizer: TextTokenizer, model: GPT2 | Llama | None) -> int | None:
    """The id between texts: the configuration's end-of-text, if the vocabulary has it."""
    if model is not None:
        ends = known_ids(as_ids(model.config.eos_token_id), model, tokenizer.bytes_of)
        return next(iter(ends), None)
    return tokenizer.end_of_text


def _files(settings: Settings) -> tuple[list[Path], list[Path]]:
    """The files to train on, and those held out by name."""
    found = [file for path in settings.val or () for file in corpus.text_files(path)]
    held_out = {file.resolve(): file for file in found}  # named by its folder, too: once
    files = [file for file in corpus.text_files(settings.data) if file.resolve() not in held_out]
    if not files:
        raise ValueError(f"--val names every text of {settings.data}; none is left to train on.")
    return files, [*held_out.values()]


def _read_texts(
    files: tuple[list[Path], list[Path]],
    settings: Settings,
    tokenizer: TextTokenizer,
    end_of_text: int | None,
) -> Texts:
    ids, held_out = (
        corpus.read_ids(part, tokenizer, end_of_text=end_of_text, special=settings.special)
        for part in files
    )
    if files[1]:
        return Texts(ids, held_out)
    if settings.vocab_size is None:
        return Texts(*windows.split_tail(ids, settings.val_fraction))
    # Nothing is held out that the vocabulary was learned from.
    learned = sum(len(part.encode("utf-8")) for part in _training_parts(files, settings))
    sizes = corpus.token_sizes(tokenizer, max(tokenizer.bytes_of) + 1)[ids]
    kept = np.searchsorted(np.cumsum(sizes) - sizes, learned, side="right")
    return Texts(ids[:kept], ids[kept:])


def _check_texts(texts: Texts, settings: Settings, V: int) -> None:
    """Raise ValueError for texts that a model with V ids cannot be trained on."""
    windows.windows_per_epoch(len(texts.ids), settings.context)
    if len(texts.held_out) == 1:
        raise ValueError(
            "a single token is held out; hold out more, or nothing (--val-fraction 0)."
        )
    if (largest := int(max(part.max(initial=0) for part in texts))) >= V:
        raise ValueError(f"the vocabulary gives id {largest}, but the model has only {V} ids.")


def _keep_texts(folder: Path, texts: Texts, source: str) -> None:
    """Keep the ids for the next --resume, with the fingerprint of what they were made from."""
    write_tensors(folder / IDS, texts._asdict(), {"source": source})


def _kept_texts(folder: Path, source: str, data: str) -> Texts | None:
    """The ids that `_keep_texts` kept; None if they are others, with a warning if they must not be.

    Args:
        source: fingerprint of what they were made from; if that changed, they are of no use.
        data: fingerprint of the ids themselves.
    """
    path = folder / IDS
    if not path.is_file():
        return None
    try:
        if read_metadata(path).get("source") != source:
            return None
        kept = read_tensors(path)
        flat = all(p.ndim == 1 and p.dtype in (np.uint16, np.uint32) for p in kept.values())
        if kept.keys() == {*Texts._fields} and flat and corpus.ids_key(*Texts(**kept)) == data:
            return Texts(**kept)
        reason = f"{path} has other ids than the run began with."
    except (OSError, ValueError) as error:
        reason = str(error)
    warnings.warn(f"The texts are read again: {reason}", UserWarning, stacklevel=3)
    return None
