"""Training from a checkpoint, or with the vocabulary of one."""

from __future__ import annotations

import json

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import read_tensors
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.vocabularies import write_foreign_llama
from tests.train.training_runs import SMALL, facts, rows, run, story, write_story


def test_fine_tuning_keeps_the_vocabulary_and_starts_from_the_weights(tmp_path, capsys):
    model = write_tiny_gpt2(tmp_path / "model", scale=3.0)
    (model / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}', "utf-8")
    (model / "generation_config.json").write_text('{"eos_token_id": [256, 7]}', "utf-8")
    out = tmp_path / "tuned"
    options = ("--steps", 4, "--batch-size", 4, "--sample-every", 0, "--lr", "1e-3")
    assert run("--data", write_story(tmp_path), "--init", model, "--out", out, *options) == 0
    npgpt.from_pretrained(out).save_pretrained(tmp_path / "saved")
    for name in ("vocab.json", "merges.txt", "special_tokens_map.json", "generation_config.json"):
        assert (out / name).read_bytes() == (model / name).read_bytes()
        assert (tmp_path / "saved" / name).read_bytes() == (model / name).read_bytes()
    before, after = npgpt.from_pretrained(model), npgpt.from_pretrained(out)
    for name, param in after.params.items():
        moved = np.abs(param - before.params[name]).max()
        assert 0 < moved < 4 * 1.5e-3 + 1e-3 * 0.1 * 4 * np.abs(param).max()
    assert facts(out)["settings"]["context"] == 32
    losses = [float(row["train_loss"]) for row in rows(out)]
    assert losses[-1] < losses[0]


def test_fine_tuning_without_end_of_text_in_the_vocabulary(tmp_path, capsys):
    model = write_tiny_gpt2(tmp_path / "model", eos_token_id=None, bos_token_id=None)
    options = ("--steps", 1, "--batch-size", 2, "--sample-every", 1)
    text = write_story(tmp_path, 1000)
    assert run("--data", text, "--init", model, "--out", tmp_path / "run", *options) == 0
    out = capsys.readouterr().out
    assert "; 900 tokens to train on, 100 held out; " in out
    assert f"--- sample after step 1\n{story(1)}" in out


def test_a_vocabulary_from_elsewhere_sets_the_size_of_the_tables(tmp_path):
    source = write_tiny_gpt2(tmp_path / "model")
    vocab = json.loads((source / "vocab.json").read_text("utf-8"))
    (source / "vocab.json").write_text(json.dumps({**vocab, "th": 257}), "utf-8")
    (source / "merges.txt").write_text("#version: 0.2\nt h\n", "utf-8")
    (source / "generation_config.json").write_text("{}", "utf-8")
    out = tmp_path / "run"
    options = ("--vocab-from", source, *SMALL, "--steps", 1)
    assert run("--data", write_story(tmp_path), "--out", out, *options) == 0
    assert len(npgpt.from_pretrained(out).params["wte.weight"]) == 258
    assert npgpt.load_tokenizer(out).encode("the") == [257, ord("e")]
    assert (out / "merges.txt").read_bytes() == (source / "merges.txt").read_bytes()
    assert not (out / "generation_config.json").exists()  # that is the source's own matter


@pytest.mark.hf
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_tuned_model_opens_in_transformers_with_equal_logits(hf, tmp_path, dtype):
    import torch
    from transformers import AutoTokenizer, GPT2LMHeadModel

    model = write_tiny_gpt2(tmp_path / "model", scale=3.0)
    out = tmp_path / "tuned"
    options = ("--steps", 3, "--batch-size", 4, "--sample-every", 0, "--save-dtype", dtype)
    assert run("--data", write_story(tmp_path), "--init", model, "--out", out, *options) == 0
    reference, info = GPT2LMHeadModel.from_pretrained(
        out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.values()), info
    ids = list(b"The fox saw the queen.")
    with torch.no_grad():
        wanted = reference.eval()(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(npgpt.from_pretrained(out)(ids), wanted, rtol=1e-4, atol=1e-5)
    assert AutoTokenizer.from_pretrained(out)("The fox saw the queen.")["input_ids"] == ids
    stored = {a.dtype.name for a in read_tensors(out / "model.safetensors").values()}
    assert stored == {dtype}


def test_a_vocabulary_of_another_kind_is_kept_and_resumed(tokenizers, tmp_path, capsys):
    """Each text is framed as the vocabulary frames it; the end of text stands between."""
    folder = write_foreign_llama(tmp_path / "llama")
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in "ab":
        (texts / f"{name}.txt").write_text(f"the cat {name} sat on the mat. " * 40)
    out = tmp_path / "out"
    options = ["--data", texts, "--init", folder, "--batch-size", 2, "--context", 16]
    options += ["--lr", 1e-3, "--warmup", 0, "--sample-prompt", "the", "--sample-every", 2]
    assert run("--out", out, *options, "--steps", 2) == 0
    printed = capsys.readouterr().out
    assert "sample after step 2\nthe" in printed
    kept = read_tensors(out / "ids.safetensors")
    ids = np.concatenate([kept["ids"], kept["held_out"]]).tolist()
    ours = npgpt.load_tokenizer(out)
    assert (out / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    a, b = (ours.encode((texts / f"{name}.txt").read_text()) for name in "ab")
    assert ids == [*a, 2, *b, 2]
    assert run("--out", out, "--resume", "--steps", 4) == 0
    assert npgpt.from_pretrained(out).config.eos_token_id == 2


def test_a_model_is_trained_anew_on_a_vocabulary_of_another_kind(tokenizers, tmp_path):
    folder = write_foreign_llama(tmp_path / "llama")
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat. " * 40)
    out, sizes = tmp_path / "out", ["--n-layer", 1, "--n-head", 1, "--n-embd", 8, "--context", 16]
    options = ["--vocab-from", folder, "--batch-size", 2, "--sample-every", 0]
    assert run("--out", out, "--data", path, *options, *sizes, "--steps", 1) == 0
    config = npgpt.from_pretrained(out).config
    assert (config.vocab_size, config.eos_token_id) == (
        max(npgpt.load_tokenizer(out).bytes_of) + 1,
        2,
    )
