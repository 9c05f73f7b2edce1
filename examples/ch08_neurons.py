"""The FFN as keys and values: which neurons answer, and which tokens they push (article 8.3).

Columns of W_1 are questions, rows of W_2 the answers, GELU how far a question was met. On a trained
--model the tokens mean something. `python -m npgpt.trace` shows the same along a whole text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import labels, open_model, options
from show import claim, heading

from npgpt.cli import run
from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.lm_head import lm_head_forward

STRONGEST = 6


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__, "Once upon a time there was a king who had a")
    parser.add_argument("--block", type=int, help="which block's neurons (the last)")
    args = parser.parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    n = model.config.n_layer - 1 if args.block is None else args.block
    ids = tokenizer.encode(args.text)
    read = (
        model.forward(ids).saved.blocks[n].mlp.c_fc[0][-1]
    )  # what the FFN reads at the last token
    W_1, b_1, W_2, b_2 = weights = [
        model.params[f"h.{n}.mlp.{part}.{kind}"]
        for part in ("c_fc", "c_proj")
        for kind in ("weight", "bias")
    ]

    heading("8.3", f"{name}, block {n}, after {''.join(labels(tokenizer, ids[-3:]))}")
    activation = model.config.activation_function
    met = ACTIVATIONS[activation][0](read @ W_1 + b_1)[0]  # [F]
    answers = met[:, None] * W_2  # [F, d]
    y, _ = feed_forward_forward(read, *weights, activation=activation)
    same = np.allclose(y, answers.sum(axis=0) + b_2, atol=1e-4)
    claim(
        f"the output is the sum of {len(met):,} answers, each as loud as its question was met",
        same,
    )

    loudness = np.linalg.norm(answers, axis=1)
    order = np.argsort(-loudness)
    table = model.params.get("lm_head.weight", model.params["wte.weight"])
    for j in order[:STRONGEST]:
        pushed, _ = lm_head_forward(answers[j] * model.params["ln_f.weight"], table)
        tokens = labels(tokenizer, np.argsort(-pushed)[:6].tolist())
        print(f"  neuron {j:5}   met {met[j]:+6.2f}   pushes   {'  '.join(tokens)}")
    share = loudness[order[: len(order) // 10]].sum() / loudness.sum()
    print(f"  The loudest tenth of the neurons makes {100 * share:.0f} % of the loudness.")
    return 0


if __name__ == "__main__":
    sys.exit(run("ch08_neurons.py", main))
