"""python -m npgpt.evaluate --model MODEL FILES…: how well a model predicts texts.

A window of `context` tokens slides over each text by `stride` tokens. Of each window only the
predictions that no earlier one made are counted, so every token is predicted once, from at least
`context - stride` tokens before it or from all there are. A text starts after begin-of-text, else
after end-of-text, if the vocabulary has one of them; without, its first token cannot be predicted
and its bytes do not count.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from npgpt import cli
from npgpt.decoding.causal import start_of_text_ids
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.softmax import check_logits
from npgpt.text.corpus import read_text, text_files
from npgpt.text.unknown import warn_of_unknown

PROG = "npgpt.evaluate"
LOGITS_AT_ONCE = 1 << 24  # numbers; windows are read in batches of about so many logits


class Score(NamedTuple):
    """Total nats of the tokens predicted, their number, and the bytes of text they stand for."""

    nats: float
    tokens: int
    bytes: int

    def facts(self) -> dict[str, float]:
        """All that is printed."""
        return {
            "nats": self.nats,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "bits_per_byte": self.nats / math.log(2) / self.bytes,
            "perplexity": math.exp(min(700.0, self.nats / self.tokens)),
        }


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    from npgpt.text.tokenizer import load_tokenizer

    place = find_supported("evaluate", args.model, args.revision)
    tokenizer = load_tokenizer(place)
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    context, stride = _window_sizes(args, model.context)
    given = tokenizer.frame[0]  # whatever starts a text comes with its ids
    start = [] if given else [*start_of_text_ids(model, tokenizer.bytes_of)]
    texts = {}
    for path in (file for name in args.files for file in text_files(name)):
        text = read_text(path)
        ids = tokenizer.encode(text, allowed_special="all" if args.special else frozenset())
        size = len(text.encode("utf-8"))
        if args.special:  # such a token is predicted, too, but stands for no text
            special = [len(tokenizer.bytes_of[i]) for i in ids if i in tokenizer.special_ids]
            size -= sum(special)
            if not size:
                raise ValueError(f"{path} holds special tokens alone, but no text to measure by.")
        size -= 0 if start or given else len(tokenizer.decode_bytes(ids[:1]))
        texts[str(path)] = (np.array(start + ids), size)
    warn_of_unknown(np.concatenate([ids for ids, _ in texts.values()]), tokenizer)
    predict: dict[str, Callable[[np.ndarray], np.ndarray]] = {"npgpt": model}
    if args.against_hf:
        predict["transformers"] = _transformers(args, place)
    settings = {"model": args.model, "context": context, "stride": stride, "dtype": args.dtype}
    results: dict[str, dict[str, Score]] = {}
    for name, logits_of in predict.items():
        with _progress(name, sum(len(ids) - 1 for ids, _ in texts.values())) as bar:
            results[name] = {
                path: Score(
                    sliding_nats(logits_of, ids, context, stride, bar.update), len(ids) - 1, size
                )
                for path, (ids, size) in texts.items()
            }
    _report(results, {**settings, "starts_after_id": next(iter(given or start), None)}, args.json)
    return 0


def _progress(name: str, tokens: int) -> tqdm:
    """A bar on stderr where that is a terminal, gone when it is full; nothing elsewhere."""
    return tqdm(desc=name, total=tokens, unit=" tokens", unit_scale=True, disable=None, leave=False)


def sliding_nats(
    logits_of: Callable[[np.ndarray], np.ndarray],
    ids: np.ndarray,
    context: int,
    stride: int,
    progress: Callable[[int], object] = lambda _: None,
) -> float:
    """Total nats of ids[1:], each predicted from what stands before it in its window.

    Args:
        logits_of: ids [B, T] -> logits [B, T, V], such as a model.
        ids: [N], N >= 2.
        context: length of a window, T at most.
        stride: predictions counted per window (all of the first one), 1 … context.
        progress: called with the number of predictions that a batch has added.

    Raises:
        ValueError: fewer than two ids; logits that are not finite.
    """
    if len(ids) < 2:
        raise ValueError("a text of a single token has nothing to predict; give a longer one.")
    total, size = 0.0, 1
    windows = list(_windows(len(ids) - 1, context, stride))
    while windows:
        batch, windows = windows[:size], windows[size:]
        T = batch[0][1] - batch[0][0]
        inputs = np.stack([ids[start:end] for start, end, _ in batch])
        targets = np.stack([ids[start + 1 : end + 1] for start, end, _ in batch])
        counted = max(end - first for _, end, first in batch)
        ignored = np.arange(T) < np.array([[first - start] for start, _, first in batch])
        targets = np.where(ignored, -100, targets)[:, T - counted :]
        logits = logits_of(inputs)
        check_logits(logits)
        size = max(1, LOGITS_AT_ONCE // (T * logits.shape[-1]))
        loss, _ = cross_entropy_forward(logits[:, T - counted :], targets)
        new = int((targets != -100).sum())
        total += float(loss) * new
        progress(new)
    return total


def _windows(length: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, first position counted) of each window over `length` positions.

    The last one is moved back so that it is as long as the others.
    """
    context = min(context, length)
    yield 0, context, 0
    for done in range(context, length, stride):
        end = min(done + stride, length)
        yield end - context, end, done


def _window_sizes(args: argparse.Namespace, positions: int) -> tuple[int, int]:
    context = positions if args.context is None else args.context
    if not 1 <= context <= positions:
        raise ValueError(f"--context must be in [1, {positions}], but is {context}.")
    stride = max(1, context // 2) if args.stride is None else args.stride
    if not 1 <= stride <= context:
        raise ValueError(f"--stride must be in [1, {context}] (the context), but is {stride}.")
    return context, stride


def _transformers(args: argparse.Namespace, place: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The same model in transformers, eager attention, as a function of ids."""
    if place.suffix == ".gguf":
        raise ValueError(f"--against-hf reads a folder, but {args.model!r} is the file {place}.")
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ImportError('--against-hf needs: pip install "npgpt[hf]"') from error
    options = {"dtype": getattr(torch, args.dtype), "attn_implementation": "eager"}
    if int(transformers.__version__.split(".")[0]) >= 5:
        options["experts_implementation"] = "eager"  # its grouped products cannot do float64
    model = transformers.AutoModelForCausalLM.from_pretrained(place, **options).eval()

    def logits_of(ids: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            logits: np.ndarray = model(torch.from_numpy(ids)).logits.numpy()
        return logits

    return logits_of


def _report(results: dict[str, dict[str, Score]], settings: dict[str, Any], as_json: bool) -> None:
    tables: dict[str, Any] = {}
    for name, scores in results.items():
        sums = Score(*(sum(column) for column in zip(*scores.values(), strict=True)))
        rows = {path: score.facts() for path, score in scores.items()}
        tables[name] = {"files": rows, "together": sums.facts()}
    if as_json:
        print(json.dumps({**settings, **tables}, ensure_ascii=False, indent=2))
        return
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in settings.items()))
    for name, table in tables.items():
        print(
            f"\n{name}\n{'nats':>16}{'tokens':>12}{'bytes':>12}{'bits/byte':>11}{'perplexity':>12}"
        )
        for path, row in [*table["files"].items(), ("together", table["together"])]:
            print(
                f"{row['nats']:16.4f}{row['tokens']:12,}{row['bytes']:12,}"
                f"{row['bits_per_byte']:11.5f} {row['perplexity']:11.4f}  {path}"
            )
    if "transformers" in tables:
        ours, theirs = (tables[name]["together"]["bits_per_byte"] for name in results)
        print(f"\ndifference: {abs(ours - theirs):.2e} bits per byte")


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(PROG, "Measure how well a model predicts texts, in NumPy.")
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="UTF-8 text files, or folders of .txt files")
    cli.add_model(parser)
    add("--context", type=int, metavar="N", help="length of a window (default: all it can read)")
    add("--stride", type=int, metavar="N", help="new predictions per window (half the context)")
    add("--special", action="store_true", help="<|endoftext|> in a text is the token, not text")
    add("--against-hf", action="store_true", help="the same through transformers, side by side")
    add("--json", action="store_true", help="one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
