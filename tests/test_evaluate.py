"""The loss of a text through a sliding window, against a loop that predicts token by token."""

from __future__ import annotations

import json
import math
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt import cli, evaluate
from npgpt.evaluate import Score, _report, sliding_nats
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.llama import random_llama, write_tiny_llama
from tests.builders.vocabularies import byte_fallback, unigram, write_foreign, write_foreign_llama
from tests.train.training_runs import story, write_story


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_gpt2(tmp_path_factory.mktemp("model"), scale=6.0)


def run(*arguments):
    return cli.run(evaluate.PROG, evaluate.main, [str(argument) for argument in arguments])


def measure(capsys, *arguments):
    """What the command prints as JSON."""
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def nats_one_by_one(model, ids, context, stride):
    """Each token from the start of the first window that reaches it, by the definition."""
    total, start = 0.0, 0
    for t in range(1, len(ids)):
        while t > start + context:
            start += stride
        if start + context > len(ids) - 1:
            start = max(0, len(ids) - 1 - context)  # the last window is as long as the others
        logits = model(ids[start:t])[-1]
        total += math.log(np.exp(logits - logits[ids[t]]).sum())
    return total


@pytest.mark.parametrize(
    ("length", "context", "stride"),
    [(50, 8, 8), (50, 8, 3), (50, 8, 1), (49, 8, 4), (9, 8, 4), (5, 8, 4), (2, 8, 8)],
)
def test_the_sliding_window_equals_a_loop(model, rng, length, context, stride):
    gpt2 = npgpt.from_pretrained(model, dtype=np.float64)
    ids = rng.integers(257, size=length)
    wanted = nats_one_by_one(gpt2, ids, context, stride)
    assert sliding_nats(gpt2, ids, context, stride) == pytest.approx(wanted, rel=1e-12)


def test_batches_of_windows_change_nothing(model, rng, monkeypatch):
    gpt2, ids = npgpt.from_pretrained(model, dtype=np.float64), rng.integers(257, size=90)
    wanted = sliding_nats(gpt2, ids, 8, 5)
    for at_once in (1, 3 * 8 * 257):
        monkeypatch.setattr(evaluate, "LOGITS_AT_ONCE", at_once)
        assert sliding_nats(gpt2, ids, 8, 5) == pytest.approx(wanted, rel=1e-13)


def test_an_end_of_text_is_a_token_without_bytes_if_asked_for(model, tmp_path, capsys):
    text = tmp_path / "two.txt"
    text.write_text("one<|endoftext|>two<|endoftext|>", encoding="utf-8")
    row = measure(capsys, "--model", model, "--special", text)["npgpt"]["files"][str(text)]
    assert (row["tokens"], row["bytes"]) == (8, 6)
    gpt2, ids = npgpt.from_pretrained(model), [256, *b"one", 256, *b"two", 256]
    assert row["nats"] == pytest.approx(nats_one_by_one(gpt2, ids, gpt2.context, 1), rel=1e-5)
    row = measure(capsys, "--model", model, text)["npgpt"]["files"][str(text)]
    assert row["tokens"] == row["bytes"] == 32


def test_the_command_counts_every_byte_after_end_of_text(model, tmp_path, capsys):
    texts = [write_story(tmp_path, size, f"{size}.txt") for size in (40, 90)]
    result = measure(capsys, "--model", model, "--context", 16, "--stride", 4, *texts)
    gpt2 = npgpt.from_pretrained(model)
    nats = [nats_one_by_one(gpt2, [256, *story(size).encode()], 16, 4) for size in (40, 90)]
    for path, size, wanted in zip(texts, (40, 90), nats, strict=True):
        row = result["npgpt"]["files"][str(path)]
        assert (row["tokens"], row["bytes"]) == (size, size)
        assert row["nats"] == pytest.approx(wanted, rel=1e-5)
    together = result["npgpt"]["together"]
    assert (together["tokens"], together["bytes"]) == (130, 130)
    assert together["bits_per_byte"] == pytest.approx(sum(nats) / math.log(2) / 130, rel=1e-5)
    assert together["perplexity"] == pytest.approx(math.exp(sum(nats) / 130), rel=1e-4)
    assert (result["context"], result["stride"], result["dtype"]) == (16, 4, "float32")
    assert result["starts_after_id"] == 256


def test_a_text_starts_after_begin_of_text_where_that_is_another_token(tmp_path, capsys):
    model = write_tiny_llama(tmp_path / "model", bos_token_id=7, eos_token_id=256)
    (tmp_path / "text.txt").write_text("some words", encoding="utf-8")
    result = measure(capsys, "--model", model, tmp_path / "text.txt")
    assert result["starts_after_id"] == 7
    wanted = nats_one_by_one(npgpt.from_pretrained(model), [7, *b"some words"], 32, 16)
    assert result["npgpt"]["together"]["nats"] == pytest.approx(wanted, rel=1e-5)


def test_a_folder_is_all_its_texts_and_defaults_are_the_whole_context(model, tmp_path, capsys):
    for name in ("a.txt", "b.txt"):
        write_story(tmp_path, 60, name)
    result = measure(capsys, "--model", model, tmp_path)
    assert [path.rpartition("/")[2] for path in result["npgpt"]["files"]] == ["a.txt", "b.txt"]
    assert (result["context"], result["stride"]) == (32, 16)


def test_without_end_of_text_the_first_token_is_not_predicted(tmp_path, capsys):
    model = write_tiny_gpt2(tmp_path / "model", scale=6.0, eos_token_id=None, bos_token_id=None)
    text = tmp_path / "text.txt"
    text.write_text("some words", encoding="utf-8")
    result = measure(capsys, "--model", model, text)
    assert result["starts_after_id"] is None
    row = result["npgpt"]["together"]
    assert (row["tokens"], row["bytes"]) == (9, 9)
    wanted = nats_one_by_one(npgpt.from_pretrained(model), list(b"some words"), 32, 16)
    assert row["nats"] == pytest.approx(wanted, rel=1e-5)
    text.write_text("s", encoding="utf-8")
    assert run("--model", model, text) == 2
    assert "a text of a single token has nothing to predict" in capsys.readouterr().err


def test_the_table(model, tmp_path, capsys):
    text = write_story(tmp_path, 60)
    row = measure(capsys, "--model", model, text)["npgpt"]["together"]
    assert run("--model", model, text) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"model: {model}, context: 32, stride: 16, dtype: float32, starts after id: 256"
    )
    assert lines[3].split() == ["nats", "tokens", "bytes", "bits/byte", "perplexity"]
    for line, name in zip(lines[4:], (str(text), "together"), strict=True):
        assert line.split() == [
            f"{row['nats']:.4f}", "60", "60", f"{row['bits_per_byte']:.5f}",
            f"{row['perplexity']:.4f}", name,
        ]  # fmt: skip


def test_progress_on_a_terminal_alone(model, tmp_path, capsys, monkeypatch):
    texts = [write_story(tmp_path, size, f"{size}.txt") for size in (40, 90)]
    assert run("--model", model, *texts) == 0
    printed, silent = capsys.readouterr()
    assert silent == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # starts no thread
    assert run("--model", model, *texts) == 0
    out, err = capsys.readouterr()
    assert out == printed
    assert err.startswith("\rnpgpt:   0%|")
    assert "| 0.00/130 [" in err
    assert err.endswith("\r")  # and the bar is gone


def test_progress_counts_every_prediction_once(model, rng):
    gpt2 = npgpt.from_pretrained(model)
    seen: list[int] = []
    sliding_nats(gpt2, rng.integers(257, size=50), 8, 3, seen.append)
    assert sum(seen) == 49
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--context 33", "--context must be in [1, 32], but is 33."),
        ("--context 0", "--context must be in [1, 32], but is 0."),
        ("--stride 0", "--stride must be in [1, 32] (the context), but is 0."),
        ("--context 8 --stride 9", "--stride must be in [1, 8] (the context), but is 9."),
    ],
)
def test_windows_that_do_not_fit(model, tmp_path, capsys, options, message):
    assert run("--model", model, write_story(tmp_path, 60), *options.split()) == 2
    assert capsys.readouterr().err == f"npgpt.evaluate: error: {message}\n"


def test_texts_that_cannot_be_read(model, tmp_path, capsys):
    assert run("--model", model, tmp_path / "none.txt") == 2
    assert "none.txt is not there" in capsys.readouterr().err
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    assert run("--model", model, tmp_path / "bad.txt") == 2
    assert "bad.txt is not UTF-8" in capsys.readouterr().err
    (tmp_path / "ends.txt").write_text("<|endoftext|>")
    assert run("--model", model, tmp_path / "ends.txt", "--special") == 2
    assert "ends.txt holds special tokens alone" in capsys.readouterr().err


def test_columns_stay_apart_however_large_the_perplexity(capsys):
    _report({"npgpt": {"a.txt": Score(700.0, 1, 1)}}, {}, as_json=False)
    assert len(capsys.readouterr().out.splitlines()[-1].split()) == 6


def test_the_comparison_says_what_it_needs(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("--model", model, write_story(tmp_path, 60), "--against-hf") == 2
    assert '--against-hf needs: pip install "npgpt[hf]"' in capsys.readouterr().err


def test_the_comparison_asks_for_the_same_model_in_eager_attention(
    model, tmp_path, capsys, monkeypatch
):
    """With stand-ins for both packages that compute in NumPy, and add 1 % to every logit.

    Also without the grouped products of experts, which transformers has from 5 on.
    """
    torch: Any = ModuleType("torch")
    transformers: Any = ModuleType("transformers")
    torch.float64, torch.from_numpy, torch.no_grad = "64 bits", np.asarray, nullcontext

    class Reference:
        @classmethod
        def from_pretrained(cls, folder, **options):
            eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
            assert options == {"dtype": "64 bits", **eager}
            return SimpleNamespace(eval=lambda: cls(folder))

        def __init__(self, folder):
            self.model = npgpt.from_pretrained(folder, dtype=np.float64)

        def __call__(self, ids):
            logits = 1.01 * self.model(ids)
            return SimpleNamespace(logits=SimpleNamespace(numpy=lambda: logits))

    transformers.AutoModelForCausalLM, transformers.__version__ = Reference, "5.24.0"
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    options = ("--model", model, write_story(tmp_path, 60), "--dtype", "float64", "--against-hf")
    result = measure(capsys, *options)
    ours, theirs = (result[name]["together"]["bits_per_byte"] for name in ("npgpt", "transformers"))
    assert ours != theirs
    assert run(*options) == 0
    difference = capsys.readouterr().out.splitlines()[-1]
    assert difference == f"difference: {abs(ours - theirs):.2e} bits per byte"


def test_a_llama(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat, and the rat sat on the hat of the cat.")
    result = measure(capsys, "--model", write_tiny_llama(tmp_path / "llama"), text)
    assert result["context"] == 32
    assert result["npgpt"]["together"]["tokens"] == 61


def test_the_comparison_wants_a_folder(rng, tmp_path):
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    with pytest.raises(ValueError, match=r"--against-hf reads a folder, but .* is the file"):
        evaluate._transformers(evaluate._parser().parse_args(["x", "--model", str(path)]), path)


@pytest.mark.hf
@pytest.mark.parametrize(
    ("write", "dtype", "bound"),
    [
        (write_tiny_gpt2, "float64", 1e-12),
        (write_tiny_gpt2, "float32", 1e-6),
        (write_tiny_llama, "float32", 1e-5),
    ],
)
def test_transformers_measures_the_same(hf, tmp_path, capsys, write, dtype, bound):
    model, text = write(tmp_path / "model"), write_story(tmp_path, 700)
    options = ("--model", model, text, "--dtype", dtype, "--stride", 5, "--against-hf")
    result = measure(capsys, *options)
    ours, theirs = (result[name]["together"]["bits_per_byte"] for name in ("npgpt", "transformers"))
    assert ours == pytest.approx(theirs, rel=bound)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("make", [byte_fallback, unigram])
def test_bytes_are_those_of_the_text_whatever_the_vocabulary(capsys, tokenizers, tmp_path, make):
    """It lowers, joins and prefixes as it likes: ﬁ becomes fi, two spaces one, ▁ is no byte."""
    folder, path = write_foreign_llama(tmp_path / "model", make), tmp_path / "text.txt"
    text = "The cat  sat ﬁnally\non the mat"
    path.write_text(text, encoding="utf-8")
    ids = npgpt.load_tokenizer(folder).encode(text)
    assert run(path, "--model", folder, "--json") == 0
    out, err = capsys.readouterr()
    row = json.loads(out)["npgpt"]["together"]
    assert ("tokens are <unk>" in err) is (0 in ids)
    assert (make is unigram, ids[0]) == (0 in ids, 1)
    assert (row["tokens"], row["bytes"]) == (len(ids) - 1, len(text.encode()))
    nats = nats_one_by_one(npgpt.from_pretrained(folder), ids, 64, 32)
    assert row["nats"] == pytest.approx(nats, rel=1e-5)


def test_a_first_token_that_nothing_predicts_has_its_bytes_left_out(capsys, tokenizers, tmp_path):
    folder, path = write_foreign_llama(tmp_path / "model"), tmp_path / "text.txt"
    config = json.loads((folder / "config.json").read_text())
    config |= dict.fromkeys(("bos_token_id", "eos_token_id"))
    (folder / "config.json").write_text(json.dumps(config))
    write_foreign(folder, byte_fallback(start=False))
    path.write_text("the cat")
    first = npgpt.load_tokenizer(folder).decode(npgpt.load_tokenizer(folder).encode("the cat")[:1])
    row = measure(capsys, path, "--model", folder)["npgpt"]["together"]
    assert row["bytes"] == len("the cat") - len(first) < len("the cat")
