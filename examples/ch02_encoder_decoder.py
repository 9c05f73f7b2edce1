"""The encoder-decoder of 2017, put together from npgpt's operations (article chapters 2 and 4).

One layer of each side with random weights (encoder_decoder.py). Shows where Q, K and V of
cross-attention come from and who sees whom. Leaves out translation itself.
"""

from __future__ import annotations

import numpy as np
from encoder_decoder import (
    D,
    F,
    H,
    N,
    attention,
    decoder_layer,
    draw_layer,
    encoder_layer,
    sinusoids,
)
from show import check, claim, heading, moved, table

from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.mask import causal_mask

S, T = 6, 5
rng = np.random.default_rng(0)
encoder, decoder = draw_layer(rng, cross=False), draw_layer(rng, cross=True)
source = rng.normal(size=(S, D)) + sinusoids(S)
target = rng.normal(size=(T, D)) + sinusoids(T)
other_source, other_target = source.copy(), target.copy()
other_source[2], other_target[2] = rng.normal(size=(2, D))

heading("2", "the base model: 6 encoder and 6 decoder layers")
counts = {name: sum(a.size for a in part) for name, part in decoder.items()}
norm = 2 * D
encoder_size = counts["self"] + counts["ffn"] + 2 * norm
decoder_size = encoder_size + counts["cross"] + norm
check("N, layers on each side", N, "6")
check("d_model", D, "512")
check("heads, of 64 numbers each", H, "8")
check("d_ff", F, "2048")
check("parameters of an encoder layer", encoder_size, "3,152,384")
check("parameters of a decoder layer: one attention and one norm more", decoder_size, "4,204,032")
check("all layers, tables not counted", N * (encoder_size + decoder_size), "44,138,496")

heading("2", "encoder: bidirectional, every position sees the whole source")
memory = encoder_layer(source, encoder)
other_memory = encoder_layer(other_source, encoder)
claim(f"shape stays [S, d] = {[S, D]}", memory.shape == source.shape)
changed = moved(memory, other_memory)
claim(f"change source token 2:   rows of the encoder   {table(changed[None])[0]}", changed.all())

heading("2", "decoder: causal self-attention, cross-attention, FFN; each followed by Add & Norm")
out = decoder_layer(target, memory, decoder)
changed = moved(out, decoder_layer(other_target, memory, decoder))
claim(
    f"change target token 2:   rows of the decoder   {table(changed[None])[0]}",
    (changed == (np.arange(T) >= 2)).all(),
)
changed = moved(out, decoder_layer(target, other_memory, decoder))
claim(f"change source token 2:   rows of the decoder   {table(changed[None])[0]}", changed.all())
claim(
    "Add & Norm: every row leaves with mean 0 and variance 1",
    np.allclose(out.mean(axis=-1), 0) and np.allclose(out.var(axis=-1), 1, atol=1e-3),
)

heading("2", "cross-attention: Q comes from the decoder, K and V from the encoder's output")
everything = np.ones((T, S), bool)
crossed = attention(target, memory, decoder["cross"], everything)
claim(
    f"Q [T, d] = {[T, D]}, K and V [S, d] = {[S, D]}: the result is as long as the target",
    crossed.shape == (T, D),
)
claim(
    "a target row changes its own result only: rows do not see each other here",
    moved(crossed, attention(other_target, memory, decoder["cross"], everything)).sum() == 1,
)
claim(
    "a change of the source reaches every row",
    moved(crossed, attention(target, other_memory, decoder["cross"], everything)).all(),
)

heading("2", "against GPT-2, four differences")
shapes = param_shapes(GPT2Config())
claim(
    "mask: everything for an encoder; the lower triangle for every layer of GPT-2",
    moved(memory, other_memory).all() and not np.triu(causal_mask(T, T), 1).any(),
)
claim("cross-attention: GPT-2 has no parameter for it", not any("cross" in name for name in shapes))
claim(
    "positions: fixed sines here, no parameters; a learned table [1024, 768] there",
    shapes["wpe.weight"] == (1024, 768) and sinusoids(5000).shape == (5000, D),
)
stream = target + attention(target, target, decoder["self"], causal_mask(T, T))
claim(
    "norm: after the sum here; before the sublayer there, so that the sum itself stays unnormed",
    stream.var() > 1.5,
)

heading("4", "all T losses of the target come from one pass, here too")
prefixes = [decoder_layer(target[: t + 1], memory, decoder)[-1] for t in range(T)]
claim(
    "row t of one pass over the target = last row of a pass over its first t + 1 tokens",
    np.allclose(out, prefixes, rtol=1e-12, atol=1e-12),
)
