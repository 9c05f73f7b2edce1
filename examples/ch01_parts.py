"""Six kinds of part, and the only one that moves information between tokens (article 1.2).

Changes one token of eight and marks, part by part, which positions come out different.
"""

from __future__ import annotations

import numpy as np
from any_model import random_model
from show import claim, heading, moved, say, table

from npgpt.cli import left
from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.layers.self_attention import self_attention_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.lookup import lookup_forward
from npgpt.ops.mask import causal_mask
from npgpt.ops.position import position_forward

T, J = 8, 3
model = random_model()
p = model.params
c_attn, c_proj = "h.0.attn.c_attn.", "h.0.attn.c_proj."
ids = np.arange(65, 65 + T)
other_ids = np.where(np.arange(T) == J, 90, ids)


def embed(ids: np.ndarray) -> np.ndarray:
    return lookup_forward(ids, p["wte.weight"])[0]


def add_position(x: np.ndarray) -> np.ndarray:
    return position_forward(x, np.arange(T), p["wpe.weight"])[0]


def attention(x: np.ndarray) -> np.ndarray:
    names = (c_attn + "weight", c_attn + "bias", c_proj + "weight", c_proj + "bias")
    settings = {
        "n_head": 12,
        "divisor": model.config.attention_divisor(0),
        "mask": causal_mask(T, T),
    }
    return self_attention_forward(x, *(p[name] for name in names), **settings)[0]


def ffn(x: np.ndarray) -> np.ndarray:
    c_fc, c_proj = "h.0.mlp.c_fc.", "h.0.mlp.c_proj."
    names = (c_fc + "weight", c_fc + "bias", c_proj + "weight", c_proj + "bias")
    return feed_forward_forward(x, *(p[name] for name in names), activation="gelu_new")[0]


def norm_and_residual(x: np.ndarray) -> np.ndarray:
    return x + layer_norm_forward(x, p["h.0.ln_1.weight"], p["h.0.ln_1.bias"], eps=1e-5)[0]


def lm_head(x: np.ndarray) -> np.ndarray:
    return lm_head_forward(x, p["wte.weight"])[0]


heading(
    "1.2",
    say(
        f"change token {J} of {T}: which rows of its output does each part change?",
        f"改动第 {J} 个 token（共 {T} 个）：每种部件的输出有哪几行变了？",
    ),
)
ALONE = say("this token alone", "只有它自己")
SEEN = say("this token and those that can see it", "它自己，和看得到它的")
x, other_x = embed(ids), embed(other_ids)
print(f"  {left(say('row', '行'), 30)}{' '.join(str(t) for t in range(T))}")
for name, part, before, after in (
    ("1  token embedding", embed, ids, other_ids),
    (say("2  position embedding", "2  位置 embedding"), add_position, x, other_x),
    ("3  attention", attention, x, other_x),
    ("4  FFN", ffn, x, other_x),
    (say("5  residual + LayerNorm", "5  残差 + LayerNorm"), norm_and_residual, x, other_x),
    ("6  lm_head", lm_head, x, other_x),
):
    changed = moved(part(before), part(after))
    wanted = np.arange(T) >= J if part is attention else np.arange(T) == J
    notice = SEEN if part is attention else ALONE
    claim(f"{left(name, 30)}{table(changed[None])[0]}   {notice}", (changed == wanted).all())

heading(
    "1.2", say("the same along the residual stream of the whole model", "整个模型的主干上也如此")
)
streams: list[dict[str, np.ndarray]] = [{}, {}]
for stream, read in zip(streams, (ids, other_ids), strict=True):
    model.forward(read, observe=stream.__setitem__)
for name in ("embed", "h.0.attn", "h.0.mlp", "h.1", "h.11", "logits"):
    changed = moved(streams[0][name], streams[1][name])
    wanted = np.arange(T) == J if name == "embed" else np.arange(T) >= J
    notice = ALONE if name == "embed" else SEEN
    claim(f"{left(name, 30)}{table(changed[None])[0]}   {notice}", (changed == wanted).all())
