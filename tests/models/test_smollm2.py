"""SmolLM2-135M-Instruct as an installed package carries it: real weights, without a network."""

from __future__ import annotations

import json

import numpy as np
import pytest

import npgpt
from npgpt import generate
from npgpt.cli import width
from npgpt.trace import command as trace
from tests.gradcheck import relative_error

TEXT = (
    "The capital of France is Paris. Once upon a time there was a dog who lived in a house on the "
    "hill, and every day 12 cats came by, at 10:30 sharp; that's what they did."
)


@pytest.fixture(scope="module")
def model(smollm2):
    return npgpt.from_pretrained(smollm2)


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return npgpt.load_tokenizer(smollm2)


def test_its_sizes(model) -> None:
    config = model.config
    assert model.num_params() == 134_515_008
    assert (config.num_hidden_layers, config.hidden_size, config.rope_theta) == (30, 576, 1e5)
    assert (config.num_attention_heads, config.n_kv_head, config.d_h) == (9, 3, 64)
    assert (config.rms_norm_eps, config.tie_word_embeddings) == (1e-5, True)


def test_its_vocabulary(tokenizer) -> None:
    assert tokenizer.n_vocab == 49152
    ids = tokenizer.encode("The capital of France is")
    assert ids == [504, 3575, 282, 4649, 314]
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert tokenizer.encode("<|im_end|>", allowed_special="all") == [2]


def test_it_writes_english(smollm2, capsys) -> None:
    argv = ["The capital of France is", "--model", smollm2, "--max-new-tokens", "2"]
    assert generate.main(argv) == 0
    assert capsys.readouterr().out == " Paris.\n"


def test_it_knows_what_comes_next(model, tokenizer) -> None:
    """Below 4 nats a token; an untrained model has ln 49152 = 10.8."""
    ids = tokenizer.encode(TEXT)
    logits = model(ids[:-1])
    picked = logits[np.arange(len(ids) - 1), ids[1:]]
    loss = (np.log(np.exp(logits - picked[:, None]).sum(axis=-1))).mean()
    assert loss < 4


def test_its_way_to_a_capital(smollm2, capsys) -> None:
    argv = ["The capital of France is", "--model", smollm2, "--top", "2"]
    assert trace.main([*argv, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [t["label"] for t in shown["tokens"]] == ["The", "␣capital", "␣of", "␣France", "␣is"]
    assert shown["target"]["label"] == "␣Paris"
    ranks = [g["rank"] for g in shown["guesses"]]
    assert (len(ranks), ranks[-1], ranks[0] > 100) == (31, 1, True)
    assert shown["rotary_angles"][-1] == pytest.approx(4 * 1e5 ** (-62 / 64))
    assert trace.main(argv) == 0
    assert max(map(width, capsys.readouterr().out.splitlines())) <= 100


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_transformers_with_the_same_weights(model, tokenizer) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**model.config.to_dict(), attn_implementation="eager")
    with torch.device("meta"):
        reference = LlamaForCausalLM(config)
    tensors = {
        f"model.{name}": torch.from_numpy(param.T if name.startswith("layers.") else param)
        for name, param in model.params.items()
    }
    reference.load_state_dict(tensors, strict=False, assign=True)
    reference.tie_weights()
    rotary = type(reference.model.rotary_emb)
    reference.model.rotary_emb = rotary(config)  # not on the device that holds nothing
    ids = tokenizer.encode(TEXT)
    with torch.no_grad():
        want = reference(torch.tensor(ids)[None]).logits[0].numpy()
    assert relative_error(model(ids), want) < 5e-6
    for prompt in ("The capital of France is", "Once upon a time", "def fibonacci(n):"):
        ids = tokenizer.encode(prompt)
        theirs = reference.generate(
            torch.tensor(ids)[None],
            attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
            max_new_tokens=50,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=2,
        )
        assert list(model.generate(ids, 50, stop_ids=())) == theirs[0, len(ids) :].tolist()
