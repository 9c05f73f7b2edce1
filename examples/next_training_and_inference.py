"""Where the article stops: one training step, and generating with a KV cache (the next article).

A model of 1,952 parameters does everything that GPT-2 does.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, say

from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.train.optim import adamw_step, new_adamw_state

CONFIG = GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=2, eos_token_id=None)


def tiny() -> GPT2:
    return GPT2(CONFIG, init_params(CONFIG, np.random.default_rng(0), np.float64))


def part(english: str, chinese: str) -> None:
    heading(say("next", "下一篇"), say(english, chinese))


def training() -> None:
    """All losses in one pass, all gradients, one step."""
    part(
        "a GPT-2 of 2 layers, 2 heads, d 8, V 16, block 8",
        "一个 GPT-2：2 层，2 个头，d 8，V 16，上下文 8",
    )
    model, rng, V = tiny(), np.random.default_rng(1), CONFIG.vocab_size
    check(say("tensors", "张量个数"), len(model.params), "28")
    check(say("parameters", "参数"), model.num_params(), "1,952")
    batch = rng.integers(0, V, (4, 9))
    ids, targets = batch[:, :-1], batch[:, 1:]
    loss, grads = model.loss_and_grads(ids, targets)
    claim(
        say(
            f"the first loss, {loss:.2f}, is near ln {V} = {math.log(V):.2f}: nothing learned yet",
            f"最初的 loss {loss:.2f}，接近 ln {V} = {math.log(V):.2f}：还什么都没学到",
        ),
        abs(loss - math.log(V)) < 0.02,
    )

    part(
        "training: T losses in one pass, a gradient for every parameter, a step",
        "训练：一次前向 T 个 loss，每个参数都有梯度，走一步",
    )
    logits = model(ids[0])
    losses = [cross_entropy_forward(logits[t], targets[0, t])[0] for t in range(8)]
    what = say("losses of the first text: ", "第一段文本的 loss：")
    print(f"  {what}{'  '.join(f'{each:.2f}' for each in losses)}")
    alone = model.loss_and_grads(ids[0], targets[0])[0]
    mean = say("their mean is the loss of that text", "它们的平均就是这段文本的 loss")
    claim(mean, np.isclose(np.mean(losses), alone))
    same_shapes = [grads[name].shape == param.shape for name, param in model.params.items()]
    claim(
        say(
            f"{len(grads)} gradients, each in the shape of its parameter",
            f"{len(grads)} 份梯度，各与自己的参数同形状",
        ),
        grads.keys() == model.params.keys() and all(same_shapes),
    )
    claim(say("none of them is zero", "没有一份是零"), all(g.any() for g in grads.values()))
    adamw_step(model.params, grads, new_adamw_state(model.params), step=1, lr=1e-2)
    after = model.loss_and_grads(ids, targets)[0]
    claim(
        say(
            f"one AdamW step: {loss:.3f} -> {after:.3f} on that batch",
            f"走一步 AdamW：{loss:.3f} -> {after:.3f}，同一批数据",
        ),
        after < loss,
    )


def inference() -> None:
    """Prefill and decode."""
    part(
        "inference: prefill reads the prompt once, decode one token at a time",
        "推理：prefill 一次读完 prompt，decode 每次一个 token",
    )
    model, prompt = tiny(), np.array([3, 1, 4, 1, 5])
    kv = model.new_kv_cache()
    prefilled = model(prompt[:4], kv=kv)
    decoded = model(prompt[4:], kv=kv)
    shapes = f"prefill {[*prefilled.shape]}, decode {[*decoded.shape]}"
    claim(
        shapes + say(": the logits of one pass", "：与一次算完的 logits 相同"),
        np.allclose(np.vstack([prefilled, decoded]), model(prompt)),
    )
    T, d, L = len(prompt), CONFIG.n_embd, CONFIG.n_layer
    filled = sum(array[..., : kv.length, :].size for array in (*kv.keys, *kv.values))
    what = say("numbers in the cache: layers · 2 · T · d", "KV cache 里的数：layers · 2 · T · d")
    claim(f"{what} = {L} · 2 · {T} · {d} = {filled}", filled == L * 2 * T * d)
    small = GPT2Config()
    numbers = small.n_layer * 2 * small.n_positions * small.n_embd
    check(
        f"{say('of GPT-2 small', 'GPT-2 small 的')}, T = {small.n_positions}", numbers, "18,874,368"
    )
    with_cache, without = (list(model.generate(prompt, 4, use_cache=use)) for use in (True, False))
    what = say("greedy, with cache and without: ", "贪心，用不用 cache 都是：")
    claim(f"{what}{with_cache}", with_cache == without)
    options = {"temperature": 1.0, "seed": 1}
    sampled = [list(model.generate(prompt, 4, use_cache=use, **options)) for use in (True, False)]
    what = say("sampled, same seed: ", "采样，同一个种子，也都是：")
    claim(f"{what}{sampled[0]}", sampled[0] == sampled[1])


if __name__ == "__main__":
    training()
    inference()
