"""What `python -m npgpt.trace` prints: its sections, its JSON, attention weights as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.cli import width
from npgpt.trace import command as trace
from npgpt.trace.report import ROWS, attention_table
from tests.builders.gpt2 import write_tiny_gpt2
from tests.trace.conftest import write_llama

GOLDENS = Path(__file__).parents[1] / "goldens"
TEXT = "The cat 猫😁\n"  # 16 tokens: each is one byte
IDS = list(TEXT.encode())
ARTICLE = np.array([[1, 0, 0], [0.12, 0.88, 0], [0.27, 0.27, 0.45]])  # article 7.3 step 5


def sections(text: str) -> list[list[str]]:
    """The lines of each of the five sections."""
    return [part.splitlines() for part in text.removesuffix("\n").split("\n\n")]


def words(section: list[str]) -> str:
    """A section in one line."""
    return " ".join(" ".join(section).split())


def forward(folder: Path) -> Any:
    """What a pass over TEXT saves."""
    return npgpt.from_pretrained(folder).forward(IDS).saved


def test_every_station_with_its_shape_and_the_norms_of_each_correction(run, traced, folder):
    code, out, err = run(folder, TEXT)
    assert (code, err) == (0, "")
    cells = {line.split()[0]: re.split(r" {2,}", line) for line in sections(out)[1][2:10]}
    shown = traced(folder, TEXT)
    block, attn, norm, H, d = (
        ("h", "attn", "ln_f", 3, 12)
        if "h.0" in shown["shapes"]
        else ("layers", "self_attn", "norm", 6, 18)
    )
    sublayers = [f"{block}.{n}.{part}" for n in (0, 1) for part in (attn, "mlp")]
    assert list(cells) == ["embed", *sublayers, f"{block}.1", norm, "logits"]
    assert [c["station"] for c in shown["corrections"]] == sublayers
    for c in shown["corrections"]:
        _, shape, *numbers = cells[c["station"]][:5]
        assert shape == f"[16, {d}]"
        at = [c[key][15] for key in ("stream", "added", "ratio")]
        assert numbers == [f"{x:.2f}" for x in at]
        assert at[1] == pytest.approx(at[0] * at[2])
    assert cells["logits"][1] == "[16, 257]"
    assert cells[norm][2] == f"{np.linalg.norm(forward(folder).lm_head[0][15]):.2f}"
    assert shown["shapes"][f"{block}.1.{attn}.probs"] == [H, 16, 16]
    others = {"embed", norm, "logits"}
    assert all(name.startswith(f"{block}.") for name in shown["shapes"].keys() - others)


def test_the_verdict_counts_the_corrections_that_are_smaller_than_the_stream(run, traced, gpt2):
    ratios = {c["station"]: c["ratio_at_position"] for c in traced(gpt2, TEXT)["corrections"]}
    large = [name for name, ratio in ratios.items() if ratio >= 1]
    assert 0 < len(large) < 4  # both kinds are there
    verdict = words(sections(run(gpt2, TEXT)[1])[1][10:])
    assert f"4 corrections in 2 blocks, {4 - len(large)} smaller than the stream" in verdict
    assert f"(not {', '.join(large)})" in verdict
    assert f"median ratio {np.median(list(ratios.values())):.2f}." in verdict


def test_positions_that_changed_most_are_named(run, traced, folder):
    lines = sections(run(folder, TEXT)[1])[1]
    for c in traced(folder, TEXT)["corrections"]:
        first, second = np.argsort(c["ratio"])[::-1][:2]
        (line,) = [line for line in lines if line.startswith(f"{c['station']} ")]
        found = re.findall(r"(\d+) \S+ +(\d+\.\d\d)(?=  |$)", line)[-2:]
        assert found == [(str(i), f"{c['ratio'][i]:.2f}") for i in (first, second)]


def test_embed_of_a_llama_is_the_token_alone_and_the_angles_say_the_position(run, traced, llama):
    shown = traced(llama, "abba", "--position", 3)
    streams = shown["corrections"][0]["stream"]
    assert (streams[0], streams[1]) == (streams[3], streams[2])
    assert shown["rotary_angles"] == pytest.approx([3, 0.03])  # 3 · 10000^(-i / 2)
    out = words(sections(run(llama, "abba", "--position", 3)[1])[1])
    assert "at position 3 the 2 pairs of coordinates of a head by 3 … 0.03 radians." in out


def test_the_logit_lens_ends_with_what_the_model_says(run, traced, folder):
    logits = npgpt.from_pretrained(folder)(IDS)[-1]
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    shown = traced(folder, TEXT, "--top", 7)
    block = "h" if "h.0" in shown["shapes"] else "layers"
    assert [row["station"] for row in shown["guesses"]] == ["embed", f"{block}.0", f"{block}.1"]
    last = shown["guesses"][-1]
    assert [t["id"] for t in last["likeliest"]] == np.argsort(-p)[:7].tolist()
    assert [t["probability"] for t in last["likeliest"]] == pytest.approx(np.sort(p)[::-1][:7])
    assert (last["rank"], last["probability"]) == (1, pytest.approx(p.max()))
    assert shown["target"]["id"] == int(np.argmax(p))
    assert shown["target"]["follows_in_text"] is False
    lines = sections(run(folder, TEXT, "--top", 7)[1])[2]
    norm = {"h": "ln_f", "layers": "norm"}[block]
    assert f"if the stream went to {norm} and lm_head at once" in words(lines)
    rows = [line for line in lines if line.startswith((" ", "embed", f"{block}."))]
    assert len(rows) == 6  # 5 and 2, three times


def test_inside_a_text_the_target_is_the_token_that_follows(run, traced, gpt2):
    shown = traced(gpt2, TEXT, "--position", 5)
    assert shown["position"] == 5
    assert shown["target"] == {"id": ord("t"), "label": "t", "follows_in_text": True}
    out = run(gpt2, TEXT, "--position", 5)[1]
    assert "  [5 a]  " in out
    assert 'of "t", which follows in the text' in out.replace("\n", " ")


def test_a_later_token_changes_nothing_before_it(traced, folder):
    short, long = traced(folder, "The cat"), traced(folder, "The cat sat", "--position", 6)
    assert short["guesses"] != []
    for a, b in zip(short["guesses"], long["guesses"], strict=True):
        assert a["norm"] == pytest.approx(b["norm"], rel=1e-5)
        assert [t["id"] for t in a["likeliest"]] == [t["id"] for t in b["likeliest"]]


def test_the_head_is_chosen_or_given(run, traced, gpt2):
    chosen = traced(gpt2, TEXT)["head"]
    blocks = forward(gpt2).blocks
    best = max(
        (blocks[n].attn.probs[h, 15, j], n, h)
        for n in range(2)
        for h in range(3)
        for j in range(1, 15)
    )
    assert (chosen["layer"], chosen["head"]) == best[1:]
    assert (chosen["head_chosen"], chosen["layer_chosen"]) == (True, True)
    given = traced(gpt2, TEXT, "--layer", 1, "--head", 2)["head"]
    assert (given["layer"], given["head"], given["head_chosen"]) == (1, 2, False)
    np.testing.assert_allclose(given["probs"], blocks[1].attn.probs[2], atol=1e-6)
    assert traced(gpt2, TEXT, "--layer", 0)["head"]["layer"] == 0
    out = " ".join(run(gpt2, TEXT)[1].split())
    assert f"h.{chosen['layer']}.attn.probs[{chosen['head']}], a weight table [16, 16]" in out
    assert "Of all heads this one has its largest weight, the first and itself aside." in out
    lines = sections(run(gpt2, TEXT, "--layer", 1, "--head", 2)[1])[3]
    assert "Of all" not in " ".join(lines)
    assert lines[-1].startswith(">15 ⏎")
    shown = [0 if cell == "." else float(cell) for cell in lines[-1].split()[2:]]
    np.testing.assert_allclose(shown, given["probs"][15], atol=0.006)


def test_a_head_names_those_that_share_its_keys(run, traced, llama):
    for head in range(6):
        options = (TEXT, "--layer", 1, "--head", head)
        shown = traced(llama, *options)["head"]
        assert shown["shares_keys_with"] == [head ^ 1]  # pairs: 0 1, 2 3, 4 5
        first = head // 2 * 2
        said = f"Heads {first} to {first + 1} look at the same keys and values."
        assert said in words(sections(run(llama, *options)[1])[3])
    probs = forward(llama).blocks[1].self_attn.probs
    np.testing.assert_allclose(shown["probs"], probs[5], atol=1e-6)


@pytest.mark.parametrize(("shared", "group"), [(6, 1), (1, 6)])
def test_heads_of_their_own_and_one_for_all(run, traced, tmp_path, shared, group):
    write_llama(tmp_path, num_key_value_heads=shared)
    options = ("--ids", "1 2 3", "--layer", 0, "--head", 2)
    others = [0, 1, 3, 4, 5] if group == 6 else None
    assert traced(tmp_path, *options)["head"].get("shares_keys_with") == others
    out = words(sections(run(tmp_path, *options)[1])[3])
    assert ("Heads 0 to 5 look" in out) == (group == 6)


def test_neurons_of_the_last_block_or_of_the_one_that_is_given(run, traced, gpt2):
    assert traced(gpt2, TEXT)["ffn"]["layer"] == 1
    options = (TEXT, "--layer", 0, "--top", 2)
    ffn = traced(gpt2, *options)["ffn"]
    activated, rows = forward(gpt2).blocks[0].mlp.c_proj
    answers = np.abs(activated[15]) * np.linalg.norm(rows, axis=1)
    assert ffn["layer"] == 0
    assert [n["number"] for n in ffn["neurons"]] == np.argsort(-answers)[:2].tolist()
    assert [len(n["up"]) for n in ffn["neurons"]] == [2, 2]
    lines = sections(run(gpt2, *options)[1])[4]
    n = ffn["neurons"][0]
    start = [str(n["number"]), f"{n['activation']:.2f}", f"{n['answer']:.2f}", str(n["most_at"])]
    assert lines[-4].split()[:4] == start
    assert f"{n['up'][0]['label']} {n['up'][0]['logit']:+.2f}" in lines[-4]
    assert f"down    {n['down'][0]['label']} {n['down'][0]['logit']:+.2f}" in lines[-3]


def test_a_neuron_of_a_llama_shows_its_gate_its_value_and_their_product(run, traced, llama):
    options = (TEXT, "--layer", 0, "--top", 2)
    ffn = traced(llama, *options)["ffn"]
    mlp = forward(llama).blocks[0].mlp
    for n in ffn["neurons"]:
        assert n["gate"] == pytest.approx(mlp.gate[15, n["number"]], rel=1e-5)
        assert n["value"] == pytest.approx(mlp.up[15, n["number"]], rel=1e-5)
        assert n["activation"] == pytest.approx(n["gate"] * n["value"], rel=1e-5)
    lines = sections(run(llama, *options)[1])[4]
    n = ffn["neurons"][0]
    numbers = [f"{n[key]:.2f}" for key in ("gate", "value", "activation", "answer")]
    assert lines[-5].split()[:5] == ["neuron", "gate", "value", "active", "answer"]
    assert lines[-4].split()[:6] == [str(n["number"]), *numbers, str(n["most_at"])]
    assert f"{n['up'][0]['label']} {n['up'][0]['logit']:+.2f}" in lines[-4]
    assert "silu(x W_gate) and x W_up" in words(lines)


def test_halves_of_characters_are_bytes_and_the_text_is_whole(run, gpt2):
    title = sections(run(gpt2, TEXT)[1])[0]
    assert title[1] == "The cat 猫😁⏎"
    assert "3 ␣  4 c  5 a  6 t  7 ␣  8 <E7>  9 <8C>  10 <AB>  11 <F0>" in title[2]
    assert "[15 ⏎]" in " ".join(title)


def test_a_long_text_is_shown_around_the_position(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path, n_positions=300)
    title = sections(run(folder, "abc " * 75, "--position", 150)[1])[0]
    assert len(title) < 10
    assert (title[2], title[-1]) == ("…", "…")
    assert "[150 c]" in " ".join(title)


@pytest.mark.parametrize(
    "text", ["a", "猫追狗，地想apple😁", "é" * 9, "\n\t \x00", "0123456789 a b c d e f", "x" * 32]
)
@pytest.mark.parametrize("options", [(), ("--top", 1), ("--top", 40), ("--position", 0)])
def test_lines_fit_a_terminal_of_100_columns(run, gpt2, text, options):
    code, out, err = run(gpt2, text, *options)
    assert (code, err) == (0, "")
    assert max(map(width, out.splitlines())) <= 100
    assert len(sections(out)) == 5


@pytest.mark.parametrize("text", ["a", "猫追狗，地想apple😁", "\n\t \x00", "x" * 32])
@pytest.mark.parametrize("options", [(), ("--top", 1), ("--top", 40), ("--position", 0)])
@pytest.mark.parametrize("wide", [1.0, 1e5])
def test_lines_fit_with_the_longest_names_too(run, tmp_path, monkeypatch, text, options, wide):
    """Those of a Llama of twelve blocks; wide numbers leave less room for tokens."""
    model = npgpt.from_pretrained(write_llama(tmp_path, num_hidden_layers=12))
    model.params["layers.3.mlp.down_proj.weight"] *= wide
    model.save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(".", text, *options)
    assert (code, err) == (0, "")
    assert max(map(width, out.splitlines())) <= 100
    assert len(sections(out)) == 5
    rows = [line for line in out.splitlines() if line.startswith("layers.3.mlp ")]
    assert len(rows) == 1


def test_long_tokens_leave_room_for_fewer(run, tmp_path, monkeypatch):
    """Four likeliest tokens on a line where GPT-2 has five."""
    write_llama(tmp_path, num_hidden_layers=12)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace, "labeller", lambda _: lambda _: "t" * 9)
    out = run(".", "--ids", "1 2 3")[1]
    assert max(map(width, out.splitlines())) <= 100
    (line,) = [line for line in out.splitlines() if line.startswith("layers.11 ") and "…" in line]
    assert line.count("…") == 4


def test_what_is_printed_of_a_gpt2_stays_as_it_was(run, tmp_path, monkeypatch):
    """Every character of the tables; of --json names, order, and numbers up to rounding."""
    write_tiny_gpt2(tmp_path / "model", seed=3)
    monkeypatch.chdir(tmp_path)
    options = ("The cat 猫😁", "--dtype", "float64", "--position", 5, "--top", 3, "--layer", 1)
    code, out, _ = run("model", *options)
    assert (code, out) == (0, (GOLDENS / "trace-gpt2.txt").read_text(encoding="utf-8"))
    now, then = (
        list(leaves(json.loads(text)))
        for text in (
            run("model", *options, "--json")[1],
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
def test_slm4096_knows_its_page(run, traced, data_dir):
    folder = data_dir / "checkpoints" / "slm4096"
    shown = traced(folder, "Q: What is SLM?\n")
    assert len(shown["corrections"]) == 8
    assert shown["target"]["label"] == "A"
    first, *_, last = shown["guesses"]
    assert first["rank"] > last["rank"] == 1
    assert last["probability"] > 0.9
    assert max(map(width, run(folder, "Q: What")[1].splitlines())) <= 100


def random_table(rng, T: int) -> np.ndarray:
    table = np.tril(rng.random((T, T)) ** 4)
    return table / table.sum(axis=1, keepdims=True)


def test_the_articles_table():
    assert attention_table(ARTICLE, ["猫", "追", "狗"], 2, 100).splitlines() == [
        "         0    1    2",
        "        猫   追   狗",
        " 0 猫 1.00",
        " 1 追 0.12 0.88",
        ">2 狗 0.27 0.27 0.45",
    ]


def test_weights_too_small_to_print_are_dots_and_the_future_is_blank():
    table = np.array([[1, 0, 0], [0.004, 0.996, 0], [0.006, 0, 0.994]])
    rows = attention_table(table, ["a", "b", "c"], 0, 100).splitlines()[2:]
    assert [row.split()[2:] for row in rows] == [["1.00"], [".", "1.00"], ["0.01", ".", "0.99"]]


def test_a_wide_table_is_cut_to_the_rows_before_a_position_and_their_columns():
    T, position = 60, 50
    table = np.zeros((T, T))
    table[:, 7] = 1
    table[40, [7, 33]] = 0.5, 0.5
    table[position, [3, 7, 33]] = 0.05, 0.2, 0.75
    lines = attention_table(table, [f"t{i}" for i in range(T)], position, 100).splitlines()
    numbers = [int(n) for n in lines[0].split()]
    assert numbers == sorted(numbers)
    assert {3, 7, 33} <= set(numbers)
    assert lines[1].split() == [*(f"t{i}" for i in numbers), "rest"]
    assert [line.lstrip("> ").split()[0] for line in lines[2:]] == [
        str(i) for i in range(position - ROWS + 1, position + 1)
    ]
    cells = dict(zip(numbers, lines[-1].split()[2:], strict=False))
    assert (cells[3], cells[7], cells[33], lines[-1][0]) == ("0.05", "0.20", "0.75", ">")


def test_weight_that_finds_no_column_is_in_the_rest():
    T, position = 60, 50
    table = np.zeros((T, T))
    for i in range(35, position):  # one other token for each row: 15 columns for about a dozen
        table[i, i - 30] = 1
    table[position, 40] = 0.25
    table[position, 5:20] = 0.05
    lines = attention_table(table, ["x"] * T, position, 100).splitlines()
    shown = len(set(map(int, lines[0].split())) & set(range(5, 20)))
    assert 0 < shown < 15
    rest = 0.25 + 0.05 * (15 - shown)
    assert float(lines[-1].split()[-1]) == pytest.approx(rest, abs=0.005)


def test_rows_with_their_rest_sum_to_one(rng):
    lines = attention_table(random_table(rng, 200), ["x"] * 200, 120, 100).splitlines()
    for line in lines[2:]:
        cells = [0 if cell == "." else float(cell) for cell in line.removeprefix(">").split()[2:]]
        assert sum(cells) == pytest.approx(1, abs=0.005 * len(cells))


@pytest.mark.parametrize("label", ["a", "␣because", "<F0 9F 98>", "猫追狗猫追狗猫追狗", "😁"])
@pytest.mark.parametrize("T", [1, 2, 9, 10, 16, 17, 18, 19, 40, 101, 1024])
@pytest.mark.parametrize("columns", [80, 100])
def test_every_table_fits_its_columns_and_has_its_position(rng, label, T, columns):
    position = T // 2
    lines = attention_table(random_table(rng, T), [label] * T, position, columns).splitlines()
    assert max(map(width, lines)) <= columns
    assert [line.split()[0] for line in lines if line.lstrip().startswith(">")] == [f">{position}"]
