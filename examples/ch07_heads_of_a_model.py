"""What the heads of a model do, and how little one of them is missed (article 7.6).

Nothing but their start makes heads differ. Counts the heads that put most of their weight on the
first token, then switches off each in turn. Leaves out retraining after a cut.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import numpy as np
from any_model import open_model, options, random_model
from show import claim, heading

from npgpt.cli import run
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward

FABLE = (
    "A Crow, half-dead with thirst, came upon a Pitcher which had once been full of water; but "
    "when the Crow put its beak into the mouth of the Pitcher he found that only very little water "
    "was left in it, and that he could not reach far enough down to get at it. He tried, and he "
    "tried, but at last had to give up in despair."
)


def born_equal() -> None:
    """Two heads with the same weights get the same gradients, so they would stay the same."""
    heading("7.6", "nothing makes heads differ but their start")
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
    claim("head 1 a copy of head 0: their gradients are equal, so they never part", twins)
    claim("head 2, drawn on its own, gets another", not np.allclose(dqkv[:, :, 0], dqkv[:, :, 2]))


def weight_on_first(model: GPT2, ids: np.ndarray) -> np.ndarray:
    """Mean weight that each head puts on the first token, the first row left out: [L, H]."""
    blocks = model.forward(ids).saved.blocks
    return np.array([block.attn.probs[:, 1:, 0].mean(axis=-1) for block in blocks])


def loss_without(model: GPT2, ids: np.ndarray, layer: int, heads: Collection[int]) -> float:
    """The loss when some heads of a block are switched off: their rows of W_O are 0."""
    d, H = model.config.n_embd, model.config.n_head
    name = f"h.{layer}.attn.c_proj.weight"
    silenced = model.params[name].reshape(H, d // H, d).copy()
    silenced[list(heads)] = 0
    smaller = GPT2(model.config, {**model.params, name: silenced.reshape(d, d)})
    return float(cross_entropy_forward(smaller(ids[:-1]), ids[1:])[0])


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
    L, H = model.config.n_layer, model.config.n_head
    heading("7.6", f"weight on the first token, mean over {len(ids)} tokens: {name}")
    first = weight_on_first(model, ids)
    grid(first, "7.2f")
    print(f"  {(first > 0.5).sum()} of {L * H} heads put most of their weight on the first token")

    heading("7.6", "loss when one head is switched off, minus the loss of the whole model")
    whole = loss_without(model, ids, 0, ())
    change = np.array(
        [[loss_without(model, ids, n, [h]) - whole for h in range(H)] for n in range(L)]
    )
    grid(change, "+7.3f")
    small = np.abs(change) < 0.01 * whole
    print(f"  whole model: {whole:.3f}; {small.sum()} of {L * H} heads change it by less than 1 %")
    claim("every head changes something", (change != 0).all())

    heading("7.6", "loss when all heads of a block but the one missed most are switched off")
    for n in range(L):
        others = [h for h in range(H) if h != change[n].argmax()]
        loss = loss_without(model, ids, n, others)
        change_by = 100 * (loss / whole - 1)
        print(f"  block {n:2}   without {H - 1} of {H} heads: {loss:.3f}   {change_by:+5.1f} %")
    if trained:
        claim("most heads are dispensable one at a time", small.mean() > 0.5)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_heads_of_a_model.py", main))
