"""`python -m npgpt.describe` on a BERT: the counts, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from npgpt import cli
from npgpt.describe import command as describe
from tests.models.tiny_bert import random_bert, tiny_config
from tests.text.tiny_bert_folder import write_tiny_bert


def described(capsys, *argv: object) -> dict[str, Any]:
    """What `--json` says."""
    assert describe.main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *argv: object) -> str:
    """The one sentence on stderr."""
    assert cli.run(describe.PROG, describe.main, [*map(str, argv)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err


def write_config(folder, **raw: object):
    path = folder / "config.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_bert_base(capsys, name) -> None:
    """109.5 million with the pooler; a layer is as large as a block of GPT-2 small."""
    bert = described(capsys, name)
    parameters = bert["parameters"]
    assert parameters["total"] == 109_482_240
    assert parameters["with MLM head, without pooler"] == 109_514_298
    assert parameters["with both"] == 110_104_890
    assert parameters["a layer"] == 7_087_872
    assert parameters["attention"] == 2_362_368 == 4 * parameters["W_Q"]
    assert parameters["FFN"] == 4_722_432 == parameters["W_1"] + parameters["W_2"]
    assert parameters["two LayerNorms"] == 3_072
    assert (parameters["pooler"], parameters["decoder"]) == (590_592, 0)
    assert round(100 * bert["share_of_block"]["FFN"], 1) == 66.6
    assert round(100 * bert["share_of_model"]["embeddings"], 1) == 21.8
    assert bert["tokens"] == 512


def test_the_text_says_the_same(capsys) -> None:
    assert describe.main(["bert-base-uncased", "--dtype", "bfloat16"]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said[:3] == [
        "bert-base-uncased: 12 layers, d 768, 12 heads of 64, FFN 3072 (gelu),",
        "post-norm, every token sees all others, learned positions, 2 token types,",
        "vocabulary 30522, context 512; decoder of the MLM head is word_embeddings",
    ]
    assert "attention 2,362,368 2.2 % 33.3 %" in said
    assert "total 109,482,240 100.0 %" in said
    assert "Below: T = 512 tokens, 1 text, 2 bytes a number." in said
    assert "weight tables of a layer 6,291,456" in said
    assert not any("KV cache" in line for line in said)


@pytest.mark.parametrize("tied", [True, False])
def test_parts_make_up_the_whole(capsys, tmp_path, tied) -> None:
    config = tiny_config(tie_word_embeddings=tied, type_vocab_size=1)
    parameters = described(capsys, write_config(tmp_path, **config.to_dict()))["parameters"]
    a_layer = [parameters[part] for part in ("attention", "FFN", "two LayerNorms")]
    assert sum(a_layer) == parameters["a layer"] == parameters["all layers"] // 2
    trunk = parameters["embeddings"] + parameters["all layers"]
    assert trunk + parameters["pooler"] == parameters["total"]
    assert trunk + parameters["MLM head"] == parameters["with MLM head, without pooler"]
    assert parameters["total"] + parameters["MLM head"] == parameters["with both"]
    assert parameters["decoder"] == (0 if tied else 19 * 12)


def test_a_folder_and_its_weights_that_are_never_opened(capsys, tmp_path) -> None:
    folder = write_tiny_bert(tmp_path)
    size = random_bert(np.random.default_rng(0), vocab_size=14, pooler=False).num_params()
    (folder / "model.safetensors").write_bytes(b"no safetensors")
    parameters = described(capsys, folder)["parameters"]
    assert parameters["with MLM head, without pooler"] == size
    assert described(capsys, folder / "config.json")["parameters"] == parameters


def test_memory_is_that_of_a_pass(capsys, rng, tmp_path) -> None:
    path = write_config(tmp_path, **tiny_config().to_dict())
    options = ("--context", 5, "--batch", 3, "--dtype", "float64")
    memory = described(capsys, path, *options)["memory_bytes"]
    out = random_bert(rng).forward(rng.integers(0, 19, (3, 5)))
    assert out.logits is not None
    assert memory == {
        "parameters": random_bert(rng, mlm_head=False).num_params() * 8,
        "hidden states": out.hidden.nbytes,
        "weight tables of a layer": out.saved.layers[0].attn.probs.nbytes,
        "weight tables of all layers": sum(ln.attn.probs.nbytes for ln in out.saved.layers),
        "logits of the MLM head": out.logits.nbytes,
    }


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--mermaid"], "--mermaid draws a GPT-2, but bert-base-uncased is a bert; leave it out."),
        (["--source", "5"], "--source is what an encoder reads for a decoder"),
        (["--context", "513"], "--context must be between 1 and 512, the positions that"),
        (["--context", "-1"], "--context must be between 1 and 512"),
        (["--context", "0"], "but is 0."),
        (["--batch", "-2"], "--batch must be at least 1, but is -2."),
    ],
)
def test_options_that_are_refused(capsys, argv, says) -> None:
    assert says in refused(capsys, "bert-base-uncased", *argv)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"hidden_size": "768"}, "hidden_size is '768', but must be a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"type_vocab_size": None}, "type_vocab_size is None"),
        ({"num_attention_heads": 7}, "hidden_size 768 cannot be cut"),
        ({"hidden_act": ["gelu"]}, "hidden_act ['gelu'] is unknown"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false', not true or false."),
        ({"is_decoder": True}, "is_decoder is set"),
    ],
)
def test_configurations_that_are_refused(capsys, tmp_path, raw, says) -> None:
    path = write_config(tmp_path, model_type="bert", **raw)
    assert f"{path}: {says}" in refused(capsys, path)


def test_keys_that_are_missing_mean_bert_base(capsys, tmp_path) -> None:
    path = write_config(tmp_path, model_type="bert")
    assert described(capsys, path)["parameters"]["total"] == 109_482_240


def test_an_old_bert_without_model_type_is_not_taken_for_a_gpt2(capsys, tmp_path) -> None:
    path = write_config(tmp_path, vocab_size=30522, hidden_size=768, type_vocab_size=2)
    assert "neither a model_type nor any size of a GPT-2" in refused(capsys, path)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 101},
        {"hidden_size": 36, "intermediate_size": 50, "type_vocab_size": 3},
        {"hidden_size": 24, "tie_word_embeddings": False, "max_position_embeddings": 33},
    ],
)
def test_as_many_parameters_as_in_transformers(capsys, tmp_path, options) -> None:
    """An untied head has two biases there, of which npgpt keeps one."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel

    config = BertConfig(**options)
    with torch.device("meta"):
        bare, masked, both = (
            kind(config) for kind in (BertModel, BertForMaskedLM, BertForPreTraining)
        )
    parameters = described(capsys, write_config(tmp_path, **config.to_dict()))["parameters"]
    assert parameters["total"] == bare.num_parameters()
    twice = 0 if config.tie_word_embeddings else config.vocab_size
    assert parameters["with MLM head, without pooler"] == masked.num_parameters() - twice
    of_next_sentence = 2 * config.hidden_size + 2  # the classifier that npgpt leaves out
    assert parameters["with both"] == both.num_parameters() - twice - of_next_sentence
    assert parameters["a layer"] == sum(p.numel() for p in bare.encoder.layer[0].parameters())
    assert parameters["embeddings"] == sum(p.numel() for p in bare.embeddings.parameters())
