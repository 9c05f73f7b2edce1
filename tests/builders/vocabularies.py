"""Vocabularies of other kinds than GPT-2's, trained on a few lines, and texts that are hard."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.builders.gguf import llama_file, write_gguf
from tests.builders.llama import random_llama

LINES = [
    "Once upon a time there was a little cat who sat on the mat.",
    "The old king walked to the river, and the dog ran after him.",
    "  indented  twice,\n\tand a tab; naïve café, Ondřej Čertík.",
    "猫坐在垫子上。 The end, 1000 and 2000!",
]
HARD = [
    *(
        "",
        " ",
        "  ",
        "\n",
        "\t \n\n",
        " a",
        "a ",
        "  a  b  ",
        "▁",
        " ▁a▁",
        "\x00",
        "\x1b[31m",
        "\x7f",
    ),
    *(
        "😁",
        "👩‍👩‍👧‍👦",
        "e\u0301",
        "\u0301",
        "क्षि",
        "ﬁ",
        "Å",
        "\u200b\u200d",
        "\ufeff",
        "\ufffd",
        "地",
    ),
    *("<s>", "</s> a", "a<unk>b", "<0x41>", "[UNK] the", "aaaaaaaaaaaaaaaaaaaaa", "\r\n", "\u2028"),
]


# As the tokenizer.json of Llama 3, of Qwen2 and Qwen3, of Mistral-Nemo have them.
LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN_REGEX = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MIXED = [
    "Once upon a time there wasn't a cat; IT'S theirs, we'll say. HelloWorld helloWorld",
    "猫坐在垫子上。从前有一只猫，猫坐在垫子上！ 12345 67890 １２３ ½ Ⅷ 2000/2001",
    "for (int i = 0; i < 10; ++i) {\r\n\tx[i] += i;  // sum/total\r\n}\r\n\r\n",
    "    def f(x):\n        return x\n\n\n   \t\u3000\xa0 \n  end  ",
    "naïve café, cafe\u0301 e\u0301e\u0301 Å \u212b 한국어 \u1112\u1161\u11ab नमस्ते สวัสดี",
    "😁😁 👩\u200d👩\u200d👧 ❤\ufe0f >>> <tool_call> </think> !!! ... ---\n",
]
ODD = [
    *("'s", "'S", "'ſ", "'RE", "'ll", "'x", "Ab", "aB", "ABc", "ǅ", "ʰ", "ß", "ſ", "K", "e\u0301"),
    *("\u0301", "\u0338", ">\u0338", "=\u0338", "\u1100\u1161", "\u0f71\u0f72", "\u212b", "ﬁ", "Ω"),
    *(
        "1",
        "12",
        "½",
        "Ⅷ",
        "²",
        "٣",
        "/",
        "//",
        "/\n",
        "!\r\n",
        "-",
        "_",
        ".",
        " .",
        "😁",
        "\U0001f469\u200d",
    ),
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        " \n",
        "\n ",
        "\x85",
        "\xa0",
        "\u3000",
        "\u2028",
        "\v",
    ),
    *(
        "\u200b",
        "\ufeff",
        "\ufffd",
        "\x00",
        "\x1c",
        "猫",
        "坐在",
        "한",
        "\ufb1d",
        "\U0002f81a",
        "\u0344",
    ),
    *(
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "<tool_call>",
        "[INST]",
        "<s>",
        "<mask>",
    ),
]


def odd_texts(rng: np.random.Generator, count: int) -> list[str]:
    """Random mixes of `ODD`, words and, in every third text, all of Unicode."""
    words = [word for line in MIXED for word in line.split(" ")]
    texts = []
    for n in range(count):
        parts = [*rng.choice(ODD, size=10), *rng.choice(words, size=3)]
        if n % 3 == 0:
            parts += map(chr, [*rng.integers(0x20, 0xD800, 6), *rng.integers(0xE000, 0x110000, 2)])
        texts.append("".join(parts[i] for i in rng.permutation(len(parts))))
    return texts


def split_then_bytes(regex: str, behavior: str = "Isolated") -> dict[str, Any]:
    """The `pre_tokenizer` of a tokenizer.json that cuts a text with this pattern."""
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps = [{**split, "invert": behavior == "Removed"}, {**level, "use_regex": False}]
    return {"type": "Sequence", "pretokenizers": steps}


def byte_level(
    pre_tokenizer: dict[str, Any],
    special: Sequence[str],
    added: Sequence[str] = (),
    **changes: Any,
) -> dict[str, Any]:
    """The tokenizer.json of byte pairs learned on `MIXED`; special tokens and added words last.

    `changes` are its other values, such as `normalizer`.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    content = {**json.loads(tokenizer.to_str()), "pre_tokenizer": pre_tokenizer, **changes}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, min_frequency=1, show_progress=False
    )
    tokenizer.train_from_iterator(MIXED, trainer)
    tokenizer.add_special_tokens([*special])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in added])
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    return made


def qwen2() -> dict[str, Any]:
    """The tokenizer.json of Qwen2 and Qwen3, of the same make but small."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    return byte_level(split_then_bytes(QWEN2_REGEX), special, words, normalizer={"type": "NFC"})


def tekken() -> dict[str, Any]:
    """The tokenizer.json of Mistral-Nemo: special tokens first, each way to merge a token."""
    from tokenizers import processors

    made = byte_level(split_then_bytes(TEKKEN_REGEX), [])
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<SPECIAL_5>"]
    model = made["model"]
    learned = sorted(model["vocab"], key=model["vocab"].__getitem__)
    ids = {token: n for n, token in enumerate([*special, *learned])}
    merges = []
    for token in learned:
        ways = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        ways = [way for way in ways if ids.keys() >= {*way}]
        merges += sorted(ways, key=lambda way: [ids[part] for part in way])
    model |= {"vocab": ids, "merges": merges, "ignore_merges": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    made["added_tokens"] = [
        {"id": n, "content": token, **flags, "special": True} for n, token in enumerate(special)
    ]
    template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made["post_processor"] = json.loads(template.__getstate__())
    return made


QWEN2_CONFIG = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "bos_token": None,
    "chat_template": "{{ messages }}",
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "errors": "replace",
    "model_max_length": 131072,
    "pad_token": "<|endoftext|>",
    "split_special_tokens": False,
    "tokenizer_class": "Qwen2Tokenizer",
    "unk_token": None,
}


def write_parts(folder: Path, content: dict[str, Any], **config: Any) -> Path:
    """A tokenizer.json as vocab.json, merges.txt and tokenizer_config.json; Qwen has these too."""
    vocab = json.dumps(content["model"]["vocab"], ensure_ascii=False)
    (folder / "vocab.json").write_text(vocab, encoding="utf-8")
    lines = ["#version: 0.2", *map(" ".join, content["model"]["merges"]), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    tokens = {str(each["id"]): {**each, "id": None} for each in content["added_tokens"]}
    settings = json.dumps({"added_tokens_decoder": tokens, **config})
    (folder / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    return folder


def gguf_vocabulary(
    content: dict[str, Any], pre: str, unused: Sequence[str] = ()
) -> dict[str, Any]:
    """A tokenizer.json as settings of a `.gguf` file; `unused` name rows without a token."""
    ids = {**content["model"]["vocab"], **{t["content"]: t["id"] for t in content["added_tokens"]}}
    kinds = {t["content"]: 3 if t["special"] else 4 for t in content["added_tokens"]}
    tokens = [*sorted(ids, key=ids.__getitem__), *unused]
    settings = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [5 if token in unused else kinds.get(token, 1) for token in tokens],
        "merges": [" ".join(pair) for pair in content["model"]["merges"]],
    }
    return {f"tokenizer.ggml.{name}": value for name, value in settings.items()}


def hard_texts(rng: np.random.Generator, count: int = 500) -> list[str]:
    """`HARD`, then random mixes of words, tricky characters, and all of Unicode."""
    words = " ".join(LINES).split(" ")
    made = []
    for n in range(count - len(HARD)):
        kinds: tuple[list[str], ...] = (
            [f"{word} " for word in words],
            [*" \n\t", "  ", *HARD],
            [chr(c) for c in rng.integers(0x20, 0xD800, 40)],
            [chr(c) for c in rng.integers(0xE000, 0x110000, 40)],
        )
        parts = [kinds[k] for k in rng.integers(0, (2, 4)[n % 2], size=12)]
        made.append("".join(str(rng.choice(kind)) for kind in parts))
    return [*HARD, *made]


def byte_fallback(**framing: Any) -> Any:
    """As of Llama 2: BPE without split, spaces as ▁, one in front, bytes for what is missing."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            *(decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()),
            decoders.Strip(" ", 1, 0),
        ]
    )
    marks = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=150, show_progress=False)
    tokenizer.train_from_iterator([w for line in LINES for w in line.split(" ")], trainer)
    content = json.loads(tokenizer.to_str())
    learned = sorted(content["model"]["vocab"], key=content["model"]["vocab"].__getitem__)
    tokens = [*marks, *(f"<0x{byte:02X}>" for byte in range(256)), *learned]
    content["model"]["vocab"] = {token: n for n, token in enumerate(tokens)}
    return with_marks(Tokenizer.from_str(json.dumps(content)), marks, **framing)


def metaspace(**framing: Any) -> Any:
    """`byte_fallback` as of Mistral 0.3: only a text's first word gets a space."""
    from tokenizers import Tokenizer

    content = json.loads(byte_fallback(**framing).to_str())
    split = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return Tokenizer.from_str(json.dumps({**content, "normalizer": None, "pre_tokenizer": split}))


def word_level(**framing: Any) -> Any:
    """Words and signs, cut at spaces, which are lost."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = ["<unk>", "<s>", "</s>"]
    trainer = trainers.WordLevelTrainer(special_tokens=marks, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    return with_marks(tokenizer, marks, **framing)


def unigram(**framing: Any) -> Any:
    """As of T5 and XLNet: NFKC, runs of spaces as one, pieces of the best sum of scores."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    marks = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=marks, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return with_marks(tokenizer, marks, **framing)


def characters(**framing: Any) -> Any:
    """BPE without merges: one token a character; nothing for one that is not there."""
    from tokenizers import Tokenizer, decoders, models

    letters = sorted(set("".join(LINES)))
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return with_marks(tokenizer, [], **framing)


KINDS: dict[str, Callable[..., Any]] = {
    "byte_fallback": byte_fallback,
    "metaspace": metaspace,
    "word_level": word_level,
    "unigram": unigram,
}


def with_marks(tokenizer: Any, marks: list[str], *, start: bool = True, end: bool = False) -> Any:
    """The tokenizer with special tokens, and <s>, </s> around every text if asked for."""
    from tokenizers import processors

    tokenizer.add_special_tokens(marks)
    pieces = ["<s>"] * start + ["$A"] + ["</s>"] * end
    ids = [(mark, tokenizer.token_to_id(mark)) for mark in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single=pieces, special_tokens=ids)
    return tokenizer


def write_foreign(folder: Path, tokenizer: Any, **config: Any) -> Path:
    """tokenizer.json, and tokenizer_config.json as transformers writes it for such."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **marks, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def scored_pieces() -> dict[str, Any]:
    """`byte_fallback` as a `.gguf` file has it: settings after "tokenizer.ggml."."""
    content = json.loads(byte_fallback().to_str())["model"]
    made = {"".join(pair): -float(n) for n, pair in enumerate(content["merges"])}
    tokens = [*sorted(content["vocab"], key=content["vocab"].__getitem__), "[INST]"]
    kinds = {"<unk>": 2, "<s>": 3, "</s>": 3, "[INST]": 4}
    return {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "scores": [made.get(token, -1000.0 - n) for n, token in enumerate(tokens)],
        "token_type": [kinds.get(t, 6 if t.startswith("<0x") else 1) for t in tokens],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }


def write_foreign_llama(folder: Path, make: Callable[..., Any] = byte_fallback) -> Path:
    """A checkpoint with such a vocabulary: context 64, <s> begins a text, </s> ends it."""
    tokenizer = make()
    _llama(tokenizer.get_vocab_size()).save_pretrained(folder)
    return write_foreign(folder, tokenizer)


def write_llama_gguf(path: Path, **changes: Any) -> Path:
    """The same kind of model in a `.gguf` file, `scored_pieces` with it."""
    pieces = {**scored_pieces(), **changes}
    settings, tensors = llama_file(_llama(len(pieces["tokens"])))
    settings |= {f"tokenizer.ggml.{name}": value for name, value in pieces.items()}
    return write_gguf(path, settings, tensors)


def _llama(size: int) -> Any:
    sizes = {"vocab_size": size, "max_position_embeddings": 64, "bos_token_id": 1}
    return random_llama(np.random.default_rng(3), np.float32, **sizes, eos_token_id=2)
