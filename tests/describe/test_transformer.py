"""`python -m npgpt.describe` on an encoder-decoder: the counts, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt import cli
from npgpt.describe import command as describe
from tests.models.tiny_transformer import DIALECTS, SIZES, random_transformer


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


def test_the_base_model_of_2017(capsys) -> None:
    """6 + 6 layers, d 512, 8 heads, F 2048 (article chapter 2); a layer: 12 and 16 d²."""
    said = described(capsys, "transformer-base")
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


@pytest.mark.parametrize("name", ["bart-base", "facebook/bart-base"])
def test_bart_base(capsys, name) -> None:
    """139 million; a layer of the encoder is as large as a block of GPT-2 small."""
    parameters = described(capsys, name)["parameters"]
    assert parameters["total"] == 139_420_416
    assert parameters["an encoder layer"] == 7_087_872
    assert parameters["decoder.embed_positions"] == 1026 * 768
    assert parameters["final_logits_bias"] == 50_265


def test_the_text_says_the_same(capsys) -> None:
    assert describe.main(["transformer-base", "--context", "10", "--source", "20"]) == 0
    said = capsys.readouterr().out
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
    assert describe.main(["bart-base"]) == 0
    assert "\nfinal_logits_bias, not trained       50,265 " in capsys.readouterr().out


def test_heads_and_tables_of_their_own_are_said(capsys, tmp_path) -> None:
    path = write_config(tmp_path, **{**SIZES, **DIALECTS["two tables"]})
    assert describe.main([str(path)]) == 0
    said = capsys.readouterr().out
    assert "2 encoder layers, 3 heads of 4, FFN 10; " in said
    assert "3 decoder layers, 2 heads of 6, FFN 14; " in said
    assert "vocabulary 19 and 13, context 17; lm_head has its own table" in said
    parameters = described(capsys, path)["parameters"]
    assert parameters["encoder.embed_tokens"] == 19 * 12
    assert parameters["decoder.embed_tokens"] == parameters["lm_head"] == 13 * 12
    path = write_config(
        tmp_path, **{**SIZES, **DIALECTS["two tables"], "tie_word_embeddings": True}
    )
    assert describe.main([str(path)]) == 0
    assert "lm_head is decoder.embed_tokens" in capsys.readouterr().out


@pytest.mark.parametrize("dialect", DIALECTS)
def test_parts_make_up_the_whole(capsys, rng, tmp_path, dialect) -> None:
    model = random_transformer(rng, np.float32, **DIALECTS[dialect])
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"never opened")
    parameters = described(capsys, tmp_path)["parameters"]
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
def test_memory_is_that_of_a_pass(capsys, rng, tmp_path, dialect) -> None:
    model = random_transformer(rng, np.float32, **DIALECTS[dialect])
    path = write_config(tmp_path, **model.config.to_dict())
    memory = described(capsys, path, "--source", 7, "--context", 5, "--batch", 3)["memory_bytes"]
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


def test_the_source_is_as_long_as_the_target_unless_told_otherwise(capsys) -> None:
    said = described(capsys, "transformer-base", "--context", 9)
    assert (said["tokens"], said["source"]) == (9, 9)
    cache = {n: size for n, size in said["memory_bytes"].items() if n.startswith("KV cache")}
    assert list(cache.values()) == [6 * 2 * 9 * 512 * 4] * 2
    assert described(capsys, "transformer-base")["source"] == 1024


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--mermaid"], "--mermaid draws a GPT-2, but bart-base is a bart; leave it out."),
        (["--context", "1025"], "--context must be between 1 and 1024, the positions that"),
        (["--source", "1025"], "--source must be between 1 and 1024, the positions that"),
        (["--source", "-3"], "but is -3."),
        (["--context", "-1"], "but is -1."),
        (["--batch", "0"], "--batch must be at least 1"),
    ],
)
def test_options_that_are_refused(capsys, argv, says) -> None:
    assert says in refused(capsys, "bart-base", *argv)


def test_only_an_encoder_decoder_has_a_source(capsys) -> None:
    assert "but gpt2 is a gpt2; leave it out." in refused(capsys, "gpt2", "--source", "5")


@pytest.mark.parametrize("kind", ["bart", "marian", "transformer"])
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"d_model": 512.0}, "d_model is 512.0, but must be a positive integer"),
        ({"decoder_layers": None}, "decoder_layers is None"),
        ({"encoder_attention_heads": 7}, "cannot be cut into encoder_attention_heads 7"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', not true or false."),
        ({"share_encoder_decoder_embeddings": 0}, "share_encoder_decoder_embeddings is 0, not"),
        ({"bad_words_ids": 7}, "bad_words_ids is 7, but must be lists of ids"),
        ({"bad_words_ids": [7]}, "bad_words_ids is [7], but must be lists of ids"),
        ({"normalize_before": True}, "normalize_before is set"),
    ],
)
def test_configurations_that_are_refused(capsys, tmp_path, kind, raw, says) -> None:
    path = write_config(tmp_path, model_type=kind, **raw)
    assert f"{path}: " in (sentence := refused(capsys, path))
    assert says in sentence


@pytest.mark.real
def test_a_real_bart(capsys, data_dir) -> None:
    folder = data_dir / "checkpoints" / "bart-g2p-us"
    total = described(capsys, folder)["parameters"]["total"]
    assert total == npgpt.from_pretrained(folder).num_params() == 751_488


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
def test_as_many_parameters_as_in_transformers(capsys, tmp_path, options) -> None:
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
    parameters = described(capsys, write_config(tmp_path, **config.to_dict()))["parameters"]
    assert parameters["total"] == theirs.num_parameters(only_trainable=True)
    if options["model_type"] == "bart":
        assert parameters["total"] == theirs.num_parameters()
    for side, layer in (("encoder", "an encoder layer"), ("decoder", "a decoder layer")):
        layers = getattr(theirs.model, side).layers
        assert parameters[layer] == sum(p.numel() for p in layers[0].parameters())
        assert parameters[f"all {side} layers"] == sum(p.numel() for p in layers.parameters())


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_bart_base_is_that_of_transformers(capsys) -> None:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    halves = {"layers": 6, "attention_heads": 12, "ffn_dim": 3072}
    sizes = {f"{side}_{of}": n for side in ("encoder", "decoder") for of, n in halves.items()}
    with torch.device("meta"):
        theirs = BartForConditionalGeneration(BartConfig(d_model=768, **sizes))
    assert described(capsys, "bart-base")["parameters"]["total"] == theirs.num_parameters()
