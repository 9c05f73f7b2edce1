"""npgpt: the Transformer in pure NumPy, every operation with its own hand-written backward pass.

    import npgpt
    model = npgpt.from_pretrained("weights/tales")      # or a folder, a hub id, a .gguf
    tokenizer = npgpt.load_tokenizer("weights/tales")   # a tiktoken.Encoding
    ids = tokenizer.encode("The cat sat on the")
    logits = model(ids)                                 # [T, V]
    loss, grads = model.loss_and_grads(ids[:-1], ids[1:])
    for token in model.generate(ids):
        print(tokenizer.decode([token]), end="")

`npgpt.generate`, `compare`, `vectors`, `describe`, `trace`, `explore`, `train`, `evaluate`,
`fill_mask` and `translate` are commands: `python -m npgpt.generate --help`; `python -m npgpt`
lists them.

To read: `ops/` first, one operation a file; then `layers/`, what is made of them; then `models/`.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING

if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:  # which module, sys.argv does not say yet
    _program = sys.orig_argv[sys.orig_argv.index("-m") + 1].partition(".")[0]
else:
    _program = os.path.basename("".join(sys.argv[:1])).partition(".")[0]  # noqa: PTH119
if _program == "npgpt" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C during the imports of a command ends it, without a traceback, until `cli.run` takes
    # over. A program that imports npgpt is left alone.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if "numpy" not in sys.modules:
    # OpenBLAS's threads stay awake for 2^20 clock cycles after a product. It is read when NumPy is
    # imported; where NumPy came first, `npgpt/ops/threads.py`, which needs it, does without.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
if sys.platform == "darwin":
    # Apple's Accelerate makes NumPy warn of what did not happen (numpy#28687). Whether a result is
    # finite is checked where it matters.
    _SPURIOUS = ".* encountered in (matmul|dot|vecdot)"
    warnings.filterwarnings("ignore", _SPURIOUS, RuntimeWarning, r"npgpt\.")

from npgpt.models.auto import from_pretrained
from npgpt.models.bert.config import BERTConfig
from npgpt.models.bert.model import BERT
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.model import Llama
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.model import Transformer
from npgpt.trace.edits import ablate, patch

if TYPE_CHECKING:
    from npgpt.text.tokenizer import TextTokenizer

__version__ = "0.1.0"
__all__ = [
    "BERT",
    "GPT2",
    "BERTConfig",
    "GPT2Config",
    "GPTNeo",
    "GPTNeoConfig",
    "Llama",
    "LlamaConfig",
    "Transformer",
    "TransformerConfig",
    "ablate",
    "from_pretrained",
    "load_tokenizer",
    "patch",
]


def load_tokenizer(name: str | os.PathLike[str], *, revision: str | None = None) -> TextTokenizer:
    """The tokenizer of a model: see `npgpt.text.tokenizer.load_tokenizer`."""
    from npgpt.text import tokenizer  # only now: it needs tiktoken

    return tokenizer.load_tokenizer(name, revision=revision)
