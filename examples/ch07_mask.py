"""Why a token sees only what is left of it (article 7.5).

Shows that a later token changes no earlier output, that T predictions from one pass are T separate
predictions, and what a model could do if it were allowed to look ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from any_model import open_model, options
from show import claim, heading, matrices, moved, table
from toy import CAUSAL, EVERYTHING, NAMES, X, six_steps

from npgpt.cli import run
from npgpt.layers.attention import attention_forward
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.mask import causal_mask


def toy() -> None:
    """Change t2 of the toy model, with and without mask."""
    heading("7.5", "the toy model: change t2 and look at the others' outputs")
    other = X.copy()
    other[2] = [5, -3, 2, 1]
    for name, mask in (("with the mask", CAUSAL), ("without", EVERYTHING)):
        before, after = six_steps(mask), six_steps(mask, x=other)
        matrices((f"{name}: out", before), ("out after", after), rows=NAMES)
        changed = moved(before, after)
        expected = [False, False, True] if mask is CAUSAL else [True, True, True]
        claim(f"changed: {table(changed[None])[0]}", changed.tolist() == expected)


def all_at_once(model: GPT2, ids: np.ndarray) -> None:
    """One pass over T tokens is T passes over 1, 2, …, T tokens."""
    T = len(ids) - 1
    heading("7.5", f"training: {T} predictions from one pass, as if each had only its past")
    logits = model(ids[:-1])
    separate = np.stack([model(ids[: t + 1])[-1] for t in range(T)])
    apart = np.abs(logits - separate).max() / np.abs(logits).max()
    claim(
        f"logits of one pass and of {T} passes differ by {apart:.0e} of their scale", apart < 1e-4
    )
    loss, _ = cross_entropy_forward(logits, ids[1:])
    losses = [float(cross_entropy_forward(separate[t], ids[t + 1])[0]) for t in range(T)]
    claim(
        f"the loss {loss:.4f} is the mean of the {T} separate losses",
        np.isclose(loss, np.mean(losses), rtol=1e-5),
    )
    changed = ids.copy()
    changed[-1] = (ids[-1] + 1) % model.config.vocab_size
    claim(
        "a different last token changes no logit before it",
        np.array_equal(model(ids)[:-1], model(changed)[:-1]),
    )


def looking_ahead() -> None:
    """Without mask, position i can fetch token i + 1 and hand it out as its prediction."""
    heading(
        "7.5", "why it is forbidden: whoever may look ahead copies the answer and learns nothing"
    )
    T = 6
    words = np.random.default_rng(0).permutation(T + 1)
    v = np.eye(T + 1)[words]  # what each of the T + 1 tokens is
    k = np.eye(T + 2)[: T + 1]  # "I stand at j"
    q = np.eye(T + 2)[1 : T + 2]  # "who stands at i + 1?"
    for name, mask in (
        ("without mask", np.ones((T + 1, T + 1), bool)),
        ("with", causal_mask(T + 1, T + 1)),
    ):
        out, _ = attention_forward(q, k, v, divisor=0.01, mask=mask)
        loss, _ = cross_entropy_forward(20 * out[:-1], words[1:])
        right = out[:-1].argmax(axis=-1) == words[1:]
        claim(
            f"the copier {name}: {right.sum()} of {T} right, loss {loss:.2f}",
            right.all() == (name == "without mask"),
        )


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    toy()
    print(f"\n{name} reads {args.text!r}", end="")
    all_at_once(model, np.array(tokenizer.encode(args.text)))
    looking_ahead()
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_mask.py", main))
