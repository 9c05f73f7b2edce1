"""Why decoder-only, and what it does not have alone: one pass trains all positions (chapter 4).

Where the gradient of one position goes, along each route; a source that stands in front of the text
instead of in an encoder. The weights are random (one_sentence.py).
"""

from __future__ import annotations

import numpy as np
from encoder_decoder import decoder_layer, encoder_layer
from one_sentence import (
    CAUSAL,
    CHINESE,
    EVERYTHING,
    HIDDEN,
    SENTENCE,
    SHIFTED,
    T,
    embed,
    model,
    notice,
    one_text,
    two_texts,
)
from show import claim, heading, moved, say

from npgpt.models.common import Pass
from npgpt.models.transformer.layers import decoder_layer_backward, encoder_layer_backward
from npgpt.models.transformer.stacks import cross_backward, cross_forward
from npgpt.ops.mask import causal_mask

heading(
    "4",
    say(
        "the way back: where the gradient of the third position goes",
        "反向：第三个位置的梯度流到哪里",
    ),
)
d_third = np.zeros((T, model.config.d_model))
d_third[2] = np.random.default_rng(0).normal(size=model.config.d_model)
for what, text, mask, wanted in (
    (say("encoder-only", "encoder-only：处处"), HIDDEN, EVERYTHING, "■ ■ ■ ■ ■ ■"),
    (say("decoder-only", "decoder-only：它和左边的"), SHIFTED, CAUSAL, "■ ■ ■ · · ·"),
):
    _, of_layer = encoder_layer(model, embed(text), mask)
    notice(what, encoder_layer_backward(d_third, of_layer, 0, {}, Pass()).any(axis=-1), wanted)
source = one_text(SENTENCE, EVERYTHING)
_, of_decoder = decoder_layer(model, embed(CHINESE), source)
dtarget, dcross_kv = decoder_layer_backward(d_third, of_decoder, 0, {}, Pass())
_, keys_values = cross_forward(source, model.params, model.config, Pass())
dsource = cross_backward([dcross_kv], keys_values, {}, Pass())
what = say("encoder-decoder, to the source", "encoder-decoder，流到源句：处处")
notice(what, dsource.any(axis=-1), "■ ■ ■ ■ ■ ■")
what = say("encoder-decoder, to the target", "encoder-decoder，流到目标句：它和左边的")
notice(what, dtarget.any(axis=-1), "■ ■ ■ · · ·")

heading(
    "4",
    say(
        "why decoder-only: what was a source becomes the front of the text",
        "为什么是 decoder-only：源句直接拼在前面",
    ),
)
prompt = "the cat sat <s> 猫 坐"
changed = moved(one_text(prompt, CAUSAL), one_text(prompt.replace("cat", "dog"), CAUSAL))
what = say(f"{prompt}: cat -> dog, without an encoder", f"{prompt}：cat -> dog，不用 encoder")
notice(what, changed, "· ■ ■ ■ ■ ■")
words = SHIFTED.split(), CHINESE.split()
alone = [one_text(" ".join(words[0][: n + 1]), causal_mask(n + 1, n + 1))[-1] for n in range(T)]
claim(
    say(
        "decoder-only: one pass over the text equals six, one for each prefix",
        "decoder-only：整段算一遍，等于每个前缀各算一遍",
    ),
    np.allclose(alone, one_text(SHIFTED, CAUSAL)),
)
alone = [two_texts(SENTENCE, " ".join(words[1][: n + 1]))[-1] for n in range(T)]
claim(
    say(
        "encoder-decoder: one pass over the target equals six, too",
        "encoder-decoder：目标句也一样，不是 decoder-only 独有",
    ),
    np.allclose(alone, two_texts(SENTENCE, CHINESE)),
)
