"""Train an encoder-decoder to translate: English number words to Chinese (article chapters 2, 4).

    python examples/train_translation.py [--out cross_attention.png]

Takes a few minutes, with the paper's recipe in small: post-norm, sinusoids, label smoothing, Adam
and its learning rate. Then it translates numbers that it has never seen, and shows where the
decoder looked in the source. --out draws that, with matplotlib (pip install 'npgpt[plot]').
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
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
from plots import drawable, pyplot, save
from show import claim, heading

from npgpt.cli import run
from npgpt.models.transformer import Transformer
from npgpt.models.transformer_config import TransformerConfig
from npgpt.models.transformer_params import init_params
from npgpt.optim import adamw_step, inverse_sqrt_learning_rate, new_adamw_state

CONFIG = TransformerConfig(
    vocab_size=len(VOCABULARY),
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_position_embeddings=16,
    pad_token_id=PAD,
    decoder_start_token_id=START,
    eos_token_id=END,
    dropout=0.0,
)
BATCH, STEPS, WARMUP = 64, 3000, 500
SHOWN = 345_678


def train(model: Transformer, steps: int, rng: np.random.Generator) -> list[float]:
    """The loss of each step; every batch is drawn afresh."""
    state, losses, start = new_adamw_state(model.params), [], time.perf_counter()
    for step in range(1, steps + 1):
        numbers = draw(rng, BATCH, unseen=False).tolist()
        ids, mask = padded([source_ids(n, with_and=rng.random() < 0.5) for n in numbers])
        targets, real = padded([target_ids(n) for n in numbers])
        targets[~real] = -100
        loss, grads = model.loss_and_grads(ids, targets, mask, label_smoothing=0.1)
        lr = inverse_sqrt_learning_rate(step, d_model=CONFIG.d_model, warmup=WARMUP)
        recipe = {"lr": lr, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
        adamw_step(model.params, grads, state, step=step, **recipe)
        losses.append(float(loss))
        if step % max(1, steps // 10) == 0:
            recent = np.mean(losses[-max(1, steps // 10) :])
            print(f"  step {step:5}   loss {recent:.3f}   {time.perf_counter() - start:4.0f} s")
    return losses


def translate(model: Transformer, numbers: list[int]) -> list[str]:
    """Greedy, all at once."""
    ids, mask = padded([source_ids(n, with_and=n % 2 == 0) for n in numbers])
    written = model.generate(ids, attention_mask=mask, max_new_tokens=15)
    return ["".join(VOCABULARY[i] for i in row if i != END) for row in written]


def cross_attention(model: Transformer, n: int) -> tuple[np.ndarray, list[str], list[str]]:
    """Weight tables [N, H, T, S] of all decoder layers, the target's and the source's tokens."""
    source, target = source_ids(n, with_and=False), target_ids(n)
    saved = model.forward(source, model.shifted_right(np.array(target))).saved
    tables = np.array([layer.encoder_attn.probs for layer in saved.decoder.layers])
    return tables, [*chinese(n), "<end>"], [*english(n), "<end>"]


def plot(path: Path, tables: np.ndarray, written: list[str], words: list[str]) -> None:
    """A panel for each layer: the mean over its heads."""
    figure, axes = pyplot().subplots(1, len(tables), figsize=(11, 5), layout="constrained")
    for n, (ax, table) in enumerate(zip(axes, tables.mean(axis=1), strict=True)):
        ax.imshow(table, vmin=0, vmax=1, cmap="Blues")
        ax.set_xticks(range(len(words)), words, rotation=60, ha="right")
        ax.set_yticks(range(len(written)), [drawable(char) for char in written])
        ax.set(title=f"decoder layer {n}, mean of its heads", xlabel="source: looked at")
        ax.tick_params(length=0)
    axes[0].set_ylabel("target: about to be written")
    save(figure, path)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="60 steps: see that the loss falls")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default: {STEPS}")
    parser.add_argument("--out", type=Path, help="file of the picture, .png or .svg")
    parser.add_argument("--save", type=Path, help="folder for config.json and the weights")
    args = parser.parse_args(argv)
    if args.out is not None:
        pyplot()  # before the training, if it is missing
    rng = np.random.default_rng(1)
    model = Transformer(CONFIG, init_params(CONFIG, rng))

    heading("2, 4", f"training {model.num_params():,} parameters")
    losses = train(model, 60 if args.quick else args.steps, rng)
    claim("the loss has fallen", np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5]))

    heading("4", "numbers it has never seen")
    numbers = draw(np.random.default_rng(2), 1000, unseen=True).tolist()
    found = translate(model, numbers)
    right = [text == chinese(n) for n, text in zip(numbers, found, strict=True)]
    for n, text in list(zip(numbers, found, strict=True))[:8]:
        print(f"  {n:>7}  {' '.join(english(n))}\n           {text}")
    print(f"  exact match: {np.mean(right):.1%} of {len(right)}")

    heading("2", f"cross-attention: where the decoder looks while it writes {chinese(SHOWN)}")
    tables, written, words = cross_attention(model, SHOWN)
    for char, row in zip(written, tables[-1].mean(axis=0), strict=True):
        looks = [f"{words[s]} {row[s]:.2f}" for s in np.argsort(-row)[:3]]
        print(f"  {char}   {'   '.join(looks)}")
    if args.out is not None:
        plot(args.out, tables, written, words)
    if args.save is not None:
        model.save_pretrained(args.save)
    if not args.quick:
        claim("at least 99 % of the unseen numbers are right", np.mean(right) >= 0.99)
    return 0


if __name__ == "__main__":
    sys.exit(run("train_translation.py", main))
