"""READMEs and docs keep their word: links lead somewhere, commands and names exist, blocks run."""

from __future__ import annotations

import contextlib
import functools
import io
import pydoc
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.__main__ import COMMANDS, module_of
from npgpt.compare.activations import collect_stations
from npgpt.compare.dump import read_stations
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
ENGLISH = [ROOT / "README.md", *(page for page in DOCS if not page.name.endswith(".zh-CN.md"))]
PAIRS = [(page, page.with_suffix(".zh-CN.md")) for page in ENGLISH]
PAGES = [page for pair in PAIRS for page in pair]
WEIGHTS = (ROOT / "weights" / "README.md", ROOT / "weights" / "README.zh-CN.md")
ALL = [*PAGES, *WEIGHTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
README, README_ZH = PAIRS[0]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HELPERS = {  # examples that others import
    "show.py",
    "toy.py",
    "any_model.py",
    "encoder_decoder.py",
    "plots.py",
    "one_sentence.py",
    "word_rows.py",
    "number_words.py",
    "nudged.py",
    "block_of_two.py",
    "two_stacks.py",
    "held_against.py",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", ALL, ids=name_of)
each_pair = pytest.mark.parametrize(
    ("english", "chinese"), [*PAIRS, WEIGHTS], ids=map(name_of, [*ENGLISH, WEIGHTS[0]])
)


@functools.cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and content of every fenced block, without comments, which are translated."""
    comment = {"bash": "  #.*", "python": " *#.*"}
    return [
        (language, re.sub(comment[language], "", code) if language in comment else code)
        for language, code in FENCE.findall(text_of(page))
    ]


def commands(page: Path) -> list[str]:
    """The lines of all shell blocks."""
    return [
        line.rstrip()
        for language, code in blocks(page)
        if language == "bash"
        for line in code.splitlines()
        if line.strip()
    ]


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings: letters, digits, - and _ stay, a space becomes a hyphen.

    The second of two equal headings gets "-1".
    """
    found: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.*?)\s*$", FENCE.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading)  # of a link its text
        found[re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")] += 1
    return {f"{slug}-{n}" if n else slug for slug, count in found.items() for n in range(count)}


def test_anchors_follow_githubs_rule() -> None:
    headings = "# A (b): c_d\n## 和你的移植对拍\n## Trace：一个 `x` 的旅程\n# E\n# [E](F)"
    assert anchors(f"```bash\n# no heading\n```\n{headings}\n") == {
        "a-b-c_d",
        "和你的移植对拍",
        "trace一个-x-的旅程",
        "e",
        "e-1",
    }


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", FENCE.sub("", text_of(page))):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(text_of(file))):
            wrong.append(target)
    assert wrong == []


@each_page
def test_files_and_names_exist(page: Path) -> None:
    names = set(re.findall(r"`((?:npgpt|tests|weights|examples|docs)/[\w./-]*)`", text_of(page)))
    missing = {name for name in names if not (ROOT / name).exists()}
    assert missing <= {"weights/NAME"}
    dotted = re.findall(r"`(npgpt(?:\.\w+)+)[`(]", text_of(page))
    assert [name for name in dotted if pydoc.locate(name) is None] == []


def test_every_page_has_both_languages_and_is_linked_from_the_readme() -> None:
    assert len(ENGLISH) == 12
    assert set(DOCS) == set(PAGES) - {README, README_ZH}
    for english, chinese in PAIRS:
        assert f"[中文]({chinese.name})" in text_of(english)
        assert f"[English]({english.name})" in text_of(chinese)
        assert f"]({name_of(english)})" in text_of(README) or english == README
        assert f"]({name_of(chinese)})" in text_of(README_ZH) or chinese == README_ZH


@each_pair
def test_both_languages_have_the_same_blocks(english: Path, chinese: Path) -> None:
    assert blocks(english) == blocks(chinese)
    assert commands(english)
    headings = [
        re.findall(r"^(#+) ", FENCE.sub("", text_of(page)), re.MULTILINE)
        for page in (english, chinese)
    ]
    assert headings[0] == headings[1]


@pytest.mark.parametrize("page", [README, README_ZH], ids=name_of)
def test_the_readme_can_be_read_in_one_sitting(page: Path) -> None:
    assert 12_000 <= page.stat().st_size <= 16_000


@pytest.mark.parametrize("page", [README, README_ZH], ids=name_of)
def test_set_up_is_two_commands(page: Path) -> None:
    for mark in ("run", "test"):
        block = re.search(rf"<!-- {mark} -->\n```bash\n(.*)\n```\n<!-- end -->", text_of(page))
        assert block is not None
        assert block[1].startswith("pip install ")


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    script = text_of(ROOT / ".ci" / "run")
    assert "/^<!-- test -->$/,/^<!-- end -->$/p' README.md" in script
    assert 'pip install -e ".[test]" && python -m pytest' in commands(README)
    paths = re.findall(r"tests/[\w/.]+", script)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert paths


def test_other_systems_run_exactly_the_readmes_test_command() -> None:
    workflow = text_of(ROOT / ".github" / "workflows" / "ci.yml")
    block = re.search(r"<!-- test -->\n```bash\n(.*)\n```\n<!-- end -->", text_of(README))
    assert block is not None
    assert re.findall(r"\brun: (.*)", workflow) == ["bash .ci/run", block[1]]
    systems = re.findall(r"(\w+)-latest", workflow)
    assert systems == ["ubuntu", "windows", "macos"]
    assert '"3.10"' in workflow


def test_hints_to_install_work_in_every_shell() -> None:
    """In cmd.exe a single quote is a part of the name."""
    code = [file for name in ("npgpt", "examples", "tests") for file in (ROOT / name).rglob("*.py")]
    wrong = re.compile(r"pip install (-\S+ )*'")
    assert [path.name for path in [*code, *ALL] if wrong.search(text_of(path))] == []


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Every command's options; those of all examples under "examples"."""
    texts = {"examples": "".join(map(text_of, sorted((ROOT / "examples").glob("*.py"))))}
    for command in COMMANDS:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
            module_of(command).main(["--help"])
        texts[command] = shown.getvalue()
    return {name: set(re.findall(r"--[a-z][a-z0-9-]+", text)) for name, text in texts.items()}


def calls(page: Path) -> list[tuple[str, set[str]]]:
    """Every command called in a shell block, or "examples", and the options it is given."""
    pattern = r"(?:npgpt (\w+)|python (examples)/\w+\.py)([^&|]*)"
    return [
        (command or example, set(re.findall(r"(?<=\s)--[a-z][a-z0-9-]+", rest)))
        for line in commands(page)
        for command, example, rest in re.findall(pattern, line)
    ]


@each_page
def test_options_in_commands_exist(page: Path, options: dict[str, set[str]]) -> None:
    assert not [line for line in commands(page) if "python -m npgpt" in line]  # one form for all
    assert [(name, used) for name, used in calls(page) if not used <= options[name]] == []


def test_every_command_is_shown() -> None:
    assert {name for page in ENGLISH for name, _ in calls(page)} == {*COMMANDS, "examples"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_in_the_text_exist(page: Path, options: dict[str, set[str]]) -> None:
    named = set(re.findall(r"(?<=[`\s])--[a-z][a-z0-9-]+", FENCE.sub("", text_of(page))))
    assert named <= set().union(*options.values())


def test_the_python_block_runs_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = (code for language, code in blocks(README) if language == "python")
    assert len(code.strip().splitlines()) <= 13
    names: dict[str, Any] = {}
    exec(code, names)
    assert f"# {names['ids']}\n" in text_of(README)
    T, W = len(names["ids"]), names["model"].params["h.0.attn.c_attn.weight"]
    assert names["weights"].shape == (T, T)
    assert names["dW"].shape == W.shape
    assert len(capsys.readouterr().out.split()) >= 10
    assert (tmp_path / "my-model" / "model.safetensors").is_file()


@pytest.fixture
def printed(run_command: Any) -> Callable[[str], str]:
    """What a line such as `npgpt trace "…" --top 3` prints."""

    def call(line: str) -> str:
        _, command, *arguments = shlex.split(line)
        code, out, _ = run_command(module_of(command), *arguments)
        assert code == (1 if "--against" in arguments else 0)  # the other side is wrong
        return str(out)

    return call


@pytest.fixture
def wrong_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder erf-tales of docs/porting.md, beside which the commands run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "weights" / "tales", "erf-tales")
    config = Path("erf-tales", "config.json")
    text = config.read_text(encoding="utf-8").replace("gelu_new", "gelu")
    config.write_text(text, encoding="utf-8")


def test_the_readmes_sample_is_what_its_command_prints(printed: Callable[[str], str]) -> None:
    (_, command), (_, output), (_, poem), (_, lines) = blocks(README)[:4]
    assert printed(command.partition("&& ")[2]) == output
    assert printed(poem) == lines


@pytest.mark.parametrize(
    "name", ["README.md", "docs/porting.md", "docs/trace.md", "docs/describe.md"]
)
def test_tables_are_what_the_commands_print(
    name: str, wrong_port: None, printed: Callable[[str], str]
) -> None:
    """Each line of a table, apart from numbers with a decimal point, which may round otherwise."""

    def lines(text: str) -> list[str]:
        return [re.sub(r"-?\d\S*\.\d\S*", "#", line) for line in text.splitlines()]

    dump = 'npgpt compare "The cat sat on the" --model erf-tales --dump port.safetensors'
    assert dump in commands(ROOT / "docs" / "porting.md")
    printed(dump)
    offline = r"npgpt (trace|describe|compare (--model weights/tales )?--against)"
    needs = r"smollm2|MODEL|gpt2 --against"
    run = [line for line in commands(ROOT / name) if re.match(offline, line)]
    run = [line for line in run if not re.search(needs, line)]
    tables = [code for language, code in blocks(ROOT / name) if language in ("", "mermaid")]
    if name == "README.md":
        del tables[:2]  # the samples
    got = {"", "…", *(f"$ {line}" for line in run), *(n for c in run for n in lines(printed(c)))}
    assert [n for t in tables if "smollm2" not in t for n in lines(t) if n not in got] == []


def test_every_name_in_the_map_exists_and_both_maps_point_to_the_same() -> None:
    def rows(page: Path) -> list[list[str]]:
        cells = [line.strip("| ").split(" | ") for line in text_of(page).splitlines()]
        return [row[1:] for row in cells if len(row) == 4 and "tests/" in row[3]]

    english, chinese = rows(README), rows(README_ZH)
    assert [[cell.replace("[测试]", "[test]") for cell in row] for row in chinese] == english
    assert len(english) >= 25
    for source, _, _ in english:
        for name, path in re.findall(r"\[`(\w+)`\]\(([\w/]+\.py)\)", source):
            defined = (
                rf"^\s*(?:(?:def|class) {name}\b|def {name}_forward\b.*?^def {name}_backward\b)"
            )
            code = text_of(ROOT / path)
            assert re.search(defined, code, re.MULTILINE | re.DOTALL), (path, name)


def test_every_example_is_linked_from_the_readme_or_the_docs() -> None:
    named = {n for page in ENGLISH for n in re.findall(r"examples/(\w+\.py)", text_of(page))}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} - named == HELPERS


def test_both_glossaries_have_the_same_terms_and_every_name_is_in_the_code() -> None:
    def rows(page: str) -> list[list[str]]:
        return [line.strip("| ").split(" | ") for line in text_of(ROOT / page).splitlines()]

    english, chinese = (
        [row[1:4] for row in rows(f"docs/glossary{suffix}.md") if len(row) == 5]
        for suffix in ("", ".zh-CN")
    )
    assert english[1:] == chinese[1:]
    assert len(english) > 50
    code = "".join(map(text_of, (ROOT / "npgpt").rglob("*.py")))
    named = " ".join(re.findall("`(.*?)`", "".join(row[2] for row in english)))
    names = set(re.findall(r"(?:[A-Za-z]\w+/?)+", named))
    assert {name for name in names if name not in code and not list(ROOT.glob(f"{name}*"))} == set()


@pytest.mark.parametrize("make", [random_gpt2, random_llama, random_bert, random_transformer])
def test_every_station_is_in_a_table_for_porters(make: Any, rng: np.random.Generator) -> None:
    model = make(rng)
    target = np.array([3, 1]) if make is random_transformer else None
    stations = collect_stations(model, np.array([3, 1, 4]), target, gradients=True)
    named = set(re.findall(r"`([\w.]+)`", text_of(ROOT / "docs" / "porting.md")))
    named |= {name.replace("encoder", "decoder") for name in named}  # "the same"
    generic = {re.sub(r"\.\d+", ".N", name) for name in stations if not name.startswith("grad.")}
    assert generic - named == set()
    assert {f"grad.{name}" for name in model.params} <= stations.keys()


def test_the_c_program_writes_what_compare_reads(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    writer, use = (code for language, code in blocks(ROOT / "docs/porting.md") if language == "c")
    data = "float ids[5] = {464, 3797, 3332, 319, 262}, embed[5 * 768] = {1}, ln_f[5 * 768] = {2};"
    program = f"{writer}\nint main(void) {{\n{data}\n{use}\nreturn 0;\n}}\n"
    (tmp_path / "port.c").write_text(program, encoding="utf-8")
    for command in (["cc", "-Wall", "-Werror", "-o", "port", "port.c"], ["./port"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    stations = read_stations(tmp_path / "port.safetensors").arrays
    arrays = {name: np.asarray(array) for name, array in stations.items()}
    assert {name: array.shape for name, array in arrays.items()} == {
        "ids": (5,),
        "embed": (5, 768),
        "ln_f": (5, 768),
    }
    assert [*arrays["ids"]] == [464, 3797, 3332, 319, 262]
    assert arrays["embed"][0, 0] == 1
    assert arrays["ln_f"][0, 0] == 2
