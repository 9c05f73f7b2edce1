"""Train a small BERT on stories: hide tokens, ask for them (chapter 3, encoder-only).

    python examples/train_bert.py [--text FILE_OR_FOLDER] [--steps N] [--out FOLDER] [--quick]

Without --text it reads the stories in the folder that NPGPT_DATA names, or else made-up sentences.
What --out keeps can be asked at once:
python -m npgpt.fill_mask "the [MASK] said to the king." --model FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: for small products a second waits

import numpy as np
import word_rows
from show import claim, heading, new_parser, say
from word_rows import CLS, MASK, PAD, SEP, SPECIAL, ids_of, rows_of, vocabulary_of

from npgpt import cli
from npgpt.fill_mask import fill_masks
from npgpt.models.bert.config import BERTConfig, init_params
from npgpt.models.bert.model import BERT
from npgpt.text.corpus import read_text, text_files
from npgpt.train.masking import mask_tokens
from npgpt.train.optim import adamw_step, clip_gradients, learning_rate, new_adamw_state

HELD_OUT = 256  # rows to measure on


def loss_and_grads(
    model: BERT, rows: np.ndarray, rng: np.random.Generator
) -> tuple[np.floating, dict[str, np.ndarray]]:
    """Hide 15 % of the tokens and ask for them; padding is seen by nobody."""
    V, special = model.config.vocab_size, range(len(SPECIAL))
    read, targets = mask_tokens(rows, rng, mask_id=MASK, vocab_size=V, special_ids=special)
    return model.loss_and_grads(read, targets, rows != PAD)


def train(model: BERT, rows: np.ndarray, steps: int, B: int) -> None:
    """AdamW on B rows at a time, masked anew each time; prints the mean loss ten times."""
    rng, state = np.random.default_rng(2), new_adamw_state(model.params)
    losses: list[float] = []
    for step in range(steps):
        loss, grads = loss_and_grads(model, rows[rng.integers(0, len(rows), B)], rng)
        clip_gradients(grads, 1.0)
        peak = 0.3 / model.config.hidden_size  # the narrower, the faster
        lr = learning_rate(step, peak=peak, floor=peak / 100, warmup=steps // 10, steps=steps)
        adamw_step(model.params, grads, state, step=step + 1, lr=lr, weight_decay=0.01)
        losses.append(float(loss))
        if len(losses) == steps // 10:
            done = say(f"step {step + 1:>5} of {steps}", f"第 {step + 1:>5} 步，共 {steps} 步")
            print(f"  {done}   loss {np.mean(losses):.3f}", flush=True)
            losses = []


def ask(model: BERT, vocabulary: dict[str, int], question: str) -> list[str]:
    """Print the three likeliest words at every mask; returns the likeliest of each."""
    words, ids = list(vocabulary), [CLS, *ids_of(question, vocabulary), SEP]
    print(f"  {question}")
    found = fill_masks(model, ids, MASK, 3)
    for best in found.values():
        print("      " + "   ".join(f"{words[each.id]} {each.probability:.2f}" for each in best))
    return [words[best[0].id] for best in found.values()]


def main(argv: list[str]) -> int:
    """Read, train, ask."""
    parser = new_parser(__doc__)
    parser.add_argument("--text", help="a text file, or a folder of them")
    parser.add_argument("--steps", type=int, help="default: 1500; for made-up sentences 200")
    parser.add_argument("--out", help="folder in which the trained model is kept")
    parser.add_argument("--quick", action="store_true", help="made-up sentences in any case")
    args = parser.parse_args(argv)
    data = os.environ.get("NPGPT_DATA")
    path = None if args.quick else args.text or (data and f"{data}/corpus")
    text = "\n\n".join(map(read_text, text_files(path))) if path else word_rows.made_up()
    # Long rows learn slowly: where the neighbours stand has to be found out for every position.
    d, T, B, steps = (128, 14, 128, 1500) if path else (64, 18, 32, 200)

    vocabulary = vocabulary_of(text, 2048)
    rows = np.random.default_rng(1).permutation(rows_of(text, vocabulary, T))
    rows, held_out = rows[HELD_OUT:], rows[:HELD_OUT]
    config = BERTConfig(
        vocab_size=len(vocabulary),
        hidden_size=d,
        num_hidden_layers=2,
        num_attention_heads=d // 32,
        intermediate_size=4 * d,
        max_position_embeddings=T,
        initializer_range=6.4 / d,
    )
    model = BERT(config, init_params(config, np.random.default_rng(0), pooler=False))
    source, V = path or say("made-up sentences", "编出来的句子"), len(vocabulary)
    rows_and_words = f"{len(rows):,} rows of {source}, {V} words"
    heading("3", say(rows_and_words, f"{len(rows):,} 行 {source}，{V} 个词"))
    n = model.num_params()
    print(
        say(
            f"  a BERT of 2 layers, d {d}, {n:,} parameters",
            f"  一个 BERT：2 层，d {d}，{n:,} 个参数",
        )
    )
    before, _ = loss_and_grads(model, held_out, np.random.default_rng(3))
    train(model, rows, args.steps or steps, B)
    after, _ = loss_and_grads(model, held_out, np.random.default_rng(3))
    what = say("loss at hidden tokens of rows held out: ", "没见过的行里，被遮住的 token 的 loss：")
    claim(f"{what}{before:.2f} -> {after:.2f}", after < before)

    heading("3", say("what it puts in, and how sure it is", "它填什么，有多大把握"))
    if path:
        for question in word_rows.ABOUT_STORIES:
            ask(model, vocabulary, question)
    else:
        for question, answers in word_rows.ABOUT_ANIMALS.items():
            right = ask(model, vocabulary, question) == answers
            claim(say(", ".join(answers), f"填对了：{'、'.join(answers)}"), right)
    if args.out:
        model.save_pretrained(args.out)
        (Path(args.out) / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        print(say(f"\n  kept in {args.out}", f"\n  已存入 {args.out}"))
    return 0


if __name__ == "__main__":
    sys.exit(cli.run("train_bert.py", main))
