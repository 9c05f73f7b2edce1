"""Makes the golden values bert-*.safetensors: what transformers computes, in float64.

    python -m tests.goldens.make_bert

Each file holds a small random model (`param.NAME`), its input (`ids`, `token_type_ids`,
`attention_mask`, and `targets` or the upstream gradients `dhidden` and `dpooled`) and what came out
(`logits` and `loss`, or `hidden` and `pooled`, and `grad.NAME`), under npgpt's names and with its
matrices [in, out]; its metadata holds config.json. Needs torch and transformers (extra `hf`); the
test that reads the files does not. The functions also serve the live comparison.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent

# name -> class of transformers, options, lengths of the rows, the side that is padded
CASES: dict[str, tuple[str, dict[str, Any], list[int], str]] = {
    "masked": (
        "BertForMaskedLM",
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
        "BertForMaskedLM",
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
        "BertModel",
        {
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


def reference_model(kind: str, options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random model of that class with the scales of a trained one.

    Biases and gains are off their 0 and 1, some LayerNorm gains are 3, some rows 20 times larger.
    """
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.BertConfig(**options, attn_implementation="eager")
    model = getattr(transformers, kind)(config).double().eval()
    for name, param in model.named_parameters():
        if param.ndim == 1:
            param.data += 0.1 * torch.randn_like(param)
        else:
            param.data[1::6] *= 20
        if name.endswith("LayerNorm.weight"):
            param.data[::5] = 3
    return model.to(getattr(torch, dtype))


def random_input(
    lengths: list[int], side: str, options: dict[str, Any], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """ids, token_type_ids, attention_mask and targets [B, T], upstream gradients of the outputs.

    Where the configuration has a padding token (0 unless it says None), it stands in the padding
    and nowhere else, and nothing is asked of it: transformers gives its row no gradient, come what
    may. Otherwise all ids stand anywhere, and the padding has upstream gradients too.
    """
    shape = B, T = len(lengths), max(lengths)
    d = options["hidden_size"]
    real = np.arange(T) < np.array(lengths)[:, None]
    real = real[:, ::-1] if side == "left" else real
    ids = rng.integers(1, options["vocab_size"], shape)
    dhidden = rng.standard_normal((B, T, d))
    if options.get("pad_token_id", 0) is None:
        ids -= 1
    else:
        ids[~real], dhidden[~real] = 0, 0
    asked = real & (rng.random(shape) < 0.4)
    asked[0, -1 if side == "left" else 0] = True  # one target there is in any case
    return {
        "ids": ids,
        "token_type_ids": rng.integers(0, options.get("type_vocab_size", 2), shape),
        "attention_mask": real.astype(np.int64),
        "targets": np.where(asked, rng.integers(0, options["vocab_size"], shape), -100),
        "dhidden": dhidden,
        "dpooled": rng.standard_normal((B, d)),
    }


def reference_values(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What transformers computes: outputs, and `grad.NAME` of every parameter.

    BertForMaskedLM: `logits`, `loss`, and its gradients. BertModel: `hidden`, `pooled`, and the
    gradients of both together from `dhidden` and `dpooled`.
    """
    import torch

    model.zero_grad()
    out = model(
        torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["attention_mask"]),
        token_type_ids=torch.tensor(given["token_type_ids"]),
    )
    if hasattr(out, "logits"):
        logits, targets = out.logits, torch.tensor(given["targets"]).reshape(-1)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets)
        loss.backward()
        outputs = {"logits": logits, "loss": loss}
    else:
        outputs = {"hidden": out.last_hidden_state, "pooled": out.pooler_output}
        torch.autograd.backward(
            [*outputs.values()],
            [torch.tensor(given[key]).to(model.dtype) for key in ("dhidden", "dpooled")],
        )
    values = {name: output.detach().numpy() for name, output in outputs.items()}
    return values | {f"grad.{name}": grad for name, grad in arrays(model, gradients=True).items()}


def arrays(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """All parameters or their gradients, under npgpt's names, those of a Linear turned."""
    import torch

    bias, decoder = "cls.predictions.bias", "cls.predictions.decoder"
    untied = decoder + ".bias" in dict(model.named_parameters())
    found = {}
    for name, param in model.named_parameters():
        if name == bias and untied:
            continue  # without effect: the decoder has a bias of its own
        array = (param.grad if gradients else param.detach()).numpy().copy()
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, torch.nn.Linear) and name != decoder + ".weight":
            array = array.T  # a bias stays as it is
        found[name.removeprefix("bert.").replace(decoder + ".bias", bias)] = array
    return found


def main() -> None:
    """Write all files."""
    import torch
    from safetensors.numpy import save_file

    torch.set_num_threads(1)  # the order of a sum, and with it the last bit, depends on it
    for seed, (name, (kind, options, lengths, side)) in enumerate(CASES.items()):
        model = reference_model(kind, options, seed)
        given = random_input(lengths, side, options, np.random.default_rng(seed))
        for key in ("dhidden", "dpooled") if kind == "BertForMaskedLM" else ("targets",):
            del given[key]
        tensors = given | {"param." + key: value for key, value in arrays(model).items()}
        tensors |= reference_values(model, given)
        tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
        save_file(tensors, FOLDER / f"bert-{name}.safetensors", {"config": json.dumps(options)})


if __name__ == "__main__":
    main()
