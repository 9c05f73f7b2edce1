"""`python -m npgpt.trace` on a Llama against the hidden states and attentions of transformers.

Its modules' outputs are caught by hooks; both in float64, where they agree to rounding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from npgpt.files.safetensors_file import read_tensors
from npgpt.trace import command as trace
from tests.builders.llama import random_llama
from tests.goldens.llama import in_float64

IDS = "84 104 101 32 99 97 116 84 200 7 255"


class Reference(NamedTuple):
    """What transformers says of IDS in float64."""

    streams: list[np.ndarray]  # before each block [T, d]
    tables: list[np.ndarray]  # [H, T, T]
    read: dict[str, np.ndarray]  # what a module was given, and what it returned: [T, …]
    returned: dict[str, np.ndarray]
    lens: list[np.ndarray]  # probabilities after the embedding and after each block [T, V]
    rows: list[np.ndarray]  # of down_proj [F, d]


def reference(folder: Path) -> Reference:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with in_float64():  # its angles are computed when it is made
        config = LlamaConfig.from_pretrained(folder, attn_implementation="eager")
        model = LlamaForCausalLM(config).double()
    tensors = read_tensors(folder / "model.safetensors").items()
    missing, unknown = model.load_state_dict(
        {name: torch.from_numpy(array.astype(np.float64)) for name, array in tensors}, strict=False
    )
    assert (set(missing) <= {"lm_head.weight"}, unknown) == (True, [])
    model.tie_weights()
    read: dict[str, np.ndarray] = {}
    returned: dict[str, np.ndarray] = {}

    def keep(name: str) -> Any:
        def hook(_module: Any, inputs: Any, output: Any) -> None:
            output = output[0] if isinstance(output, tuple) else output
            returned[name] = output[0].numpy()
            read[name] = inputs[0][0].numpy() if inputs else np.zeros(0)

        return hook

    for name, module in model.model.named_modules():
        if name.endswith(("self_attn", "mlp", "down_proj")):
            module.register_forward_hook(keep(name))
    with torch.no_grad(), in_float64():
        ids = torch.tensor([int(i) for i in IDS.split()])[None]
        said = model.eval()(ids, output_hidden_states=True, output_attentions=True)
        *streams, normed = said.hidden_states
        lens = [model.lm_head(x) for x in (*map(model.model.norm, streams), normed)]
        return Reference(
            [x[0].numpy() for x in streams],
            [table[0].numpy() for table in said.attentions],
            read,
            returned,
            [x[0].softmax(-1).numpy() for x in lens],
            [layer.mlp.down_proj.weight.numpy().T for layer in model.model.layers],
        )


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("tied", [False, True])
def test_transformers_says_the_same(rng, tmp_path, capsys, tied):
    model = random_llama(rng, np.float32, tie_word_embeddings=tied, vocab_size=257)
    model.save_pretrained(tmp_path)
    want = reference(tmp_path)
    argv = ["--ids", IDS, "--model", str(tmp_path), "--json", "--top", "10"]
    argv += ["--dtype", "float64", "--position", "9", "--head", "3"]
    for layer in (0, 1):
        assert trace.main([*argv, "--layer", str(layer)]) == 0
        shown = json.loads(capsys.readouterr().out)
        np.testing.assert_allclose(shown["head"]["probs"], want.tables[layer][3], atol=1e-12)
        active = want.read[f"layers.{layer}.mlp.down_proj"][9]
        order = np.argsort(-np.abs(active) * np.linalg.norm(want.rows[layer], axis=1))
        neurons = shown["ffn"]["neurons"]
        assert [n["number"] for n in neurons] == order.tolist()
        assert [n["activation"] for n in neurons] == pytest.approx(active[order], rel=1e-9)
    assert shown["resting_heads"] == sum((t[:, 9, 0] > 0.5).sum() for t in want.tables)
    for c in shown["corrections"]:
        norms = np.linalg.norm(want.returned[c["station"]], axis=-1)
        np.testing.assert_allclose(c["added"], norms, rtol=1e-10)
    for c, stream in zip(shown["corrections"][::2], want.streams, strict=True):
        np.testing.assert_allclose(c["stream"], np.linalg.norm(stream, axis=-1), rtol=1e-10)
    for row, probs in zip(shown["guesses"], want.lens, strict=True):
        p, target = probs[9], shown["target"]["id"]
        assert [t["id"] for t in row["likeliest"]] == np.argsort(-p)[:10].tolist()
        np.testing.assert_allclose(row["probability"], p[target], rtol=1e-9)
        assert row["rank"] == 1 + (p > p[target]).sum()
