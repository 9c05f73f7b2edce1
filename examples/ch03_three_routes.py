"""Three routes from one block: encoder-only, decoder-only, encoder-decoder (article chapters 3, 4).

The block is GPT-2's own, under different masks and with different targets. Leaves out what these
models were trained on.
"""

from __future__ import annotations

import numpy as np
from any_model import random_model
from show import claim, heading, moved, table

from npgpt.cli import left
from npgpt.models.common import Pass
from npgpt.models.gpt2.model import block_forward
from npgpt.ops.cross_entropy import IGNORE_INDEX, cross_entropy_backward, cross_entropy_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.lookup import lookup_forward
from npgpt.ops.mask import causal_mask

T, S = 5, 6
CAUSAL, EVERYTHING = causal_mask(T, T), np.ones((T, T), bool)
model = random_model()


def read(ids: list[int], mask: np.ndarray) -> np.ndarray:
    """Logits [T, V] after one block that looks through `mask`."""
    x, _ = lookup_forward(np.array(ids), model.params["wte.weight"])
    x, _ = block_forward(x, model.params, 0, model.config, mask, Pass())
    return lm_head_forward(x, model.params["wte.weight"])[0]


def side_by_side(*named: tuple[str, np.ndarray]) -> None:
    """Masks beside each other: the position of a row may look at the columns with ■."""
    height = max(len(mask) for _, mask in named)
    columns = [[name, *table(mask), *[""] * (height - len(mask))] for name, mask in named]
    for line in zip(*columns, strict=True):
        print("  " + "".join(left(text, 32) for text in line).rstrip())


heading("3", "what a position may see")
side_by_side(("encoder-only (BERT)", EVERYTHING), ("decoder-only (GPT)", CAUSAL))
print("\n  encoder-decoder (2017, T5, BART): source of 6 tokens, target of 5")
at_the_source = np.ones((T, S), bool)
side_by_side(
    ("encoder, at itself", np.ones((S, S), bool)),
    ("decoder, at itself", CAUSAL),
    ("decoder, at the encoder", at_the_source),
)

heading("3", "one block, two masks: change token 3 of 5")
text, other = [1, 2, 3, 4, 5], [1, 2, 3, 9, 5]
for name, mask, wanted in (
    ("encoder-only: every position notices", EVERYTHING, [True] * 5),
    ("decoder-only: those before it do not", CAUSAL, [False, False, False, True, True]),
):
    changed = moved(read(text, mask), read(other, mask))
    claim(f"{left(name, 44)}{table(changed[None])[0]}", changed.tolist() == wanted)

heading("3", "one loss, different targets: the text is The cat sat on the")
MASK, NONE = 0, IGNORE_INDEX
print("  encoder-only     reads  The [MASK] sat on the    is asked for  cat at the mask")
print("  decoder-only     reads  The cat sat on the       is asked for  cat sat on the mat")
print(
    "  encoder-decoder  reads  The cat sat on the, and <s> 猫 坐着;  is asked for  猫 坐着 </s>\n"
)
for name, ids, mask, targets in (
    ("encoder-only: the masked token", [1, MASK, 3, 4, 1], EVERYTHING, [NONE, 2, NONE, NONE, NONE]),
    ("decoder-only: the next token, T losses", [1, 2, 3, 4, 1], CAUSAL, [2, 3, 4, 1, 5]),
):
    loss, saved = cross_entropy_forward(read(ids, mask), np.array(targets))
    asked = (cross_entropy_backward(1.0, saved) != 0).any(axis=-1)
    what = f"{left(name, 44)}{table(asked[None])[0]}   loss {loss:.2f}"
    claim(what, (asked == (np.array(targets) != NONE)).all())

heading("4", "why decoder-only: what was a source becomes the front of the text")
source, target = [11, 12, 13], [21, 22, 23]
before = read([*source, *target][:T], CAUSAL)
after = read([10, *source[1:], *target][:T], CAUSAL)
claim(
    "change the first token of the prompt: every later position notices, without an encoder",
    moved(before, after).all(),
)
once = read(text, CAUSAL)
each = [read(text[: t + 1], causal_mask(t + 1, t + 1))[-1] for t in range(T)]
claim(
    "one pass trains all T positions: row t equals a pass over t + 1 tokens",
    np.allclose(once, each),
)
