"""How a model writes unless told otherwise: generation_config.json, or config.json without it.

As in Hugging Face's transformers, a generation_config.json says all: what it leaves out has its
default, whatever config.json says. Names and defaults are those of `GenerationConfig`; null means
the default. The file itself is kept beside the model, byte for byte, unless settings were changed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from npgpt.decoding.constraints import as_ids
from npgpt.decoding.seq2seq import MOST_BEAMS, MOST_PENALTY
from npgpt.files.checkpoint import GENERATION_CONFIG, read_raw_config, shortened
from npgpt.files.io import parse_json
from npgpt.files.kinds import (
    AN_ID,
    Count,
    Id,
    Ids,
    Kind,
    NonNegative,
    Size,
    array_of,
    check_kinds,
    is_id,
    is_number,
    one_of,
)

Words = Annotated[
    list[list[int]],
    Kind(
        lambda v: array_of(array_of(AN_ID)).holds(v) and all(v),
        "an array in which each value is an array of at least one id",
    ),
]
Decay = Annotated[
    list[float],
    Kind(
        lambda v: isinstance(v, list) and len(v) == 2 and is_id(v[0]) and _is_factor(v[1]),
        "an array of an integer >= 0 and a number from 0.001 to 1000",
    ),
]
Beams = Annotated[
    int, Kind(lambda v: is_id(v) and 0 < v <= MOST_BEAMS, f"an integer from 1 to {MOST_BEAMS}")
]
Factor = Annotated[float, Kind(lambda v: _is_factor(v), "a number from 0.001 to 1000")]
Exponent = Annotated[
    float,
    Kind(
        lambda v: is_number(v) and abs(v) <= MOST_PENALTY,
        f"a number from -{MOST_PENALTY} to {MOST_PENALTY}",
    ),
]
Share = Annotated[float, Kind(lambda v: is_number(v) and 0 <= v <= 1, "a number from 0 to 1")]


def _is_factor(value: Any) -> bool:
    return is_number(value) and 1e-3 <= value <= 1e3


@dataclass(frozen=True)
class Generation:
    """What generation_config.json says, as far as npgpt follows it."""

    bos_token_id: Id | None = None
    eos_token_id: Ids | None = None
    decoder_start_token_id: Id | None = None
    max_length: Size | None = None
    max_new_tokens: Size | None = None
    # What `npgpt.decoding.constraints` does.
    min_length: Count = 0
    min_new_tokens: Count = 0
    repetition_penalty: Factor = 1.0
    encoder_repetition_penalty: Factor = 1.0
    no_repeat_ngram_size: Count = 0
    encoder_no_repeat_ngram_size: Count = 0
    bad_words_ids: Words | None = None
    forced_bos_token_id: Id | None = None
    forced_eos_token_id: Ids | None = None
    exponential_decay_length_penalty: Decay | None = None
    suppress_tokens: Ids | None = None
    begin_suppress_tokens: Ids | None = None
    # Sampling, of GPT-2 and Llama.
    do_sample: bool = False
    temperature: NonNegative = 1.0
    top_k: Count = 50
    top_p: Share = 1.0
    # Beams, of encoder-decoders.
    num_beams: Beams = 1
    length_penalty: Exponent = 1.0
    early_stopping: Annotated[bool | str, one_of(True, False, "never")] = False
    renormalize_logits: bool = False

    @classmethod
    def from_dict(
        cls, raw: Mapping[str, Any], where: str, vocab_size: int | None = None
    ) -> Generation:
        """Read and check what concerns generation; `where` names the file in errors.

        Raises ValueError, one sentence, for a value that is not of its setting's kind, and for an
        id that must be written but that no model with `vocab_size` ids has.
        """
        kinds = get_type_hints(cls, include_extras=True)
        said = {name: raw[name] for name in kinds if raw.get(name) is not None}
        check_kinds(said, kinds, where)
        if raw.get("force_bos_token_to_be_generated"):  # BART's name of it, up to 2020
            said["forced_bos_token_id"] = raw.get("bos_token_id")
        settings = cls(**said)
        if vocab_size is not None:
            settings._check_ids(vocab_size, where)
        return settings

    def _check_ids(self, vocab_size: int, where: str) -> None:
        words = {"bad_words_ids": [i for word in self.bad_words_ids or [] for i in word]}
        forced = {
            name: as_ids(getattr(self, name))
            for name in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id")
        }
        for name, ids in (forced | words).items():
            if strange := [i for i in ids if not 0 <= i < vocab_size]:
                raise ValueError(
                    f"{where}: {name} has {strange[0]}, but the model has {vocab_size} ids."
                )
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            if forced[name] and {*forced[name]} <= {*as_ids(self.suppress_tokens)}:
                raise ValueError(f"{where}: suppress_tokens forbids what {name} demands.")


FIELDS = tuple(get_type_hints(Generation))
# Known to change no result: outputs asked for, memory and speed, helpers that npgpt has not.
NO_EFFECT = frozenset(
    """
    _commit_hash _from_model_config assistant_confidence_threshold assistant_early_exit
    assistant_ensemble_weight assistant_lookbehind cache_config cache_implementation compile_config
    continuous_batching_config disable_compile is_assistant low_memory max_cache_len
    max_matching_ngram_size num_assistant_tokens num_assistant_tokens_schedule output_attentions
    output_hidden_states output_logits output_scores pad_token_id prefill_chunk_size
    prompt_lookup_num_tokens return_dict_in_generate speculation_type target_lookbehind
    task_specific_params transformers_version trust_remote_code use_cache use_mtp
    """.split()  # noqa: SIM905
)
# Not followed: name -> the value with which it changes nothing; these only where one samples.
SAMPLING = {
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_p": None,
    "top_h": None,
    "typical_p": 1.0,
}
NOT_FOLLOWED = {
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "force_words_ids": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "penalty_alpha": None,
    "remove_invalid_values": False,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "watermarking_config": None,
}
KEYS = frozenset(FIELDS) | NO_EFFECT | SAMPLING.keys() | NOT_FOLLOWED.keys()


def read_generation(
    folder: Path, config: Mapping[str, Any], vocab_size: int, *, searches: bool
) -> Generation | None:
    """What a folder's generation_config.json says; None where there is none, so config.json counts.

    Args:
        config: the content of config.json.
        vocab_size: how many ids the model may write.
        searches: whether it searches with beams, as an encoder-decoder; else it may sample.

    Raises ValueError as `Generation.from_dict`. Warns of settings that npgpt does not follow, and
    where config.json has an end-of-text that no longer counts.
    """
    path = folder / GENERATION_CONFIG
    if not path.is_file():
        where = str(folder / "config.json")
        Generation.from_dict(config, where, vocab_size)
        _warn_of_others({key: config[key] for key in config if key in KEYS}, where, searches)
        return None
    raw = read_raw_config(path)
    settings = Generation.from_dict(raw, str(path), vocab_size)
    _warn_of_others(raw, str(path), searches)
    if settings.eos_token_id is None and config.get("eos_token_id") is not None:
        warnings.warn(
            f"{path}: has no eos_token_id, so no token ends a text, though config.json has "
            f"{config['eos_token_id']}; transformers reads it so, too.",
            UserWarning,
            stacklevel=4,
        )
    return settings


def _warn_of_others(raw: Mapping[str, Any], where: str, searches: bool) -> None:
    """Name, in one warning, what may make texts differ from those of transformers."""
    neutral = NOT_FOLLOWED | (SAMPLING if raw.get("do_sample") else {})
    neutral |= {"do_sample": False} if searches else {"num_beams": 1}
    followed = KEYS - neutral.keys()
    strange = [
        f"{name} {json.dumps(value):.40}"
        for name, value in raw.items()
        if name not in followed and value and value != neutral.get(name)
    ]
    if strange:
        warnings.warn(
            f"{where}: npgpt does not follow {shortened(strange, 20)}; texts may differ from "
            "those of transformers.",
            UserWarning,
            stacklevel=5,
        )


def with_generation(beside: Mapping[str, bytes] | None, settings: Generation) -> dict[str, bytes]:
    """The files beside a model, with these settings in generation_config.json.

    A file that says the same already stays byte for byte; else only what differs is changed.
    """
    files = dict(beside or {})
    raw = parse_json(files.get(GENERATION_CONFIG, b"{}"), GENERATION_CONFIG)
    before = Generation.from_dict(raw, GENERATION_CONFIG)
    if GENERATION_CONFIG in files and before == settings:
        return files
    was = asdict(before)
    raw |= {name: value for name, value in asdict(settings).items() if value != was[name]}
    return {**files, GENERATION_CONFIG: (json.dumps(raw, indent=2) + "\n").encode()}
