"""The descriptions of Llama, BERT and the encoder-decoder: the counts, and text as JSON."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders.bert import random_bert, tiny_bert_config, write_tiny_bert
from tests.builders.transformer import DIALECTS, SIZES, random_transformer

LLAMA_3_8B = """\
llama-3-8b: 32 blocks, d 4096, 32 heads of 128 on 8 of keys and values,
MLP 14336 (silu), rotary positions (default, theta 500000),
vocabulary 128256, context 8192; lm_head has its own table

parameters           number  of the model  of a block
embed_tokens    525,336,576         6.5 %
a block         218,112,000         2.7 %     100.0 %
  attention      41,943,040         0.5 %      19.2 %
    W_Q          16,777,216         0.2 %       7.7 %
    W_K           4,194,304         0.1 %       1.9 %
    W_V           4,194,304         0.1 %       1.9 %
    W_O          16,777,216         0.2 %       7.7 %
  MLP           176,160,768         2.2 %      80.8 %
    gate         58,720,256         0.7 %      26.9 %
    up           58,720,256         0.7 %      26.9 %
    down         58,720,256         0.7 %      26.9 %
all blocks    6,979,584,000        86.9 %
norm                  4,096         0.0 %
lm_head         525,336,576         6.5 %
total         8,030,261,248       100.0 %

Below: T = 100 tokens, 3 texts, 2 bytes a number.

memory                                         bytes
parameters                            16,060,522,496
KV cache                                  39,321,600
… if all 32 heads had their own keys     157,286,400
"""


def test_all_that_is_said_of_a_llama(run) -> None:
    argv = ("llama-3-8b", "--context", 100, "--batch", 3, "--dtype", "float16")
    assert run(*argv) == (0, LLAMA_3_8B, "")


def test_bert_base(described) -> None:
    """109.5 million with the pooler; a layer is as large as a block of GPT-2 small."""
    bert = described("bert-base-uncased")
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


def test_berts_relatives(described, run) -> None:
    """RoBERTa's word table is larger; DistilBERT has half the layers, no token types, no pooler."""
    roberta, small = described("FacebookAI/roberta-base"), described("distilbert-base-uncased")
    assert roberta["parameters"]["total"] == 124_645_632
    assert roberta["parameters"]["position_embeddings"] == 514 * 768
    assert roberta["tokens"] == 512
    assert small["parameters"]["total"] == 66_362_880
    assert small["parameters"]["with MLM head"] == 66_985_530
    assert small["parameters"]["a layer"] == roberta["parameters"]["a layer"] == 7_087_872
    assert not {"pooler", "token_type_embeddings"} & small["parameters"].keys()
    assert "learned positions, no token types,\n" in run("distilbert-base-uncased")[1]
    diagram = run("roberta-base", "--mermaid")[1]
    assert "positions　2 … T+1" in diagram
    assert "pooler" in diagram
    diagram = run("distilbert-base-uncased", "--mermaid")[1]
    assert "LayerNorm sa_layer_norm" in diagram
    assert not any(word in diagram for word in ("pooler", "token types"))


def test_gpt_neo(described, run) -> None:
    """GPT-2's description: parts stored apart, no scale, windows."""
    neo = described("EleutherAI/gpt-neo-125m")
    parameters = neo["parameters"]
    assert parameters["total"] == 125_198_592
    assert parameters["W_Q"] == 768 * 768 == parameters["W_O"] - 768
    assert parameters["attention"] == 3 * parameters["W_Q"] + parameters["W_O"]
    boxes = [box["box"] for box in neo["block"]]
    assert boxes[1:4] == [f"{part}_proj" for part in "qkv"]
    assert "mask softmax" in boxes
    assert sum(box["parameters"] for box in neo["block"]) == parameters["block"]
    text = run("gpt-neo-125m")[1]
    assert "\nscores without a scale, no further back than 256 tokens in 6 blocks,\n" in text
    assert "self-attention, no further back than 256 tokens" in run("gpt-neo-125m", "--mermaid")[1]


def test_the_text_of_a_bert(run) -> None:
    out = run("bert-base-uncased", "--dtype", "bfloat16")[1]
    said = [" ".join(line.split()) for line in out.splitlines()]
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
def test_parts_of_a_bert_make_up_the_whole(described, write_config, tied) -> None:
    config = tiny_bert_config(tie_word_embeddings=tied, type_vocab_size=1)
    parameters = described(write_config(config.to_dict()))["parameters"]
    a_layer = [parameters[part] for part in ("attention", "FFN", "two LayerNorms")]
    assert sum(a_layer) == parameters["a layer"] == parameters["all layers"] // 2
    trunk = parameters["embeddings"] + parameters["all layers"]
    assert trunk + parameters["pooler"] == parameters["total"]
    assert trunk + parameters["MLM head"] == parameters["with MLM head, without pooler"]
    assert parameters["total"] + parameters["MLM head"] == parameters["with both"]
    assert parameters["decoder"] == (0 if tied else 19 * 12)


def test_a_folder_and_its_weights_that_are_never_opened(described, tmp_path) -> None:
    folder = write_tiny_bert(tmp_path)
    size = random_bert(np.random.default_rng(0), vocab_size=14, pooler=False).num_params()
    (folder / "model.safetensors").write_bytes(b"no safetensors")
    parameters = described(folder)["parameters"]
    assert parameters["with MLM head, without pooler"] == size
    assert described(folder / "config.json")["parameters"] == parameters


def test_memory_is_that_of_a_pass_of_a_bert(described, write_config, rng) -> None:
    path = write_config(tiny_bert_config().to_dict())
    options = ("--context", 5, "--batch", 3, "--dtype", "float64")
    memory = described(path, *options)["memory_bytes"]
    out = random_bert(rng).forward(rng.integers(0, 19, (3, 5)))
    assert out.logits is not None
    assert memory == {
        "parameters": random_bert(rng, mlm_head=False).num_params() * 8,
        "hidden states": out.hidden.nbytes,
        "weight tables of a layer": out.saved.layers[0].attn.probs.nbytes,
        "weight tables of all layers": sum(ln.attn.probs.nbytes for ln in out.saved.layers),
        "logits of the MLM head": out.logits.nbytes,
    }


def test_keys_that_are_missing_mean_bert_base(described, write_config) -> None:
    path = write_config({"model_type": "bert"})
    assert described(path)["parameters"]["total"] == 109_482_240


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
def test_a_bert_has_as_many_parameters_as_in_transformers(described, write_config, options) -> None:
    """An untied head has two biases there, of which npgpt keeps one."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel

    config = BertConfig(**options)
    with torch.device("meta"):
        bare, masked, both = (
            kind(config) for kind in (BertModel, BertForMaskedLM, BertForPreTraining)
        )
    parameters = described(write_config(config.to_dict()))["parameters"]
    assert parameters["total"] == bare.num_parameters()
    twice = 0 if config.tie_word_embeddings else config.vocab_size
    assert parameters["with MLM head, without pooler"] == masked.num_parameters() - twice
    of_next_sentence = 2 * config.hidden_size + 2  # the classifier that npgpt leaves out
    assert parameters["with both"] == both.num_parameters() - twice - of_next_sentence
    assert parameters["a layer"] == sum(p.numel() for p in bare.encoder.layer[0].parameters())
    assert parameters["embeddings"] == sum(p.numel() for p in bare.embeddings.parameters())


def test_the_base_model_of_2017(described) -> None:
    """6 + 6 layers, d 512, 8 heads, F 2048 (article chapter 2); a layer: 12 and 16 d²."""
    said = described("transformer-base")
    parameters, of_block = said["parameters"], said["share_of_block"]
    assert parameters["total"] == 63_082_496
    assert parameters["shared"] == 37_000 * 512
    assert parameters["lm_head"] == 0
    assert parameters["an encoder layer"] == 3_152_384
    assert parameters["a decoder layer"] == 4_204_032
    cross = "a decoder layer/cross-attention"
    assert parameters[cross] == 4 * (512 * 512 + 512)
    assert parameters[f"{cross}/W_K of the source"] == 512 * 512 + 512
    assert round(100 * of_block[cross], 1) == 25.0
    assert round(100 * of_block["an encoder layer/FFN"], 1) == 66.6
    assert round(100 * said["share_of_model"]["all decoder layers"], 1) == 40.0
    assert "final_logits_bias" not in parameters


def test_bart_base(described) -> None:
    """139 million; a layer of the encoder is as large as a block of GPT-2 small."""
    parameters = described("bart-base")["parameters"]
    assert parameters["total"] == 139_420_416
    assert parameters["an encoder layer"] == 7_087_872
    assert parameters["decoder.embed_positions"] == 1026 * 768
    assert parameters["final_logits_bias"] == 50_265


def test_the_text_of_a_transformer(run) -> None:
    said = run("transformer-base", "--context", 10, "--source", 20)[1]
    assert said.startswith(
        "transformer-base: d 512, relu, post-norm,\n"
        "6 encoder layers, 8 heads of 64, FFN 2048; a token sees the whole source,\n"
        "6 decoder layers, 8 heads of 64, FFN 2048; a token sees the target up to itself, and the "
        "source,\n"
        "sinusoidal positions, vocabulary 37000, context 1024; lm_head is shared\n"
    )
    assert "  cross-attention         1,050,624         1.7 %      25.0 %\n" in said
    assert "total                    63,082,496       100.0 %\n" in said
    assert "Below: S = 20 tokens of source, T = 10 of target, 1 text, 4 bytes a number." in said
    assert "KV cache of the source, for cross-attention      491,520\n" in said  # 6·2·20·512·4
    assert "\nfinal_logits_bias, not trained       50,265 " in run("bart-base")[1]


def test_heads_and_tables_of_their_own_are_said(run, described, write_config) -> None:
    path = write_config({**SIZES, **DIALECTS["two tables"]})
    said = run(path)[1]
    assert "2 encoder layers, 3 heads of 4, FFN 10; " in said
    assert "3 decoder layers, 2 heads of 6, FFN 14; " in said
    assert "vocabulary 19 and 13, context 17; lm_head has its own table" in said
    parameters = described(path)["parameters"]
    assert parameters["encoder.embed_tokens"] == 19 * 12
    assert parameters["decoder.embed_tokens"] == parameters["lm_head"] == 13 * 12
    path = write_config({**SIZES, **DIALECTS["two tables"], "tie_word_embeddings": True})
    assert "lm_head is decoder.embed_tokens" in run(path)[1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_parts_of_a_transformer_make_up_the_whole(described, rng, tmp_path, dialect) -> None:
    model = random_transformer(rng, np.float32, **DIALECTS[dialect])
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"never opened")
    parameters = described(tmp_path)["parameters"]
    bias = model.params.get("final_logits_bias", np.empty(0))
    assert parameters.pop("final_logits_bias", 0) == bias.size  # no part of the total
    assert parameters["total"] == model.num_params()
    whole = [name for name in parameters if any(each.startswith(f"{name}/") for each in parameters)]
    assert len(whole) == 2 + 2 + 3  # two layers; attentions and FFNs in them
    for name in whole:
        parts = [n for each, n in parameters.items() if each.rpartition("/")[0] == name]
        assert sum(parts) == parameters[name]
    assert parameters["all encoder layers"] == 2 * parameters["an encoder layer"]
    assert parameters["all decoder layers"] == 3 * parameters["a decoder layer"]
    once = [name for name in parameters if "/" not in name and name not in whole]
    assert sum(parameters[name] for name in once if name != "total") == parameters["total"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_memory_is_that_of_a_pass_of_a_transformer(described, write_config, rng, dialect) -> None:
    model = random_transformer(rng, np.float32, **DIALECTS[dialect])
    path = write_config(model.config.to_dict())
    memory = described(path, "--source", 7, "--context", 5, "--batch", 3)["memory_bytes"]
    ids, targets = rng.integers(0, 12, (3, 7)), rng.integers(0, 12, (3, 5))
    logits, saved = model.forward(ids, targets)
    decoder = saved.decoder.layers[0]
    tables = (decoder.self_attn.probs, decoder.encoder_attn.probs)
    assert memory == {
        "parameters": model.num_params() * 4,
        "what the encoder gives": 3 * 7 * 12 * 4,
        "KV cache of the source, for cross-attention": sum(
            k.nbytes + v.nbytes for k, v in model.encode(ids)
        ),
        "KV cache of the target, for self-attention": model.new_kv_cache((3,), 5).nbytes,
        "weight tables of an encoder layer": saved.encoder.layers[0].self_attn.probs.nbytes,
        "weight tables of a decoder layer": sum(table.nbytes for table in tables),
        "logits": logits.nbytes,
    }


def test_the_source_is_as_long_as_the_target_unless_told_otherwise(described) -> None:
    said = described("transformer-base", "--context", 9)
    assert (said["tokens"], said["source"]) == (9, 9)
    cache = {n: size for n, size in said["memory_bytes"].items() if n.startswith("KV cache")}
    assert list(cache.values()) == [6 * 2 * 9 * 512 * 4] * 2
    assert described("transformer-base")["source"] == 1024


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bart"},
        {"model_type": "bart", **SIZES},
        {"model_type": "bart", **SIZES, "d_model": 24, "max_position_embeddings": 40},
        {"model_type": "marian"},
        {"model_type": "marian", **SIZES},
        {**SIZES, **DIALECTS["two tables"]},
        {**SIZES, **DIALECTS["two tables"], "tie_word_embeddings": True},
    ],
)
def test_a_transformer_has_as_many_parameters_as_in_transformers(
    described, write_config, options
) -> None:
    """Marian's sinusoids are parameters there, but never trained."""
    import torch
    import transformers as hf

    kinds = {
        "bart": (hf.BartConfig, hf.BartForConditionalGeneration),
        "marian": (hf.MarianConfig, hf.MarianMTModel),
    }
    config_class, model_class = kinds[options["model_type"]]
    config = config_class(**{k: v for k, v in options.items() if k != "model_type"})
    with torch.device("meta"):
        theirs = model_class(config)
    parameters = described(write_config(config.to_dict()))["parameters"]
    assert parameters["total"] == theirs.num_parameters(only_trainable=True)
    if options["model_type"] == "bart":
        assert parameters["total"] == theirs.num_parameters()
    for side, layer in (("encoder", "an encoder layer"), ("decoder", "a decoder layer")):
        layers = getattr(theirs.model, side).layers
        assert parameters[layer] == sum(p.numel() for p in layers[0].parameters())
        assert parameters[f"all {side} layers"] == sum(p.numel() for p in layers.parameters())


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_bart_base_is_that_of_transformers(described) -> None:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    halves = {"layers": 6, "attention_heads": 12, "ffn_dim": 3072}
    sizes = {f"{side}_{of}": n for side in ("encoder", "decoder") for of, n in halves.items()}
    with torch.device("meta"):
        theirs = BartForConditionalGeneration(BartConfig(d_model=768, **sizes))
    assert described("bart-base")["parameters"]["total"] == theirs.num_parameters()
