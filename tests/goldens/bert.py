"""Random BERTs of transformers, and what is computed of them."""

from __future__ import annotations

from contextlib import nullcontext as in_float64
from typing import Any

import numpy as np

from npgpt.models.bert.config import BERTConfig as CONFIG
from npgpt.models.bert.families import family_of
from npgpt.models.bert.model import BERT as MODEL
from tests.goldens.common import array, loss_of, real_positions, under_grad

__all__ = ["CONFIG", "MODEL", "in_float64"]

REAL = None
WORDS = "embeddings.word_embeddings.weight"  # which a class may list as the head's, where tied
CONTEXT = ("ids", "attention_mask", "token_type_ids")
# name -> options with the class of transformers, lengths of the rows, the side that is padded
CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "masked": (
        {
            "vocab_size": 19,
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 14,
            "max_position_embeddings": 11,
        },
        [8, 3, 5],
        "right",
    ),
    "untied": (
        {
            "vocab_size": 17,
            "hidden_size": 10,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 9,
            "max_position_embeddings": 7,
            "type_vocab_size": 3,
            "hidden_act": "silu",
            "layer_norm_eps": 1e-3,
            "tie_word_embeddings": False,
        },
        [4, 7],
        "left",
    ),
    "pooled": (
        {
            "kind": "BertModel",
            "vocab_size": 13,
            "hidden_size": 8,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 11,
            "max_position_embeddings": 6,
            "hidden_act": "gelu_new",
            "pad_token_id": None,
        },
        [6, 4],
        "right",
    ),
}


def reference_model(options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random model with the scales of a trained one: BertForMaskedLM, or options["kind"].

    options["model_type"] makes one of BERT's relatives; sizes have BERT's names all the same.
    Biases and gains are off their 0 and 1, some LayerNorm gains are 3, some rows 20 times larger.
    """
    import torch
    import transformers

    options = {"model_type": "bert", **options}
    family = family_of(options["model_type"])
    kind = options.pop("kind", f"{family.cls}ForMaskedLM")
    options = {family.renamed.get(name, name): value for name, value in options.items()}
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(**options, attn_implementation="eager")
    model = getattr(transformers, kind)(config).double().eval()
    for name, param in model.named_parameters():
        if param.ndim == 1:
            param.data += 0.1 * torch.randn_like(param)
        else:
            param.data[1::6] *= 20
        if name.lower().endswith("norm.weight"):
            param.data[::5] = 3
    return model.to(getattr(torch, dtype))


def random_input(
    options: dict[str, Any], lengths: list[int], side: str, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """ids, token_type_ids, attention_mask and targets [B, T], or upstream gradients of the outputs.

    Where the configuration has a padding token (0 unless it says None), it stands in the padding
    and nowhere else, and has no target: transformers never gives its row a gradient. Otherwise all
    ids stand anywhere, and the padding has upstream gradients too.
    """
    real = real_positions(lengths, side)
    shape, d = real.shape, options["hidden_size"]
    ids = rng.integers(1, options["vocab_size"], shape)
    dhidden = rng.standard_normal((*shape, d))
    family = family_of(options.get("model_type", "bert"))
    padding = options.get("pad_token_id", family.defaults.get("pad_token_id", 0))
    if padding is None:
        ids -= 1
    else:
        ids[ids == padding] = 0 if padding else 1
        ids[~real], dhidden[~real] = padding, 0
    hidden = real & (rng.random(shape) < 0.4)
    hidden[0, -1 if side == "left" else 0] = True  # one target there is in any case
    given: dict[str, np.ndarray] = {
        "ids": ids,
        "token_type_ids": rng.integers(0, options.get("type_vocab_size", 2), shape),
        "attention_mask": real.astype(np.int64),
    }
    if not family.has_types:
        del given["token_type_ids"]
    targets = np.where(hidden, rng.integers(0, options["vocab_size"], shape), -100)
    if options.get("kind", "").endswith("Model"):
        given["dhidden"] = dhidden
        return given | ({"dpooled": rng.standard_normal((len(ids), d))} if family.pooler else {})
    return {**given, "targets": targets}


def reference_outputs(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """BertForMaskedLM: `logits` and `loss`. BertModel: `hidden` and `pooled`.

    Afterwards its parameters have the gradients of the loss, or of both outputs together.
    """
    import torch

    model.zero_grad()
    context = {name: torch.tensor(given[name]) for name in CONTEXT if name in given}
    out = model(context.pop("ids"), **context)
    if hasattr(out, "logits"):
        loss = loss_of(out.logits, given["targets"])
        loss.backward()
        outputs = {"logits": out.logits, "loss": loss}
    else:
        outputs = {"hidden": out.last_hidden_state, "pooled": out.get("pooler_output")}
        outputs = {name: output for name, output in outputs.items() if f"d{name}" in given}
        upstream = [torch.tensor(given[f"d{name}"]).to(model.dtype) for name in outputs]
        torch.autograd.backward([*outputs.values()], upstream)
    return {name: output.detach().numpy() for name, output in outputs.items()}


def reference_params(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """The parameters or their gradients under npgpt's names, a Linear's weight [in, out]."""
    import torch

    family = family_of(model.config.model_type)
    bias, decoder = family.bias, family.decoder
    untied = bias != f"{decoder}.bias" in dict(model.named_parameters())
    tied = model.config.tie_word_embeddings
    found = {}
    for name, param in model.named_parameters():
        if name == bias and untied:
            continue  # without effect: the decoder has a bias of its own
        value = array(param, gradients)
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, torch.nn.Linear) and name != decoder + ".weight":
            value = value.T  # a bias stays as it is
        name = name.removeprefix(family.prefix).replace(decoder + ".bias", bias)
        found[WORDS if tied and name == decoder + ".weight" else name] = value
    return found


def computed(
    model: MODEL, given: dict[str, np.ndarray], rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """The same outputs by npgpt, and `grad.NAME` of every parameter."""
    context: dict[str, Any] = {name: given[name] for name in CONTEXT if name in given}
    out = model.forward(**context)
    if "targets" in given:
        loss, grads = model.loss_and_grads(targets=given["targets"], rng=rng, **context)
        return {"logits": out.logits, "loss": loss, **under_grad(grads)}
    upstream: dict[str, Any] = {
        name: given[name].astype(out.hidden.dtype)
        for name in ("dhidden", "dpooled")
        if name in given
    }
    grads = model.backward(None, out.saved, **upstream)
    outputs = {name.removeprefix("d"): getattr(out, name.removeprefix("d")) for name in upstream}
    return {**outputs, **under_grad(grads)}
