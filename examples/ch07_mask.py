"""Why a token sees only what is left of it (article 7.5).

Shows that a later token changes no earlier output, that T predictions from one pass are T separate
predictions, what a model could do if it were allowed to look ahead, and what a mask does not say.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import open_model, options
from show import claim, heading, matrices, moved, say, table
from toy import CAUSAL, EVERYTHING, NAMES, X, six_steps

from npgpt.cli import run
from npgpt.layers.attention import attention_forward
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.mask import causal_mask
from npgpt.ops.position import position_forward


def toy() -> None:
    """Change t2 of the toy model, with and without mask."""
    heading(
        "7.5",
        say("the toy model: change t2, look at the others", "玩具模型：改动 t2，看别人的输出"),
    )
    other = X.copy()
    other[2] = [5, -3, 2, 1]
    for name, mask in (
        (say("with the mask", "有 mask"), CAUSAL),
        (say("without", "没有 mask"), EVERYTHING),
    ):
        before, after = six_steps(mask), six_steps(mask, x=other)
        matrices((f"{name}: out", before), (say("out after", "改动后"), after), rows=NAMES)
        changed = moved(before, after)
        expected = [False, False, True] if mask is CAUSAL else [True, True, True]
        what = say("changed:", "变了的：")
        claim(f"{what} {table(changed[None])[0]}", changed.tolist() == expected)


def not_how_far() -> None:
    """The mask says who is to the left, not how far: swap t0 and t1, t2 does not notice."""
    heading(
        "7.5",
        say(
            "what the mask does not say: how far to the left. Swap t0 and t1",
            "mask 只说“谁在我左边”，不说“左边第几个”：对调 t0 与 t1",
        ),
    )
    for what, wpe, notices in (
        (say("mask alone", "只有 mask"), np.zeros((3, 4)), False),
        (say("with a position table", "加上位置表"), np.eye(4)[1:], True),
    ):
        orders = (position_forward(x, np.arange(3), wpe)[0] for x in (X, X[[1, 0, 2]]))
        before, after = (six_steps(x=x) for x in orders)
        matrices((f"{what}: out", before), (say("out after", "对调后"), after), rows=NAMES)
        claim(
            say("t2 notices", "t2 看得出来")
            if notices
            else say("t2 gets the same", "t2 的输出不变"),
            np.allclose(before[2], after[2], rtol=1e-12) != notices,
        )
    x, rng = np.random.default_rng(0).standard_normal((6, 4)), np.random.default_rng(1)
    last = [six_steps(causal_mask(6, 6), x=x[[*rng.permutation(5), 5]])[5] for _ in range(20)]
    claim(
        say(
            "mask alone, five tokens in 20 orders: the sixth gets the same",
            "只有 mask：前五个换 20 种次序，第六个的输出不变",
        ),
        np.ptp(last, axis=0).max() < 1e-12,
    )


def all_at_once(model: GPT2, ids: np.ndarray) -> None:
    """One pass over T tokens is T passes over 1, 2, …, T tokens."""
    T = len(ids) - 1
    heading(
        "7.5",
        say(
            f"training: {T} predictions from one pass, as if each had only its past",
            f"训练：一次前向 {T} 个预测，每个都像只有前文一样",
        ),
    )
    logits = model(ids[:-1])
    separate = np.stack([model(ids[: t + 1])[-1] for t in range(T)])
    apart = np.abs(logits - separate).max() / np.abs(logits).max()
    claim(
        say(
            f"logits of one pass and of {T} passes differ by {apart:.0e} of their scale",
            f"一次前向与 {T} 次前向的 logits，相对差 {apart:.0e}",
        ),
        apart < 1e-4,
    )
    loss, _ = cross_entropy_forward(logits, ids[1:])
    losses = [float(cross_entropy_forward(separate[t], ids[t + 1])[0]) for t in range(T)]
    claim(
        say(
            f"the loss {loss:.4f} is the mean of the {T} separate losses",
            f"loss {loss:.4f} 就是 {T} 个单独的 loss 的平均",
        ),
        np.isclose(loss, np.mean(losses), rtol=1e-5),
    )
    changed = ids.copy()
    changed[-1] = (ids[-1] + 1) % model.config.vocab_size
    claim(
        say(
            "a different last token changes no logit before it",
            "换掉最后一个 token，前面的 logits 不变",
        ),
        np.array_equal(model(ids)[:-1], model(changed)[:-1]),
    )


def looking_ahead() -> None:
    """Without mask, position i can fetch token i + 1 and hand it out as its prediction."""
    heading(
        "7.5",
        say(
            "why it is forbidden: whoever may look ahead copies the answer and learns nothing",
            "为什么禁止看未来：能看到的就直接抄答案，什么都学不到",
        ),
    )
    T = 6
    words = np.random.default_rng(0).permutation(T + 1)
    v = np.eye(T + 1)[words]  # what each of the T + 1 tokens is
    k = np.eye(T + 2)[: T + 1]  # "I stand at j"
    q = np.eye(T + 2)[1 : T + 2]  # "who stands at i + 1?"
    for name, mask, expected in (
        (say("without mask", "没有 mask"), np.ones((T + 1, T + 1), bool), T),
        (say("with the mask", "有 mask"), causal_mask(T + 1, T + 1), 0),
    ):
        out, _ = attention_forward(q, k, v, divisor=0.01, mask=mask)
        loss, _ = cross_entropy_forward(20 * out[:-1], words[1:])
        right = out[:-1].argmax(axis=-1) == words[1:]
        claim(
            say(
                f"the copier {name}: {right.sum()} of {T} right, loss {loss:.2f}",
                f"抄答案的，{name}：{T} 个对了 {right.sum()} 个，loss {loss:.2f}",
            ),
            right.sum() == expected and (loss < 0.01) == (expected == T),
        )


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    toy()
    print(f"\n{say(f'{name} reads', f'{name} 读到')} {args.text!r}", end="")
    all_at_once(model, np.array(tokenizer.encode(args.text)))
    looking_ahead()
    not_how_far()
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_mask.py", main))
