"""What npgpt and transformers make of a text in float64, for one_page.py to be held against.

Each gives the loss, the logits, and every gradient under its parameter's name, for a model that
reads all ids but the last and predicts all but the first.
"""

from __future__ import annotations

import numpy as np
from show import claim, say

from npgpt.compare.reference import hf_stations
from npgpt.models.gpt2.model import GPT2

TOLERANCE = 1e-12  # relative to the largest number of an array
Found = dict[str, np.ndarray]


def in_float64(model: GPT2) -> GPT2:
    """The same model; ValueError unless it computes as the GPT-2s that OpenAI published."""
    config = model.config
    scales = (config.scale_attn_weights, config.scale_attn_by_inverse_layer_idx)
    if config.activation_function != "gelu_new" or scales != (True, False):
        raise ValueError(
            "one_page.py knows the activation gelu_new and scores divided by √d_h, but the model's "
            "config.json asks for something else."
        )
    twin = GPT2(config, {name: array.astype(np.float64) for name, array in model.params.items()})
    twin.source = model.source
    return twin


def of_npgpt(model: GPT2, ids: np.ndarray) -> Found:
    """By the passes that generate and train."""
    loss, grads = model.loss_and_grads(ids[:-1], ids[1:])
    return {"loss": np.asarray(loss), "logits": model(ids[:-1]), **grads}


def of_transformers(model: GPT2, ids: np.ndarray) -> Found | None:
    """With eager attention; None, and a remark, where there is no file or no transformers."""
    if model.source is None:
        print(say("  transformers: has no random model", "  transformers：没有随机模型的文件"))
        return None
    try:
        stations = hf_stations(model.source, ids, dtype="float64", gradients=True).arrays
    except ImportError:
        print(say("  transformers: not installed", "  transformers：没有安装"))
        return None
    grads = {name: np.asarray(stations[f"grad.{name}"]) for name in model.params}
    logits = np.asarray(stations["logits"])[:-1]  # it has read the last id, too
    return {"loss": np.asarray(stations["loss"]), "logits": logits, **grads}


def compare(who: str, found: Found, expected: Found) -> None:
    """Print the largest differences; AssertionError beyond the tolerance."""
    apart = {
        name: float(np.abs(found[name] - array).max() / np.abs(array).max())
        for name, array in expected.items()
    }
    values = [apart.pop("loss"), apart.pop("logits")]
    english = f"{who}: loss and logits at most {max(values):.0e} apart, relative to the largest"
    chinese = f"{who}：loss 与 logits 最多相差 {max(values):.0e}（相对于最大的数）"
    claim(say(english, chinese), all(value <= TOLERANCE for value in values))

    worst = max(apart, key=lambda name: apart[name])
    english = f"{who}: all {len(apart)} gradients at most {apart[worst]:.0e} apart ({worst})"
    chinese = f"{who}：全部 {len(apart)} 个梯度最多相差 {apart[worst]:.0e}（{worst}）"
    claim(say(english, chinese), all(value <= TOLERANCE for value in apart.values()))
