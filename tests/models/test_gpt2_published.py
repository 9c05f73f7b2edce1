"""The real GPT-2 small against published values. Needs its weights: `python -m pytest -m hub`."""

from __future__ import annotations

import hashlib

import pytest

import npgpt
from npgpt.files.hub import find_model
from npgpt.models.gpt2.model import GPT2
from npgpt.text.tokenizer import TextTokenizer

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def model() -> GPT2:
    return npgpt.from_pretrained("gpt2")


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return npgpt.load_tokenizer("gpt2")


def test_the_file():
    path = find_model("gpt2") / "model.safetensors"
    assert path.stat().st_size == 548_105_171
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"


def test_parameter_counts(model):
    assert model.num_params() == 124_439_808
    assert model.num_params(embeddings=False) == 123_653_376


def test_token_ids_of_the_article(tokenizer):
    assert tokenizer.encode("The cat sat on the") == [464, 3797, 3332, 319, 262]


@pytest.mark.parametrize(
    ("prompt", "continuation"),
    [
        (
            [464, 3290],
            "373 1043 287 257 2214 1474 262 16246 286 2688 290 2688 27262 13 198 198 464 3290",
        ),
        ([15017, 6033, 318], "257 1748 286 517 621 352 1510 661"),
        ([34, 945, 389], "407 3142 284 307 973 287 262 7647 1256 286 257 7072 13"),
        (
            [46, 358, 129, 247, 68, 73, 34754, 234, 861, 8836, 74, 373, 4642, 287],
            "1248 5332 287 262 7404 286 25370 254 368 83 6557 81 11",
        ),
    ],
    ids=["The dog", "San Francisco is", "Cars are", "Ondřej Čertík was born in"],
)
@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_greedy_ids(model, prompt, continuation, use_cache):
    wanted = [int(token) for token in continuation.split()]
    assert list(model.generate(prompt, len(wanted), use_cache=use_cache)) == wanted


def test_prompts_are_cut_as_published(tokenizer):
    assert tokenizer.encode("San Francisco is") == [15017, 6033, 318]
    assert tokenizer.encode("Cars are") == [34, 945, 389]


def test_alan_turing(model, tokenizer):
    prompt = "Alan Turing theorized that computers would one day become"
    wanted = (
        " the most powerful machines on the planet.\n\nThe computer is a machine that can perform "
        "complex calculations, and it can perform these calculations in a way that is very similar "
        "to the human brain."
    )
    ids = tokenizer.encode(prompt)
    new = model.generate(ids, len(tokenizer.encode(wanted)))
    assert tokenizer.decode(list(new)) == wanted


def test_one_two_three_four(model, tokenizer):
    logits = model(tokenizer.encode("One two three four"))[-1]
    assert logits.argmax() == 1936
    assert logits[1936] == pytest.approx(-69.4948, rel=1e-4)


def test_heads_of_block_4(model, tokenizer):
    """Article 7.1: head 11 looks at the previous token, in head 3 "it" gives "cat" 0.84."""
    tokens = tokenizer.encode("The cat sat on the mat because it was tired")
    probs = model.forward(tokens).saved.blocks[4].attn.probs  # [H, T, T]
    previous = [probs[11, i, i - 1] for i in range(1, len(tokens))]
    assert sum(previous) / len(previous) > 0.5
    cat, it = tokenizer.encode(" cat")[0], tokenizer.encode(" it")[0]
    assert probs[3, tokens.index(it), tokens.index(cat)] == pytest.approx(0.84, abs=0.005)
