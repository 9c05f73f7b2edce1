"""The FFN as keys and values: which neurons answer, and what a detector fires on (article 8.3).

Columns of W_1 are questions, rows of W_2 the answers, GELU how far a question was met. On a trained
--model the tokens mean something. `python -m npgpt.trace` shows the same along a whole text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, labels, open_model, options
from show import claim, heading, say

from npgpt.cli import run
from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.models.common import of
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.lm_head import lm_head_forward

STRONGEST, CONTEXTS, TOKENS = 6, 4, 250
STORY = (
    "Once upon a time there was a king who had three sons. One day the eldest son said to his "
    'father: "I will go out into the world and seek my fortune." So he took his horse and rode '
    "away into the forest. After he had gone a long way he met an old woman, who sat by the side "
    'of the road. "Where are you going?" asked the old woman. "I am going to seek the golden '
    'bird," said he. "Then you must not go to the castle," she said, "but to the little house by '
    'the river." The prince laughed at her and rode on. In the evening he came to the castle, and '
    "there was music and dancing, and he forgot his father and his brothers. When he did not come "
    "home, the second son set out, and it went no better with him. Then the youngest son went to "
    'the king and said: "Dear father, let me go and look for my brothers." And the king had a'
)


def pushes(model: GPT2, answers: np.ndarray) -> np.ndarray:
    """How far each answer [n, d] raises each token's score, as ln_f's γ and lm_head have it."""
    table = model.params.get("lm_head.weight", model.params["wte.weight"])
    return lm_head_forward(answers * model.params["ln_f.weight"], table)[0]


def the_answers(opened: Opened, n: int, ids: list[int], read: np.ndarray) -> np.ndarray:
    """The output at the last token is a sum of answers; returns how far each token met each key."""
    weights = W_1, b_1, W_2, b_2 = of(opened.model.params, f"h.{n}.mlp.c_fc", f"h.{n}.mlp.c_proj")
    last = "".join(labels(opened.tokenizer, ids[-3:]))
    heading("8.3", f"{opened.name}, block {n}" + say(f", after {last}", f"，读完 {last} 之后"))
    activation = opened.model.config.activation_function
    met = ACTIVATIONS[activation][0](read @ W_1 + b_1)[0]  # [T, F]
    answers = met[-1][:, None] * W_2  # [F, d]
    y, _ = feed_forward_forward(read[-1], *weights, activation=activation)
    F = f"{len(W_2):,}"
    claim(
        say(
            f"the output is the sum of {F} answers, each as loud as its question was met",
            f"输出是 {F} 个回答之和，问题答“是”有多强，回答就有多响",
        ),
        np.allclose(y, answers.sum(axis=0) + b_2, atol=1e-4),
    )
    loudness = np.linalg.norm(answers, axis=1)
    order = np.argsort(-loudness)
    for j, pushed in zip(
        order[:STRONGEST], pushes(opened.model, answers[order[:STRONGEST]]), strict=True
    ):
        tokens = labels(opened.tokenizer, np.argsort(-pushed)[:6].tolist())
        print(
            say(
                f"  neuron {j:5}   met {met[-1, j]:+6.2f}   pushes   ",
                f"  神经元 {j:5}   答“是” {met[-1, j]:+6.2f}   推向   ",
            )
            + "  ".join(tokens)
        )
    share = 100 * loudness[order[: len(order) // 10]].sum() / loudness.sum()
    print(
        say(
            f"  The loudest tenth of the neurons makes {share:.0f} % of the loudness.",
            f"  最响的十分之一神经元占了总响度的 {share:.0f} %。",
        )
    )
    return met


def the_detectors(opened: Opened, n: int, ids: list[int], met: np.ndarray) -> None:
    """Where in the text the strongest detectors fire, and what they push there."""
    heading(
        "8.3",
        say(
            f"what a detector fires on: its {CONTEXTS} strongest contexts",
            f"探测器在哪里响：最强的 {CONTEXTS} 处上文",
        ),
    )
    words = labels(opened.tokenizer, ids)
    W_2 = opened.model.params[f"h.{n}.mlp.c_proj.weight"]
    all_pushes = pushes(opened.model, W_2)  # [F, V]
    peak, usual = met[1:].max(axis=0), np.sqrt(np.square(met[1:]).mean(axis=0))
    loud = np.where(peak > 5 * usual, peak * np.linalg.norm(W_2, axis=1), 0)  # quiet elsewhere
    for j in np.argsort(-loud)[:STRONGEST]:
        places = np.argsort(-met[1:, j])[:CONTEXTS] + 1
        contexts = ("".join(words[max(0, t - 2) : t + 1]) for t in places)
        tokens = labels(opened.tokenizer, np.argsort(-all_pushes[j])[:5].tolist())
        print(
            say(f"  neuron {j:5}   fires on   ", f"  神经元 {j:5}   响于   ") + "   ".join(contexts)
        )
        print(say("                 pushes     ", "                 推向   ") + "  ".join(tokens))

    meets_its_word(opened, ids, met, all_pushes)


def meets_its_word(opened: Opened, ids: list[int], met: np.ndarray, pushed: np.ndarray) -> None:
    """Each detector where it fires most: does it push the token that really came next?"""
    came = np.array(ids)[met[1:-1].argmax(axis=0) + 2]
    in_top_tenth = pushed > np.quantile(pushed, 0.9, axis=1, keepdims=True)
    all_neurons = np.arange(len(pushed))
    hits = [in_top_tenth[all_neurons, token] for token in (came, np.roll(came, 1))]
    own, other = (100 * hit.mean() for hit in hits)
    text = say(
        f"{own:.0f} % have what came next in the tenth they push most; {other:.0f} % another's",
        f"{own:.0f} % 的神经元，最推的一成 token 里有真正的下一个；换成别处的下一个：{other:.0f} %",
    )
    if opened.trained:
        claim(text, own > 1.3 * other)
    else:
        print(f"  {text}")


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__, STORY)
    parser.add_argument(
        "--block",
        type=int,
        help=say("which block's neurons (the last)", "看第几层的神经元（默认最后一层）"),
    )
    args = parser.parse_args(argv)
    opened = open_model(args.model)
    n = opened.model.config.n_layer - 1 if args.block is None else args.block
    ids = opened.tokenizer.encode(args.text)[-TOKENS:]
    if len(ids) <= CONTEXTS:
        raise ValueError(f"the text has {len(ids)} tokens, too few for {CONTEXTS} contexts.")
    read = opened.model.forward(ids).saved.blocks[n].mlp.c_fc[0]  # what the FFN reads [T, d]
    met = the_answers(opened, n, ids, read)
    the_detectors(opened, n, ids, met)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch08_neurons.py", main))
