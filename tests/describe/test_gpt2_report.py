"""The description of a GPT-2, with the article's figures to the last digit; the diagram."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from npgpt.describe.gpt2 import flops, memory, structure_of
from npgpt.describe.mermaid import mermaid
from npgpt.models.gpt2.config import PRESETS, init_params
from npgpt.models.gpt2.model import GPT2
from tests.builders.gpt2 import byte_gpt2_config


def row(text: str, title: str, name: str) -> list[str]:
    """The cells behind a name, in the table with that title."""
    (table,) = [part for part in text.split("\n\n") if part.startswith(title)]
    (line,) = [
        line for line in map(str.strip, table.splitlines()) if f"{line}  ".startswith(f"{name}  ")
    ]
    return re.split(r" {2,}", line.removeprefix(name).strip())


def test_the_articles_table_of_gpt2_small(described):
    """Article 11.2 and 7.7, and nanoGPT's count beside them."""
    gpt2 = described()
    assert gpt2["model"] == "gpt2"
    assert gpt2["parameters"] == {
        "wte": 38_597_376,
        "wpe": 786_432,
        "attention": 2_362_368,
        "W_Q": 590_592,
        "W_K": 590_592,
        "W_V": 590_592,
        "W_O": 590_592,
        "FFN": 4_722_432,
        "W_1": 768 * 3072 + 3072,
        "W_2": 3072 * 768 + 768,
        "two LayerNorms": 3_072,
        "block": 7_087_872,
        "blocks": 85_054_464,
        "ln_f": 1_536,
        "lm_head": 0,
        "total": 124_439_808,
        "embedding": 39_383_808,
        "without wpe": 123_653_376,
    }
    assert round(100 * gpt2["share_of_model"]["embedding"], 1) == 31.6
    assert round(100 * gpt2["share_of_block"]["FFN"], 1) == 66.6


def test_the_text_prints_the_same_table(run):
    code, text, err = run("gpt2")
    assert (code, err) == (0, "")
    assert row(text, "parameters", "total") == ["124,439,808", "100.0 %"]
    assert row(text, "parameters", "12 blocks") == ["85,054,464", "68.3 %"]
    assert row(text, "parameters", "FFN") == ["4,722,432", "3.8 %", "66.6 %"]
    assert row(text, "parameters", "W_O") == ["590,592", "0.5 %", "8.3 %"]
    assert row(text, "parameters", "embedding: wte and wpe") == ["39,383,808", "31.6 %"]
    assert row(text, "parameters", "lm_head, shared with wte") == ["0"]
    assert row(text, "parameters", "without wpe, as nanoGPT counts") == ["123,653,376", "99.4 %"]


def test_shares_of_boxes_are_those_of_all_blocks_together(run):
    text = run("gpt2")[1]
    parameters, share, work, of_flops = row(text, "box", "mlp.c_fc")[2:]
    assert (parameters, work) == ("2,362,368", "4,718,592")
    assert share == f"{100 * 12 * 2_362_368 / 124_439_808:.1f} %"
    assert of_flops == f"{100 * 12 * 4_718_592 / 284_812_800:.1f} %"
    assert row(text, "box", "one block")[2:4] == ["7,087,872", "68.3 %"]
    assert row(text, "box", "model")[2:] == ["124,439,808", "100.0 %", "284,812,800", "100.0 %"]
    assert row(text, "box", "cut into heads")[1] == "3 × [12, T, 64]"


def test_memory_of_the_weight_tables_as_in_the_article(run, described):
    """Article 7.6: T 1024, bf16, one layer and twelve."""
    bytes_ = described("gpt2", "--dtype", "bfloat16")["memory_bytes"]
    assert bytes_["weight tables of a layer"] == {"amount": 25_165_824, "grows_with": "T²"}
    assert bytes_["weight tables of all layers"] == {"amount": 301_989_888, "grows_with": "T²"}
    text = run("gpt2", "--dtype", "bfloat16")[1]
    assert row(text, "memory", "weight tables of a layer") == [
        "25,165,824",
        "25.2 MB",
        "24.0 MiB",
        "T²",
    ]
    assert row(text, "memory", "weight tables of all layers")[2] == "288.0 MiB"


def test_memory_goes_with_batch_and_dtype_and_the_kv_cache_with_t_whatever_the_heads(described):
    one = described("gpt2", "--context", 512)["memory_bytes"]
    three = described("gpt2", "--context", 512, "--batch", 3, "--dtype", "float64")["memory_bytes"]
    assert one["KV cache"]["amount"] == 12 * 2 * 512 * 768 * 4
    assert one["logits"]["amount"] == 512 * 50257 * 4
    assert one["residual stream"]["amount"] == 512 * 768 * 4
    for name, cost in one.items():
        times = 2 if name == "parameters" else 6  # the parameters are there once
        assert three[name]["amount"] == times * cost["amount"]
    few = memory(structure_of(replace(PRESETS["gpt2"], n_head=2)), 512, 1, 4)
    assert {c.name: c.amount for c in few}["KV cache"] == one["KV cache"]["amount"]


def test_flops(described):
    """Article 7.6: h x 2T²d_h = 2T²d, whatever the heads; W_O 1.2 MFLOPs a token."""
    gpt2 = described("gpt2", "--context", 1000)
    per_token = {box["box"]: box["flops_per_token"] for box in gpt2["block"] + gpt2["top"]}
    assert per_token["attn.c_proj"] == 2 * 768**2
    assert round(per_token["attn.c_proj"] / 1e6, 1) == 1.2
    assert per_token["scores q kᵀ"] == per_token["weighted sum of v"] == 2 * 1000 * 768
    assert per_token["mlp.c_fc"] == per_token["mlp.c_proj"] == 2 * 768 * 3072
    assert per_token["lm_head"] == 2 * 768 * 50257
    all_tokens = 1000 * (12 * (24 * 768**2 + 4 * 1000 * 768) + 2 * 768 * 50257)
    assert gpt2["flops"]["all"]["amount"] == all_tokens
    assert flops(structure_of(PRESETS["gpt2"]), 1000, 5)[-1].amount == 5 * all_tokens


def test_shapes_are_those_of_a_forward_pass(run, rng, write_config):
    config = byte_gpt2_config(n_inner=31)
    text = run(write_config(config.to_dict()))[1]
    model, stations = GPT2(config, init_params(config, rng)), dict[str, np.ndarray]()
    saved = model.forward([1, 2, 3, 4, 5], observe=stations.__setitem__).saved
    assert row(text, "box", "wte")[1] == in_brackets(stations["embed"])
    assert row(text, "box", "scale mask softmax")[1] == in_brackets(stations["h.0.attn.probs"])
    assert row(text, "box", "join heads")[1] == in_brackets(saved.blocks[0].attn.c_proj[0])
    assert row(text, "box", "mlp.c_proj")[0] == in_brackets(saved.blocks[0].mlp.c_proj[0])
    assert row(text, "box", "ln_f")[1] == in_brackets(stations["ln_f"])
    assert row(text, "box", "lm_head")[1] == in_brackets(stations["logits"])


def in_brackets(array: np.ndarray) -> str:
    """A shape for five tokens, with T for 5; no other size is 5."""
    return "[" + ", ".join("T" if n == 5 else str(n) for n in array.shape) + "]"


def test_mermaid_is_a_diagram_of_these_sizes(run, write_config):
    path = write_config(byte_gpt2_config(n_inner=31, tie_word_embeddings=False).to_dict())
    code, text, err = run(path, "--mermaid")
    assert (code, err) == (0, "")
    for words in (
        "flowchart TB",
        '"2 blocks"',
        "3 heads × 4 → joined → W_O",
        "12 → 31 → gelu_new → 12",
        "[T, 12]",
        "257 × 12",
        "lm_head: own table",
        "logits　[T, 257]",
    ):
        assert words in text
    assert "wte transposed" in mermaid(PRESETS["gpt2"])


def test_every_arrow_of_the_diagram_joins_nodes_that_are_drawn():
    text = mermaid(PRESETS["gpt2"])
    node = r"(\w+)(?:\[\"[^\"]*\"\]|\(\(\"\+\"\)\))?"
    arrow = r"(?:-->|-- \"[^\"]*\" -->|-\. \"residual\" \.->)"
    lines = [line.strip() for line in text.splitlines()]
    ends = [
        match.groups() for line in lines if (match := re.fullmatch(f"{node} {arrow} {node}", line))
    ]
    drawn = set(re.findall(r"(\w+)(?:\[\"|\(\(\")", text))
    assert drawn - {"BLOCK"} == {name for pair in ends for name in pair}
    assert len(lines) == len(ends) + 4  # the init line, flowchart, subgraph, end
    assert sorted(end for start, end in ends if start in ("X", "H")) == [
        "ADD1",
        "ADD2",
        "LN1",
        "LN2",
    ]


def test_an_untied_head_has_parameters_of_its_own(described, write_config):
    path = write_config({"model_type": "gpt2", "tie_word_embeddings": False})
    parameters = described(path)["parameters"]
    assert parameters["lm_head"] == 38_597_376
    assert parameters["total"] == 124_439_808 + 38_597_376


@pytest.mark.hf
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpt2", {}),
        ("gpt2-medium", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
        ("gpt2-large", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
        ("gpt2-xl", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    ],
)
def test_presets_have_as_many_parameters_as_in_transformers(hf, described, name, sizes):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        theirs = GPT2LMHeadModel(GPT2Config(**sizes))
    block = sum(p.numel() for p in theirs.transformer.h[0].parameters())
    parameters = described(name)["parameters"]
    assert parameters["total"] == sum(p.numel() for p in theirs.parameters())
    assert parameters["block"] == block
