"""The parameters that follow from an encoder-decoder's configuration: names, shapes, fresh ones."""

from __future__ import annotations

import math

import numpy as np

from npgpt.models.transformer.config import TransformerConfig

FIRST_POSITION = 2  # the row of position 0 in BART's tables; the rows before it are never used


def param_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass.

    Names are those of Hugging Face's checkpoint without `model.`; matrices are [in, out], tables
    [V, d]. BART's position tables have two rows more than there are positions.
    """
    d, V = config.d_model, config.target_vocab_size
    shapes: dict[str, tuple[int, ...]] = {config.source_table: (config.vocab_size, d)}
    for side in ("encoder", "decoder"):
        if side == "decoder":
            shapes[config.target_table] = (V, d)
        if config.learned_positions:
            shapes[f"{side}.embed_positions.weight"] = (
                config.max_position_embeddings + FIRST_POSITION,
                d,
            )
            shapes |= _vectors(f"{side}.layernorm_embedding", d)
        for n in range(getattr(config, f"{side}_layers")):
            shapes |= _layer(f"{side}.layers.{n}.", config, side)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (V, d)
    if config.model_type != "transformer":
        shapes["final_logits_bias"] = (1, V)
    return shapes


def _layer(layer: str, config: TransformerConfig, side: str) -> dict[str, tuple[int, ...]]:
    d, F = config.d_model, getattr(config, f"{side}_ffn_dim")
    shapes: dict[str, tuple[int, ...]] = {}
    for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
        for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
            shapes[f"{layer}{attention}.{projection}.weight"] = (d, d)
            shapes[f"{layer}{attention}.{projection}.bias"] = (d,)
        shapes |= _vectors(f"{layer}{attention}_layer_norm", d)
    shapes |= {f"{layer}fc1.weight": (d, F), f"{layer}fc1.bias": (F,)}
    shapes |= {f"{layer}fc2.weight": (F, d), f"{layer}fc2.bias": (d,)}
    return shapes | _vectors(f"{layer}final_layer_norm", d)


def _vectors(name: str, d: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d,), f"{name}.bias": (d,)}


def is_matrix(name: str) -> bool:
    """Whether a parameter is a Linear's matrix, stored [out, in]; tables are not."""
    return ".layers." in name and name.endswith(("proj.weight", "fc1.weight", "fc2.weight"))


def init_params(
    config: TransformerConfig, rng: np.random.Generator, dtype: type[np.floating] = np.float32
) -> dict[str, np.ndarray]:
    """Fresh parameters: biases 0, gains 1, matrices Xavier-uniform, tables N(0, d^-½).

    Post-norm trains from there; with N(0, 0.02²) everywhere, as BART and Marian checkpoints were
    drawn before their training, the first steps are slow in a narrow model.
    """
    params = {}
    for name, shape in param_shapes(config).items():
        if name.endswith("bias"):
            params[name] = np.zeros(shape, dtype)
        elif "norm" in name:
            params[name] = np.ones(shape, dtype)
        elif is_matrix(name):
            bound = math.sqrt(6 / sum(shape))
            params[name] = rng.uniform(-bound, bound, shape).astype(dtype)
        else:
            std = config.d_model**-0.5 if config.scale_embedding else config.init_std
            params[name] = (std * rng.standard_normal(shape)).astype(dtype)
    return params
