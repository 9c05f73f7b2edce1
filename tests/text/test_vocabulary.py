"""Reading a folder's vocabulary: which files count, what they may say, what is refused and how."""

from __future__ import annotations

import pytest

from npgpt.text.vocabulary import read_vocabulary
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


def test_vocab_and_merges_go_first_with_added_tokens_from_tokenizer_json(folder, whole):
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


def test_whole_tokens_that_no_file_marks_are_special(folder):
    write_json(folder / "vocab.json", {**VOCAB, "<s>": 600, "ĠĊ": 601, "ÃŁ": 602})
    assert read_vocabulary(folder).special == {END_OF_TEXT: EOT, "<s>": 600, " \n": 601, "ß": 602}


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt"])
def test_no_vocabulary(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=r"add vocab\.json and merges\.txt, .*--ids"):
        read_vocabulary(folder)
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        read_vocabulary(folder / "nowhere")


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
        ({"normalizer": {"type": "NFC"}}, r"normalizer is \{'type': 'NFC'\}, .* does: None"),
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
