"""`python -m npgpt.describe` on a Llama."""

from __future__ import annotations

import json

import pytest

import npgpt
from npgpt.describe import command as describe
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.llama import write_tiny_llama


@pytest.fixture
def folder(tmp_path):
    return write_tiny_llama(tmp_path / "llama")


def test_describe_llama_3_8b(capsys) -> None:
    """218 million parameters a layer, 81 % of them in the MLP, from the configuration alone."""
    assert describe.main(["llama-3-8b"]) == 0
    said = capsys.readouterr().out
    assert "a block         218,112,000         2.7 %     100.0 %" in said
    assert "  MLP           176,160,768         2.2 %      80.8 %" in said
    assert "total         8,030,261,248       100.0 %" in said
    assert (
        "KV cache                               2,147,483,648" in said
    )  # 32 · 2 · 8192 · 8 · 128 · 4
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize(
    ("name", "total", "says"),
    [
        ("mistral-7b", 7_241_732_096, "theta 10000), no further back than 4096 tokens,"),
        ("qwen2.5-0.5b", 494_032_768, "14 heads of 64 on 2 of keys and values"),
        ("qwen3-0.6b", 596_049_920, "norms of q and k"),
    ],
)
def test_describe_relatives(name, total, says, capsys) -> None:
    """The numbers of parameters that their makers give."""
    assert describe.main([name]) == 0
    said = capsys.readouterr().out
    assert f"{total:,}" in said
    assert says in said
    assert describe.main([name, "--mermaid"]) == 0
    drawn = capsys.readouterr().out
    assert ("q and k normed and rotated" in drawn) == (name == "qwen3-0.6b")
    assert ("no further back than 4096 tokens" in drawn) == (name == "mistral-7b")


def test_describe_windows_in_some_blocks(tmp_path, capsys) -> None:
    windows = {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1}
    write_tiny_llama(tmp_path, **windows, sliding_window=5)
    assert describe.main([str(tmp_path)]) == 0
    assert ", no further back than 5 tokens in 1 block,\n" in capsys.readouterr().out


def test_describe_a_folder_and_a_file(folder, capsys) -> None:
    model = npgpt.from_pretrained(folder)
    path = write_gguf(folder / "x.gguf", *llama_file(model))
    counts = []
    for name in (folder, folder / "config.json", path):
        assert describe.main([str(name), "--json", "--context", "10", "--dtype", "float16"]) == 0
        said = json.loads(capsys.readouterr().out)
        counts.append((said["parameters"]["total"], said["memory_bytes"]["KV cache"]))
    assert counts == [(model.num_params(), 2 * 2 * 10 * 3 * 4 * 2)] * 3


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--context", "33"], "--context must be between 1 and 32"),
    ],
)
def test_describe_refuses(folder, argv, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        describe.main([str(folder), *argv])
