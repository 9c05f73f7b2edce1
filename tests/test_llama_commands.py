"""The commands on a Llama: those that work, and the sentence of those that do not."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

import npgpt
from npgpt import cli, evaluate, generate
from npgpt.compare import command as compare
from npgpt.describe import command as describe
from npgpt.models.llama.model import Llama
from npgpt.ops.rope import rope_forward
from npgpt.train import command as train
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.gpt2 import write_byte_vocabulary
from tests.builders.llama import random_llama
from tests.train.training_runs import at_step, run


@pytest.fixture
def folder(rng, tmp_path):
    model = random_llama(rng, np.float32, vocab_size=257, max_position_embeddings=32)
    model.save_pretrained(tmp_path / "llama")
    write_byte_vocabulary(tmp_path / "llama")
    return tmp_path / "llama"


def test_generate(folder, capsys) -> None:
    argv = ["abc", "--model", str(folder), "--max-new-tokens", "5", "--json"]
    assert generate.main(argv) == 0
    sample = json.loads(capsys.readouterr().out)
    model = npgpt.from_pretrained(folder)
    allowed = np.arange(257) < 257
    want = list(model.generate(sample["prompt_ids"], 5, allowed=allowed))
    assert (sample["ids"], len(want)) == (want, 5)


def test_evaluate(folder, tmp_path, capsys) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat, and the rat sat on the hat of the cat.")
    assert evaluate.main([str(text), "--model", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["context"] == 32
    assert said["npgpt"]["together"]["tokens"] == 61


def test_evaluate_against_hf_wants_a_folder(rng, tmp_path, capsys) -> None:
    settings, tensors = llama_file(random_llama(rng, np.float32))
    path = write_gguf(tmp_path / "x.gguf", settings, tensors)
    with pytest.raises(ValueError, match=r"--against-hf reads a folder, but .* is the file"):
        evaluate._transformers(evaluate._parser().parse_args(["x", "--model", str(path)]), path)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_evaluate_against_hf(folder, tmp_path, capsys) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat.")
    assert evaluate.main([str(text), "--model", str(folder), "--json", "--against-hf"]) == 0
    said = json.loads(capsys.readouterr().out)
    ours, theirs = (said[name]["together"]["nats"] for name in ("npgpt", "transformers"))
    assert ours == pytest.approx(theirs, rel=1e-5)


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
        (["--mermaid"], "--mermaid draws a GPT-2, but .* is a llama"),
        (["--context", "33"], "--context must be between 1 and 32"),
    ],
)
def test_describe_refuses(folder, argv, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        describe.main([str(folder), *argv])


def compared(capsys, *argv):
    """Exit code of `compare --json`, and what it said."""
    code = cli.run(compare.PROG, compare.main, [*map(str, argv), "--json"])
    said = capsys.readouterr()
    assert said.err == ""
    return code, json.loads(said.out)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [False, True])
def test_compare_with_transformers(rng, tmp_path, capsys, dtype, tied) -> None:
    random_llama(rng, np.float32, tie_word_embeddings=tied).save_pretrained(tmp_path)
    argv = ("--ids", "3 1 4 1 5", "--model", tmp_path, "--gradients", "--dtype", dtype)
    code, said = compared(capsys, *argv)
    assert code == 0
    assert said["missing"] == said["unknown"] == []
    assert len(said["stations"]) == 4 * 2 + 4
    assert len(said["gradients"]) == 9 * 2 + 3 - tied


def test_compare_names_the_first_fault_of_a_port(folder, tmp_path, capsys, monkeypatch) -> None:
    """A port that turns neighbours, (0, 1), (2, 3), … instead of i with i + d_h/2."""
    dump = tmp_path / "port.safetensors"
    ids = ("--ids", "3 1 4 1 5", "--model", str(folder))
    with monkeypatch.context() as changed:
        changed.setattr("npgpt.layers.grouped_attention.rope_forward", turn_neighbours)
        assert compare.main([*ids, "--dump", str(dump)]) == 0
    capsys.readouterr()
    code, said = compared(capsys, *ids, "--against", dump)
    assert (code, said["first_beyond"]) == (1, "layers.0.self_attn.probs")
    assert compare.main([*ids, "--dump", str(dump)]) == 0
    capsys.readouterr()
    assert compared(capsys, *ids, "--against", dump)[0] == 0


def turn_neighbours(x, *, cos, sin):
    order = np.arange(x.shape[-1]).reshape(-1, 2).T.ravel()
    y, saved = rope_forward(x[..., order], cos=cos, sin=sin)
    return y[..., np.argsort(order)], saved


def test_compare_with_transformers_wants_a_folder(rng, tmp_path) -> None:
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    with pytest.raises(ValueError, match=r"transformers compares a folder, but .*x\.gguf"):
        compare.main(["--ids", "1 2", "--model", str(path)])
    assert (
        compare.main(["--ids", "1 2", "--model", str(path), "--dump", f"{path}.safetensors"]) == 0
    )


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_train_from_a_llama_stopped_and_resumed(folder, tmp_path, monkeypatch, dropout) -> None:
    """Four steps in one go, or stopped after two, end in the same numbers, and learn."""
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. " * 200)
    options = ["--data", text, "--init", folder, "--batch-size", 4, "--dropout", dropout]
    options += ["--lr", 1e-2, "--warmup", 0, "--sample-every", 0, "--steps", 4]
    assert run("--out", tmp_path / "whole", *options) == 0
    with monkeypatch.context() as patch:
        at_step(patch, 2, lambda: signal.raise_signal(signal.SIGINT))
        assert run("--out", tmp_path / "halves", *options) == 130
    assert run("--out", tmp_path / "halves", "--resume") == 0
    whole, halves = (npgpt.from_pretrained(tmp_path / name) for name in ("whole", "halves"))
    assert isinstance(whole, Llama)
    assert whole.config.attention_dropout == dropout
    before = npgpt.from_pretrained(folder)
    ids = list(b"The cat sat on the mat.")
    assert whole.loss_and_grads(ids[:-1], ids[1:])[0] < before.loss_and_grads(ids[:-1], ids[1:])[0]
    for name, param in whole.params.items():
        assert (param != before.params[name]).any(), name
        np.testing.assert_array_equal(param, halves.params[name])


def test_train_from_a_gguf_is_refused(rng, tmp_path) -> None:
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    argv = ["--init", str(path), "--data", str(path), "--out", str(tmp_path / "out")]
    with pytest.raises(ValueError, match=r"a run starts from a folder, .*x\.gguf"):
        train.main(argv)
