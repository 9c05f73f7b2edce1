"""Vocabulary files: which of them count, what they may say, what is refused and how."""

from __future__ import annotations

import codecs
import json

import pytest

import npgpt
from npgpt.text.vocabulary import read_vocabulary
from tests.builders.gguf import write_gguf
from tests.text.naive_bpe import (
    CORPUS,
    END_OF_TEXT,
    added,
    in_writing,
    number,
    train,
    whole_file,
    write_folder,
    write_json,
    write_whole,
)

MERGES = train(CORPUS, 30)
VOCAB = number(MERGES)
EOT = VOCAB[END_OF_TEXT]


@pytest.fixture
def folder(tmp_path):
    """A folder with `vocab.json` and `merges.txt`."""
    return write_folder(tmp_path, VOCAB, MERGES)


@pytest.fixture
def whole(tmp_path):
    """Write `tokenizer.json` with changes, and read the folder."""
    return lambda **changes: read_vocabulary(write_whole(tmp_path, VOCAB, MERGES, **changes))


def test_vocab_and_merges(folder):
    ranks, special, plain, _ = read_vocabulary(folder)
    assert len(ranks) == 256 + 30
    assert all(ranks[left + right] == n for n, (left, right) in enumerate(MERGES))
    assert ranks[b" "] == VOCAB["Ġ"]
    assert (special, plain) == ({END_OF_TEXT: EOT}, {})


def test_tokenizer_json_alone_merges_as_pairs_or_strings(folder, tmp_path_factory, whole):
    expected = read_vocabulary(folder)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    assert whole() == expected
    assert whole(model__merges=[" ".join(pair) for pair in in_writing(MERGES)]) == expected


def test_old_tokenizer_json_says_less(whole):
    old = whole_file(VOCAB, MERGES)
    for key in ("type", "byte_fallback", "ignore_merges"):
        del old["model"][key]
    del old["pre_tokenizer"]["use_regex"]
    del old["post_processor"]
    assert whole(model=old["model"], pre_tokenizer=old["pre_tokenizer"]) == whole()


def test_a_sequence_of_one_split_is_that_split(whole):
    split = whole_file(VOCAB, MERGES)["pre_tokenizer"]
    assert whole(pre_tokenizer={"type": "Sequence", "pretokenizers": [split]}) == whole()


def test_vocab_and_merges_take_precedence_with_added_tokens_from_tokenizer_json(folder, whole):
    tokens = [added("<pad>", 999, special=True), added("npgpt", 1000, special=False)]
    ranks, special, plain, _ = whole(added_tokens=tokens, model__vocab={"a": 0}, model__merges=[])
    assert len(ranks) == 256 + 30
    assert special == {END_OF_TEXT: EOT, "<pad>": 999}
    assert plain == {"npgpt": 1000}


@pytest.mark.parametrize("lines", ["", "#version: 0.2 - by hand\n"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_merges_with_and_without_header_blank_lines_and_either_ending(folder, lines, ending):
    expected = read_vocabulary(folder)
    text = lines + "\n\n".join(map(" ".join, in_writing(MERGES)))
    (folder / "merges.txt").write_bytes(text.replace("\n", ending).encode("utf-8"))
    assert read_vocabulary(folder) == expected


def test_a_byte_order_mark_is_not_read(folder):
    """Windows editors put one at the start of whatever they save."""
    expected = read_vocabulary(folder)
    write_whole(folder, VOCAB, MERGES)
    write_json(folder / "tokenizer_config.json", {"eos_token": END_OF_TEXT})
    for path in folder.iterdir():
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert read_vocabulary(folder) == expected
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    assert read_vocabulary(folder) == expected


def test_whole_tokens_that_no_file_marks_are_special(folder):
    write_json(folder / "vocab.json", {**VOCAB, "<s>": 600, "ĠĊ": 601, "ÃŁ": 602})
    assert read_vocabulary(folder).special == {END_OF_TEXT: EOT, "<s>": 600, " \n": 601, "ß": 602}


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt"])
def test_no_vocabulary(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"add vocab\.json and merges\.txt, .*; token ids need none"
    ):
        read_vocabulary(folder)
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        read_vocabulary(folder / "nowhere")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    for name in ("tekken.json", "tokenizer.model"):
        (folder / name).touch()
        with pytest.raises(FileNotFoundError, match=f"transformers makes one of {name}"):
            read_vocabulary(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "model has to be a JSON object, but is None"),
        ({"model__vocab": [["a", 0]]}, r"model\.vocab has to be a JSON object"),
        ({"model__merges": None}, r"model\.merges has to be a JSON array"),
        ({"model__merges": [["a", "b"], "ab"]}, r"model\.merges 1: \['ab'\] is not a merge of two"),
        ({"model__merges": [["a", 1]]}, r"model\.merges 0: \['a', 1\] is not a merge of two"),
        ({"model__merges": [7]}, r"model\.merges 0: 7 is not a merge of two tokens"),
        ({"model__type": "Unigram"}, r"model\.type is 'Unigram', but .* GPT-2 does: 'BPE'"),
        ({"model__byte_fallback": True}, r"model\.byte_fallback is True"),
        ({"model__ignore_merges": True}, r"model\.merges: no merge .* for each way to cut it"),
        ({"model__dropout": 0.1}, r"model\.dropout is 0\.1"),
        ({"model__continuing_subword_prefix": "##"}, r"model\.continuing_subword_prefix is '##'"),
        ({"model__end_of_word_suffix": "</w>"}, r"model\.end_of_word_suffix is '</w>'"),
        ({"normalizer": {"type": "NFD"}}, r"normalizer is .*'NFD'.*, but .* \{'type': 'NFC'\} al"),
        ({"pre_tokenizer": None}, r"pre_tokenizer\.type is None"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, r"pre_tokenizer\.type is 'Whitespace'"),
        ({"pre_tokenizer__use_regex": False}, r"pre_tokenizer\.use_regex is False"),
        ({"pre_tokenizer__add_prefix_space": True}, r"pre_tokenizer\.add_prefix_space is True"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{}, {}]}},
            r"pre_tokenizer\.type is 'Sequence'",
        ),
    ],
)
def test_a_tokenizer_json_for_another_tokenizer(whole, tmp_path, change, message):
    with pytest.raises(ValueError, match=rf"tokenizer\.json: {message}"):
        whole(**change)


def test_add_prefix_space_in_the_configuration(folder):
    write_json(folder / "tokenizer_config.json", {"add_prefix_space": True})
    with pytest.raises(
        ValueError, match=r"tokenizer_config\.json asks for add_prefix_space, which"
    ):
        read_vocabulary(folder)


TEMPLATE = {"type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>"}}}
BYTES = {"type": "ByteLevel", "trim_offsets": False}


@pytest.mark.parametrize(
    "post",
    [
        TEMPLATE,
        {"type": "RobertaProcessing"},
        {"type": "Sequence", "processors": [BYTES, TEMPLATE]},
    ],
)
def test_warns_that_special_tokens_around_a_text_are_left_to_the_caller(whole, post):
    expected = whole(post_processor=BYTES)
    with pytest.warns(UserWarning, match="puts special tokens around every text"):
        assert whole(post_processor=post) == expected


def test_warns_of_add_bos_token_where_it_counts(folder, whole):
    write_json(folder / "tokenizer_config.json", {"add_bos_token": True})
    with pytest.warns(UserWarning, match="puts special tokens around every text"):
        read_vocabulary(folder)
    assert whole().special == {END_OF_TEXT: EOT}  # tokenizer.json has the last word


def refused(folder, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_vocabulary(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"vocab\.json is not valid JSON"),
        ("[" * 100_000, r"vocab\.json is not valid JSON"),
        ('["a"]', r"vocab\.json has to be a JSON object, but is \['a'\]"),
        ('{"a": 0, "b": 0}', r"vocab\.json: 'a' and 'b' share the id 0"),
        ('{"a": 0, "a": 1}', r"vocab\.json is not valid JSON \(the key 'a'"),
        ('{"a": -1}', r"vocab\.json: the id of 'a' is -1, not an integer >= 0"),
        ('{"a": 4294967295}', r"vocab\.json: the id of 'a' is 4294967295"),
        ('{"a": true}', r"vocab\.json: the id of 'a' is True"),
        ('{"a": 1.0}', r"vocab\.json: the id of 'a' is 1\.0"),
        ('{"a": 0, "\\n": 1}', r"vocab\.json: the token '\\n' is not in GPT-2's byte alphabet"),
        ('{"a": 0, "": 1}', r"vocab\.json: the token '' is not in GPT-2's byte alphabet"),
        ('{"a": 0, "éa": 1}', r"vocab\.json: no merge makes the token 'éa', and it is no text"),
        ('{"<a>": 0}', r"vocab\.json has no token for any single byte"),
        ("{}", r"vocab\.json has no token for any single byte"),
    ],
)
def test_a_vocab_json_that_is_none(folder, content, message):
    (folder / "merges.txt").write_text("", encoding="utf-8")
    (folder / "vocab.json").write_text(content, encoding="utf-8")
    refused(folder, message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Ġ", r"merges\.txt line 3: \['Ġ'\] is not a merge of two tokens"),
        ("a b c", r"merges\.txt line 3: \['a', 'b', 'c'\] is not"),
        ("a ☃", r"merges\.txt line 3: the merge 'a ☃' needs the token '☃'"),
        ("#version 2", r"merges\.txt line 3: the merge '#version 2' needs the token '#version'"),
    ],
)
def test_a_line_that_is_no_merge(folder, line, message):
    (folder / "merges.txt").write_text(f"#version: 0.2\n\n{line}\n", encoding="utf-8")
    refused(folder, message)


def test_files_that_are_not_utf_8(folder):
    (folder / "merges.txt").write_bytes(b"a \xff")
    refused(folder, r"merges\.txt is not UTF-8: invalid start byte at byte 2")
    (folder / "vocab.json").write_bytes(b'{"\xff": 0}')
    refused(folder, r"vocab\.json is not valid JSON")


def tokens_of(folder):
    _, special, plain, _ = read_vocabulary(folder)
    return special, plain


def test_added_tokens_of_tokenizer_json(folder):
    entries = [added("<a b>", 700, special=True), added("地x", 701, special=False)]
    write_whole(folder, VOCAB, MERGES, added_tokens=entries)
    assert tokens_of(folder) == ({END_OF_TEXT: EOT, "<a b>": 700}, {"地x": 701})


def test_added_tokens_of_the_configuration(folder):
    entries = {"700": added("<a>", 0, special=True), "701": added("b c", 0, special=False)}
    write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": entries})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT, "<a>": 700}, {"b c": 701})


def test_added_tokens_json_is_plain_except_for_what_is_named_special(folder):
    write_json(
        folder / "added_tokens.json", {"<a>": 700, "<b>": 701, "<c>": 702, "<d>": 703, "ww": 704}
    )
    assert tokens_of(folder)[1].keys() == {"<a>", "<b>", "<c>", "<d>", "ww"}
    write_json(folder / "tokenizer_config.json", {"pad_token": "<a>", "model_max_length": 8})
    named = {
        "eos_token": {"content": "<b>"},
        "additional_special_tokens": ["<c>", {"content": "<d>"}],
    }
    write_json(folder / "special_tokens_map.json", named)
    special = {"<a>": 700, "<b>": 701, "<c>": 702, "<d>": 703}
    assert tokens_of(folder) == ({END_OF_TEXT: EOT, **special}, {"ww": 704})


def test_an_added_token_may_be_in_the_vocabulary_too(folder):
    """A whole token marked as a plain word is one; a token of merges keeps its id."""
    write_json(folder / "vocab.json", {**VOCAB, "<w>": 600})
    write_json(folder / "added_tokens.json", {"<w>": 600, "at": VOCAB["at"]})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT}, {"<w>": 600, "at": VOCAB["at"]})


def test_files_that_agree_on_an_added_token(folder):
    write_whole(folder, VOCAB, MERGES)
    write_json(folder / "added_tokens.json", {END_OF_TEXT: EOT})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT}, {})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": 1}, r"added_tokens has to be a JSON array"),
        (["a"], r"added_tokens has to be a JSON object, but is 'a'"),
        ([{"content": "<a>"}], r"added_tokens gives '<a>' the id None, not an integer >= 0"),
        ([{"id": 700}], r"added_tokens gives the id 700 to None, which is no text"),
        ([added("", 700, special=True)], r"added_tokens gives the id 700 to '', which is no text"),
        (
            [added("\ud800", 700, special=True)],
            r"added_tokens gives the id 700 to '\\ud800', which is no text",
        ),
        (
            [{**added("<a>", 7, special=True), "lstrip": True}],
            r"added_tokens: '<a>' is marked lstrip, which npgpt",
        ),
        (
            [added("<a>", 700, special=True), added("<a>", 701, special=True)],
            r"added_tokens gives '<a>' the id 701, but another file has 700",
        ),
    ],
)
def test_added_tokens_that_are_none(folder, entries, message):
    content = {"model": {}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}
    (folder / "tokenizer.json").write_text(
        json.dumps({**content, "added_tokens": entries}), encoding="utf-8"
    )
    refused(folder, rf"tokenizer\.json: {message}")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"<a>": 0}, r"the added token '<a>' has the id 0, which vocab\.json or another added"),
        ({"at": 700}, r"the added token 'at' has the id 700, which vocab\.json or"),
        ({"<a>": 700, "<b>": 700}, r"the added token '<b>' has the id 700, which vocab\.json or"),
        (
            {"é": VOCAB["é"]},
            r"vocab\.json: 'é' is an added token, but the vocabulary uses it for oth",
        ),
        ({"<a>": -1}, r"added_tokens\.json gives '<a>' the id -1, not an integer >= 0"),
    ],
)
def test_added_tokens_that_contradict_the_vocabulary(folder, entries, message):
    write_json(folder / "added_tokens.json", entries)
    refused(folder, message)


def test_a_configuration_with_malformed_added_tokens(folder):
    path = folder / "tokenizer_config.json"
    write_json(path, {"added_tokens_decoder": []})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT}, {})
    write_json(path, {"added_tokens_decoder": {"x": {"content": "<a>"}}})
    refused(folder, r"added_tokens_decoder gives '<a>' the id 'x', not an integer >= 0")
    write_json(path, {"added_tokens_decoder": {"700": "<a>"}})
    refused(folder, r"added_tokens_decoder has to be a JSON object, but is '<a>'")


def in_gguf(path, **changes):
    """A GGUF file with the same vocabulary, and `npgpt` as an added word."""
    tokens = [*VOCAB, "npgpt"]
    settings = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3 if t == END_OF_TEXT else 4 if t == "npgpt" else 1 for t in tokens],
        "merges": [" ".join(pair) for pair in in_writing(MERGES)],
        **changes,
    }
    given = {f"tokenizer.ggml.{name}": v for name, v in settings.items() if v is not None}
    return write_gguf(path, given, {})


def test_a_gguf_file_gives_the_ids_of_a_folder(tmp_path, folder):
    ours = npgpt.load_tokenizer(in_gguf(tmp_path / "x.gguf"))
    folder = npgpt.load_tokenizer(folder)
    assert ours.encode(CORPUS) == folder.encode(CORPUS)
    assert ours.decode(ours.encode(CORPUS)) == CORPUS
    assert ours.encode(END_OF_TEXT, allowed_special="all") == [EOT]
    assert len(ours.encode(END_OF_TEXT)) > 1
    assert ours.encode("a npgpt")[-1] == EOT + 1


def test_the_split_pattern_that_a_gguf_file_names(tmp_path):
    tokenizer = npgpt.load_tokenizer(in_gguf(tmp_path / "x.gguf", pre="smollm"))
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode("at 1000")]
    assert pieces[-5:] == [" ", "1", "0", "0", "0"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "bert"}, "tokenizer.ggml.model is 'bert', but npgpt reads 'gpt2', which is"),
        ({"model": None}, "tokenizer.ggml.model is None, but npgpt reads"),
        (
            {"pre": "falcon"},
            "tokenizer.ggml.pre is 'falcon', but npgpt cuts a text as one of gpt-2",
        ),
        (
            {"tokens": 7},
            "tokenizer.ggml.tokens is 7, but must be an array in which each value is a text",
        ),
        ({"tokens": ["a", "a"]}, "has the same token twice"),
        ({"merges": ["a"]}, r"tokenizer\.ggml\.merges 0: \['a'\] is not a merge"),
        ({"merges": ["q q"]}, "merges 0: the merge 'q q' needs the token 'qq'"),
    ],
)
def test_a_gguf_vocabulary_that_is_refused(tmp_path, changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        npgpt.load_tokenizer(in_gguf(tmp_path / "x.gguf", **changes))
    assert str(tmp_path / "x.gguf") in str(caught.value)


def test_warns_of_add_bos_token_in_a_gguf_file(tmp_path):
    with pytest.warns(UserWarning, match=r"llama\.cpp puts special tokens around every text"):
        npgpt.load_tokenizer(in_gguf(tmp_path / "x.gguf", add_bos_token=True))


def test_a_gguf_file_that_does_not_say_how_a_text_is_cut(tmp_path):
    with pytest.warns(UserWarning, match=r"has no tokenizer\.ggml\.pre: a text is cut as GPT-2's"):
        ours = npgpt.load_tokenizer(in_gguf(tmp_path / "x.gguf", pre=None))
    assert ours.encode(CORPUS) == npgpt.load_tokenizer(in_gguf(tmp_path / "y.gguf")).encode(CORPUS)
