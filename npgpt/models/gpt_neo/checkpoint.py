"""How a GPT-Neo's checkpoint names and stores its parameters; GPT-2's `checkpoint.py` reads it."""

from __future__ import annotations

from npgpt.models.gpt2.checkpoint import LAYOUT as GPT2_LAYOUT

LAYOUT = GPT2_LAYOUT._replace(
    model="this GPT-Neo",
    matrices=r"h\..*\.(\w+_proj|c_fc)\.weight",
    blocks={"h": "n_layer"},
    buffers=(".attn.attention.bias", ".attn.attention.masked_bias"),  # who may look at whom
)
