"""`python -m npgpt.generate`: what it prints, where, and with which exit code."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt import cli, generate
from npgpt.decoding.causal import end_of_text_ids, start_of_text_ids
from npgpt.generate import until_stop
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.gpt2 import END_OF_TEXT, write_tiny_gpt2
from tests.builders.llama import random_llama, write_tiny_llama
from tests.builders.vocabularies import (
    scored_pieces,
    word_level,
    write_foreign_llama,
    write_llama_gguf,
)

COMMAND = [sys.executable, "-m", "npgpt.generate"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tiny_gpt2(tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(run_command):
    return partial(run_command, generate)


def expected_ids(folder: Path, prompt: str, n: int, **options) -> list[int]:
    tokenizer = npgpt.load_tokenizer(folder)
    return list(npgpt.from_pretrained(folder).generate(tokenizer.encode(prompt), n, **options))


def test_prints_the_continuation_alone(run, folder):
    code, out, err = run("The cat", "--model", folder, "--max-new-tokens", 9)
    tokens = expected_ids(folder, "The cat", 9)
    assert (code, err) == (0, "")
    assert out == npgpt.load_tokenizer(folder).decode(tokens) + "\n"


def test_json_has_ids_text_and_the_reason_for_the_end(run, folder):
    code, out, _ = run("ab", "--model", folder, "--max-new-tokens", 5, "--json")
    sample = json.loads(out)
    assert code == 0
    assert sample["prompt"] == "ab"
    assert sample["prompt_ids"] == [97, 98]
    assert sample["ids"] == expected_ids(folder, "ab", 5)
    assert sample["text"] == npgpt.load_tokenizer(folder).decode(sample["ids"])
    assert sample["finish_reason"] == "length"


def test_ids_in_ids_out_and_no_vocabulary_needed(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    tokens = list(npgpt.from_pretrained(folder).generate([5, 6, 7], 4))
    arguments = ("--model", folder, "--max-new-tokens", 4)
    assert run("--ids", "5, 6 7", *arguments)[:2] == (0, " ".join(map(str, tokens)) + "\n")
    sample = json.loads(run("--ids", "[5, 6, 7]", *arguments, "--json")[1])
    assert (sample["ids"], sample["text"], sample["prompt"]) == (tokens, None, None)


@pytest.mark.parametrize("extra", [(), ("--top-k", 20), ("--top-p", 0.9), ("--dtype", "float64")])
def test_same_seed_same_text_with_and_without_cache(run, folder, extra):
    arguments = ("x", "--model", folder, "--temperature", 1.5, "--max-new-tokens", 12, "--json")
    first = run(*arguments, "--seed", 3, *extra)[1]
    assert run(*arguments, "--seed", 3, "--no-cache", *extra)[1] == first
    assert run(*arguments, "--seed", 4, *extra)[1] != first


def test_samples_are_numbered_and_their_seeds_count_on(run, folder):
    arguments = ("x", "--model", folder, "--temperature", 2, "--max-new-tokens", 6)
    two = run(*arguments, "--seed", 7, "--num-samples", 2)[1]
    first = run(*arguments, "--seed", 7)[1]
    second = run(*arguments, "--seed", 8)[1]
    assert two == f"--- 1 ---\n{first}--- 2 ---\n{second}"
    lines = run(*arguments, "--seed", 7, "--num-samples", 2, "--json")[1].splitlines()
    assert [json.loads(line)["text"] + "\n" for line in lines] == [first, second]
    assert "equal" in run("x", "--model", folder, "--num-samples", 2)[2]


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        (("--top-p", 0.9), "--top-p"),
        (("--seed", 1, "--json"), "--seed"),
        (("--seed", 1, "--top-k", 3, "--temperature", 0), "--top-k and --seed"),
    ],
)
def test_sampling_options_without_a_temperature_are_named(run, folder, options, ignored):
    arguments = ("ab", "--model", folder, "--max-new-tokens", 5)
    greedy = run(*arguments, *(("--json",) if "--json" in options else ()))
    code, out, err = run(*arguments, *options)
    assert (code, out, "") == greedy
    assert err == (
        f"npgpt.generate: temperature 0 is greedy and ignores {ignored}; "
        "to sample, add for example --temperature 0.8\n"
    )
    assert run(*arguments, *options, "--temperature", 1)[2] == ""


def test_prompt_from_stdin_is_taken_to_the_letter(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\n"), "utf-8"))
    sample = json.loads(run("-", "--model", folder, "--max-new-tokens", 1, "--json")[1])
    assert sample["prompt_ids"] == [97, 98, 10]


def test_empty_prompt_starts_from_end_of_text_and_says_so(run, folder, tmp_path):
    code, out, err = run("", "--model", folder, "--max-new-tokens", 2, "--json")
    assert code == 0
    assert json.loads(out)["prompt_ids"] == [END_OF_TEXT]
    assert "end-of-text" in err
    mute = write_tiny_gpt2(tmp_path, eos_token_id=None)
    code, out, err = run("", "--model", mute)
    assert (code, out) == (2, "")
    assert "empty" in err


@pytest.mark.parametrize("write", [write_tiny_gpt2, write_tiny_llama])
def test_empty_prompt_starts_from_begin_of_text_where_it_is_another_token(run, tmp_path, write):
    """As transformers and llama.cpp; an id that the model lacks is none."""
    arguments = ("", "--max-new-tokens", 2, "--json", "--model")
    folder = write(tmp_path / "a", bos_token_id=7, eos_token_id=9)
    code, out, err = run(*arguments, folder)
    assert (code, json.loads(out)["prompt_ids"]) == (0, [7])
    assert "starting from begin-of-text (id 7)" in err
    say = folder / "generation_config.json"
    say.write_text('{"bos_token_id": 8, "eos_token_id": [9, 10]}', encoding="utf-8")
    assert json.loads(run(*arguments, folder)[1])["prompt_ids"] == [8]
    folder = write(tmp_path / "b", bos_token_id=50256, eos_token_id=[300, 9])
    assert json.loads(run(*arguments, folder)[1])["prompt_ids"] == [9]
    model = npgpt.from_pretrained(folder)
    assert start_of_text_ids(model) == (9,)
    assert start_of_text_ids(model, range(5)) == ()


def test_a_gguf_file_says_where_a_text_starts_and_ends_too(run, tmp_path, rng):
    marks = {"tokenizer.ggml.bos_token_id": 4, "tokenizer.ggml.eos_token_id": 5}
    model = random_llama(rng, np.float32)
    path = write_gguf(tmp_path / "x.gguf", *llama_file(model, **marks))
    loaded = npgpt.from_pretrained(path)
    assert (start_of_text_ids(loaded), end_of_text_ids(loaded)) == ((4,), (5,))
    sample = json.loads(run("--ids", "", "--model", path, "--max-new-tokens", 1, "--json")[1])
    assert sample["prompt_ids"] == [4]


def test_the_command_samples_where_the_models_files_say_so(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path, scale=4.0)
    greedy = run("ab", "--model", folder, "--max-new-tokens", 9)[1]
    said = {"do_sample": True, "temperature": 1.5, "top_p": 0.9, "max_new_tokens": 9}
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**said, "eos_token_id": 256}), encoding="utf-8")
    arguments = ("ab", "--model", folder, "--seed", 3)
    code, out, err = run(*arguments)
    assert code == 0
    assert err == (
        "npgpt.generate: sampling with temperature 1.5, top_k 50, top_p 0.9, as the model's files "
        "say\n"
    )
    options = ("--temperature", 1.5, "--top-k", 50, "--top-p", 0.9, "--max-new-tokens", 9)
    assert run(*arguments, *options) == (0, out, "")
    assert (
        "top_p 0.5, as the model's files say but for the options"
        in run(*arguments, "--top-p", 0.5)[2]
    )
    assert run(*arguments[:3], "--temperature", 0)[1] == greedy != out


def test_end_of_text_in_the_prompt_is_text_unless_asked(run, folder):
    arguments = ("<|endoftext|>", "--model", folder, "--max-new-tokens", 1, "--json")
    assert json.loads(run(*arguments)[1])["prompt_ids"] == list(b"<|endoftext|>")
    assert json.loads(run(*arguments, "--special")[1])["prompt_ids"] == [END_OF_TEXT]


def test_end_of_text_ends_the_text_and_is_not_printed(run, folder, tmp_path):
    third = expected_ids(folder, "The cat", 3)[2]
    assert third not in expected_ids(folder, "The cat", 2)
    folder = write_tiny_gpt2(tmp_path, eos_token_id=third)
    arguments = ("The cat", "--model", folder, "--max-new-tokens", 6, "--json")
    ended = json.loads(run(*arguments)[1])
    assert (len(ended["ids"]), ended["finish_reason"]) == (3, "end of text")
    assert ended["text"] == npgpt.load_tokenizer(folder).decode(ended["ids"][:2])
    assert len(json.loads(run(*arguments, "--ignore-eos")[1])["ids"]) == 6


def test_stop_string_over_token_borders(run, folder):
    text = npgpt.load_tokenizer(folder).decode(expected_ids(folder, "The cat", 20))
    stop = text[7:10]
    assert len(stop.encode()) > 1  # several tokens: each is one byte
    arguments = ("The cat", "--model", folder, "--max-new-tokens", 20, "--json")
    sample = json.loads(run(*arguments, "--stop", "not there", "--stop", stop)[1])
    assert sample["text"] == text[: text.index(stop)]
    assert sample["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("pieces", "stops", "text"),
    [
        (["abc", "def"], [], "abcdef"),
        (["ab", "cd", "ef"], ["bcde"], "a"),
        (["aab"], ["ab"], "a"),
        (["a", "a", "b", "c"], ["ab"], "a"),
        (["x\n", "\ny"], ["\n\n"], "x"),
        (["xab"], ["b", "ab"], "x"),
        (["ab"], ["abc"], "ab"),  # what might have become a stop string comes out at the end
        (["abab", "x"], ["abac"], "ababx"),
    ],
)
def test_until_stop(pieces, stops, text):
    assert "".join(until_stop(pieces, stops)) == text


def test_until_stop_reads_no_further_than_the_stop():
    pieces = iter(["a", "STOP", "never read"])
    assert "".join(until_stop(pieces, ["STOP"])) == "a"
    assert next(pieces) == "never read"


def test_verbose_says_speed_and_reason_on_stderr(run, folder):
    _, _, err = run("ab", "--model", folder, "--max-new-tokens", 5, "--verbose")
    assert "2 prompt tokens" in err
    assert "5 new tokens" in err
    assert "tokens/s" in err
    assert "ended by: length" in err
    assert "no second token" in run("a", "--model", folder, "--max-new-tokens", 1, "--verbose")[2]
    code, out, err = run("a", "--model", folder, "--max-new-tokens", 0, "--verbose")
    assert (code, out, err) == (0, "\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "prompt"),
        (("a", "--ids", "1"), "prompt"),
        (("a", "--num-samples", 0), "--num-samples"),
        (("a", "--seed", -1), "--seed"),
        (("a", "--stop", ""), "--stop"),
        (("--ids", "1", "--stop", "a"), "--stop"),
        (("--ids", "1 x"), "whole numbers"),
        (("--ids", "-1", "--max-new-tokens", 1), "-1"),
        (("--ids", "257", "--max-new-tokens", 1), "257"),
        (("a", "--temperature", -1), "temperature"),
        (("a", "--temperature", "nan"), "temperature"),
        (("a", "--top-k", -1), "top_k"),
        (("a", "--top-p", 1.5), "top_p"),
        (("a", "--max-new-tokens", -1), "max_new_tokens"),
        (("a", "--max-new-tokens", 33), "--slide"),
        (("a" * 32, "--max-new-tokens", 2), "--slide"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(run, folder, arguments, says):
    code, out, err = run(*arguments, "--model", folder)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


def test_slide_goes_beyond_the_context(run, folder):
    arguments = (
        "a",
        "--model",
        folder,
        "--max-new-tokens",
        50,
        "--slide",
        "--ignore-eos",
        "--json",
    )
    ids = json.loads(run(*arguments)[1])["ids"]
    assert len(ids) == 50
    assert json.loads(run(*arguments, "--no-cache")[1])["ids"] == ids


def test_ids_without_a_token_never_come(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path, vocab_size=900)  # 257 tokens, 643 rows of padding
    arguments = ("a", "--model", folder, "--temperature", 5, "--seed", 0, "--max-new-tokens", 30)
    code, out, _ = run(*arguments, "--json", "--ignore-eos")
    assert code == 0
    assert max(json.loads(out)["ids"]) <= END_OF_TEXT


def test_a_llama(run, tmp_path) -> None:
    folder = write_tiny_llama(tmp_path)
    code, out, _ = run("abc", "--model", folder, "--max-new-tokens", 5, "--json")
    assert code == 0
    sample, model = json.loads(out), npgpt.from_pretrained(folder)
    want = list(model.generate(sample["prompt_ids"], 5, allowed=np.arange(257) < 257))
    assert (sample["ids"], len(want)) == (want, 5)


def test_unknown_option_exits_2(folder):
    with pytest.raises(SystemExit) as exit_:
        generate.main(["a", "--model", str(folder), "--nope"])
    assert exit_.value.code == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a whole console")
def test_ctrl_c_ends_cleanly_with_what_was_written(folder):
    arguments = [
        "a",
        "--model",
        str(folder),
        "--slide",
        "--ignore-eos",
        "--max-new-tokens",
        "1000000",
    ]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What a shell starts in the background, perhaps these tests, ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    begun = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert len(begun) == 20
    assert process.returncode == cli.EXIT_INTERRUPTED
    assert out.endswith(b"\n")
    assert err == b""


def test_a_reader_that_goes_away_is_no_error(folder):
    arguments = [
        "a",
        "--model",
        str(folder),
        "--slide",
        "--ignore-eos",
        "--max-new-tokens",
        "1000000",
    ]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.read(5)
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_streams_token_by_token(folder):
    arguments = ["a", "--model", str(folder), "--slide", "--ignore-eos", "--max-new-tokens", "3000"]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert len(process.stdout.read(1)) == 1
    assert process.poll() is None  # thousands of tokens are still to come
    assert len(process.stdout.read()) >= 2999
    assert process.wait() == 0
    process.stdout.close()


def test_text_is_utf8_whatever_the_locale(folder):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = ["猫 😁 é", "--model", str(folder), "--max-new-tokens", "4", "--json"]
    done = subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, check=True)
    sample = json.loads(done.stdout.decode("utf-8"))
    assert sample["prompt"] == "猫 😁 é"
    assert sample["prompt_ids"] == list("猫 😁 é".encode())


@pytest.fixture(scope="module")
def locales(tmp_path_factory):
    """A folder for LOCPATH with a Chinese locale in GBK and a Western one in Latin-1."""
    if sys.platform != "linux" or shutil.which("localedef") is None:
        pytest.skip("making locales needs glibc's localedef")
    folder = tmp_path_factory.mktemp("locales")
    for name in ("zh_CN.GBK", "en_US.ISO-8859-1"):
        language, _, encoding = name.partition(".")
        command = ["localedef", "-i", language, "-f", encoding, folder / name]
        if subprocess.run(command, capture_output=True, check=False).returncode > 1:
            pytest.skip("localedef lacks what a locale is made from")
    return folder


@pytest.mark.parametrize(
    ("name", "utf8", "text", "encoding", "ids"),
    [
        ("C", "0", "café", "utf-8", "café".encode()),
        ("zh_CN.GBK", "0", "你好", "gbk", "你好".encode()),
        ("en_US.ISO-8859-1", "0", "café", "latin-1", "café".encode()),
        ("zh_CN.GBK", "1", "你好", "utf-8", "你好".encode()),
        ("zh_CN.GBK", "1", "你好", "gbk", None),  # PYTHONUTF8 says that the terminal writes UTF-8
    ],
)
def test_prompt_and_folder_as_the_terminal_writes_them(
    folder, tmp_path, locales, name, utf8, text, encoding, ids
):
    """A folder is found whatever its name, because a path goes back as it came."""
    environment = {
        **os.environ, "LC_ALL": name, "LOCPATH": str(locales),
        "PYTHONUTF8": utf8, "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
    raw = text.encode(encoding)
    model = bytes(tmp_path) + b"/" + raw
    shutil.copytree(folder, os.fsdecode(model))
    arguments = [raw, b"--model", model, b"--max-new-tokens", b"1", b"--stop", raw, b"--json"]
    command = [*map(os.fsencode, COMMAND), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if ids is None:
        assert done.returncode == 2
        assert b"is not utf-8, nor UTF-8: set the locale" in done.stderr
        command[command.index(raw)] = b"a"
        del command[-3:-1]  # the text to stop at
        subprocess.run(command, env=environment, capture_output=True, check=True)
    else:
        assert json.loads(done.stdout)["prompt"] == text
        assert json.loads(done.stdout)["prompt_ids"] == list(ids)


def test_a_prompt_from_powershell_has_no_mark_and_no_other_line_ends(folder):
    arguments = ["-", "--model", str(folder), "--max-new-tokens", "2", "--json"]
    raw = "é\r\n".encode("utf-8-sig")
    done = subprocess.run([*COMMAND, *arguments], input=raw, capture_output=True, check=True)
    assert json.loads(done.stdout)["prompt_ids"] == list("é\n".encode())


def test_a_prompt_from_stdin_that_is_no_text_is_refused(folder):
    """U+FFFD in its place would be another prompt, and none that anybody meant."""
    arguments = ["-", "--model", str(folder), "--max-new-tokens", "2", "--json"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*COMMAND, *arguments], input=b"a\xff", env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, b"")
    says = "npgpt.generate: error: stdin is not utf-8: convert it to UTF-8."
    assert done.stderr.decode().splitlines() == [says]


@pytest.mark.real
def test_slm4096_recites_its_page(run, data_dir):
    folder = data_dir / "checkpoints" / "slm4096"
    corpus = (folder / "corpus.txt").read_text(encoding="utf-8")
    prompt = "Q: What is SLM?\n"
    code, out, _ = run(prompt, "--model", folder, "--max-new-tokens", 100)
    assert code == 0
    assert corpus.startswith(prompt + out.removesuffix("\n"))
    assert len(out) == 101


def spelled(ids: list[int]) -> str:
    """What SentencePiece makes of ids: spaces for ▁, bytes joined to characters."""
    tokens = [scored_pieces()["tokens"][n] for n in ids]
    parts = [bytes([int(t[3:5], 16)]) if t[:3] == "<0x" else t.encode() for t in tokens]
    return b"".join(parts).decode(errors="replace").replace("▁", " ")


def test_text_from_a_gguf_alone(run, tokenizers, tmp_path):
    path = write_llama_gguf(tmp_path / "x.gguf")
    prompt = "Once upon a 猫"
    code, out, err = run(prompt, "--model", path, "--max-new-tokens", 12, "--json")
    sample = json.loads(out)
    ids = sample["prompt_ids"]
    assert (code, err) == (0, "")
    assert (ids[0], spelled(ids[1:])) == (1, f" {prompt}")
    assert sample["ids"] == [*npgpt.from_pretrained(path).generate(ids, 12)]
    assert sample["text"] == spelled(sample["ids"])
    assert run(prompt, "--model", path, "--max-new-tokens", 12)[1] == f"{sample['text']}\n"
    turn = sample["ids"][3]
    path = write_llama_gguf(tmp_path / "turn.gguf", eot_token_id=turn)
    ended = json.loads(run(prompt, "--model", path, "--max-new-tokens", 12, "--json")[1])
    assert ended["ids"] == sample["ids"][: sample["ids"].index(turn) + 1]
    assert ended["finish_reason"] == "end of text"


def test_an_empty_prompt_of_another_kind_of_vocabulary(run, tokenizers, tmp_path):
    """It begins with what begins every text, and the first word is not set off by a space."""
    folder = write_foreign_llama(tmp_path, word_level)
    code, out, err = run("", "--model", folder, "--max-new-tokens", 4, "--json")
    sample = json.loads(out)
    assert (code, err, sample["prompt_ids"]) == (0, "", [1])
    assert sample["text"] == npgpt.load_tokenizer(folder).decode(
        [n for n in sample["ids"] if n != 2]
    )
    assert not sample["text"].startswith(" ")


@pytest.mark.filterwarnings("default")
def test_unknown_tokens_are_counted(run, tokenizers, tmp_path):
    folder = write_foreign_llama(tmp_path, word_level)
    options = ["--model", folder, "--max-new-tokens", 1]
    assert run("the cat", *options)[2] == ""
    code, _, err = run("The QUEEN OF cat", *options)
    assert (code, err.count("\n")) == (0, 1)
    assert "warning: 2 of 5 tokens are <unk>; is the vocabulary lower-case" in err
