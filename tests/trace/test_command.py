"""`python -m npgpt.trace`: what it prints, in which columns, and with which exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt import cli
from npgpt.cli import width
from npgpt.trace import command as trace
from tests.tiny import write_tiny_model

GOLDENS = Path(__file__).parents[1] / "goldens"
TEXT = "The cat 猫😁\n"  # 16 tokens: each is one byte


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(capsys):
    """Run the command in this process: exit code, stdout, stderr."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = cli.run(trace.PROG, trace.main, [str(a) for a in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def traced(run, folder):
    """What `--json` says of a text."""

    def call(*argv: object) -> dict[str, Any]:
        code, out, err = run(*argv, "--model", folder, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def sections(text: str) -> list[list[str]]:
    """The lines of each of the five sections."""
    return [part.splitlines() for part in text.removesuffix("\n").split("\n\n")]


def test_every_station_with_its_shape_and_the_norms_of_each_correction(run, traced, folder):
    code, out, err = run(TEXT, "--model", folder)
    assert (code, err) == (0, "")
    lines = sections(out)[1]
    cells = {line.split()[0]: re.split(r" {2,}", line) for line in lines[2:10]}
    stations = ["embed", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "h.1", "ln_f", "logits"]
    assert list(cells) == stations
    journey = traced(TEXT)
    for c in journey["corrections"]:
        _, shape, *numbers = cells[c["station"]][:5]
        assert shape == "[16, 12]"
        at = [c[key][15] for key in ("stream", "added", "ratio")]
        assert numbers == [f"{x:.2f}" for x in at]
        assert at[1] == pytest.approx(at[0] * at[2])
    assert cells["logits"][1] == "[16, 257]"
    normed = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.lm_head[0]
    assert cells["ln_f"][2] == f"{np.linalg.norm(normed[15]):.2f}"
    assert journey["shapes"]["h.1.attn.probs"] == [3, 16, 16]


def test_the_verdict_counts_the_corrections_that_are_smaller_than_the_stream(run, traced, folder):
    ratios = {c["station"]: c["ratio_at_position"] for c in traced(TEXT)["corrections"]}
    large = [name for name, ratio in ratios.items() if ratio >= 1]
    assert 0 < len(large) < 4  # both kinds are there
    verdict = " ".join(sections(run(TEXT, "--model", folder)[1])[1][10:])
    assert f"4 corrections in 2 blocks, {4 - len(large)} smaller than the stream" in verdict
    assert f"(not {', '.join(large)})" in verdict
    assert f"median ratio {np.median(list(ratios.values())):.2f}." in verdict


def test_positions_that_changed_most_are_named(run, traced, folder):
    lines = sections(run(TEXT, "--model", folder)[1])[1]
    for c in traced(TEXT)["corrections"]:
        first, second = np.argsort(c["ratio"])[::-1][:2]
        (line,) = [line for line in lines if line.startswith(f"{c['station']} ")]
        found = re.findall(r"(\d+) \S+ +(\d+\.\d\d)(?=  |$)", line)[-2:]
        assert found == [(str(i), f"{c['ratio'][i]:.2f}") for i in (first, second)]


def test_guesses_end_with_what_the_model_says(run, traced, folder):
    model, tokenizer = npgpt.from_pretrained(folder), npgpt.load_tokenizer(folder)
    logits = model(tokenizer.encode(TEXT))[-1]
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    journey = traced(TEXT, "--top", 7)
    assert [g["station"] for g in journey["guesses"]] == ["embed", "h.0", "h.1"]
    last = journey["guesses"][-1]
    assert [t["id"] for t in last["likeliest"]] == np.argsort(-p)[:7].tolist()
    assert [t["probability"] for t in last["likeliest"]] == pytest.approx(np.sort(p)[::-1][:7])
    assert (last["rank"], last["probability"]) == (1, pytest.approx(p.max()))
    assert journey["target"]["id"] == last["likeliest"][0]["id"]
    assert journey["target"]["follows_in_text"] is False
    text = sections(run(TEXT, "--model", folder, "--top", 7)[1])[2]
    assert sum(line.startswith((" ", "embed", "h.")) for line in text) == 6  # 5 and 2, three times


def test_inside_a_text_the_target_is_the_token_that_follows(run, traced, folder):
    journey = traced(TEXT, "--position", 5)
    assert journey["position"] == 5
    assert journey["target"] == {"id": ord("t"), "label": "t", "follows_in_text": True}
    out = run(TEXT, "--model", folder, "--position", 5)[1]
    assert "  [5 a]  " in out
    assert 'of "t", which follows in the text' in out.replace("\n", " ")


def test_a_later_token_changes_nothing_before_it(traced):
    short, long = traced("The cat"), traced("The cat sat", "--position", 6)
    assert short["guesses"] != []
    for a, b in zip(short["guesses"], long["guesses"], strict=True):
        assert a["norm"] == pytest.approx(b["norm"], rel=1e-5)
        assert [t["id"] for t in a["likeliest"]] == [t["id"] for t in b["likeliest"]]


def test_the_head_is_chosen_or_given(run, traced, folder):
    chosen = traced(TEXT)["head"]
    probs = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.blocks
    best = max(
        (probs[n].attn.probs[h, 15, j], n, h)
        for n in range(2)
        for h in range(3)
        for j in range(1, 15)
    )
    assert (chosen["layer"], chosen["head"]) == best[1:]
    assert (chosen["head_chosen"], chosen["layer_chosen"]) == (True, True)
    given = traced(TEXT, "--layer", 1, "--head", 2)["head"]
    assert (given["layer"], given["head"], given["head_chosen"]) == (1, 2, False)
    np.testing.assert_allclose(given["probs"], probs[1].attn.probs[2], atol=1e-6)
    assert traced(TEXT, "--layer", 0)["head"]["layer"] == 0
    out = " ".join(run(TEXT, "--model", folder)[1].split())
    assert f"h.{chosen['layer']}.attn.probs[{chosen['head']}], a weight table [16, 16]" in out
    assert "Of all heads this one has its largest weight, the first and itself aside." in out
    lines = sections(run(TEXT, "--model", folder, "--layer", 1, "--head", 2)[1])[3]
    assert "Of all" not in " ".join(lines)
    assert lines[-1].startswith(">15 ⏎")
    shown = [0 if cell == "." else float(cell) for cell in lines[-1].split()[2:]]
    np.testing.assert_allclose(shown, given["probs"][15], atol=0.006)


def test_neurons_of_the_last_block_or_of_the_one_that_is_given(run, traced, folder):
    assert traced(TEXT)["ffn"]["layer"] == 1
    ffn = traced(TEXT, "--layer", 0, "--top", 2)["ffn"]
    block = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.blocks[0]
    bent, rows = block.mlp.c_proj
    answers = np.abs(bent[15]) * np.linalg.norm(rows, axis=1)
    assert ffn["layer"] == 0
    assert [n["number"] for n in ffn["neurons"]] == np.argsort(-answers)[:2].tolist()
    assert [len(n["up"]) for n in ffn["neurons"]] == [2, 2]
    lines = sections(run(TEXT, "--model", folder, "--layer", 0, "--top", 2)[1])[4]
    n = ffn["neurons"][0]
    start = [str(n["number"]), f"{n['activation']:.2f}", f"{n['answer']:.2f}", str(n["most_at"])]
    assert lines[-4].split()[:4] == start
    assert f"{n['up'][0]['label']} {n['up'][0]['logit']:+.2f}" in lines[-4]
    assert f"down    {n['down'][0]['label']} {n['down'][0]['logit']:+.2f}" in lines[-3]


def test_halves_of_characters_are_bytes_and_the_text_is_whole(run, folder):
    title = sections(run(TEXT, "--model", folder)[1])[0]
    assert title[1] == "The cat 猫😁⏎"
    assert "3 ␣  4 c  5 a  6 t  7 ␣  8 <E7>  9 <8C>  10 <AB>  11 <F0>" in title[2]
    assert "[15 ⏎]" in " ".join(title)


@pytest.mark.parametrize(
    "text", ["a", "猫追狗，地想apple😁", "é" * 9, "\n\t \x00", "0123456789 a b c d e f", "x" * 32]
)
@pytest.mark.parametrize("options", [(), ("--top", 1), ("--top", 40), ("--position", 0)])
def test_lines_fit_a_terminal_of_100_columns(run, folder, text, options):
    code, out, err = run(text, *options, "--model", folder)
    assert (code, err) == (0, "")
    assert max(map(width, out.splitlines())) <= 100
    assert len(sections(out)) == 5


def test_what_is_printed_of_a_gpt2_stays_as_it_was(run, tmp_path, monkeypatch):
    """Every character of the tables; of --json names, order, and numbers up to rounding."""
    write_tiny_model(tmp_path / "model", seed=3)
    monkeypatch.chdir(tmp_path)
    options = ("--dtype", "float64", "--position", 5, "--top", 3, "--layer", 1)
    code, out, _ = run("The cat 猫😁", "--model", "model", *options)
    assert (code, out) == (0, (GOLDENS / "trace-gpt2.txt").read_text(encoding="utf-8"))
    now, then = (
        list(leaves(json.loads(text)))
        for text in (
            run("The cat 猫😁", "--model", "model", *options, "--json")[1],
            (GOLDENS / "trace-gpt2.json").read_text(encoding="utf-8"),
        )
    )
    assert [path for path, _ in now] == [path for path, _ in then]
    for (path, value), (_, wanted) in zip(now, then, strict=True):
        if isinstance(wanted, float):
            assert value == pytest.approx(wanted, rel=1e-9, abs=1e-12), path
        else:
            assert value == wanted, path


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a JSON value that is neither an object nor an array, with its place."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, f"{path}/{key}")
    else:
        yield path, value


@pytest.mark.real
def test_slm4096_knows_its_page(run, data_dir):
    folder = data_dir / "checkpoints" / "slm4096"
    code, out, _ = run("Q: What is SLM?\n", "--model", folder, "--json")
    journey = json.loads(out)
    assert (code, len(journey["corrections"])) == (0, 8)
    assert journey["target"]["label"] == "A"
    first, *_, last = journey["guesses"]
    assert first["rank"] > last["rank"] == 1
    assert last["probability"] > 0.9
    assert max(map(width, run("Q: What", "--model", folder)[1].splitlines())) <= 100
