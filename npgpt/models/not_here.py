"""Models that people have and npgpt does not: what each has of its own, and what is nearest."""

from __future__ import annotations

SIDE_BY_SIDE = "attention and MLP side by side"
A_PART_TURNED = "heads of which a part is turned"
OTHER_NORMS = "norms that multiply by 1 + gain, and embeddings times √d"
DISTANCES = "scores with a term for the distance of two tokens"

# model_type -> (what it has, what is nearest)
NOT_HERE: dict[str, tuple[str, str]] = {
    "albert": ("layers that share their parameters", "bert"),
    "bloom": (DISTANCES, "gpt2"),
    "deberta": (DISTANCES, "bert"),
    "deberta-v2": (DISTANCES, "bert"),
    "deepseek_v2": ("compressed keys and values", "qwen3_moe"),
    "deepseek_v3": ("compressed keys and values", "qwen3_moe"),
    "electra": ("a head that tells replaced tokens from real ones", "bert"),
    "falcon": (SIDE_BY_SIDE, "gpt2"),
    "gemma": (OTHER_NORMS, "llama"),
    "gemma2": (f"{OTHER_NORMS}, and capped scores", "mistral"),
    "gemma3_text": (OTHER_NORMS, "qwen3"),
    "gpt_neox": (f"{A_PART_TURNED}, and {SIDE_BY_SIDE}", "gpt_neo"),
    "gptj": (f"{A_PART_TURNED}, and {SIDE_BY_SIDE}", "gpt_neo"),
    "granite": ("factors for embeddings, scores, sublayers and logits", "llama"),
    "mamba": ("no attention", "gpt2"),
    "mbart": ("norms before the sublayers", "bart"),
    "olmo2": ("norms behind the sublayers", "qwen3"),
    "opt": ("positions that begin in row 2", "gpt2"),
    "pegasus": ("norms before the sublayers", "bart"),
    "phi": (f"{A_PART_TURNED}, and {SIDE_BY_SIDE}", "llama"),
    "phi3": ("projections stored as one", "llama"),
    "qwen2_moe": ("an expert for all tokens beside those chosen", "qwen3_moe"),
    "smollm3": ("layers without positions", "llama"),
    "stablelm": (A_PART_TURNED, "llama"),
    "t5": (DISTANCES, "bart"),
}
