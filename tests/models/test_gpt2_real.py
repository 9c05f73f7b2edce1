"""GPT-2 on real trained checkpoints: a sorter, a memoriser, a planner of manufacturing steps."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from npgpt.models.gpt2.checkpoint import load_checkpoint
from npgpt.models.gpt2.model import GPT2
from tests.goldens import gpt2, reference_values
from tests.gradcheck import check_close, relative_error

pytestmark = pytest.mark.real


def load(data_dir, name, dtype=np.float32):
    return GPT2(*load_checkpoint(data_dir / "checkpoints" / name, dtype=dtype))


def test_llm_viz_sorts_six_letters(data_dir, rng) -> None:
    model = load(data_dir, "llm-viz")
    letters = rng.integers(0, 3, (200, 6))
    one_by_one = [list(model.generate(row, 6)) for row in letters]
    assert one_by_one == np.sort(letters, axis=1).tolist()
    at_once = np.stack(list(model.generate(letters, 6, use_cache=False)), axis=1)
    assert at_once.tolist() == one_by_one


@pytest.fixture
def partials(data_dir):
    """The activations of llm-viz in an independent implementation, by name."""
    path = data_dir / "checkpoints" / "llm-viz" / "gpt-nano-sort-t0-partials.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    del raw["config"]
    return {
        name: np.frombuffer(base64.b64decode(entry["data"]), "<f4").reshape(entry["shape"])
        for name, entry in raw.items()
    }


def activations(model, ids):
    """npgpt's activations under the names of the other implementation; without number: block 0."""
    seen: dict[str, np.ndarray] = {}
    logits, saved = model.forward(ids, observe=seen.__setitem__)
    p, block = model.params, saved.blocks[0]
    heads = block.attn.heads
    q, k = heads.scores
    probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return {
        "tok_emb": p["wte.weight"][ids],
        "pos_emb": p["wpe.weight"][None, : ids.shape[1]],
        "x": seen["embed"],
        "ln1": block.attn.c_attn[0],
        "q": q,
        "k": k,
        "v": heads.weighted_sum[1],
        "qkv": block.attn.c_attn[0] @ p["h.0.attn.c_attn.weight"] + p["h.0.attn.c_attn.bias"],
        "att": np.where(heads.mask, q @ np.swapaxes(k, -1, -2) / heads.scale, -np.inf),
        "attSm": block.attn.probs,
        "y": block.attn.c_proj[0],
        "yProj": seen["h.0.attn"],
        "attnResid": seen["embed"] + seen["h.0.attn"],
        "ln2": block.mlp.c_fc[0],
        "fc": block.mlp.c_fc[0] @ p["h.0.mlp.c_fc.weight"] + p["h.0.mlp.c_fc.bias"],
        "gelu": block.mlp.c_proj[0],
        "mlp": seen["h.0.mlp"],
        "mlpResid": seen["h.0"],
        "block0": seen["h.0"],
        "block1": seen["h.1"],
        "block2": seen["h.2"],
        "ln_f": seen["ln_f"],
        "lm_head": logits,
        "probs": probs,
    }


def test_llm_viz_layer_by_layer(data_dir, partials) -> None:
    ids = partials.pop("idx").astype(int)
    got = activations(load(data_dir, "llm-viz"), ids)
    assert got.keys() == partials.keys()
    for name, want in partials.items():
        np.testing.assert_allclose(got[name], want, rtol=0, atol=1e-5, err_msg=name)


def slm4096_ids(data_dir, text):
    path = data_dir / "checkpoints" / "slm4096" / "vocab.json"
    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    return [vocabulary[char] for char in text.replace(" ", "Ġ").replace("\n", "Ċ")]


def test_slm4096_knows_its_page_by_heart(data_dir) -> None:
    model = load(data_dir, "slm4096")
    path = data_dir / "checkpoints" / "slm4096" / "corpus.txt"
    page = slm4096_ids(data_dir, path.read_bytes().decode("utf-8"))
    windows = np.array([page[i : i + 129] for i in range(0, len(page) - 129, 128)])
    loss, _ = model.loss_and_grads(windows[:, :-1], windows[:, 1:])
    assert loss < 0.1
    question = len("Q: What is SLM?\n")
    answer = list(model.generate(page[:question], 100))
    assert answer == page[question : question + 100]


CHECKPOINTS = [("slm4096", 211_712), ("capp-gpt", 236_224), ("llm-viz", 85_728)]


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize(("name", "size"), CHECKPOINTS)
def test_logits_and_gradients_are_those_of_transformers(data_dir, rng, name, size) -> None:
    model, reference = load(data_dir, name, np.float64), load_reference(data_dir, name)
    assert model.num_params() == size
    T = min(model.config.n_positions, 40)
    ids, targets = rng.integers(0, model.config.vocab_size, (2, 3, T))
    given = {"ids": ids, "targets": targets, "attention_mask": np.ones_like(ids)}
    want = reference_values(gpt2, reference, given)
    got = gpt2.computed(model, given)
    check_close(got, want, 1e-11)
    for output in ("logits", "loss"):
        assert relative_error(got[output], want[output]) < 1e-12
    assert relative_error(load(data_dir, name)(ids), want["logits"]) < 1e-5  # float32


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_slm4096_answers_as_with_transformers(data_dir) -> None:
    import torch

    ids = slm4096_ids(data_dir, "Q: What is SLM?\n")
    reference = load_reference(data_dir, "slm4096")
    want = reference.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        max_new_tokens=100,
        do_sample=False,
        pad_token_id=0,
    )
    assert list(load(data_dir, "slm4096").generate(ids, 100)) == want[0, len(ids) :].tolist()


def load_reference(data_dir, name):
    import torch
    from transformers import GPT2LMHeadModel

    folder = data_dir / "checkpoints" / name
    reference = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager")
    return reference.to(torch.float64).eval()
