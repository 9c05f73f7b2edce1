"""lm_head: a vector becomes a score for every token, by the same table (article chapter 10).

What sharing does to words of like meaning is in ch10_like_rows.py.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from any_model import random_model
from show import check, claim, heading, say

from npgpt.models.common import of
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.lookup import lookup_forward
from npgpt.ops.softmax import softmax_forward


def vectors_to_scores(model: GPT2, ids: np.ndarray) -> None:
    """10.1: ln_f, then the table."""
    heading(
        "10.1",
        say(
            "ln_f, then wte transposed: [T, 768] -> [T, 50257]",
            "ln_f，再乘 wte 的转置：[T, 768] -> [T, 50257]",
        ),
    )
    check(
        say("scores for each position", "每个位置的分数个数"),
        param_shapes(GPT2Config())["wte.weight"][0],
        "50257",
    )
    stations: dict[str, np.ndarray] = {}
    logits = model.forward(ids, observe=stations.__setitem__).logits
    last = stations[f"h.{model.config.n_layer - 1}"]
    normed, _ = layer_norm_forward(
        last, *of(model.params, "ln_f"), eps=model.config.layer_norm_epsilon
    )
    scores = normed @ model.params["wte.weight"].T
    claim(
        say(
            "(ln_f of the last block's output) times wteᵀ = the model's logits",
            "最后一层的输出过 ln_f、乘 wteᵀ = 模型的 logits",
        ),
        np.allclose(scores, logits),
    )
    probs, _ = softmax_forward(logits, axis=-1)
    claim(
        say(
            "softmax makes probabilities of them: a row sums to 1, the order stays",
            "softmax 把它们变成概率：每行和为 1，名次不变",
        ),
        np.allclose(probs.sum(axis=-1), 1)
        and (probs.argsort(axis=-1) == logits.argsort(axis=-1)).all(),
    )


def one_table(model: GPT2, ids: np.ndarray) -> None:
    """10.2: what sharing saves."""
    heading(
        "10.2",
        say(
            "one table, two uses: id -> vector and vector -> score of each id",
            "一张表两用：编号 -> 向量，向量 -> 每个编号的分数",
        ),
    )
    p = model.params
    vector, _ = lookup_forward(ids[:1], p["wte.weight"])
    score, _ = lm_head_forward(vector, p["wte.weight"])
    claim(
        say(
            "score of a token = inner product with its row", "一个 token 的分数 = 与它那一行的内积"
        ),
        np.isclose(score[0, ids[0]], (vector**2).sum()),
    )
    tied, untied = (
        sum(np.prod(shape) for shape in param_shapes(GPT2Config(tie_word_embeddings=tie)).values())
        for tie in (True, False)
    )
    check(say("parameters that sharing saves", "共享省下的参数"), untied - tied, "38,597,376")
    check(say("GPT-2 small with it", "GPT-2 small，共享"), tied, "124,439,808")


def two_gradients(model: GPT2, ids: np.ndarray) -> None:
    """10.2: the same model with a table of its own for the lm_head has them apart."""
    heading("10.2", say("so wte's gradient has two contributions", "所以 wte 的梯度有两份"))
    config = dataclasses.replace(model.config, tie_word_embeddings=False)
    copied = {**model.params, "lm_head.weight": model.params["wte.weight"].copy()}
    apart = GPT2(config, copied)
    loss, grads = model.loss_and_grads(ids[:-1], ids[1:])
    same_loss, both = apart.loss_and_grads(ids[:-1], ids[1:])
    claim(
        say("tied or a copy: the same loss", "共享，还是各存一份：loss 相同"),
        np.isclose(loss, same_loss),
    )
    lookup, head = both["wte.weight"], both["lm_head.weight"]
    claim(
        say(
            "gradient of the shared wte = that of the lookup + that of the lm_head",
            "共享的 wte 的梯度 = 查表的 + lm_head 的",
        ),
        np.allclose(grads["wte.weight"], lookup + head),
    )
    used = sorted(set(ids[:-1].tolist()))
    claim(
        say(
            f"the lookup's touches the {len(used)} rows that were read",
            f"查表的那份只碰读过的 {len(used)} 行",
        ),
        np.flatnonzero(lookup.any(axis=1)).tolist() == used,
    )
    claim(
        say(
            "the lm_head's touches every row: each token was scored",
            "lm_head 的那份碰到每一行：每个 token 都打了分",
        ),
        head.any(axis=1).all(),
    )


model, ids = random_model(), np.frombuffer(b"The cat sat on the", np.uint8).astype(int)
vectors_to_scores(model, ids)
one_table(model, ids)
two_gradients(model, ids)
