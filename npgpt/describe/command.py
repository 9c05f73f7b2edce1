"""`python -m npgpt.describe [MODEL]`: the structure of a model, from its config.json alone.

For a GPT-2 boxes with shapes, parameters and FLOPs, the parameter table, memory; for the others
parameters and memory; for all of them a mermaid diagram. No weights are read or downloaded; some
configurations are built in.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from npgpt.cli import new_parser
from npgpt.describe import architectures
from npgpt.describe.gpt2_report import gpt2
from npgpt.describe.mermaid import mermaid
from npgpt.describe.tables import BYTES, Section, Setting, as_json, as_text
from npgpt.files.gguf_reader import read_gguf_header
from npgpt.files.io import expanded
from npgpt.models.auto import find_supported, model_type
from npgpt.models.bert.config import BERTConfig
from npgpt.models.bert.families import FAMILIES as BERTS
from npgpt.models.gguf import gguf_config
from npgpt.models.gpt2.config import PRESETS as GPT2_PRESETS
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.families import FAMILIES as LLAMAS
from npgpt.models.settings import read_config
from npgpt.models.transformer.config import TransformerConfig

PROG = "npgpt.describe"
Config = GPT2Config | LlamaConfig | BERTConfig | TransformerConfig
CONFIGS: dict[str, type[Config]] = {
    "gpt2": GPT2Config,
    "gpt_neo": GPTNeoConfig,
    **dict.fromkeys(LLAMAS, LlamaConfig),
    **dict.fromkeys(BERTS, BERTConfig),
    **dict.fromkeys(("bart", "marian", "transformer"), TransformerConfig),
}
PRESETS: dict[str, Config] = {**GPT2_PRESETS, **architectures.PRESETS}
OWNERS = (  # who publishes these on the hub
    *("openai-community/", "EleutherAI/", "google-bert/", "FacebookAI/", "distilbert/"),
    "facebook/",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    if args.mermaid and args.json:
        raise ValueError("--mermaid and --json are two forms of output; choose one.")
    config = _find_config(args.model)
    _check(config, args)
    sections = _describe(config, args)
    print(as_json(sections) if args.json else as_text(sections))
    return 0


def _check(config: Config, args: argparse.Namespace) -> None:
    kind = config.to_dict()["model_type"]
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
    if isinstance(config, BERTConfig):
        return config.context
    return config.max_position_embeddings


def _describe(config: Config, args: argparse.Namespace) -> list[Section]:
    if args.mermaid:
        return [Section(mermaid(config), {})]
    tokens = _positions(config) if args.context is None else args.context
    source = tokens if args.source is None else args.source
    setting = Setting(args.model, tokens, source, args.batch, args.dtype)
    match config:
        case GPT2Config():
            return gpt2(config, setting)
        case LlamaConfig():
            return architectures.llama(config, setting)
        case BERTConfig():
            return architectures.bert(config, setting)
        case TransformerConfig():
            return architectures.transformer(config, setting)


def _find_config(name: str) -> Config:
    """A preset, a file, or the config.json of a folder or of a repository on the hub."""
    for owner in ("", *OWNERS):
        if (preset := PRESETS.get(name.removeprefix(owner))) is not None:
            return preset
    path = expanded(name)
    if name.endswith(".json") and not path.is_file():
        raise FileNotFoundError(f"there is no file {name}; name a config.json or a model.")
    if not name.endswith(".json"):
        place = find_supported("describe", name, files=("config",))
        if place.suffix == ".gguf":
            return gguf_config(read_gguf_header(place))
        path = place / "config.json"
    config: Config = read_config(CONFIGS[model_type(path)], path)
    return config


def _parser() -> argparse.ArgumentParser:
    parser = new_parser(
        PROG,
        "The structure of a GPT-2, Llama, BERT or encoder-decoder (bart, marian, the "
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
    add("--mermaid", action="store_true", help="print a mermaid diagram instead")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser
