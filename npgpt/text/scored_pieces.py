"""SentencePiece's BPE as a `.gguf` file holds it: pieces with scores, for the package tokenizers.

SentencePiece joins the two neighbours whose joint piece has the highest score, the leftmost of
equal ones. The package joins by the order of a list of pairs instead, which is made here: of all
ways to cut a piece into two others, the best piece's first. Characters without a piece fall apart
into tokens for their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npgpt.files.kinds import check_kinds
from npgpt.text.foreign import ForeignTokenizer, package
from npgpt.text.vocabulary import ADDED, CONTROL, UNKNOWN

PREFIX = "tokenizer.ggml."
SPACE = "▁"  # which stands for a space in a piece
LONGEST = 256  # characters of a token; SentencePiece learns at most 16 unless told otherwise
REQUIRED = {"tokens": list[str], "scores": list[float], "token_type": list[int]}


def read_scored_pieces(path: Path, settings: Mapping[str, Any]) -> ForeignTokenizer:
    """The tokenizer of a `.gguf` file whose tokenizer.ggml.model is "llama".

    As in llama.cpp a text gets a space and the token for its beginning in front, unless the file
    says otherwise. Raises ImportError without the package, ValueError for settings that do not fit.
    """
    own = {name.removeprefix(PREFIX): value for name, value in settings.items()}
    check_kinds({name: own.get(name) for name in REQUIRED}, REQUIRED, f"{path}, {PREFIX[:-1]}")
    tokens, scores, kinds = own["tokens"], own["scores"], own["token_type"]
    if not len(tokens) == len(scores) == len(kinds) == len({*tokens}):
        raise ValueError(
            f"{path}: {PREFIX}tokens has {len(tokens)} tokens, {len({*tokens})} of them different, "
            f"but there are {len(scores)} scores and {len(kinds)} kinds."
        )
    if (longest := max(map(len, tokens), default=0)) > LONGEST:
        raise ValueError(
            f"{path}: {PREFIX}tokens has one of {longest} characters; npgpt reads up to {LONGEST}."
        )
    ids = {
        role: _token_id(own, role, default, tokens)
        for role, default in (("bos", 1), ("eos", 2), ("unknown", 0))
    }
    tokenizer = _tokenizer(tokens, scores, kinds, ids["unknown"], own.get("add_space_prefix", True))
    start = ids["bos"] if own.get("add_bos_token", True) else None
    end = ids["eos"] if own.get("add_eos_token", False) else None
    _put_around(tokenizer, start, end)
    return ForeignTokenizer(str(path), tokenizer, unknown=ids["unknown"], end_of_text=ids["eos"])


def _token_id(own: Mapping[str, Any], role: str, default: int, tokens: Sequence[str]) -> int | None:
    """The id of a role, as llama.cpp has it: None where the vocabulary is too small for it."""
    number = own.get(f"{role}_token_id", default)
    return number if 0 <= number < len(tokens) else None


def _tokenizer(
    tokens: Sequence[str],
    scores: Sequence[float],
    kinds: Sequence[int],
    unknown: int | None,
    space_prefix: bool,
) -> Any:
    tokenizers = package("SentencePiece's vocabularies need the package tokenizers")
    joined = {
        token: score
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
        if kind not in (UNKNOWN, CONTROL)
    }
    model = tokenizers.models.BPE(
        {token: n for n, token in enumerate(tokens)},
        ranked_pairs(joined),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = tokenizers.Tokenizer(model)
    normal, decode = tokenizers.normalizers, tokenizers.decoders
    prefix = [normal.Prepend(SPACE)] if space_prefix else []
    tokenizer.normalizer = normal.Sequence([*prefix, normal.Replace(" ", SPACE)])
    strip = [decode.Strip(" ", 1, 0)] if space_prefix else []
    tokenizer.decoder = decode.Sequence(
        [decode.Replace(SPACE, " "), decode.ByteFallback(), decode.Fuse(), *strip]
    )
    for add, wanted in (
        (tokenizer.add_special_tokens, (UNKNOWN, CONTROL)),
        (tokenizer.add_tokens, (ADDED,)),
    ):
        found = [token for token, kind in zip(tokens, kinds, strict=True) if kind in wanted]
        add([tokenizers.AddedToken(token, normalized=False) for token in found if token])
    return tokenizer


def _put_around(tokenizer: Any, start: int | None, end: int | None) -> None:
    """Have the tokens `start` and `end` put around every text; None for nothing."""
    from tokenizers import processors

    marks = {name: n for name, n in (("start", start), ("end", end)) if n is not None}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[name for name in ("start", "$A", "end") if name in marks or name == "$A"],
        special_tokens=[
            {"id": name, "ids": [n], "tokens": [tokenizer.id_to_token(n)]}
            for name, n in marks.items()
        ],
    )


def ranked_pairs(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """The ways to cut each piece into two others, those of the highest score first."""
    return [
        (left, right)
        for piece in sorted(scores, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if (left := piece[:cut]) in scores and (right := piece[cut:]) in scores
    ]
