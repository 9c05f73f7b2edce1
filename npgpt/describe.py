"""`python -m npgpt.describe [MODEL]`: the structure of a GPT-2, drawn from its config.json alone.

Boxes with shapes, parameters and FLOPs, the parameter table, memory; or a mermaid diagram. No
weights are read or downloaded; the sizes of the four published GPT-2 are built in. Of a Llama it
tells the parameters and the KV cache (`describe_llama.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npgpt import cli, describe_llama
from npgpt.checkpoint import check_kind, model_type, read_config
from npgpt.checkpoint_files import read_raw_config
from npgpt.describe_report import Setting, as_json, as_text
from npgpt.diagram import mermaid
from npgpt.gguf_config import gguf_config
from npgpt.gguf_file import find_gguf
from npgpt.gguf_reader import read_gguf_header
from npgpt.hub import find_folder
from npgpt.models.gpt2_config import GPT2Config
from npgpt.models.llama_config import LlamaConfig
from npgpt.structure import PRESETS, structure_of
from npgpt.structure_costs import BYTES

PROG = "npgpt.describe"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    if args.mermaid and args.json:
        raise ValueError("--mermaid and --json are two forms of output; choose one.")
    config = _find_config(args.model)
    if isinstance(config, LlamaConfig):
        positions = config.max_position_embeddings
    else:
        positions = config.n_positions
    tokens = positions if args.context is None else args.context
    if not 1 <= tokens <= positions:
        raise ValueError(
            f"--context must be between 1 and {positions}, the positions that "
            f"{args.model} has, but is {tokens}."
        )
    if args.batch < 1:
        raise ValueError(f"--batch must be at least 1, but is {args.batch}.")
    if isinstance(config, LlamaConfig):
        _say_llama(config, tokens, args)
        return 0
    structure = structure_of(config)
    setting = Setting(tokens, args.batch, args.dtype)
    if args.mermaid:
        print(mermaid(structure))
    elif args.json:
        print(json.dumps(as_json(args.model, structure, setting), ensure_ascii=False))
    else:
        print(as_text(args.model, structure, setting))
    return 0


def _say_llama(config: LlamaConfig, tokens: int, args: argparse.Namespace) -> None:
    if args.mermaid:
        raise ValueError(f"--mermaid draws a GPT-2, but {args.model} is a llama; leave it out.")
    setting = (args.model, config, tokens, args.batch, BYTES[args.dtype])
    if args.json:
        print(json.dumps(describe_llama.as_json(*setting), ensure_ascii=False))
    else:
        print(describe_llama.as_text(*setting))


def _find_config(name: str) -> GPT2Config | LlamaConfig:
    """A preset, a file, or the config.json of a folder or of a repository on the hub."""
    presets: dict[str, GPT2Config | LlamaConfig] = {**PRESETS, **describe_llama.PRESETS}
    if (preset := presets.get(name.removeprefix("openai-community/"))) is not None:
        return preset
    if (gguf := find_gguf(name)) is not None:
        return gguf_config(read_gguf_header(gguf))
    path = Path(name)
    if name.endswith(".json") and not path.is_file():
        raise FileNotFoundError(f"there is no file {name}; name a config.json or a model.")
    if not path.is_file():
        path = find_folder(name, files="config") / "config.json"
    check_kind(kind := model_type(path), name, "describe")
    if kind == "llama":
        return LlamaConfig.from_dict(read_raw_config(path), str(path))
    config = read_config(path)
    if "model_type" not in config.other and replace(config, other={}) == GPT2Config():
        raise ValueError(f"{path} has neither a model_type nor any size of a GPT-2.")
    return config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROG}",
        description="The structure of a GPT-2 or a Llama, from its configuration alone.",
        epilog=f"built in: {', '.join([*PRESETS, *describe_llama.PRESETS])}; to describe a folder "
        "of such a name, write ./NAME",
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
    add("--batch", type=int, default=1, metavar="B", help="texts at a time (default: 1)")
    add("--dtype", choices=BYTES, default="float32", help="of the numbers in memory")
    add("--mermaid", action="store_true", help="print a mermaid diagram instead of tables")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
