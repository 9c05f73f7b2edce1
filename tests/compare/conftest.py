"""Small models, each saved in `tmp_path`; a folder with a vocabulary, and a dump of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npgpt.models.bert.model import BERT
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.transformer.model import Transformer
from tests.builders.bert import random_bert
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.transformer import random_transformer
from tests.compare.ports import run


@pytest.fixture
def gpt2(tmp_path) -> GPT2:
    config = GPT2Config(
        vocab_size=40,
        n_positions=16,
        n_embd=48,
        n_layer=3,
        n_head=3,
        bos_token_id=None,
        eos_token_id=None,
    )
    # GPT-2's own scale: the faults are small.
    model = GPT2(config, init_params(config, np.random.default_rng(5)))
    model.save_pretrained(tmp_path)
    return model


@pytest.fixture
def bert(rng, tmp_path) -> BERT:
    model = random_bert(rng, np.float32)
    model.save_pretrained(tmp_path)
    return model


@pytest.fixture
def bart(rng, tmp_path) -> Transformer:
    model = random_transformer(rng, np.float32, model_type="bart")
    model.save_pretrained(tmp_path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tiny_gpt2(tmp_path_factory.mktemp("model"))


@pytest.fixture
def dumped(folder, tmp_path) -> Path:
    """npgpt's own stations of "hello", with gradients, as another program might have made them."""
    path = tmp_path / "port.safetensors"
    assert run("hello", "--model", folder, "--dump", path, "--gradients")[:2] == (0, "")
    return path
