"""Where the article stops: one training step, and generating with a KV cache (the next article).

A model of 1,952 parameters does everything that GPT-2 does. --model gpt2 measures the two forms of
GELU against each other on the real weights.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, open_model, options
from show import check, claim, heading

from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.train.optim import adamw_step, new_adamw_state

CONFIG = GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=2, eos_token_id=None)


def tiny() -> GPT2:
    return GPT2(CONFIG, init_params(CONFIG, np.random.default_rng(0), np.float64))


def training() -> None:
    """All losses in one pass, all gradients, one step."""
    heading("next", "a GPT-2 of 2 layers, 2 heads, d 8, V 16, block 8")
    model, rng = tiny(), np.random.default_rng(1)
    check("tensors", len(model.params), "28")
    check("parameters", model.num_params(), "1,952")
    batch = rng.integers(0, 16, (4, 9))
    ids, targets = batch[:, :-1], batch[:, 1:]
    loss, grads = model.loss_and_grads(ids, targets)
    check("ln 16", math.log(16), "2.77")
    claim(
        f"the first loss, {loss:.2f}, is near it: nothing has been learned yet",
        abs(loss - math.log(16)) < 0.1,
    )

    heading("next", "training: T losses in one pass, a gradient for every parameter, a step")
    logits = model(ids[0])
    losses = [cross_entropy_forward(logits[t], targets[0, t])[0] for t in range(8)]
    print("  losses of the first text: " + "  ".join(f"{each:.2f}" for each in losses))
    alone = model.loss_and_grads(ids[0], targets[0])[0]
    claim("their mean is the loss of that text", np.isclose(np.mean(losses), alone))
    shapes = all(grads[name].shape == param.shape for name, param in model.params.items())
    claim("28 gradients, each in the shape of its parameter", len(grads) == 28 and shapes)
    claim("none of them is zero", all(grad.any() for grad in grads.values()))
    adamw_step(model.params, grads, new_adamw_state(model.params), step=1, lr=1e-2)
    after = model.loss_and_grads(ids, targets)[0]
    claim(f"one AdamW step: {loss:.3f} -> {after:.3f} on that batch", after < loss)


def inference() -> None:
    """Prefill and decode."""
    heading("next", "inference: prefill reads the prompt once, decode one token at a time")
    model, prompt = tiny(), np.array([3, 1, 4, 1, 5])
    whole = model(prompt)
    kv = model.new_kv_cache()
    prefilled = model(prompt[:4], kv=kv)
    decoded = model(prompt[4:], kv=kv)
    claim(
        f"prefill {[*prefilled.shape]} and decode {[*decoded.shape]}: the logits of one pass",
        np.allclose(np.vstack([prefilled, decoded]), whole),
    )
    T, d, L = len(prompt), CONFIG.n_embd, CONFIG.n_layer
    filled = sum(array[..., : kv.length, :].size for array in (*kv.keys, *kv.values))
    claim(
        f"numbers in the cache: layers · 2 · T · d = {L} · 2 · {T} · {d} = {filled}",
        filled == L * 2 * T * d,
    )
    check("GPT-2 small, T = 1024: 12 · 2 · 1024 · 768", 12 * 2 * 1024 * 768, "18,874,368")
    with_cache, without = (list(model.generate(prompt, 4, use_cache=use)) for use in (True, False))
    claim(f"greedy, with cache and without: {with_cache}", with_cache == without)
    options = {"temperature": 1.0, "seed": 1}
    sampled = [list(model.generate(prompt, 4, use_cache=use, **options)) for use in (True, False)]
    claim(f"sampled, same seed: {sampled[0]}", sampled[0] == sampled[1])


def two_gelus(opened: Opened, text: str) -> None:
    """nanoGPT's GELU is the exact form, GPT-2's the tanh form: what that does to the logits."""
    heading("next", f"the exact GELU in place of GPT-2's: {opened.name}")
    print("  article, nanoGPT against Hugging Face: 1.4e-2 on a scale of 155, relative 8.9e-5")
    model = opened.model
    ids = opened.tokenizer.encode(text)
    logits = model(ids)
    exact = GPT2(dataclasses.replace(model.config, activation_function="gelu"), model.params)(ids)
    apart, scale = float(np.abs(exact - logits).max()), float(np.abs(logits).max())
    print(f"  here: {apart:.1e} on a scale of {scale:.0f}, relative {apart / scale:.1e}")
    claim("the two forms are not interchangeable, and not far apart", 0 < apart / scale < 5e-3)


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    training()
    inference()
    two_gelus(open_model(args.model), args.text)
    return 0


if __name__ == "__main__":
    sys.exit(run("next_training_and_inference.py", main))
