"""What the heads of a model do: how many rest on the first token (article 7.6).

Nothing but their start makes heads differ. Counts the heads that put most of their weight on the
first token, and says where they rest if not there. ch07_heads_switched_off.py shows how little one
of them is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import labels, open_model, options, random_model
from show import claim, heading, say

from npgpt.cli import run
from npgpt.ops.mask import causal_mask

FABLE = (
    "A Crow, half-dead with thirst, came upon a Pitcher which had once been full of water; but "
    "when the Crow put its beak into the mouth of the Pitcher he found that only very little water "
    "was left in it, and that he could not reach far enough down to get at it. He tried, and he "
    "tried, but at last had to give up in despair."
)


def born_equal() -> None:
    """Two heads with the same weights get the same gradients, so they would stay the same."""
    heading(
        "7.6", say("nothing makes heads differ but their start", "各头除了初始化，没有任何不同")
    )
    model, ids = random_model(), np.arange(40, 60)
    d, H = model.config.n_embd, model.config.n_head
    d_h = d // H
    c_attn, c_proj = (f"h.0.attn.{name}.weight" for name in ("c_attn", "c_proj"))
    qkv = model.params[c_attn].reshape(d, 3, H, d_h)
    out = model.params[c_proj].reshape(H, d_h, d)
    qkv[:, :, 1], out[1] = qkv[:, :, 0], out[0]  # head 1 becomes a copy of head 0
    _, grads = model.loss_and_grads(ids[:-1], ids[1:])
    dqkv, dout = grads[c_attn].reshape(d, 3, H, d_h), grads[c_proj].reshape(H, d_h, d)
    twins = np.allclose(dqkv[:, :, 0], dqkv[:, :, 1], rtol=1e-9) and np.allclose(dout[0], dout[1])
    claim(
        say(
            "head 1 a copy of head 0: their gradients are equal, so they never part",
            "第 1 头是第 0 头的拷贝：两者梯度相同，永远分不开",
        ),
        twins,
    )
    claim(
        say("head 2, drawn on its own, gets another", "第 2 头另行初始化，梯度就不同"),
        not np.allclose(dqkv[:, :, 0], dqkv[:, :, 2]),
    )


def resting_place(tables: np.ndarray, stream: np.ndarray, names: list[str]) -> None:
    """How much weight heads put on the first token; if none rests there, why, and where else.

    Args:
        tables: [L, H, T, T]; the first row, which has no choice, is left out.
        stream: the residual stream after each block [L, T, d].
        names: what the T tokens say.
    """
    L, H, T, _ = tables.shape
    first = tables[:, :, 1:, 0].mean(axis=-1)
    grid(first, "7.2f")
    resting = (first > 0.5).sum()
    print(
        say(
            f"  {resting} of {L * H} heads put most of their weight on the first token",
            f"  {L * H} 个头里有 {resting} 个把大部分权重给了第一个 token",
        )
    )
    if resting:
        return
    alike = (causal_mask(T, T) / np.arange(1, T + 1)[:, None])[1:]  # nobody is preferred
    norms = np.linalg.norm(stream, axis=-1)
    longer = (norms[:, 0] / np.median(norms[:, 1:], axis=1)).max()
    marks = [name in {".", ",", ";"} for name in names]
    on_marks = tables[:, :, 1:, marks].sum(axis=-1).mean(axis=-1)
    n, h = np.unravel_index(on_marks.argmax(), on_marks.shape)
    expected, share = alike[:, 0].mean(), alike[:, marks].sum(axis=-1).mean()
    print(
        say(
            f"""
  A head that looks at all tokens alike gives it {expected:.2f}. A row sums to 1, so a head that
  finds nothing must put its weight somewhere. GPT-2 has learned to put it on the first token, which
  it marks by a stream many times as long as elsewhere. Here that is {longer:.1f} times: this model
  has learned no such mark. Block {n} head {h} comes closest to resting, on punctuation:
  {on_marks[n, h]:.2f} of its weight, where one that looks at all alike puts {share:.2f}.""",
            f"""
  对所有 token 一视同仁的头会给它 {expected:.2f}。每行的和是 1，什么都没找到的头也得把权重放在某处。
  GPT-2 学会了放在第一个 token 上，并给它做了记号：那里的主干比别处长许多倍。这里只是别处的
  {longer:.1f} 倍：这个模型没有学出这样的记号。最像在休息的是第 {n} 层第 {h} 头，它歇在标点上：
  给标点 {on_marks[n, h]:.2f}，一视同仁则是 {share:.2f}。""",
        )
    )


def grid(values: np.ndarray, form: str) -> None:
    """Heads to the right, blocks downward."""
    print("  head    " + "".join(f"{h:7}" for h in range(values.shape[1])))
    for n, row in enumerate(values):
        print(f"  block {n:2}" + "".join(f"{value:{form}}" for value in row))


def main(argv: Sequence[str]) -> int:
    args = options(__doc__, FABLE).parse_args(argv)
    model, tokenizer, name, trained = open_model(args.model)
    born_equal()

    ids = np.array(tokenizer.encode(args.text))[: 100 if trained else 32]
    heading(
        "7.6",
        say(
            f"weight on the first token, mean over {len(ids)} tokens: {name}",
            f"给第一个 token 的权重，{len(ids)} 个 token 平均：{name}",
        ),
    )
    stations: dict[str, np.ndarray] = {}
    blocks = model.forward(ids, observe=stations.__setitem__).saved.blocks
    stream = np.array([stations[f"h.{n}"] for n in range(len(blocks))])
    tables = np.array([block.attn.probs for block in blocks])
    resting_place(tables, stream, labels(tokenizer, ids))
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_heads_of_a_model.py", main))
