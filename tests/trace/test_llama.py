"""`python -m npgpt.trace` on a Llama: its names, shared keys, gates, angles."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt import cli
from npgpt.cli import width
from npgpt.trace import command as trace
from tests.models.gguf_files import llama_file, write_gguf
from tests.models.tiny_llama import random_llama
from tests.tiny import write_vocabulary

TEXT = "The cat 猫😁\n"  # 16 tokens: each is one byte
SIZES = {"vocab_size": 257, "max_position_embeddings": 32}


@pytest.fixture(scope="module", params=[False, True], ids=["own head", "tied head"])
def folder(request, tmp_path_factory) -> Path:
    """H 6, H_kv 3, d_h 4, L 2, F 10."""
    path = tmp_path_factory.mktemp("llama")
    rng = np.random.default_rng(3)
    random_llama(rng, np.float32, tie_word_embeddings=request.param, **SIZES).save_pretrained(path)
    write_vocabulary(path)
    return path


@pytest.fixture
def run(capsys):
    """Run the command in this process: exit code, stdout, stderr."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = cli.run(trace.PROG, trace.main, [str(a) for a in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def traced(run):
    """What `--json` says."""

    def call(*argv: object) -> dict[str, Any]:
        code, out, err = run(*argv, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def sections(text: str) -> list[str]:
    """The five sections, each in one line."""
    return [" ".join(part.split()) for part in text.split("\n\n")]


def test_every_station_has_the_name_and_shape_it_has_in_a_llama(run, traced, folder):
    code, out, err = run(TEXT, "--model", folder)
    assert (code, err) == (0, "")
    lines = out.split("\n\n")[1].splitlines()
    cells = {line.split()[0]: re.split(r" {2,}", line) for line in lines[2:10]}
    blocks = [f"layers.{n}.{part}" for n in (0, 1) for part in ("self_attn", "mlp")]
    assert list(cells) == ["embed", *blocks, "layers.1", "norm", "logits"]
    journey = traced(TEXT, "--model", folder)
    for c in journey["corrections"]:
        assert cells[c["station"]][1] == "[16, 18]"
        assert cells[c["station"]][2:5] == [f"{c[k][15]:.2f}" for k in ("stream", "added", "ratio")]
    normed = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.lm_head[0]
    assert cells["norm"][2] == f"{np.linalg.norm(normed[15]):.2f}"
    assert journey["shapes"]["layers.1.self_attn.probs"] == [6, 16, 16]
    assert not any(name.startswith("h.") for name in journey["shapes"])


def test_embed_is_the_token_alone_and_the_angles_say_the_position(run, traced, folder):
    journey = traced("abba", "--model", folder, "--position", 3)
    streams = journey["corrections"][0]["stream"]
    assert (streams[0], streams[1]) == (streams[3], streams[2])
    assert journey["rotary_angles"] == pytest.approx([3, 0.03])  # 3 · 10000^(-i / 2)
    out = sections(run("abba", "--model", folder, "--position", 3)[1])[1]
    assert "at position 3 the 2 pairs of coordinates of a head by 3 … 0.03 radians." in out


def test_guesses_end_with_what_the_model_says(run, traced, folder):
    logits = npgpt.from_pretrained(folder)(list(TEXT.encode()))[-1]
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    journey = traced(TEXT, "--model", folder, "--top", 7)
    assert [g["station"] for g in journey["guesses"]] == ["embed", "layers.0", "layers.1"]
    last = journey["guesses"][-1]
    assert [t["id"] for t in last["likeliest"]] == np.argsort(-p)[:7].tolist()
    assert [t["probability"] for t in last["likeliest"]] == pytest.approx(np.sort(p)[::-1][:7])
    assert (journey["target"]["id"], last["rank"]) == (int(np.argmax(p)), 1)
    assert "if the stream went to norm and lm_head" in sections(run(TEXT, "--model", folder)[1])[2]


def test_a_head_names_those_that_share_its_keys(run, traced, folder):
    for head in range(6):
        options = ("--layer", 1, "--head", head, "--model", folder)
        shown = traced(TEXT, *options)["head"]
        assert shown["shares_keys_with"] == [head ^ 1]  # pairs: 0 1, 2 3, 4 5
        first = head // 2 * 2
        said = f"Heads {first} to {first + 1} look at the same keys and values."
        assert said in sections(run(TEXT, *options)[1])[3]
    probs = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.blocks[1]
    np.testing.assert_allclose(shown["probs"], probs.self_attn.probs[5], atol=1e-6)


@pytest.mark.parametrize(("shared", "group"), [(6, 1), (1, 6)])
def test_heads_of_their_own_and_one_for_all(run, traced, rng, tmp_path, shared, group):
    model = random_llama(rng, np.float32, num_key_value_heads=shared, **SIZES)
    model.save_pretrained(tmp_path)
    options = ("--ids", "1 2 3", "--model", tmp_path, "--layer", 0, "--head", 2)
    others = [0, 1, 3, 4, 5] if group == 6 else None
    assert traced(*options)["head"].get("shares_keys_with") == others
    assert ("Heads 0 to 5 look" in sections(run(*options)[1])[3]) == (group == 6)


def test_a_neuron_shows_its_gate_its_value_and_their_product(run, traced, folder):
    options = ("--model", folder, "--layer", 0, "--top", 2)
    ffn = traced(TEXT, *options)["ffn"]
    mlp = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.blocks[0].mlp
    for n in ffn["neurons"]:
        assert n["gate"] == pytest.approx(mlp.gate[15, n["number"]], rel=1e-5)
        assert n["value"] == pytest.approx(mlp.up[15, n["number"]], rel=1e-5)
        assert n["activation"] == pytest.approx(n["gate"] * n["value"], rel=1e-5)
    text = run(TEXT, *options)[1].split("\n\n")[4].splitlines()
    n = ffn["neurons"][0]
    numbers = [f"{n[key]:.2f}" for key in ("gate", "value", "activation", "answer")]
    assert text[-5].split()[:5] == ["neuron", "gate", "value", "active", "answer"]
    assert text[-4].split()[:6] == [str(n["number"]), *numbers, str(n["most_at"])]
    assert f"{n['up'][0]['label']} {n['up'][0]['logit']:+.2f}" in text[-4]
    assert "silu(x W_gate) and x W_up" in " ".join(text)


def test_a_gguf_file_says_the_same(traced, run, folder, tmp_path):
    model = npgpt.from_pretrained(folder)
    settings, tensors = llama_file(model)
    path = write_gguf(tmp_path / "x.gguf", settings, tensors)
    of_folder = traced("--ids", "84 104 101", "--model", folder)
    of_file = traced("--ids", "84 104 101", "--model", path)
    assert of_file["tokens"][0] == {"id": 84, "label": "#84"}  # a file without a vocabulary
    assert of_file["rotary_angles"] == pytest.approx(of_folder["rotary_angles"], rel=1e-6)
    for ours, theirs in zip(of_file["corrections"], of_folder["corrections"], strict=True):
        assert ours["added"] == pytest.approx(theirs["added"], rel=1e-4)
    for ours, theirs in zip(of_file["guesses"], of_folder["guesses"], strict=True):
        assert [t["id"] for t in ours["likeliest"]] == [t["id"] for t in theirs["likeliest"]]
    code, out, err = run("The", "--model", path)
    assert (code, out, "tokenizer.ggml.model" in err) == (2, "", True)


@pytest.mark.parametrize("text", ["a", "猫追狗，地想apple😁", "\n\t \x00", "x" * 32])
@pytest.mark.parametrize("options", [(), ("--top", 1), ("--top", 40), ("--position", 0)])
@pytest.mark.parametrize("wide", [1.0, 1e5])
def test_lines_fit_100_columns(run, tmp_path, monkeypatch, text, options, wide):
    """With twelve blocks the names are longest; wide numbers leave less room for tokens."""
    model = random_llama(np.random.default_rng(1), np.float32, num_hidden_layers=12, **SIZES)
    model.params["layers.3.mlp.down_proj.weight"] *= wide
    model.save_pretrained(tmp_path)
    write_vocabulary(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(text, *options, "--model", ".")
    assert (code, err) == (0, "")
    assert max(map(width, out.splitlines())) <= 100
    assert len(sections(out)) == 5
    rows = [line for line in out.splitlines() if line.startswith("layers.3.mlp ")]
    assert len(rows) == 1


def test_long_tokens_leave_room_for_fewer(run, tmp_path, monkeypatch):
    """Four likeliest tokens on a line where GPT-2 has five."""
    model = random_llama(np.random.default_rng(1), np.float32, num_hidden_layers=12, **SIZES)
    model.save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace, "labeller", lambda _: lambda _: "t" * 9)
    out = run("--ids", "1 2 3", "--model", ".")[1]
    assert max(map(width, out.splitlines())) <= 100
    (line,) = [line for line in out.splitlines() if line.startswith("layers.11 ") and "…" in line]
    assert line.count("…") == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("",), "no tokens"),
        (("--ids", "257"), "257"),
        (("a" * 33,), "33 tokens long, but the model has positions for 32"),
        (("ab", "--position", 2), "--position 2 does not exist: there are 2 tokens"),
        (("ab", "--layer", 2), "--layer 2 does not exist: there are 2 blocks"),
        (("ab", "--layer", 0, "--head", 6), "--head 6 does not exist: there are 6 heads"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(run, folder, arguments, says):
    code, out, err = run(*arguments, "--model", folder)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_dynamic_positions_go_on_beyond_those_of_the_training(traced, run, rng, tmp_path):
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    random_llama(rng, np.float32, rope_scaling=scaling, **SIZES).save_pretrained(tmp_path)
    write_vocabulary(tmp_path)
    assert len(traced("a" * 64, "--model", tmp_path)["tokens"]) == 64
    code, _, err = run("a" * 65, "--model", tmp_path)
    assert (code, "65 tokens long, but the model has positions for 64" in err) == (2, True)


def test_tables_that_no_memory_holds_are_refused(run, folder, monkeypatch):
    """2 blocks of 6 heads, 16 × 16 weights of 4 bytes: 12 KiB."""
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 3, "SC_PAGE_SIZE": 4095}.get)
    code, out, err = run(TEXT, "--model", folder)
    assert (code, out) == (2, "")
    assert "the weight tables of 2 × 6 heads over 16 tokens take" in err
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}.get)
    assert run(TEXT, "--model", folder)[0] == 0
