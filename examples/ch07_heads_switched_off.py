"""How little one head of a model is missed, and what all of them are worth (article 7.6).

Switches off each head in turn, then all heads of a block but one, then all. Leaves out retraining
after a cut.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from any_model import open_model, options
from ch07_heads_of_a_model import FABLE, grid
from show import claim, heading, say

from npgpt.cli import left, run
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward


def without(model: GPT2, heads: Mapping[int, Collection[int]]) -> GPT2:
    """The model with some heads of some blocks switched off: their rows of W_O are 0."""
    d, H = model.config.n_embd, model.config.n_head
    params = {**model.params}
    for layer, off in heads.items():
        name = f"h.{layer}.attn.c_proj.weight"
        silenced = params[name].reshape(H, d // H, d).copy()
        silenced[list(off)] = 0
        params[name] = silenced.reshape(d, d)
    return GPT2(model.config, params)


def loss_of(model: GPT2, ids: np.ndarray) -> float:
    return float(cross_entropy_forward(model(ids[:-1]), ids[1:])[0])


def removes_its_share(model: GPT2, ids: np.ndarray) -> None:
    """What a block's attention adds, less P V W_O of the head, is what it adds without it."""
    h, H, d = 1, model.config.n_head, model.config.n_embd
    added: list[dict[str, np.ndarray]] = [{}, {}]
    saved = model.forward(ids, observe=added[0].__setitem__).saved.blocks[0].attn
    without(model, {0: [h]}).forward(ids, observe=added[1].__setitem__)
    whole, less = (each["h.0.attn"] for each in added)
    W_O = model.params["h.0.attn.c_proj.weight"].reshape(H, d // H, d)
    share = saved.probs[h] @ saved.heads.weighted_sum[1][h] @ W_O[h]
    claim(
        say(
            "switching off head 1 of block 0 takes away its P V W_O, and nothing else",
            "关掉第 0 层第 1 头，少的正是它的 P V W_O",
        ),
        np.abs(whole - less - share).max() < 1e-5 * np.abs(whole).max(),
    )


def row(what: str, loss: float, whole: float) -> None:
    """A loss, and how much it is above the whole model's."""
    print(f"  {left(what, 29)} {loss:.3f}   {100 * (loss / whole - 1):+5.1f} %")


def main(argv: Sequence[str]) -> int:
    args = options(__doc__, FABLE).parse_args(argv)
    model, tokenizer, name, trained = open_model(args.model)
    ids = np.array(tokenizer.encode(args.text))[: 100 if trained else 32]
    L, H = model.config.n_layer, model.config.n_head
    print(say(f"{name} reads {len(ids)} tokens", f"{name} 读到 {len(ids)} 个 token"), end="")

    heading("7.6", say("by how much the loss grows without one head", "关掉一个头，loss 增加多少"))
    removes_its_share(model, ids)
    whole = loss_of(model, ids)
    change = np.array(
        [[loss_of(without(model, {n: [h]}), ids) - whole for h in range(H)] for n in range(L)]
    )
    grid(change, "+7.3f")
    small = np.abs(change) < 0.01 * whole
    print(
        say(
            f"  {small.sum()} of {L * H} heads change it by less than 1 %",
            f"  {L * H} 个头里有 {small.sum()} 个使它变化不到 1 %",
        )
    )
    claim(say("every head changes something", "每个头都有一点作用"), (change != 0).all())

    heading("7.6", say("the loss when heads are switched off together", "一起关掉，loss 是多少"))
    row(say("the whole model", "整个模型"), whole, whole)
    for n in range(L):
        others = [h for h in range(H) if h != change[n].argmax()]
        loss = loss_of(without(model, {n: others}), ids)
        row(say(f"block {n}: 1 of {H} is left", f"第 {n} 层只留 {H} 个头里的 1 个"), loss, whole)
    none = loss_of(without(model, {n: range(H) for n in range(L)}), ids)
    row(say("all heads off", "所有头都关掉"), none, whole)
    if trained:
        claim(
            say(
                "one at a time most heads can be spared, all together they cannot",
                "逐个看，大多数头可有可无；合起来则不然",
            ),
            small.mean() > 0.5 and none > 1.1 * whole,
        )
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_heads_switched_off.py", main))
