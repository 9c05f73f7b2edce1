"""How a configuration is read from config.json, and written back.

A configuration is a frozen dataclass whose annotations say of which kind each setting is, see
`npgpt.files.kinds`. Whoever makes one, `check_config` checks it; who reads one from a file says
which, see `naming`. Every other key is in one of the lists of `Keys`, or it is named in a warning.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np

from npgpt.files.checkpoint import read_raw_config, shortened
from npgpt.files.kinds import check_kinds, one_of
from npgpt.models import generation
from npgpt.ops.activation import ACTIVATIONS

Activation = Annotated[str, one_of(*ACTIVATIONS)]
# transformers' classes, which name the architecture where there is no model_type.
CLASSES = re.compile(
    "(GPT2|GPTNeo|Llama|Mistral|Mixtral|Qwen2|Qwen3|Qwen3Moe|Bert|Roberta|XLMRoberta|Camembert"
    "|DistilBert|Bart|Marian)"
    "(?=Model|LMHead|DoubleHeads|MTModel|For)"
)
# Where a class's name is not quite the model_type.
DASHED = {"xlmroberta": "xlm-roberta", "gptneo": "gpt_neo"}
SIZES_OF_GPT2 = ("n_positions", "n_embd", "n_layer", "n_head")

# Known to change no result, whatever the architecture: what other heads, programs and tasks need,
# memory and speed, outputs asked for. Packed weights are refused by whoever reads them.
NO_EFFECT = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _num_labels
    architectures attn_implementation author base_model_tp_plan chunk_size_feed_forward
    cross_attention_hidden_size dtype finetuning_task gradient_checkpointing id2label
    initializer_range label2id model_type name_or_path num_labels output_past prefix
    problem_type quantization quantization_config return_dict save_step sep_token_id
    tf_legacy_loss tie_last_hidden_states tokenizer_class torch_dtype torchscript
    transformers.js_config unsloth_fixed unsloth_version use_bfloat16 xla_device
    """.split()  # noqa: SIM905
)
# name -> its only value that npgpt follows, and why.
FIXED: dict[str, tuple[Any, str]] = {
    "per_layer_config": (None, "npgpt's blocks are all alike"),
    "pruned_heads": ({}, "npgpt has every head of every block"),
}


class Keys(NamedTuple):
    """What config.json may hold besides an architecture's own settings.

    aliases: other name -> name, as transformers reads them (`attribute_map`); the other one counts
        where both are there.
    fixed: name -> its only value that npgpt follows, and why; null is that value.
    no_effect: names known to change no result here.
    renamed: setting -> its name in the file, where that is another one.
    defaults: what is meant where the file is silent, as far as that is not the architecture's own.
    """

    aliases: Mapping[str, str] = {}
    fixed: Mapping[str, tuple[Any, str]] = {}
    no_effect: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}


def read_config(cls: type[Any], path: Path) -> Any:
    """The configuration in a config.json; raises and warns as `cls.from_dict`."""
    raw = read_raw_config(path)
    if (kind := find_model_type(raw)) is not None:
        raw["model_type"] = kind
    return cls.from_dict(raw, str(path))


def find_model_type(raw: Mapping[str, Any]) -> Any:
    """Its model_type; else what its architectures say, or gpt2 if it has sizes of a GPT-2.

    None if nothing tells.
    """
    if (kind := raw.get("model_type")) is not None:
        return kind
    given = raw.get("architectures")
    classes = given if isinstance(given, list) else []
    names = {match[1].lower() for name in classes if (match := CLASSES.match(str(name)))}
    found = {name.replace("moe", "_moe") for name in names}
    if len(found) == 1:
        kind = found.pop()
        return DASHED.get(kind, kind)
    if not classes and any(size in raw for size in SIZES_OF_GPT2):
        return "gpt2"
    return None


def read_settings(
    cls: Any, raw: Mapping[str, Any], where: str, *, model_type: str, keys: Keys
) -> dict[str, Any]:
    """The arguments of a configuration `cls` from a parsed config.json; `where` names the file.

    What `cls` does not know goes into `other`. Raises ValueError, one sentence, for a setting that
    this model cannot follow, and another model_type. Warns of keys that nobody knows.
    """
    if raw.get("model_type", model_type) != model_type:
        raise ValueError(
            f"{where}: model_type is {raw['model_type']!r:.60}, but must be {model_type!r}."
        )
    for name, (value, reason) in {**FIXED, **keys.fixed}.items():
        found = raw.get(name)
        if found is not None and found != value and (found or value):
            said = "set" if found is True else f"{found!r:.60}"
            raise ValueError(f"{where}: {name} is {said}, but {reason}.")
    raw = {**keys.defaults, **_without_aliases(raw, keys.aliases, where)}
    generation.Generation.from_dict(raw, where)
    own = {keys.renamed.get(name, name): name for name in _kinds(cls)}
    other = {key: raw[key] for key in raw if key not in own}
    known = {*FIXED, *keys.fixed, *NO_EFFECT, *keys.no_effect, *generation.KEYS}
    if unknown := [key for key in other if other[key] and key not in known]:
        warnings.warn(
            f"{where}: npgpt does not know {shortened(unknown)}, which may change results.",
            UserWarning,
            stacklevel=5,  # the line that called the architecture's loader
        )
    return {**{name: raw[key] for key, name in own.items() if key in raw}, "other": other}


def _without_aliases(
    raw: Mapping[str, Any], aliases: Mapping[str, str], where: str
) -> dict[str, Any]:
    """The settings under their own names; a warning where the two names say two things."""
    settings = {name: raw[name] for name in raw if name not in aliases}
    for alias, name in aliases.items():
        if alias not in raw:
            continue
        if name in raw and raw[name] != raw[alias]:
            warnings.warn(
                f"{where}: {alias} is {raw[alias]!r:.60} and {name} {raw[name]!r:.60}, which mean "
                f"the same; {alias} counts, as for transformers.",
                UserWarning,
                stacklevel=6,
            )
        settings[name] = raw[alias]
    return settings


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Put the name of the file before what a ValueError says of the configuration."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def check_config(config: Any, renamed: Mapping[str, str] = {}) -> None:
    """Raise ValueError, one sentence, unless every setting is of its kind; for `__post_init__`.

    NumPy's numbers become Python's, which can be written to config.json. Errors call a setting as
    config.json does, see `Keys.renamed`.
    """
    kinds = _kinds(config.__class__)
    for name in kinds:
        if isinstance(value := getattr(config, name), np.generic):
            object.__setattr__(config, name, value.item())  # the configuration is frozen
    called = {name: renamed.get(name, name) for name in kinds}
    values = {called[name]: getattr(config, name) for name in kinds}
    check_kinds(values, {called[name]: kind for name, kind in kinds.items()})


@functools.cache
def _kinds(cls: Any) -> dict[str, Any]:
    """The annotation of each setting."""
    kinds = get_type_hints(cls, include_extras=True)
    del kinds["other"]
    return kinds


def check_heads(config: Any, width: str, heads: str, renamed: Mapping[str, str] = {}) -> None:
    """Raise ValueError unless the width is a multiple of the number of heads."""
    d, H = getattr(config, width), getattr(config, heads)
    if d % H:
        width, heads = renamed.get(width, width), renamed.get(heads, heads)
        raise ValueError(f"{width} {d} cannot be cut into {heads} {H} heads.")


def as_raw(config: Any, renamed: Mapping[str, str] = {}, **first: Any) -> dict[str, Any]:
    """The content of config.json: what no file said, then `other`, then every known setting."""
    own = [f.name for f in fields(config) if f.name != "other"]
    settings = {renamed.get(name, name): getattr(config, name) for name in own}
    return {**first, **config.other, **settings}
