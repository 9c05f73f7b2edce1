"""The conformance vectors are what torch, transformers and its tokenizer compute."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.files.safetensors_file import read_tensors
from npgpt.models.bert.families import FAMILIES as BERTS
from npgpt.models.llama.families import FAMILIES
from npgpt.models.transformer.model import BIAS
from npgpt.ops.sinusoids import sinusoids_in_halves
from npgpt.vectors import command, models
from npgpt.vectors.inputs import OPERATIONS
from npgpt.vectors.models import MODELS
from npgpt.vectors.optimizer import SETTINGS, STEPS
from tests.goldens import ARCHITECTURES, gpt_neo
from tests.goldens.common import Arrays, loss_of, under_grad

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

EXAMPLE = Path(__file__).parent.parent / "examples" / "vectors_with_torch.py"
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    **{kind: family.cls for kind, family in FAMILIES.items()},
    "gpt_neo": "GPTNeoForCausalLM",
    **{kind: f"{family.cls}ForMaskedLM" for kind, family in BERTS.items()},
    "bart": "BartForConditionalGeneration",
    "marian": "MarianMTModel",
}
# transformers has no counterpart of the paper's own layout.
CASES = [name for name, row in MODELS.items() if name[:5] != "trans" or "model_type" in row]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("vectors") / "set"
    assert command.main(["--out", str(folder)]) == 0
    return folder


def entry_of(vectors: Path, name: str) -> dict[str, Any]:
    index = json.loads((vectors / "index.json").read_text(encoding="utf-8"))
    return next(case for case in index["cases"] if case["name"] == name)


def test_torchs_own_functions_agree_forward_and_backward(vectors) -> None:
    """All operations; of the layers, which are made of them, attention."""
    call = [sys.executable, "-W", "error", str(EXAMPLE), str(vectors)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert {name for name, *_ in rows} == {*OPERATIONS, "attention"}
    assert all(int(count) > 1 for _, count, *_ in rows)
    assert max(float(share) for _, _, *shares in rows for share in shares) <= 1


def reference_of(model: Any, kind: str, folder: Path, dtype: str) -> Any:
    """The same model in transformers."""
    import torch
    import transformers

    model.save_pretrained(folder)
    make = getattr(transformers, CLASSES[kind])
    kinds = dict.fromkeys(("attn_implementation", "experts_implementation"), "eager")
    reference = make.from_pretrained(folder, **kinds).eval()
    reference.to(getattr(torch, dtype))
    del reference.config.npgpt_save
    if kind in ("bart", "marian"):  # no parameter there, but added
        reference.final_logits_bias.requires_grad_(True)
    for name, param in reference.named_parameters():
        if kind == "marian" and "embed_positions" in name:  # with all their digits, and fixed
            exact = torch.tensor(sinusoids_in_halves(np.arange(len(param)), param.shape[1]))
            param.requires_grad_(False).copy_(exact)
    return reference


def given_to(kind: str, inputs: Arrays) -> dict[str, Any]:
    """The inputs of a case as transformers takes them."""
    import torch

    renamed = {"ids": "input_ids"}
    given = {renamed.get(name, name): np.atleast_2d(array) for name, array in inputs.items()}
    if kind in ("gpt2", "gpt_neo", *FAMILIES) and "attention_mask" in given:
        places = np.cumsum(given["attention_mask"], axis=-1) - 1
        given["position_ids"] = np.maximum(places, 0)
    return {name: torch.tensor(array.copy()) for name, array in given.items()}


def adamw(reference: Any) -> Any:
    """torch's, with the settings of the set; biases and gains do not decay."""
    import torch

    moving = [param for param in reference.parameters() if param.requires_grad]
    groups = [
        {"params": [param for param in moving if param.ndim > 1]},
        {"params": [param for param in moving if param.ndim == 1], "weight_decay": 0.0},
    ]
    settings = {**SETTINGS}
    betas = settings.pop("beta1"), settings.pop("beta2")
    return torch.optim.AdamW(groups, betas=betas, **settings)


def computed(architecture: Any, reference: Any, given: dict[str, Any], targets: Any) -> Arrays:
    """Logits, loss, gradients of parameters; and these after the steps of AdamW."""
    optimizer, values = adamw(reference), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = reference(**given).logits
        loss = loss_of(logits, targets)
        loss.backward()
        grads = under_grad(architecture.reference_params(reference, gradients=True))
        values.append({"logits": logits.detach().numpy(), "loss": loss.detach().numpy(), **grads})
        optimizer.step()
    moved = architecture.reference_params(reference)
    return values[0] | {f"trained.{name}": param for name, param in moved.items() if name != BIAS}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_transformers_agrees_and_torchs_adamw(vectors, tmp_path, case, dtype) -> None:
    """Logits where there are tokens, the loss, every gradient, every parameter after two steps."""
    kind, row = case.partition(".")[0], {**MODELS[case]}
    page = "llama" if kind in FAMILIES else "bert" if kind in BERTS else kind
    architecture, entry = (
        {**ARCHITECTURES, "gpt_neo": gpt_neo}[page],
        entry_of(vectors, f"models/{case}"),
    )
    inputs, targets = row.pop("inputs"), row.pop("targets").copy()
    config = architecture.CONFIG.from_dict({**models.ARCHITECTURES[kind].sizes, **row})
    want = read_tensors(vectors / entry["file"])
    params = {name: want[name] for name in entry["inputs"] if f"grad.{name}" in want}
    kind = row.get("model_type", kind)
    with architecture.in_float64() if dtype == "float64" else nullcontext():
        reference = reference_of(architecture.MODEL(config, params), kind, tmp_path, dtype)
        got = computed(architecture, reference, given_to(kind, inputs), targets)
    finer, shares = command.FLOAT64 if dtype == "float64" else 1.0, {}
    for name, array in got.items():
        apart = np.abs(array.reshape(want[name].shape) - want[name])
        if name == "logits" and "ids" in inputs and "attention_mask" in inputs:
            apart = apart[inputs["attention_mask"] == 1]
        shares[name] = apart.max() / (entry["tolerance"][name] * finer)
    assert {name: share for name, share in shares.items() if not share <= 1} == {}
    unread = {name for name in params if "pooler" in name}  # which BertForMaskedLM does not have
    assert {f"grad.{name}" for name in params.keys() - unread} <= shares.keys()
    assert {f"trained.{name}" for name in params.keys() - unread - {BIAS}} <= shares.keys()


def test_gpt2s_tokenizer_of_transformers_agrees(vectors) -> None:
    from transformers import GPT2Tokenizer

    tokenizer = GPT2Tokenizer.from_pretrained(vectors / "text")
    arrays = read_tensors(vectors / "text" / "byte_pairs.tiny.safetensors")
    texts = {n: a.tobytes().decode() for n, a in arrays.items() if n.startswith("text.")}
    for name, text in texts.items():
        if text != "<|endoftext|>":  # is no text there
            assert tokenizer(text)["input_ids"] == arrays[name.replace("text", "ids")].tolist()
    assert len(texts) == 12
