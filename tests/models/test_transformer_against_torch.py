"""The model of 2017 against torch.nn.Transformer, whose layers are post-norm as well."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npgpt.models.transformer.checkpoint import LAYOUT
from npgpt.ops.sinusoids import sinusoids
from tests.builders.transformer import random_transformer
from tests.gradcheck import check_close

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

ATTENTIONS = {"self_attn": "self_attn", "encoder_attn": "multihead_attn"}
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def torch_stack(side: str, model: Any, params: dict[str, Any]) -> Any:
    """A TransformerEncoder or TransformerDecoder whose parameters are views of ours, without the
    norm that torch puts behind the last layer."""
    import torch

    config = model.config
    kind = side.capitalize()
    layer = getattr(torch.nn, f"Transformer{kind}Layer")(
        config.d_model,
        getattr(config, f"{side}_attention_heads"),
        getattr(config, f"{side}_ffn_dim"),
        dropout=0.0,
        activation=config.activation_function,
        batch_first=True,
        dtype=torch.float64,
    )
    n_layers = getattr(config, f"{side}_layers")
    plain = {"enable_nested_tensor": False} if side == "encoder" else {}
    stack = getattr(torch.nn, f"Transformer{kind}")(layer, n_layers, **plain)

    def ours(name: str) -> Any:
        return params[name].T if LAYOUT.is_matrix(name) else params[name]

    def call(*inputs: Any, **masks: Any) -> Any:
        values = {}
        for n in range(n_layers):
            mine, theirs = f"{side}.layers.{n}.", f"layers.{n}."
            for attention in list(ATTENTIONS)[: 1 if side == "encoder" else 2]:
                for part in ("weight", "bias"):
                    three = [ours(f"{mine}{attention}.{p}_proj.{part}") for p in "qkv"]
                    name = f"{theirs}{ATTENTIONS[attention]}."
                    values[f"{name}in_proj_{part}"] = torch.cat(three)
                    values[f"{name}out_proj.{part}"] = ours(f"{mine}{attention}.out_proj.{part}")
            for part in ("weight", "bias"):
                for i, norm in enumerate(NORMS[side]):
                    values[f"{theirs}norm{i + 1}.{part}"] = ours(f"{mine}{norm}.{part}")
                for i in (1, 2):
                    values[f"{theirs}linear{i}.{part}"] = ours(f"{mine}fc{i}.{part}")
        return torch.func.functional_call(stack, values, inputs, masks)

    return call


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_logits_and_every_gradient(rng, activation) -> None:
    import torch

    model = random_transformer(rng, activation_function=activation, pad_token_id=None)
    d = model.config.d_model
    ids, targets = rng.integers(0, 18, (3, 7)), rng.integers(0, 18, (3, 5))
    real = np.arange(7) < np.array([7, 4, 2])[:, None]
    logits, saved = model.forward(ids, targets, real)
    dlogits = rng.standard_normal(logits.shape)
    grads = model.backward(dlogits, saved)

    params = {n: torch.tensor(p, requires_grad=True) for n, p in model.params.items()}
    encoder, decoder = (torch_stack(side, model, params) for side in ("encoder", "decoder"))
    table, padding = params["shared.weight"], torch.tensor(~real)
    source, target = (
        table[torch.tensor(x)] * math.sqrt(d) + torch.tensor(sinusoids(np.arange(x.shape[1]), d))
        for x in (ids, targets)
    )
    memory = encoder(source, src_key_padding_mask=padding)
    causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    x = decoder(target, memory, tgt_mask=causal, memory_key_padding_mask=padding)
    want = x @ table.T
    want.backward(torch.tensor(dlogits))

    wanted = {name: param.grad.numpy() for name, param in params.items()}
    check_close({"logits": logits, **grads}, {"logits": want.detach().numpy(), **wanted}, 1e-12)
