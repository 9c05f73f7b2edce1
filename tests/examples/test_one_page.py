"""GPT-2 on one page: as short as promised, right, and wrong as soon as one line is."""

from __future__ import annotations

import ast
import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from npgpt.models.gpt2.model import GPT2
from tests.builders.gpt2 import random_gpt2, write_tiny_gpt2
from tests.examples.test_examples import EXAMPLES, helper, run

PAGE = (EXAMPLES / "one_page.py").read_text(encoding="utf-8")
IDS = np.array([3, 1, 4, 1, 5, 9, 2, 6])
GRADIENT = re.compile(r"\(?d(w\[|(?!w\b|_h\b)\w)")  # dq, dw[…], (dq, dk), but neither dw nor d_h


def page_of(source: str, **names: Any) -> dict[str, Any]:
    """What the page defines, beside the names given."""
    names["__name__"] = "page"
    exec(compile(source, "one_page.py", "exec", dont_inherit=True), names)
    return names


def found_by(page: dict[str, Any], model: GPT2, ids: np.ndarray = IDS) -> dict[str, np.ndarray]:
    """What the page hands to `compare`."""
    (read, targets), w = (ids[:-1], ids[1:]), model.params
    logits, loss, kept = page["forward"](read, targets, w, model.config)
    grads = page["backward"](read, targets, kept, w)
    assert grads.keys() == w.keys()
    return {"loss": np.asarray(loss), "logits": logits, **grads}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return helper("held_against", monkeypatch)


def test_it_is_one_page_and_needs_numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(PAGE.splitlines()) <= 170
    monkeypatch.setitem(sys.modules, "npgpt", None)
    monkeypatch.setitem(sys.modules, "show", None)
    page = page_of(PAGE)
    modules = {value.__name__ for value in page.values() if isinstance(value, ModuleType)}
    assert modules == {"math", "sys", "numpy"}
    assert callable(page["backward"])


@pytest.mark.parametrize(
    "options",
    [{}, {"tie_word_embeddings": False}, {"n_inner": 14, "layer_norm_epsilon": 0.1}, {"n_head": 1}],
    ids=["tied", "untied", "narrow", "one head"],
)
@pytest.mark.parametrize("T", [1, 7, 11])  # 11: as long as the context
def test_any_gpt2(options, T, held, rng, capsys) -> None:
    model, ids = random_gpt2(rng, **options), rng.integers(0, 19, T + 1)
    held.compare(
        "npgpt", found_by(page_of(PAGE), model, ids), held.of_npgpt(held.in_float64(model), ids)
    )
    assert capsys.readouterr().out.count("✓") == 2


def gradients() -> list[tuple[int, int, int]]:
    """Line, start and end, in bytes, of each expression on the page from which a gradient comes."""
    found: list[ast.expr] = []
    functions = [node for node in ast.parse(PAGE).body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if not function.name.endswith("backward"):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.add.at":
                found.append(node.args[-1])
            elif isinstance(node, ast.Return) and ast.unparse(node) != "return dw":
                assert node.value is not None
                found.append(node.value)
            elif isinstance(node, ast.Assign | ast.AugAssign) and GRADIENT.match(ast.unparse(node)):
                found += node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return sorted((each.lineno, each.col_offset, each.end_col_offset or 0) for each in found)


def is_refused(source: str, held: ModuleType, model: GPT2) -> bool:
    """Whether the page, changed like that, fails its own comparison with npgpt."""
    found, expected = found_by(page_of(source), model), held.of_npgpt(model, IDS)
    try:
        held.compare("npgpt", found, expected)
    except AssertionError as error:
        return str(error).startswith("does not hold: npgpt: ")
    return False


def test_a_fault_in_any_backward_line_is_refused(held, rng) -> None:
    """Each expression in turn is 0.1 % too large."""
    model, passed = random_gpt2(rng), []
    assert not is_refused(PAGE, held, model)
    assert len(gradients()) == 38
    for number, start, end in gradients():
        lines = PAGE.encode().splitlines(keepends=True)
        line = lines[number - 1]
        lines[number - 1] = line[:start] + b"1.001 * (" + line[start:end] + b")" + line[end:]
        if not is_refused(b"".join(lines).decode(), held, model):
            passed.append(line.decode())
    assert passed == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (" - mean(dcentred)", ""),
        (" - x_hat * mean(dx_hat * x_hat)", ""),
        ("(dp - (dp * p).sum(axis=-1, keepdims=True))", "dp"),
        ("dscaled / math.sqrt(d_h)", "dscaled"),
        ("probs.mT @ dcontext", "probs @ dcontext"),
        ("dscores @ k, dscores.mT @ q", "dscores.mT @ k, dscores @ q"),
        ("[dq, dk, dv]", "[dk, dq, dv]"),
        ("(1 + 3 * 0.044715", "(1 + 0.044715"),
        ("dwide += ", "dwide -= "),
        ("targets] -= 1", "targets] -= 0"),
        ("dlogits /= len(ids)", "dlogits /= 1"),
        ("dx + layer_norm_backward(dnormed, ln_1", "layer_norm_backward(dnormed, ln_1"),
        ("dx + layer_norm_backward(dnormed, ln_2", "layer_norm_backward(dnormed, ln_2"),
        ('np.add.at(dw["wte.weight"], ids, dx)', 'dw["wte.weight"][ids] += dx'),
        ("scaled, -np.inf)", "scaled, -1)"),
        ("0.044715 * wide**3", "0.04471 * wide**3"),
        (" + eps", ""),
    ],
)
def test_what_is_often_forgotten_is_refused(right, wrong, held, rng) -> None:
    assert PAGE.count(right) == 1
    assert is_refused(PAGE.replace(right, wrong), held, random_gpt2(rng))


@pytest.mark.parametrize("name", ["layer_norm", "attention", "mlp"])
def test_backward_takes_the_lines_of_forward_from_the_last_to_the_first(name: str) -> None:
    def assigned(function: str) -> list[str]:
        """The first name of each assignment, without those that unpack what was kept."""
        body = re.search(rf"^def {function}\(.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
        assert body is not None
        return re.findall(r"^    (\w+)(?:, \w+)* = (?!kept|\w+\.shape)", body[0], re.MULTILINE)

    forward, backward = assigned(name), assigned(f"{name}_backward")
    lines = [forward.index(gradient.removeprefix("d")) for gradient in backward]
    assert lines == sorted(lines, reverse=True)
    assert len(lines) >= 2


def test_each_line_ends_with_the_shape_of_what_it_makes(rng) -> None:
    """A call behind each assignment, and around what is returned, looks at the shapes."""
    sizes = {"T": len(IDS) - 1, "V": 19, "d": 12, "H": 3, "d_h": 4, "F": 48}
    checked = set()

    def made(line: str, *arrays: Any) -> Any:
        shapes = re.findall(r"\[(.*?)\]", line.partition("  #")[2])
        if line.endswith(" each"):
            shapes *= len(arrays)
        for array, shape in zip(arrays, shapes, strict=False):  # one that was kept has none
            wanted = [eval(size.replace(" ", "*"), {}, sizes) for size in shape.split(", ")]
            assert [*np.shape(array)] == wanted, line
        checked.add(line)
        return arrays[0]

    lines = []
    for line in PAGE.splitlines():
        code, _, remark = line.partition("  #")
        lines.append(line)
        assignment = re.match(r"( +)(.+?) [+/-]?= ", code)
        if "[" not in remark or re.search(r"\[\.\.\.|\b(in|out)\]", remark):
            continue
        if assignment:
            lines.append(f"{assignment[1]}made({line!r}, {assignment[2]})")
        elif "return" in code:
            lines[-1] = re.sub(r"return (.*)", rf"return made({line!r}, \1)", code)
    page, model = page_of("\n".join(lines), made=made), random_gpt2(rng)
    found_by(page, model)
    assert len(checked) == 60


def test_other_arithmetic_than_gpt2s_is_refused(tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path, activation_function="gelu")
    done = run("one_page", "--model", str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "one_page.py: error: one_page.py knows the activation gelu_new and scores divided by √d_h, "
        "but the model's config.json asks for something else.\n"
    )


def test_a_text_that_does_not_fit_is_refused() -> None:
    done = run("one_page", "--model", "random", "--text", "x")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_in_chinese() -> None:
    done = run("one_page", "--model", "random", "--lang", "zh")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("✓") == 2
    assert "── 十一 ──" in done.stdout
    assert "全部 148 个梯度最多相差 " in done.stdout


@pytest.mark.hf
@pytest.mark.parametrize("tied", [True, False])
def test_against_transformers(hf: None, tied: bool, tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path, tie_word_embeddings=tied)
    done = run("one_page", "--model", str(folder), "--text", "There and back.")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  transformers: ") == done.stdout.count("  npgpt: ") == 2
    assert done.stdout.count("✓") == 4
