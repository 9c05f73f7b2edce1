"""The diagrams of all architectures: every arrow, every norm, every size."""

from __future__ import annotations

import re

import pytest

from npgpt.describe.command import PRESETS
from npgpt.describe.mermaid import mermaid
from npgpt.models.bert.config import BERTConfig
from npgpt.models.bert.config import param_shapes as bert_shapes
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.config import param_shapes as gpt2_shapes
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.config import param_shapes as transformer_shapes

NODE = r"(\w+)(?:\[\"[^\"]*\"\]|\(\(\"\+\"\)\))?"
ARROW = r"(-->|-- \"[^\"]*\" -->|-\. \"residual\" \.->)"
configs = pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)


def arrows(text: str) -> list[tuple[str, str, str]]:
    """Start, kind and end of each."""
    found = [re.fullmatch(f"{NODE} {ARROW} {NODE}", line.strip()) for line in text.splitlines()]
    return [(match[1], match[2], match[3]) for match in found if match]


@configs
def test_every_line_is_an_arrow_between_nodes_that_are_drawn(config) -> None:
    text = mermaid(config)
    ends = arrows(text)
    frames = re.findall(r"subgraph (\w+)", text)
    assert len(text.splitlines()) == len(ends) + 2 + 2 * len(frames)  # init line, flowchart; end
    drawn = re.findall(r"(\w+)(?:\[\"|\(\(\")", text)
    assert sorted(drawn) == sorted({*drawn})
    assert {*drawn} - {*frames} == {name for start, _, end in ends for name in (start, end)}


@configs
def test_every_plus_has_a_residual_and_a_sublayer(config) -> None:
    ends = arrows(mermaid(config))
    sums = [end for _, kind, end in ends if "residual" in kind]
    assert len(sums) == (5 if isinstance(config, TransformerConfig) else 2)
    for plus in sums:
        ways = sorted(start for start, _, end in ends if end == plus)
        assert len(ways) == 2
        (sublayer,) = [name for name in ways if name.endswith(("ATT", "FFN", "CROSS"))]
        (stream,) = {*ways} - {sublayer}
        before = {start for start, _, end in ends if end == sublayer}
        pre = isinstance(config, GPT2Config | LlamaConfig)
        assert (stream in before) == (not pre)  # post-norm: the sublayer reads the stream itself


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            GPT2Config(n_layer=3, n_embd=24, n_head=2, vocab_size=99, n_inner=50),
            ("3 blocks", "2 heads × 12", "24 → 50 → gelu_new → 24", "99 × 24", "wte transposed"),
        ),
        (
            LlamaConfig(
                num_hidden_layers=3,
                hidden_size=24,
                num_attention_heads=6,
                num_key_value_heads=2,
                intermediate_size=50,
                vocab_size=99,
            ),
            (
                "3 blocks",
                "6 heads × 4, on 2 of keys and values",
                "24 → silu(gate 50) × up 50 → 24",
                "99 × 24",
                "lm_head: own table",
                "rotated",
            ),
        ),
        (
            BERTConfig(
                num_hidden_layers=3,
                hidden_size=24,
                num_attention_heads=2,
                intermediate_size=50,
                vocab_size=99,
                type_vocab_size=4,
            ),
            (
                "3 layers",
                "2 heads × 12",
                "24 → 50 → gelu → 24",
                "4 × 24",
                "word_embeddings transposed",
                "left and right",
            ),
        ),
        (
            TransformerConfig(
                encoder_layers=3,
                decoder_layers=2,
                d_model=24,
                encoder_attention_heads=4,
                decoder_attention_heads=2,
                encoder_ffn_dim=50,
                decoder_ffn_dim=60,
                vocab_size=99,
            ),
            (
                "3 encoder layers",
                "2 decoder layers",
                "4 heads × 6",
                "2 heads × 12",
                "24 → 50 → relu",
                "24 → 60 → relu",
                "times √24",
                "sinusoids",
            ),
        ),
    ],
    ids=["gpt2", "llama", "bert", "transformer"],
)
def test_sizes_are_the_configurations(config, says) -> None:
    text = mermaid(config)
    assert [words for words in says if words not in text] == []


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("gpt2", gpt2_shapes),
        ("llama-3-8b", llama_shapes),
        ("bert-base-uncased", bert_shapes),
        ("transformer-base", transformer_shapes),
        ("bart-base", transformer_shapes),
    ],
)
def test_every_table_and_norm_of_the_checkpoint_is_named(name, shapes) -> None:
    text = mermaid(PRESETS[name])
    names = {re.sub(r"\.?(weight|bias)$", "", key) for key in shapes(PRESETS[name])}
    for part in {key.split(".")[-1] for key in names}:
        if re.search("norm|^ln_|embed|^w[tp]e$|^shared$", part):
            assert part in text.replace("attention.output", "LayerNorm"), part


def test_the_decoder_reads_keys_and_values_of_the_source() -> None:
    ends = arrows(mermaid(PRESETS["transformer-base"]))
    assert ("E_Y", '-- "K and V of the source, [S, 512]" -->', "D_CROSS") in ends
    assert [start for start, _, end in ends if end == "D_CROSS"] == ["D_H", "E_Y"]


def test_mermaid_of_every_preset_from_the_command(run) -> None:
    for name in PRESETS:
        code, out, err = run(name, "--mermaid")
        assert (code, err) == (0, "")
        assert out == mermaid(PRESETS[name]) + "\n"
