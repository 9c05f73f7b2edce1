"""npgpt: the Transformer in pure NumPy, every operation with its own hand-written backward pass.

    import npgpt
    model = npgpt.from_pretrained("weights/tales")      # or a folder, a hub id, a .gguf
    tokenizer = npgpt.load_tokenizer("weights/tales")   # a tiktoken.Encoding
    ids = tokenizer.encode("The cat sat on the")
    logits = model(ids)                                 # [T, V]
    loss, grads = model.loss_and_grads(ids[:-1], ids[1:])
    for token in model.generate(ids):
        print(tokenizer.decode([token]), end="")

`npgpt.generate`, `compare`, `describe`, `trace`, `train`, `evaluate`, `fill_mask` and
`translate` are commands:
`python -m npgpt.generate --help`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if "numpy" not in sys.modules:
    # For how long OpenBLAS's threads stay awake after a product: 2^20 clock cycles. Read when NumPy
    # is imported; where that was before, `npgpt/threads.py`, which needs it, does without.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

from npgpt.checkpoint import from_pretrained
from npgpt.models.bert import BERT
from npgpt.models.bert_config import BERTConfig
from npgpt.models.gpt2 import GPT2
from npgpt.models.gpt2_config import GPT2Config
from npgpt.models.llama import Llama
from npgpt.models.llama_config import LlamaConfig
from npgpt.models.transformer import Transformer
from npgpt.models.transformer_config import TransformerConfig

if TYPE_CHECKING:
    from npgpt.tokenizer import Tokenizer

__version__ = "0.1.0"
__all__ = [
    "BERT",
    "GPT2",
    "BERTConfig",
    "GPT2Config",
    "Llama",
    "LlamaConfig",
    "Transformer",
    "TransformerConfig",
    "from_pretrained",
    "load_tokenizer",
]


def load_tokenizer(name: str | os.PathLike[str], *, revision: str | None = None) -> Tokenizer:
    """The tokenizer of a model: see `npgpt.tokenizer.load_tokenizer`."""
    from npgpt import tokenizer  # only now: it needs tiktoken

    return tokenizer.load_tokenizer(name, revision=revision)
