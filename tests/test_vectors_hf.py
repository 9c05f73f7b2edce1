"""The conformance vectors are what torch, transformers and its tokenizer compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.files.safetensors_file import read_tensors
from npgpt.vectors import command, models
from npgpt.vectors.inputs import OPERATIONS
from tests.goldens import ARCHITECTURES

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

EXAMPLE = Path(__file__).parent.parent / "examples" / "vectors_with_torch.py"
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "bert": "BertForMaskedLM",
    "bart": "BartForConditionalGeneration",
    "marian": "MarianMTModel",
}
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("vectors") / "set"
    assert command.main(["--out", str(folder)]) == 0
    return folder


def test_torchs_own_functions_agree_forward_and_backward(vectors) -> None:
    """All operations; of the layers, which are made of them, attention."""
    call = [sys.executable, "-W", "error", str(EXAMPLE), str(vectors)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert {name for name, *_ in rows} == {*OPERATIONS, "attention"}
    assert all(int(count) > 1 for _, count, *_ in rows)
    assert max(float(share) for _, _, *shares in rows for share in shares) < 0.5


def reference_of(architecture: Any, model: Any, kind: str, folder: Path) -> Any:
    """The same model in transformers, in float64."""
    import transformers

    model.save_pretrained(folder)
    make = getattr(transformers, CLASSES[kind])
    reference = make.from_pretrained(folder, attn_implementation="eager").double().eval()
    if kind in ("bart", "marian"):
        reference.final_logits_bias.requires_grad_(True)
    return reference


def two_steps(architecture: Any, reference: Any, inputs: Arrays, targets: np.ndarray) -> Arrays:
    """Logits, loss and gradients of parameters, and these after two steps of torch's AdamW."""
    import torch

    given = {name: torch.tensor(np.atleast_2d(array)) for name, array in inputs.items()}
    out: Arrays = {}
    of = models.SETTINGS
    trainable = list(reference.parameters())
    groups = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": of["weight_decay"]},
        {"params": [p for p in trainable if p.ndim == 1], "weight_decay": 0.0},
    ]
    betas = of["beta1"], of["beta2"]
    optimizer = torch.optim.AdamW(groups, lr=of["lr"], betas=betas, eps=of["eps"])
    for step in range(models.STEPS):
        optimizer.zero_grad()
        logits = reference(**given).logits
        wanted = torch.tensor(targets.flatten())
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), wanted)
        loss.backward()
        if step == 0:
            out |= {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}
            grads = architecture.reference_params(reference, gradients=True)
            out |= {f"grad.{name}": grad for name, grad in grads.items()}
        optimizer.step()
    moved = architecture.reference_params(reference)
    return out | {f"trained.{name}": param for name, param in moved.items()}


@pytest.mark.parametrize("case", [case for case in models.MODELS if case[:14] != "transformer.on"])
def test_transformers_agrees_and_torchs_adamw(vectors, tmp_path, case) -> None:
    """Logits where there are tokens, the loss, every gradient, every parameter after two steps."""
    index = json.loads((vectors / "index.json").read_text(encoding="utf-8"))
    (entry,) = (each for each in index["cases"] if each["name"] == f"models/{case}")
    want, kind = read_tensors(vectors / entry["file"]), entry["settings"]["config.model_type"]
    architecture, row = ARCHITECTURES[case.partition(".")[0]], {**models.MODELS[case]}
    inputs, targets = dict(row.pop("inputs")), row.pop("targets")
    sizes = models.ARCHITECTURES[case.partition(".")[0]].sizes
    config = architecture.CONFIG.from_dict({**sizes, **row})
    params = {
        name: want[name]
        for name in entry["inputs"]
        if f"trained.{name}" in want or name == "final_logits_bias"
    }
    if kind in ("gpt2", "llama") and "attention_mask" in inputs:
        places = np.cumsum(inputs["attention_mask"], axis=-1) - 1
        inputs = {**inputs, "position_ids": np.maximum(places, 0)}
    inputs = {
        name.replace("ids", "input_ids") if name == "ids" else name: ids
        for name, ids in inputs.items()
    }
    with architecture.in_float64():
        reference = reference_of(architecture, architecture.MODEL(config, params), kind, tmp_path)
        got = two_steps(architecture, reference, inputs, targets)
    finer = 1.0 if kind == "marian" else index["float64"]  # its sinusoids are float32
    off = {}
    for name, array in got.items():
        if name in want:
            apart = np.abs(array.reshape(want[name].shape) - want[name])
            if (
                name == "logits"
                and "attention_mask" in inputs
                and kind in ("gpt2", "llama", "bert")
            ):
                apart = apart[inputs["attention_mask"] == 1]
            off[name] = apart.max() / (entry["tolerance"][name] * finer)
    print(sorted(((v, k) for k, v in off.items()), reverse=True)[:5], len(off))
    assert {name: share for name, share in off.items() if not share <= 1} == {}
    missing = {n for n in want if n.startswith(("grad.", "trained."))} - set(off)
    print(missing)


def test_gpt2s_tokenizer_of_transformers_agrees(vectors) -> None:
    from transformers import GPT2Tokenizer

    tokenizer = GPT2Tokenizer.from_pretrained(vectors / "text")
    arrays = read_tensors(vectors / "text" / "byte_pairs.tiny.safetensors")
    texts = {n: a.tobytes().decode() for n, a in arrays.items() if n.startswith("text.")}
    for name, text in texts.items():
        if text != "<|endoftext|>":  # is no text there
            assert tokenizer(text)["input_ids"] == arrays[name.replace("text", "ids")].tolist()
    assert len(texts) == 12
