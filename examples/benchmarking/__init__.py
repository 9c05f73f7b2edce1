"""What `benchmark.py` measures: the works, the sizes of the models, and who can do which work."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

LEARNING_RATE, BETAS, DECAY, CLIP = 1e-4, (0.9, 0.95), 0.1, 1.0  # of the training steps
CHECKED = 2  # tokens decoded to compare logits: one from the prompt, one through the KV cache
# Does a work: decodes so many tokens, and where True returns what is compared with npgpt: logits of
# the last token that was read [B, V], in training the loss.
Step = Callable[[int, bool], Any]


def processors() -> list[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [*range(os.cpu_count() or 1)]


def threads() -> int:
    """How many a program may use: what `benchmark.py --threads` says, or one for each processor."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(processors()))


class Work(NamedTuple):
    """One thing to measure: B texts of T tokens; unless for training, `new` are decoded."""

    what: str
    model: str
    kind: str  # decode, prefill, train, or first: from the start of the process to the first token
    B: int
    T: int
    new: int = 1

    @property
    def tokens(self) -> int:
        """How many a second has, times the seconds."""
        return self.B * (self.T if self.kind in ("prefill", "train") else self.new)

    def ids(self, vocab_size: int) -> np.ndarray:
        """The same random text [B, T] for all programs; for training [B, T + 1]."""
        import numpy as np  # after npgpt, which sets up NumPy's threads as its commands do

        shape = (self.B, self.T + (self.kind == "train"))
        return np.random.default_rng(1).integers(0, vocab_size, shape)


# Model -> its architecture, and what is not the default there.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-2 small": ("gpt2", {}),
    "SmolLM2-135M": ("llama", {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
        "tie_word_embeddings": True,
    }),
    "6 x 320": ("gpt2", {
        "n_layer": 6, "n_embd": 320, "n_head": 5, "n_positions": 256, "vocab_size": 6145,
    }),
    "6 x 256": ("gpt2", {
        "n_layer": 6, "n_embd": 256, "n_head": 4, "n_positions": 256, "vocab_size": 6145,
    }),
}  # fmt: skip
# In their place with --quick.
TINY: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 500},
    "llama": {
        "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
}  # fmt: skip
IDS = {"bos_token_id": 0, "eos_token_id": 0}  # in every vocabulary; nobody stops there

SMALL, LLAMA = "GPT-2 small", "SmolLM2-135M"
WORKS = {
    "decode": Work("decode: 32 tokens of prompt, 64 new", SMALL, "decode", 1, 32, 64),
    "decode 32": Work("decode: 32 tokens of prompt, 32 new", SMALL, "decode", 1, 32, 32),
    "decode x16": Work("decode 16 at once, 32 new each", SMALL, "decode", 16, 32, 32),
    "decode x64": Work("decode 64 at once, 32 new each", SMALL, "decode", 64, 32, 32),
    "prefill 256": Work("prefill of 256 tokens", SMALL, "prefill", 1, 256),
    "prefill 1000": Work("prefill of 1,000 tokens", SMALL, "prefill", 1, 1000),
    "prefill 1024": Work("prefill of 1,024 tokens", SMALL, "prefill", 1, 1024),
    "llama decode": Work("Llama: 32 tokens of prompt, 32 new", LLAMA, "decode", 1, 32, 32),
    "llama prefill": Work("Llama: prefill of 1,000 tokens", LLAMA, "prefill", 1, 1000),
    "train 4 64": Work("training step 4 x 64 with AdamW", SMALL, "train", 4, 64),
    "train 1 1024": Work("training step 1 x 1,024 with AdamW", SMALL, "train", 1, 1024),
    "train 8x256": Work("training step 8 x 256, 6 blocks 256 wide", "6 x 256", "train", 8, 256),
    "train tales": Work("training step 16 x 256, the size of tales", "6 x 320", "train", 16, 256),
    "first": Work("process start to first token", SMALL, "first", 1, 32),
}
QUICK_WORKS = ["decode", "llama decode", "train 4 64"]


class Program(NamedTuple):
    """Who does the works: its function, which works (a regular expression), the packages needed."""

    where: str
    works: str
    packages: tuple[str, ...] = ()


INFERENCE = "decode.*|prefill.*"
PROGRAMS = {
    "npgpt": Program("numpy_programs.in_npgpt", ".*"),
    "transformers": Program("frameworks.in_transformers", ".*", ("torch", "transformers")),
    "ONNX Runtime": Program("graphs.in_onnx", INFERENCE, ("onnx", "onnxruntime")),
    "OpenVINO": Program("graphs.in_openvino", INFERENCE, ("openvino",)),
    "ctranslate2": Program(
        "converted.in_ctranslate2", f"{INFERENCE}|llama.*", ("ctranslate2", "torch", "transformers")
    ),
    "llama.cpp": Program("converted.in_llama_cpp", "llama.*", ("xllamacpp", "gguf")),
    "jax": Program("frameworks.in_jax", "train.*", ("jax",)),
    "picoGPT": Program("numpy_programs.in_picogpt", "decode|prefill 1024"),  # with --picogpt
    "products": Program("numpy_programs.in_products", f"{INFERENCE}|llama.*"),
}
