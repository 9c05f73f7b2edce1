"""The vocabulary in a GGUF file gives the ids that the same vocabulary in a folder gives."""

from __future__ import annotations

import pytest

import npgpt
from tests.models.gguf_files import write_gguf
from tests.text.naive_bpe import CORPUS, END_OF_TEXT, in_writing, number, train, write_folder

MERGES = train(CORPUS, 40)
VOCAB = number(MERGES)
EOT = VOCAB[END_OF_TEXT]


def written(path, **changes):
    tokens = [*VOCAB, "npgpt"]
    settings = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3 if t == END_OF_TEXT else 4 if t == "npgpt" else 1 for t in tokens],
        "merges": [" ".join(pair) for pair in in_writing(MERGES)],
        **changes,
    }
    return write_gguf(path, {f"tokenizer.ggml.{name}": v for name, v in settings.items()}, {})


def test_ids_of_a_text(tmp_path) -> None:
    ours = npgpt.load_tokenizer(written(tmp_path / "x.gguf"))
    folder = npgpt.load_tokenizer(write_folder(tmp_path / "folder", VOCAB, MERGES))
    assert ours.encode(CORPUS) == folder.encode(CORPUS)
    assert ours.decode(ours.encode(CORPUS)) == CORPUS
    assert ours.encode(END_OF_TEXT, allowed_special="all") == [EOT]
    assert len(ours.encode(END_OF_TEXT)) > 1
    assert ours.encode("a npgpt")[-1] == EOT + 1


def test_digits_one_by_one(tmp_path) -> None:
    tokenizer = npgpt.load_tokenizer(written(tmp_path / "x.gguf", pre="smollm"))
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode("at 1000")]
    assert pieces[-5:] == [" ", "1", "0", "0", "0"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model is 'llama', but npgpt reads byte-level BPE"),
        ({"pre": "qwen2"}, "tokenizer.ggml.pre is 'qwen2', but npgpt cuts a text as one of gpt-2"),
        ({"tokens": 7}, "tokenizer.ggml.tokens has to be a JSON array"),
        ({"tokens": ["a", "a"]}, "has the same token twice"),
        ({"merges": ["a"]}, r"tokenizer\.ggml\.merges 0: \['a'\] is not a merge"),
        ({"merges": ["q q"]}, "merges 0: the merge 'q q' needs the token 'qq'"),
    ],
)
def test_refused_in_one_sentence(tmp_path, changes, sentence) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        npgpt.load_tokenizer(written(tmp_path / "x.gguf", **changes))
    assert str(tmp_path / "x.gguf") in str(caught.value)


def test_warned_of_framing(tmp_path) -> None:
    with pytest.warns(UserWarning, match=r"llama\.cpp puts special tokens around every text"):
        npgpt.load_tokenizer(written(tmp_path / "x.gguf", add_bos_token=True))
