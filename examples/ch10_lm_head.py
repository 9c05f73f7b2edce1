"""lm_head: a vector becomes a score for every token, by the same table (article chapter 10)."""

from __future__ import annotations

import dataclasses

import numpy as np
from any_model import random_model
from show import check, claim, heading

from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.lookup import lookup_forward
from npgpt.ops.softmax import softmax_forward

heading("10.1", "ln_f, then wte transposed: [T, 768] -> [T, 50257]")
V, d = param_shapes(GPT2Config())["wte.weight"]
check("scores for each position", V, "50257")
model, ids = random_model(), np.frombuffer(b"The cat sat on the", np.uint8).astype(int)
stations: dict[str, np.ndarray] = {}
logits = model.forward(ids, observe=stations.__setitem__).logits
p = model.params
normed, _ = layer_norm_forward(stations["h.11"], p["ln_f.weight"], p["ln_f.bias"], eps=1e-5)
scores, _ = lm_head_forward(normed, p["wte.weight"])
claim(
    "ln_f, then lm_head on the last block's output = the model's logits",
    np.allclose(scores, logits),
)
probs, _ = softmax_forward(logits, axis=-1)
claim("softmax makes probabilities of them: each row sums to 1", np.allclose(probs.sum(axis=-1), 1))

heading("10.2", "one table, two uses: id -> vector and vector -> score of each id")
vector, _ = lookup_forward(ids[:1], p["wte.weight"])
score, _ = lm_head_forward(vector, p["wte.weight"])
claim(
    "score of a token = inner product with its row", np.isclose(score[0, ids[0]], (vector**2).sum())
)
check("parameters saved by sharing", V * d, "38,597,376")
untied = sum(
    np.prod(shape) for shape in param_shapes(GPT2Config(tie_word_embeddings=False)).values()
)
tied = sum(np.prod(shape) for shape in param_shapes(GPT2Config()).values())
claim(
    f"without it GPT-2 small had {untied:,} parameters instead of {tied:,}", untied - tied == V * d
)

heading("10.2", "so wte's gradient has two contributions")
apart = GPT2(
    dataclasses.replace(model.config, tie_word_embeddings=False),
    {**p, "lm_head.weight": p["wte.weight"].copy()},
)
loss, grads = model.loss_and_grads(ids[:-1], ids[1:])
same_loss, both = apart.loss_and_grads(ids[:-1], ids[1:])
claim("tied or a copy: the same loss", np.isclose(loss, same_loss))
lookup, head = both["wte.weight"], both["lm_head.weight"]
claim(
    "gradient of the shared wte = that of the lookup + that of the lm_head",
    np.allclose(grads["wte.weight"], lookup + head),
)
used = len(set(ids[:-1].tolist()))
claim(f"the lookup's touches the {used} rows that were read", lookup.any(axis=1).sum() == used)
claim("the lm_head's touches every row: each token was scored", head.any(axis=1).all())
