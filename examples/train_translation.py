"""Train an encoder-decoder to translate: English number words to Chinese (article chapters 2, 4).

    python examples/train_translation.py [--out cross_attention.png]

A minute or two, with the paper's recipe in small: post-norm, sinusoids, label smoothing, its
learning rate. Then it translates numbers that it has never seen, and shows where the decoder looks
in the source. --out draws that, with matplotlib (pip install "npgpt[plot]").
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: for small products a second waits

import numpy as np
from looking_across import looks, who_looks_where
from number_words import (
    END,
    PAD,
    START,
    VOCABULARY,
    chinese,
    draw,
    english,
    padded,
    source_ids,
    target_ids,
)
from plots import pyplot, save
from show import claim, heading, new_parser, say

from npgpt.cli import run
from npgpt.models.transformer.config import TransformerConfig, init_params
from npgpt.models.transformer.model import Transformer
from npgpt.train.optim import adamw_step, inverse_sqrt_learning_rate, new_adamw_state

CONFIG = TransformerConfig(
    vocab_size=len(VOCABULARY),
    d_model=32,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64),
    dropout=0.0,
    pad_token_id=PAD,
    decoder_start_token_id=START,
    eos_token_id=END,
)
BATCH, STEPS, WARMUP = 64, 4000, 1000
SHOWN = 345_678


def train(
    model: Transformer, steps: int, rng: np.random.Generator, warmup: int = WARMUP
) -> list[float]:
    """The loss of each step; every batch is drawn afresh."""
    state, losses = new_adamw_state(model.params), []
    for step in range(1, steps + 1):
        numbers = draw(rng, BATCH, unseen=False).tolist()
        ids, mask = padded([source_ids(n, with_and=rng.random() < 0.5) for n in numbers])
        targets, real = padded([target_ids(n) for n in numbers])
        targets[~real] = -100
        loss, grads = model.loss_and_grads(ids, targets, mask, label_smoothing=0.1)
        lr = inverse_sqrt_learning_rate(step, d_model=CONFIG.d_model, warmup=warmup)
        recipe = {"lr": lr, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
        adamw_step(model.params, grads, state, step=step, **recipe)
        losses.append(float(loss))
        if step % (steps // 10) == 0:
            recent = np.mean(losses[-steps // 10 :])
            print(f"  {say(f'step {step:5}', f'第 {step:5} 步')}   loss {recent:.3f}")
    return losses


def translate(model: Transformer, numbers: list[int]) -> list[str]:
    """Greedy, all at once."""
    ids, mask = padded([source_ids(n, with_and=n % 2 == 0) for n in numbers])
    written = model.generate(ids, attention_mask=mask, max_new_tokens=15)
    return ["".join(VOCABULARY[i] for i in row if i != END) for row in written]


def main(argv: Sequence[str]) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="200 steps: see that the loss falls")
    parser.add_argument("--out", type=Path, help="file of the picture, .png or .svg")
    parser.add_argument("--save", type=Path, help="folder for config.json and the weights")
    args = parser.parse_args(argv)
    if args.out:
        pyplot()  # says before the training what is missing
    rng = np.random.default_rng(1)
    model = Transformer(CONFIG, init_params(CONFIG, rng))

    n = model.num_params()
    heading(
        "2, 4",
        say(
            f"training {n:,} parameters on numbers below a million",
            f"训练 {n:,} 个参数：把一百万以内的英文数词译成中文",
        ),
    )
    losses = train(model, 200 if args.quick else STEPS, rng)
    claim(
        say("the loss has fallen by a third", "loss 降了三分之一以上"),
        np.mean(losses[-20:]) < np.mean(losses[:20]) * 2 / 3,
    )

    heading("4", say("numbers that it has never seen, each once", "它从没见过的数，每个一次"))
    numbers = rng.permutation(np.unique(draw(rng, 4000, unseen=True))).tolist()
    pairs = list(zip(numbers, translate(model, numbers), strict=True))
    for n, text in pairs[:8]:
        print(f"  {n:>7}  {' '.join(english(n))}\n{'':11}{text}")
    right = np.mean([text == chinese(n) for n, text in pairs])
    many = f"{len(pairs):,}"
    print(say(f"  exact match: {right:.2%} of {many}", f"  完全译对 {right:.2%}，共 {many} 个"))

    heading(
        "2",
        say(
            f"cross-attention: where the decoder looks while it writes {chinese(SHOWN)}",
            f"cross-attention：decoder 写 {chinese(SHOWN)} 时看原文的哪里",
        ),
    )
    found = looks(model, SHOWN)
    for char, row in zip(found.written, found.cross, strict=True):
        print(
            f"  {char}\t"
            + "   ".join(f"{found.source[s]} {row[s]:.2f}" for s in np.argsort(-row)[:3])
        )
    if args.out:
        save(who_looks_where(model, SHOWN), args.out)
    if args.save:
        model.save_pretrained(args.save)
    if not args.quick:
        what = say("at least 99 % of the unseen numbers are right", "没见过的数至少译对 99 %")
        claim(what, right >= 0.99)
    return 0


if __name__ == "__main__":
    sys.exit(run("train_translation.py", main))
