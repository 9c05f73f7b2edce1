"""`npgpt COMMAND …`, the same as `python -m npgpt.COMMAND …`; `npgpt` lists the commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from npgpt import cli

COMMANDS = {
    "generate": "continue a text",
    "evaluate": "measure how well a model predicts a text",
    "train": "train a GPT-2 on your own text, or fine-tune a GPT-2 or Llama",
    "describe": "show the structure of a model: shapes, parameters, FLOPs, memory",
    "trace": "follow one token through a model, layer by layer",
    "explore": "make a page of one pass, there and back, to walk through",
    "compare": "compare two implementations of a model, station by station",
    "vectors": "write small cases that a port in any language is tested with",
    "fill_mask": "fill the [MASK] in a text, with a BERT",
    "translate": "translate a text, with an encoder-decoder (BART, Marian)",
}
# The commands that have parts.
PACKAGES = ("train", "describe", "trace", "explore", "compare", "vectors")


def module_of(command: str) -> ModuleType:
    """The module with a command's `PROG` and `main`."""
    name = f"npgpt.{command}.command" if command in PACKAGES else f"npgpt.{command}"
    return importlib.import_module(name)


def main() -> int:
    """Run the command that the first argument names; returns the exit code."""
    name, *arguments = sys.argv[1:] or ["--help"]
    command = name.replace("-", "_")
    if command in COMMANDS:
        module = module_of(command)
        return cli.run(module.PROG, module.main, arguments)
    return cli.run("npgpt", _list_commands, [name])


def _list_commands(argv: Sequence[str]) -> int:
    name = argv[0]
    if name not in ("-h", "--help"):
        raise ValueError(f"there is no command {name!r}; there are {', '.join(COMMANDS)}.")
    listing = cli.table(list(COMMANDS.items()), "ll")
    print(f"usage: npgpt COMMAND …\n\n{listing}\n\nnpgpt COMMAND --help says more.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
