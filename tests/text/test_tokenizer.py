"""Text to ids: equal to BPE done on paper, safe where tiktoken panics; ids to text as they come."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import npgpt
from npgpt.text.tokenizer import (
    Tokenizer,
    decodable_ids,
    load_tokenizer,
    stream_text,
    tokenizer_from_folder,
)
from tests.text.naive_bpe import (
    CORPUS,
    END_OF_TEXT,
    added,
    encode,
    number,
    train,
    write_folder,
    write_whole,
)

MERGES = train(CORPUS, 40)
VOCAB = number(MERGES, first_bytes=[b"z", b" "])  # all other bytes above the merges
EOT = VOCAB[END_OF_TEXT]
REPLACED = "\N{REPLACEMENT CHARACTER}"
PANIC_FREE = ("encode", "encode_ordinary", "encode_to_numpy", "encode_with_unstable")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tokenizer_from_folder(write_folder(tmp_path_factory.mktemp("all"), VOCAB, MERGES))


@pytest.fixture
def letters(tmp_path):
    """A vocabulary of twelve letters, a space and one special token."""
    vocab = {char: i for i, char in enumerate("Ġcathesonm.rd")}
    return tokenizer_from_folder(write_folder(tmp_path, {**vocab, END_OF_TEXT: 20}, []))


def random_text(rng: np.random.Generator, length: int) -> str:
    alphabet = [
        "the",
        "cat",
        " ",
        "  ",
        "\n",
        "'s",
        "'re",
        "a",
        "t",
        "0",
        "2000",
        "地",
        "想",
        "é",
        "!",
        "😁",
    ]
    return "".join(rng.choice(alphabet, size=length))


def test_ids_equal_those_of_bpe_on_paper(tokenizer, rng):
    for text in [CORPUS, "", " ", *(random_text(rng, 40) for _ in range(100))]:
        ids = tokenizer.encode(text)
        assert ids == encode(text, MERGES, VOCAB)
        assert tokenizer.decode(ids) == text


def test_it_is_a_tiktoken_encoding(tokenizer):
    import tiktoken

    assert isinstance(tokenizer, tiktoken.Encoding)
    assert (tokenizer.n_vocab, tokenizer.eot_token) == (len(VOCAB), EOT)
    assert tokenizer.special_tokens_set == {END_OF_TEXT}
    assert tokenizer.encode_single_token("the") == VOCAB["the"]
    assert tokenizer.decode_single_token_bytes(VOCAB["Ġ"]) == b" "


def test_end_of_text_is_text_unless_asked_for(tokenizer):
    text = f"the cat{END_OF_TEXT} sat"
    plain, special = tokenizer.encode(text), tokenizer.encode(text, allowed_special="all")
    assert plain == encode(text, MERGES, VOCAB)
    assert special == [*tokenizer.encode("the cat"), EOT, *tokenizer.encode(" sat")]
    assert tokenizer.encode(text, allowed_special={END_OF_TEXT}) == special
    assert tokenizer.encode(text, allowed_special={"<|pad|>"}) == plain
    assert tokenizer.encode_ordinary(text) == plain
    assert tokenizer.encode_batch([text, text]) == [plain, plain]
    assert tokenizer.encode_ordinary_batch([text]) == [plain]
    assert tokenizer.encode_batch([text], allowed_special="all") == [special]
    assert tokenizer.encode_to_numpy(text).tolist() == plain
    assert tokenizer.encode_to_numpy(text, allowed_special="all").dtype == np.uint32
    assert tokenizer.decode(plain) == tokenizer.decode(special) == text


@pytest.mark.parametrize("argument", ["allowed_special", "disallowed_special"])
def test_special_tokens_are_named_in_any_collection(tokenizer, argument):
    text = f"a{END_OF_TEXT}"
    methods = tokenizer.encode, lambda x, **o: tokenizer.encode_batch([x], **o)
    for call in (*methods, tokenizer.encode_with_unstable):
        for names in ([END_OF_TEXT], (END_OF_TEXT,), {END_OF_TEXT: 1}):
            if argument == "allowed_special":
                assert call(text, allowed_special=names) == call(text, allowed_special="all")
            else:
                with pytest.raises(ValueError, match="which disallowed_special forbids"):
                    call(text, disallowed_special=names)
        for odd in (None, 5, END_OF_TEXT, b"all", [None], {1}):
            with pytest.raises(ValueError, match=f"^{argument} must be 'all' or a list of texts"):
                call(text, **{argument: odd})


@pytest.mark.parametrize("forbidden", ["all", {END_OF_TEXT}])
def test_end_of_text_can_be_forbidden(tokenizer, forbidden):
    with pytest.raises(ValueError, match=r"contains '<\|endoftext\|>', which disallowed_special"):
        tokenizer.encode(f"a{END_OF_TEXT}", disallowed_special=forbidden)
    assert tokenizer.encode("a", disallowed_special=forbidden) == [VOCAB["a"]]


@pytest.mark.parametrize("method", PANIC_FREE)
def test_a_character_without_a_token_is_named(letters, method):
    call = getattr(letters, method)
    with pytest.raises(ValueError, match=r"^'ä' \(U\+00E4\), character 8 of the text"):
        call("the cat ähnelt €")
    with pytest.raises(ValueError, match=r"^'€' \(U\+20AC\), character 0 .* leave it out"):
        call("€")
    with pytest.raises(ValueError, match=r"^'\\n' \(U\+000A\), character 3 "):
        call("the\n")
    with pytest.raises(ValueError, match=r"^'�' \(U\+FFFD\), character 1 "):
        call("t\ud800")


def test_a_character_without_a_token_among_special_tokens(letters):
    text = f"the{END_OF_TEXT}cat"
    assert letters.decode(letters.encode(text, allowed_special="all")) == text
    with pytest.raises(ValueError, match=r"^'<' \(U\+003C\), character 3 "):
        letters.encode(text)
    with pytest.raises(ValueError, match=r"^'ß' \(U\+00DF\), character 16 "):
        letters.encode(f"{text[:-3]}ß", allowed_special="all")
    with pytest.raises(ValueError, match="'ß'"):
        letters.encode_batch(["cat", "ß"])
    with pytest.raises(ValueError, match="'ß'"):
        letters.encode_ordinary_batch(["cat", "ß"])


def test_lone_surrogates_become_u_fffd_and_pairs_one_character(tokenizer):
    for method in PANIC_FREE[:3]:
        call = getattr(tokenizer, method)
        assert list(call("a\ud800b\udc00")) == tokenizer.encode("a�b�")
        assert list(call("\ud83d\ude01")) == tokenizer.encode("😁")
    assert tokenizer.encode_with_unstable("\ud800") == tokenizer.encode_with_unstable("�")


def test_added_words_are_found_in_every_text_the_longest_first(tmp_path):
    words = [added(w, 900 + i, special=False) for i, w in enumerate(("地x", "dog", "dogs", "d.g"))]
    special = added("<pad>", 950, special=True)
    write_whole(tmp_path, VOCAB, MERGES, added_tokens=[*words, special])
    tokenizer = tokenizer_from_folder(tmp_path)
    assert isinstance(tokenizer, Tokenizer)
    a, s = VOCAB["a"], VOCAB["s"]
    assert tokenizer.encode("adogsdogadogss") == [a, 902, 901, a, 902, s]
    assert tokenizer.encode_ordinary("d.g地x") == [903, 900]
    assert 950 not in tokenizer.encode("dog<pad>")
    assert tokenizer.encode("dog<pad>", allowed_special="all") == [901, 950]
    assert tokenizer.encode_batch(["dog"], disallowed_special="all") == [[901]]
    assert tokenizer.decode([900, 950]) == "地x<pad>"


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_work_alike(tokenizer, duplicate):
    ours = Tokenizer("x", mergeable_ranks={b"a": 0}, special_tokens={"b": 1}, added_words=["b"])
    twin = duplicate(ours)
    assert (twin.name, twin.encode("ab")) == ("x", [0, 1])
    assert duplicate(tokenizer).encode(CORPUS) == tokenizer.encode(CORPUS)


def test_load_tokenizer_takes_a_folder(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "weights" / "tiny", VOCAB, MERGES)
    monkeypatch.chdir(tmp_path)
    for name in (folder, str(folder), "weights/tiny", "tiny"):
        assert load_tokenizer(name).encode("the cat") == encode("the cat", MERGES, VOCAB)
    assert type(npgpt.load_tokenizer(folder)) is Tokenizer
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        load_tokenizer(tmp_path)


def test_files_are_utf_8_whatever_the_locale(tmp_path):
    """In the C locale Python would take text files for ASCII."""
    entries = [added("地x", 900, special=False), added(END_OF_TEXT, EOT, special=True)]
    write_whole(write_folder(tmp_path, VOCAB, MERGES), VOCAB, MERGES, added_tokens=entries)
    code = (
        "import locale, sys; from npgpt.text.tokenizer import load_tokenizer\n"
        "ids = load_tokenizer(sys.argv[1]).encode('\\u5730x the')\n"
        "print(locale.getpreferredencoding(False), ids)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    ids = [900, *encode(" the", MERGES, VOCAB)]
    assert (run.stdout, run.stderr) == (f"ANSI_X3.4-1968 {ids}\n", "")


@pytest.fixture(scope="module")
def single_bytes():
    """Each byte is its own token, and a token that starts one character and ends another."""
    ranks = {bytes([b]): b for b in range(256)}
    half = "想".encode()
    return Tokenizer(
        "bytes", mergeable_ranks={**ranks, half[1:] + half[:1]: 300}, special_tokens={"<|e|>": 256}
    )


def arrivals(tokenizer, tokens):
    """(how many tokens were read, what they made) for each piece of text."""
    read = 0

    def counted():
        nonlocal read
        for token in tokens:
            read += 1
            yield token

    return [(read, piece) for piece in stream_text(tokenizer, counted())]


@pytest.mark.parametrize("text", ["地", "想", "Ondřej Čertík", "😁", "a😁b", "a�b", ""])
def test_a_character_comes_with_its_last_byte(single_bytes, text):
    ends = np.cumsum([len(char.encode()) for char in text])
    assert arrivals(single_bytes, text.encode()) == list(zip(ends, text, strict=True))


def test_a_token_may_end_one_character_and_start_another(single_bytes):
    first, second, third = "想".encode()
    tokens = [first, 300, 300, second, third, 256]
    assert arrivals(single_bytes, tokens) == [(2, "想"), (3, "想"), (5, "想"), (6, "<|e|>")]


def test_an_unfinished_character_is_flushed_at_the_end(single_bytes):
    assert arrivals(single_bytes, "a地".encode()[:-1]) == [(1, "a"), (3, REPLACED)]
    assert arrivals(single_bytes, [0xFF, 0x61]) == [(1, REPLACED), (2, "a")]


def test_pieces_join_to_the_decoded_text(single_bytes, rng):
    for _ in range(100):
        ids = rng.integers(257, size=30)
        pieces = list(stream_text(single_bytes, ids))
        assert "".join(pieces) == single_bytes.decode(ids.tolist())
        assert "" not in pieces


def test_invalid_bytes_decode_to_u_fffd(single_bytes, rng):
    assert single_bytes.decode([0xAD, 0x61]) == f"{REPLACED}a"
    for _ in range(100):
        ids = rng.integers(256, size=30).tolist()
        assert single_bytes.decode_bytes(ids) == bytes(ids)
        assert single_bytes.decode(ids) == bytes(ids).decode("utf-8", "replace")
        assert single_bytes.decode_batch([ids], errors="ignore") == [
            bytes(ids).decode("utf-8", "ignore")
        ]


@pytest.mark.parametrize("token", [-1, 257, 2**40])
def test_ids_without_a_token_are_named(single_bytes, token):
    with pytest.raises(ValueError, match=f"^id {token} has no token in bytes"):
        single_bytes.decode([97, token])
    with pytest.raises(ValueError, match=f"^id {token} has no token in bytes"):
        list(stream_text(single_bytes, [97, token]))


def test_decodable_ids(single_bytes):
    assert np.flatnonzero(~decodable_ids(single_bytes, 303)).tolist() == [
        *range(257, 300),
        301,
        302,
    ]
    assert decodable_ids(single_bytes, 5).tolist() == [True] * 5
    assert decodable_ids(single_bytes, 5).dtype == np.bool_
