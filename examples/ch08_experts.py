"""A mixture of experts learns facts: who goes to which expert, and the load balance (article 8.3).

ch08_router.py shows how a token is sent to its experts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from show import claim, heading, matrices, say

from npgpt.cli import left
from npgpt.layers.mixture import mixture_backward, mixture_forward, with_balance
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.load_balance import load_balance_backward, load_balance_forward
from npgpt.train.optim import adamw_step, new_adamw_state

SUBJECTS = [*say("animals cities colours numbers", "动物 城市 颜色 数字").split()]
E, D, F = len(SUBJECTS), 16, 4
FACTS, STEPS = 24, 200  # of each subject, as many as there are answers; of training
ALL = E * FACTS


class Trained(NamedTuple):
    """What came of a training."""

    right: int  # facts of which the answer is right
    went: np.ndarray  # tokens of each subject at each expert [subjects, experts]
    balance: float


def facts(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A token [d] for each fact of each subject, and the number of its answer.

    All tokens have much in common, as in a real model, those of a subject more.
    """
    subjects, common = rng.standard_normal((E, 1, D)), rng.standard_normal(D)
    x = rng.standard_normal((E, FACTS, D)) + 3 * subjects + 6 * common
    x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True))  # as behind an RMSNorm
    return x, rng.integers(0, FACTS, (E, FACTS))


def trained(experts: int, coefficient: float) -> Trained:
    """Learn the facts by heart; each token goes to one of so many experts."""
    rng = np.random.default_rng(0)
    x, answers = facts(rng)
    table = rng.standard_normal((FACTS, D))  # lm_head, which does not learn
    shapes = (experts, D, F), (experts, D, F), (experts, F, D)
    params = {"router": 0.1 * rng.standard_normal((D, experts))}
    for name, shape in zip(("gate", "up", "down"), shapes, strict=True):
        params[name] = 0.3 * rng.standard_normal(shape)
    state = new_adamw_state(params)
    for step in range(1, STEPS + 1):
        y, saved = mixture_forward(x, *params.values(), k=1, renormalise=False)
        logits, saved_head = lm_head_forward(y, table)
        _, saved_loss = cross_entropy_forward(logits, answers)
        kept = saved.router.kept
        balance, saved_balance = load_balance_forward(saved.router.probs, kept)

        dy, _ = lm_head_backward(cross_entropy_backward(1.0, saved_loss), saved_head)
        dprobs = load_balance_backward(coefficient, saved_balance)
        _, *grads = mixture_backward(dy, with_balance(saved, dprobs))
        named = dict(zip(params, map(np.asarray, grads), strict=True))
        adamw_step(params, named, state, step=step, lr=0.03, weight_decay=0.0)
    right = int((logits.argmax(axis=-1) == answers).sum())
    return Trained(right, kept.sum(axis=1), float(balance))


heading(
    "8.3",
    say(
        f"{ALL} facts of {E} subjects; experts of width {F}, one for each token",
        f"{E} 个主题的 {ALL} 条知识；专家宽度 {F}，每个 token 找一个",
    ),
)
one, alone, balanced = trained(1, 0.0), trained(E, 0.0), trained(E, 0.3)
print(say("  Tokens of a subject at each expert:", "  各主题有多少 token 去了各个专家："))
names = say("by itself", "放任不管"), say("with a load-balancing loss", "加上负载均衡 loss")
matrices(*zip(names, (alone.went, balanced.went), strict=True), rows=SUBJECTS)
most = int(alone.went.sum(axis=0).max())
claim(
    say(
        f"by itself: {most} of {ALL} tokens at one expert; who is chosen learns, and is chosen",
        f"放任不管：{ALL} 个 token 有 {most} 个去同一个专家；被选中的才学，学了就更被选中",
    ),
    most > 0.8 * ALL,
)
claim(
    say(
        f"load-balancing loss: {alone.balance:.2f} by itself, {balanced.balance:.2f} with it",
        f"负载均衡 loss：放任不管 {alone.balance:.2f}，加上之后 {balanced.balance:.2f}",
    ),
    alone.balance > 3 and balanced.balance < 1.2,
)
claim(
    say("with it each subject has an expert of its own", "加上之后，每个主题各有自己的专家"),
    sorted(balanced.went.argmax(axis=1)) == [*range(E)],
)
size = 3 * D * F
print(
    say(
        "              parameters   at work for a token   right",
        "            参数   每个 token 用到   答对",
    )
)
for name, experts, done in (
    (say("one expert", "一个专家"), 1, one),
    (say(f"{E}, by itself", f"{E} 个，放任不管"), E, alone),
    (say(f"{E}, balanced", f"{E} 个，均衡"), E, balanced),
):
    print(f"  {left(name, 16)} {experts * size:6} {size:14} {done.right:14} / {ALL}")
claim(
    say(
        "what it knows grows with the experts, the work for a token does not",
        "知识随专家数增加，每个 token 的计算量不变",
    ),
    balanced.right > 0.95 * ALL and max(one.right, alone.right) < 0.8 * ALL,
)
