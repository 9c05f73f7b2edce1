"""The tables of `python -m npgpt.describe` that Llama, BERT and the encoder-decoder share."""

from __future__ import annotations

import pytest

from npgpt.cli import width
from npgpt.describe import command as describe
from npgpt.describe.tables import Wanted, by_path, parameter_lines, several

SHAPES = {
    "t.weight": (7, 2),
    "l.0.a.w": (2, 3),
    "l.0.b.w": (3,),
    "l.1.a.w": (2, 3),
    "l.1.b.w": (3,),
}
WANTED: list[Wanted] = [
    (0, "t", "t."),
    (0, "a layer", "l.0."),
    (1, "both", ("l.0.a.", "l.0.b.")),
    (2, "a", "l.0.a."),
    (0, "all layers", "l."),
    (0, "none", "m."),
    (0, "total", ""),
]
LLAMA_3_8B = """\
llama-3-8b: 32 blocks, d 4096, 32 heads of 128 on 8 of keys and values,
MLP 14336 (silu), rotary positions (default, theta 500000),
vocabulary 128256, context 8192; lm_head has its own table

parameters           number  of the model  of a block
embed_tokens    525,336,576         6.5 %
a block         218,112,000         2.7 %     100.0 %
  attention      41,943,040         0.5 %      19.2 %
    W_Q          16,777,216         0.2 %       7.7 %
    W_K           4,194,304         0.1 %       1.9 %
    W_V           4,194,304         0.1 %       1.9 %
    W_O          16,777,216         0.2 %       7.7 %
  MLP           176,160,768         2.2 %      80.8 %
    gate         58,720,256         0.7 %      26.9 %
    up           58,720,256         0.7 %      26.9 %
    down         58,720,256         0.7 %      26.9 %
all blocks    6,979,584,000        86.9 %
norm                  4,096         0.0 %
lm_head         525,336,576         6.5 %
total         8,030,261,248       100.0 %

Below: T = 100 tokens, 3 texts, 2 bytes a number.

memory                                         bytes
parameters                            16,060,522,496
KV cache                                  39,321,600
… if all 32 heads had their own keys     157,286,400
"""


def test_lines_count_what_begins_so() -> None:
    lines = parameter_lines(SHAPES, WANTED, ("l.0.",))
    assert [line.parameters for line in lines] == [14, 9, 9, 6, 18, 0, 32]
    assert [line.of_block for line in lines] == [None, 1, 1, 6 / 9, None, None, None]
    assert [line.share for line in lines[:2]] == [14 / 32, 9 / 32]


def test_shares_are_of_the_whole_that_is_named() -> None:
    lines = parameter_lines(SHAPES, WANTED, ("l.0.", "l.1."), whole="l.")
    assert [line.share for line in lines[:2]] == [14 / 18, 9 / 18]
    assert lines[-1].share == 32 / 18


def test_paths() -> None:
    names = [line.name for line in by_path(parameter_lines(SHAPES, WANTED, ("l.0.",)))]
    assert names[:4] == ["t", "a layer", "a layer/both", "a layer/both/a"]
    assert names[4:] == ["all layers", "none", "total"]


def test_all_that_is_said_of_a_llama(capsys) -> None:
    argv = ["llama-3-8b", "--context", "100", "--batch", "3", "--dtype", "float16"]
    assert describe.main(argv) == 0
    assert capsys.readouterr().out == LLAMA_3_8B


def test_one_is_singular() -> None:
    assert [several(n, "head") for n in (1, 2)] == ["1 head", "2 heads"]


@pytest.mark.parametrize("name", describe.PRESETS)
def test_lines_fit_a_terminal_of_100_columns(capsys, name) -> None:
    assert describe.main([name]) == 0
    assert max(map(width, capsys.readouterr().out.splitlines())) <= 100


def test_help_names_what_is_built_in(capsys) -> None:
    with pytest.raises(SystemExit):
        describe.main(["--help"])
    said = "".join(capsys.readouterr().out.split())  # names are broken at their hyphens
    for name in describe.PRESETS:
        assert name in said
