"""Wrong wiring in another implementation is found where it happens, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.layers.self_attention import self_attention_forward
from npgpt.models.common import Pass, of
from npgpt.models.gpt2 import model as gpt2_model
from npgpt.ops.layer_norm import layer_norm_forward
from tests.compare.ports import port, report, stations_of


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_mask_off_by_one(gpt2, tmp_path, monkeypatch, shift):
    """A token that does not see itself, or sees the next one."""
    with monkeypatch.context() as patch:
        wrong = lambda T, S, *_: np.tri(T, S, shift, dtype=bool)  # noqa: E731
        patch.setattr("npgpt.ops.mask.attention_mask_for", wrong)
        other = stations_of(port(gpt2))
    found = report(tmp_path, other)
    assert (found["code"], found["first_beyond"]) == (1, "h.0.attn.probs")


def test_the_last_norm_forgotten(gpt2, tmp_path, monkeypatch):
    model = port(gpt2)

    def all_but_the_last(x: np.ndarray, weight: np.ndarray, *rest: Any, **options: Any) -> Any:
        if weight is model.params["ln_f.weight"]:
            return x, None
        return layer_norm_forward(x, weight, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(gpt2_model, "layer_norm_forward", all_but_the_last)
        other = stations_of(model)
    assert report(tmp_path, other)["first_beyond"] == "ln_f"


def test_norms_behind_the_residual(gpt2, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(gpt2_model, "block_forward", post_norm_block)
        other = stations_of(port(gpt2))
    assert report(tmp_path, other)["first_beyond"] == "h.0.attn.probs"


def test_a_residual_forgotten(gpt2, tmp_path):
    """Where only the sum is wrong, the sublayers before it agree."""
    other = stations_of(port(gpt2))
    other["h.1"] = other["h.1"] - other["h.1.attn"]
    assert report(tmp_path, other)["first_beyond"] == "h.1"


def test_targets_not_shifted(gpt2, tmp_path):
    other = stations_of(port(gpt2), gradients=True)
    other["loss"] = other["loss"] * 6 / 7  # a mean over T positions instead of T - 1
    found = report(tmp_path, other, "--gradients")
    assert (found["first_beyond"], found["first_gradient_beyond"]) == ("loss", None)


def test_a_fault_of_the_backward_pass_alone(gpt2, tmp_path):
    """The gradient loses a tenth on its way into the attention of block 1."""
    other = stations_of(port(gpt2), gradients=True)
    upstream = ("w", "h.0.", "h.1.ln_1", "h.1.attn")
    for name in other:
        if name.removeprefix("grad.").startswith(upstream) and name.startswith("grad."):
            other[name] = 0.9 * other[name]
    found = report(tmp_path, other, "--gradients")
    assert (found["code"], found["first_beyond"]) == (1, None)
    assert found["first_gradient_beyond"] == "grad.h.1.attn.c_proj.bias"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_tied_embedding_without_the_gradient_of_the_head(gpt2, tmp_path, dtype):
    other = stations_of(port(gpt2, dtype=dtype), gradients=True)
    untied = port(gpt2, dtype=dtype, tie_word_embeddings=False)
    untied.params["lm_head.weight"] = untied.params["wte.weight"]
    other["grad.wte.weight"] = stations_of(untied, gradients=True)["grad.wte.weight"]
    found = report(tmp_path, other, "--gradients", "--dtype", dtype)
    assert found["first_gradient_beyond"] == "grad.wte.weight"
    rows = found["gradients"]
    assert rows[0]["station"] == "grad.wte.weight"  # the worst stands first
    assert [row["verdict"] for row in rows] == ["beyond"] + ["ok"] * (len(rows) - 1)


def post_norm_block(
    x: np.ndarray, params: Any, n: int, config: Any, mask: Any, run: Pass, _: Any
) -> tuple[np.ndarray, None]:
    """A block of the first Transformer: x = LN(x + sublayer(x))."""
    h, eps = f"h.{n}", config.layer_norm_epsilon
    attn = of(params, f"{h}.attn.c_attn", f"{h}.attn.c_proj")
    correction, saved = self_attention_forward(x, *attn, n_head=3, divisor=4.0, mask=mask)
    run.station(f"{h}.attn.probs", saved.probs)
    run.station(f"{h}.attn", correction)
    x, _ = layer_norm_forward(x + correction, *of(params, f"{h}.ln_1"), eps=eps)
    mlp = of(params, f"{h}.mlp.c_fc", f"{h}.mlp.c_proj")
    correction, _ = feed_forward_forward(x, *mlp, activation="gelu_new")
    run.station(f"{h}.mlp", correction)
    x, _ = layer_norm_forward(x + correction, *of(params, f"{h}.ln_2"), eps=eps)
    run.station(h, x)
    return x, None
