"""What training refuses, in one sentence, before it writes anything."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.train.options import new_settings
from tests.builders.gpt2 import write_tiny_gpt2
from tests.train.training_runs import SMALL, facts, run, weights, write_story


def refuse(capsys, *arguments):
    """Run, and return the one sentence that it says instead of training."""
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("npgpt.train: error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "text.txt is empty"),
        (b"\xff\xfe", "text.txt is not UTF-8: invalid start byte at byte 0; convert it first."),
        (b"short", "has 6 tokens, fewer than one block of 16 and its last target; give more text"),
        (None, "text.txt is not there; name a text file or a folder of .txt files."),
    ],
)
def test_texts_that_cannot_be_trained_on(tmp_path, capsys, content, message):
    text, out = tmp_path / "text.txt", tmp_path / "run"
    if content is not None:
        text.write_bytes(content)
    assert message in refuse(capsys, "--data", text, "--out", out, *SMALL)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--val {text}", "--val names every text of"),
        ("--val {text} --val-fraction 0.1", "give either --val or --val-fraction, not both."),
        ("--val-fraction 0.0003", "a single token is held out; hold out more"),
        ("--val-fraction 1", "--val-fraction must be in [0, 1), but is 1.0."),
        ("--steps 0", "--steps must be at least 1, but is 0."),
        ("--context 1", "--context must be at least 2, but is 1."),
        ("--lr nan", "--lr must be at least 0, but is nan."),
        (f"--steps {10**400}", "--steps must be in [1, 9.22337e+18), but is 10000"),
        (f"--seed {2**63}", "--seed must be in [0, 9.22337e+18), but is 9223372036854775808."),
        ("--batch-size 1000000000000", "16,000,000,000,000 tokens, which no machine can hold."),
        ("--lr 1e-3 --min-lr 1e-2", "--min-lr 0.01 is above --lr 0.001."),
        ("--n-head 3", "n_embd"),
        ("--vocab-from {none}", "There is no model"),
        ("--init {model} --n-head 2", "--init brings the model's sizes, so it does not go with"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, capsys, options, message):
    places = {"text": write_story(tmp_path), "none": tmp_path / "none", "model": "any"}
    words = [word.format(**places) for word in options.split()]
    sizes = ("--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context", 16)
    out = tmp_path / "run"
    assert message in refuse(capsys, "--data", places["text"], "--out", out, *sizes, *words)
    assert not out.exists()


@pytest.mark.parametrize("option", ["--data", "--out", "--val", "--vocab-from", "--init"])
def test_an_empty_argument_is_refused(tmp_path, capsys, monkeypatch, option):
    """As an unset variable of the shell gives; it is not the folder where one stands."""
    write_story(tmp_path)
    monkeypatch.chdir(tmp_path)
    paths = {"--data": tmp_path, "--out": tmp_path / "run", option: ""}
    arguments = [word for pair in paths.items() for word in pair]
    assert "is empty; give" in refuse(capsys, *arguments)
    assert len([*tmp_path.iterdir()]) == 1


def test_there_must_be_something_to_do(tmp_path, capsys):
    out = tmp_path / "run"
    assert "nothing to train on: name a text" in refuse(capsys, "--out", out)
    assert "no run in" in refuse(capsys, "--out", out, "--resume")


def test_a_folder_that_holds_a_model_is_not_overwritten(tmp_path, capsys):
    text, model, out = write_story(tmp_path), write_tiny_gpt2(tmp_path / "model"), tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", 1) == 0
    before = weights(out)
    capsys.readouterr()
    sentence = refuse(capsys, "--data", text, "--out", out, *SMALL)
    assert "holds a run; go on with --resume" in sentence
    assert weights(out) == before
    sentence = refuse(capsys, "--data", text, "--init", model, "--out", model)
    assert "holds model.safetensors but no state.safetensors to go on from" in sentence


def test_a_state_that_is_none_is_refused(tmp_path, capsys):
    params = npgpt.from_pretrained(write_tiny_gpt2(tmp_path / "model")).params
    write_tensors(tmp_path / "state.safetensors", params, {"facts": "{}"})
    assert "is not the state of a training run" in refuse(capsys, "--out", tmp_path, "--resume")


SETTINGS = r"state\.safetensors: 'settings'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"lr": "fast"}}, f"{SETTINGS}: lr is 'fast', but must be a finite number"),
        ({"settings": {"special": 1}}, f"{SETTINGS}: special is 1, but must be true or false"),
        (
            {"settings": {"val": [1]}},
            rf"{SETTINGS}: val is \[1\], but must be an array in which each value is a text or",
        ),
        ({"settings": {"colour": "red"}}, f"{SETTINGS}: unknown or missing: colour; resume the"),
        ({"settings": {"steps": 0}}, r"state\.safetensors: --steps must be at least 1, but is 0"),
        ({"settings": {"dtype": "int"}}, r"state\.safetensors: --dtype must be one of float32, fl"),
        ({"settings": []}, r"'facts': settings is \[\], but must be an object"),
        ({"step": "2"}, r"state\.safetensors: 'facts': step is '2', but must be an integer"),
        ({"step": None}, r"'facts': step is None, but must be an integer"),
        ({"step": 10}, r"state\.safetensors: step 10 is none of the 9 --steps\."),
        ({"step": -1}, r"state\.safetensors: step -1 is none of the 9 --steps\."),
        ({"step": 10**30}, r"'facts': step is 1"),
        ({"seconds": -1}, r"'facts': seconds must not be -1\."),
        ({"seconds": float("nan")}, r"'facts': seconds is nan, but must be a finite number"),
        ({"settings": {"context": 17}}, r"state\.safetensors: --context 17 exceeds 16 positions"),
        (
            {"settings": {"batch_size": 10**9}},
            r"state\.safetensors: a step reads --batch-size 1000",
        ),
        ({"settings": {"min_lr": 1}}, r"state\.safetensors: --min-lr 1 is above --lr 0\.001\."),
        ({"settings": {"lr": 10**400}}, f"{SETTINGS}: lr is "),
        ({"place": "here"}, r"'facts': unknown or missing: place; resume the run with the npgpt"),
    ],
)
def test_a_state_with_facts_that_are_none_is_refused(tmp_path, capsys, changes, message):
    text, out = write_story(tmp_path), tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", 9, "--time-limit", 0) == 0
    capsys.readouterr()
    path, known = out / "state.safetensors", facts(out)
    settings = changes.get("settings", {})
    if isinstance(settings, dict):
        changes = {**changes, "settings": {**known["settings"], **settings}}
    metadata = read_metadata(path) | {"facts": json.dumps({**known, **changes})}
    write_tensors(path, read_tensors(path), metadata)
    assert re.search(message, refuse(capsys, "--out", out, "--resume"))


BIAS = "params.h.0.attn.c_attn.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({BIAS: np.zeros(3, np.float32)}, f"'{BIAS}' is float32 [3], but must be float32 [48]."),
        ({BIAS: np.zeros(48, np.int64)}, f"'{BIAS}' is int64 [48], but must be float32 [48]."),
        ({BIAS: np.zeros(48)}, f"'{BIAS}' is float64 [48], but must be float32 [48]."),
        ({BIAS: np.full(48, np.nan, np.float32)}, f"NaN or infinite values in {BIAS}."),
        ({"params.wte": np.zeros(1, np.float32)}, "unknown or missing tensors: params.wte."),
        ({BIAS: None}, f"unknown or missing tensors: {BIAS}."),
        (
            {"first_moment.ln_f.bias": np.zeros(1, np.float32)},
            "'first_moment.ln_f.bias' is float32 [1], but must be float32 [16].",
        ),
        (
            {"second_moment.ln_f.bias": np.full(16, -1, np.float32)},
            "'second_moment.ln_f.bias' has values below 0, but is a mean of squares.",
        ),
    ],
)
def test_a_state_with_other_tensors_is_refused(tmp_path, capsys, change, message):
    text, out = write_story(tmp_path), tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", 9, "--time-limit", 0) == 0
    capsys.readouterr()
    path = out / "state.safetensors"
    tensors = {n: a for n, a in {**read_tensors(path), **change}.items() if a is not None}
    write_tensors(path, tensors, read_metadata(path))
    assert f"error: {path}: {message}\n" in refuse(capsys, "--out", out, "--resume")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"second_moment.h.0.mlp.c_fc.weight": np.zeros((16, 64), np.float32)},
            "unknown or missing tensors: second_moment.h.0.mlp.c_fc.weight.",
        ),
        ({"first_moment.h.0.mlp.c_fc.weight": None}, "unknown or missing tensors: first_moment."),
        ({"second_moment.wte.weight": None}, "unknown or missing tensors: second_moment.wte."),
    ],
)
def test_a_state_of_muon_has_one_moment_of_hidden_matrices(tmp_path, capsys, change, message):
    text, out = write_story(tmp_path), tmp_path / "run"
    stop = ("--steps", 9, "--time-limit", 0)
    assert run("--data", text, "--out", out, *SMALL, *stop, "--optimizer", "muon") == 0
    capsys.readouterr()
    path = out / "state.safetensors"
    before = read_tensors(path)
    assert "second_moment.wte.weight" in before
    assert not [n for n in before if n.startswith("second_moment.h.") and before[n].ndim == 2]
    tensors = {n: a for n, a in {**before, **change}.items() if a is not None}
    write_tensors(path, tensors, read_metadata(path))
    assert message in refuse(capsys, "--out", out, "--resume")


def test_a_state_with_more_blocks_than_tensors_is_refused(tmp_path, capsys):
    text, out = write_story(tmp_path), tmp_path / "run"
    assert run("--data", text, "--out", out, *SMALL, "--steps", 9, "--time-limit", 0) == 0
    capsys.readouterr()
    path = out / "state.safetensors"
    metadata = read_metadata(path)
    config = json.loads(metadata["config"]) | {"n_layer": 999}
    write_tensors(path, read_tensors(path), metadata | {"config": json.dumps(config)})
    sentence = refuse(capsys, "--out", out, "--resume")
    assert "unknown or missing tensors: first_moment.h.10.attn.c_attn.bias, " in sentence


def test_a_state_whose_facts_are_no_text_is_refused(tmp_path, capsys):
    header = json.dumps({"__metadata__": {"config": "{}", "facts": 5}}).encode()
    (tmp_path / "state.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    sentence = refuse(capsys, "--out", tmp_path, "--resume")
    assert "is not the state of a training run: it has no text 'facts'." in sentence


@pytest.mark.parametrize("text", ["[]", "{", '"x"'])
def test_a_state_without_a_json_object_is_refused(tmp_path, capsys, text):
    for metadata in ({"config": text, "facts": "{}"}, {"config": "{}", "facts": text}):
        write_tensors(tmp_path / "state.safetensors", {"a": np.zeros(1)}, metadata)
        sentence = refuse(capsys, "--out", tmp_path, "--resume")
        assert re.search(r"state\.safetensors: '(config|facts)' is not ", sentence)


def test_fine_tuning_refuses_what_does_not_fit_the_model(tmp_path, capsys):
    text = write_story(tmp_path)
    model, small = (
        write_tiny_gpt2(tmp_path / "m"),
        write_tiny_gpt2(tmp_path / "s", vocab_size=100),
    )
    common = ("--data", text, "--out", tmp_path / "run")
    sentence = refuse(capsys, *common, "--init", model, "--context", 33)
    assert "--context 33 exceeds the model's 32 positions." in sentence
    sentence = refuse(capsys, *common, "--init", small)
    assert "the vocabulary gives id 121, but the model has only 100 ids." in sentence
    short = write_tiny_gpt2(tmp_path / "short", n_positions=1)
    sentence = refuse(capsys, *common, "--init", short)
    assert "short' has a context of 1, but training needs at least 2; choose another" in sentence
    assert not (tmp_path / "run").exists()


def test_fine_tuning_refuses_a_vocabulary_that_changes_ids(tmp_path, capsys):
    model, other = (write_tiny_gpt2(tmp_path / name) for name in ("model", "other"))
    out = tmp_path / "run"
    options = ("--data", write_story(tmp_path), "--out", out, "--steps", 1, "--batch-size", 2)
    both = (*options, "--init", model, "--vocab-from", other)
    vocab = json.loads((other / "vocab.json").read_text("utf-8"))
    for changed in ({"<|endoftext|>": 257}, {"<|endoftext|>": 257, "th": 256}):
        (other / "vocab.json").write_text(json.dumps({**vocab, **changed}), "utf-8")
        (other / "merges.txt").write_text("#version: 0.2\n" + "t h\n" * ("th" in changed), "utf-8")
        assert "other lacks id 256 of the vocabulary that" in refuse(capsys, *both)
        assert not out.exists()
    (model / "vocab.json").unlink()  # a model without a vocabulary takes any
    (other / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    (other / "merges.txt").write_text("#version: 0.2\n", "utf-8")
    assert run(*both) == 0


def test_a_prompt_that_the_vocabulary_cannot_write_is_refused(tmp_path, capsys):
    model, out = write_tiny_gpt2(tmp_path / "model"), tmp_path / "run"
    vocab = json.loads((model / "vocab.json").read_text("utf-8"))
    del vocab["%"]
    (model / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    common = ("--vocab-from", model, *SMALL, "--steps", 1, "--sample-every", 1)
    new = ("--data", write_story(tmp_path), "--out", out, *common)
    sentence = refuse(capsys, *new, "--sample-prompt", "50%")
    assert "error: --sample-prompt: " in sentence
    assert not out.exists()
    assert run(*new) == 0
    before = weights(out)
    capsys.readouterr()
    more = ("--steps", 2, "--sample-prompt", "50%")
    assert "error: --sample-prompt: " in refuse(capsys, "--out", out, "--resume", *more)
    assert weights(out) == before


def test_a_preset_gives_the_sizes_that_are_not_given():
    settings = new_settings({"data": "text.txt", "preset": "gpt2", "n_layer": 3})
    sizes = settings.n_layer, settings.n_head, settings.n_embd, settings.context
    assert sizes == (3, 12, 768, 1024)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("options", "idle"),
    [
        ("--sample-every 0 --sample-prompt The", ["--sample-prompt"]),
        ("--val-fraction 0 --eval-every 1 --eval-batches 2", ["--eval-every", "--eval-batches"]),
        ("--warmup 9 --min-lr 1e-9", ["--min-lr"]),
        ("--preset nano", ["--preset"]),
        ("--merge-cjk", ["--merge-cjk"]),
        ("--eval-every 1 --sample-prompt The --min-lr 1e-9 --special", []),
    ],
)
def test_options_without_effect_are_named(tmp_path, capsys, options, idle):
    sizes = ("--n-layer", 1, "--n-head", 1, "--n-embd", 4, "--context", 4)
    common = ("--data", write_story(tmp_path, 99), "--out", tmp_path / "run", *sizes)
    assert run(*common, "--steps", 1, "--batch-size", 1, *options.split()) == 0
    err = capsys.readouterr().err
    assert sorted(re.findall(r"warning: (--\S+) has no effect: ", err)) == sorted(idle)


@pytest.mark.filterwarnings("default")
def test_a_finished_run_names_the_options_that_it_cannot_use(tmp_path, capsys):
    out, common = tmp_path / "run", (*SMALL, "--steps", 1)
    text = write_story(tmp_path)
    assert run("--data", text, "--out", out, *common) == 0
    assert run("--data", text, "--out", out, *common, "--resume") == 0  # the same once more
    assert "warning" not in capsys.readouterr().err
    assert run("--out", out, "--resume", "--time-limit", 5, "--save-dtype", "float16") == 0
    err = capsys.readouterr().err
    assert err == "npgpt.train: warning: --time-limit has no effect: the run is finished.\n"
