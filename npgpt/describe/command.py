"""`python -m npgpt.describe [MODEL]`: the structure of a model, from its config.json alone.

Of a GPT-2 boxes with shapes, parameters and FLOPs, the parameter table, memory; or a mermaid
diagram. Of the others parameters and memory (`describe_llama.py`, `describe_bert.py`,
`describe_transformer.py`). No weights are read or downloaded; some configurations are built in.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npgpt.describe import (
    bert as describe_bert,
)
from npgpt.describe import (
    llama as describe_llama,
)
from npgpt.describe import (
    transformer as describe_transformer,
)
from npgpt.describe.diagram import mermaid
from npgpt.describe.gpt2_report import Setting, as_json, as_text
from npgpt.describe.structure import PRESETS as GPT2_PRESETS
from npgpt.describe.structure import structure_of
from npgpt.describe.structure_costs import BYTES
from npgpt.files.checkpoint import read_raw_config
from npgpt.files.gguf_reader import read_gguf_header
from npgpt.models.auto import find_supported, model_type
from npgpt.models.bert.config import BERTConfig
from npgpt.models.gguf import gguf_config
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.transformer.config import TransformerConfig

PROG = "npgpt.describe"
Config = GPT2Config | LlamaConfig | BERTConfig | TransformerConfig
PRESETS: dict[str, Config] = {
    **GPT2_PRESETS,
    **describe_llama.PRESETS,
    **describe_bert.PRESETS,
    **describe_transformer.PRESETS,
}
OWNERS = ("openai-community/", "google-bert/", "facebook/")  # who publishes these on the hub
# A config.json without a model_type is a GPT-2 only if one of these is there.
SIZES_OF_GPT2 = ("n_positions", "n_embd", "n_layer", "n_head")


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    if args.mermaid and args.json:
        raise ValueError("--mermaid and --json are two forms of output; choose one.")
    config = _find_config(args.model)
    _check(config, args)
    tokens = _positions(config) if args.context is None else args.context
    match config:
        case GPT2Config():
            _say_gpt2(config, tokens, args)
        case LlamaConfig():
            _say(describe_llama, args, config, tokens)
        case BERTConfig():
            _say(describe_bert, args, config, tokens)
        case TransformerConfig():
            source = tokens if args.source is None else args.source
            _say(describe_transformer, args, config, tokens, source)
    return 0


def _check(config: Config, args: argparse.Namespace) -> None:
    kind = config.to_dict()["model_type"]
    if args.mermaid and kind != "gpt2":
        raise ValueError(f"--mermaid draws a GPT-2, but {args.model} is a {kind}; leave it out.")
    if args.source is not None and not isinstance(config, TransformerConfig):
        raise ValueError(
            f"--source is what an encoder reads for a decoder, but {args.model} is a {kind}; "
            "leave it out."
        )
    positions = _positions(config)
    for option in ("context", "source"):
        tokens = getattr(args, option)
        if tokens is not None and not 1 <= tokens <= positions:
            raise ValueError(
                f"--{option} must be between 1 and {positions}, the positions that "
                f"{args.model} has, but is {tokens}."
            )
    if args.batch < 1:
        raise ValueError(f"--batch must be at least 1, but is {args.batch}.")


def _positions(config: Config) -> int:
    if isinstance(config, GPT2Config):
        return config.n_positions
    return config.max_position_embeddings


def _say_gpt2(config: GPT2Config, tokens: int, args: argparse.Namespace) -> None:
    structure = structure_of(config)
    setting = Setting(tokens, args.batch, args.dtype)
    if args.mermaid:
        print(mermaid(structure))
    elif args.json:
        print(json.dumps(as_json(args.model, structure, setting), ensure_ascii=False))
    else:
        print(as_text(args.model, structure, setting))


def _say(report: Any, args: argparse.Namespace, config: Config, tokens: int, *source: int) -> None:
    """What the module `report` says of a model."""
    setting = (args.model, config, tokens, args.batch, BYTES[args.dtype], *source)
    if args.json:
        print(json.dumps(report.as_json(*setting), ensure_ascii=False))
    else:
        print(report.as_text(*setting))


def _find_config(name: str) -> Config:
    """A preset, a file, or the config.json of a folder or of a repository on the hub."""
    for owner in ("", *OWNERS):
        if (preset := PRESETS.get(name.removeprefix(owner))) is not None:
            return preset
    path = Path(name)
    if name.endswith(".json") and not path.is_file():
        raise FileNotFoundError(f"there is no file {name}; name a config.json or a model.")
    if not path.is_file() or name.endswith(".gguf"):
        place = find_supported("describe", name, files=("config",))
        if place.suffix == ".gguf":
            return gguf_config(read_gguf_header(place))
        path = place / "config.json"
    raw = read_raw_config(path)
    match model_type(path):
        case "llama":
            return LlamaConfig.from_dict(raw, str(path))
        case "bert":
            return BERTConfig.from_dict(raw, str(path))
        case "bart" | "marian" | "transformer":
            return TransformerConfig.from_dict(raw, str(path))
    if "model_type" not in raw and not any(size in raw for size in SIZES_OF_GPT2):
        raise ValueError(f"{path} has neither a model_type nor any size of a GPT-2.")
    return GPT2Config.from_dict(raw, str(path))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROG}",
        description="The structure of a GPT-2, Llama, BERT or encoder-decoder (bart, marian, the "
        "paper's transformer), from its configuration alone.",
        epilog=f"built in: {', '.join(PRESETS)}; to describe a folder of such a name, write ./NAME",
    )
    add = parser.add_argument
    add(
        "model",
        nargs="?",
        default="gpt2",
        metavar="MODEL",
        help="a config.json, a folder, weights/NAME, or a Hugging Face hub id (default: gpt2)",
    )
    add("--context", type=int, metavar="T", help="tokens in a text; default: all positions")
    add(
        "--source",
        type=int,
        metavar="S",
        help="tokens in the source that an encoder-decoder reads; default: as many as T",
    )
    add("--batch", type=int, default=1, metavar="B", help="texts at a time (default: 1)")
    add("--dtype", choices=BYTES, default="float32", help="of the numbers in memory")
    add("--mermaid", action="store_true", help="print a mermaid diagram of a GPT-2 instead")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser
