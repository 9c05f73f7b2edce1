"""`python -m npgpt.generate "PROMPT" --model …`: continue a text, printed as it is written.

Only the continuation goes to stdout, remarks and timings to stderr. Greedy unless told otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from npgpt import cli
from npgpt.decoding.causal import end_of_text_ids, sampling_of, start_of_text_ids
from npgpt.decoding.sampling import Sampling, check_settings
from npgpt.files.hub import Files
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.text.unknown import warn_of_unknown

if TYPE_CHECKING:
    from npgpt.models.gpt2.model import GPT2
    from npgpt.models.llama.model import Llama
    from npgpt.text.tokenizer import TextTokenizer

PROG = "npgpt.generate"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    given = cli.text_or_stdin(args.prompt if args.ids is None else args.ids)
    files: tuple[Files, ...] = ("tokenizer", "model") if args.ids is None else ("model",)
    place = find_supported("generate", args.model, args.revision, files)
    if args.ids is None:  # before the weights are loaded: bad input should not wait for them
        from npgpt.text.tokenizer import load_tokenizer

        tokenizer, text = load_tokenizer(place), given
        ids = tokenizer.encode(text, allowed_special="all" if args.special else frozenset())
        warn_of_unknown(ids, tokenizer)
    else:
        tokenizer, text = None, None
        ids = cli.parse_ids(given)
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    _remark(sampling_of(model.generation, args.temperature, args.top_k, args.top_p), args)
    if not ids:
        ids = _start_of_text(model)
    for number in range(args.num_samples):
        if args.num_samples > 1 and not args.json:
            print(f"--- {number + 1} ---")
        if not _continue(model, tokenizer, text, ids, number, args):
            return cli.EXIT_INTERRUPTED
    return 0


def until_stop(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """Pass text on until a stop string appears, which may be spread over several pieces.

    The stop string itself is not passed on. An end that might become one is held back until the
    next piece decides.
    """
    held = ""
    for piece in pieces:
        held += piece
        found = [at for at in map(held.find, stops) if at >= 0]
        if found:
            yield held[: min(found)]
            return
        keep = max((_overlap(held, stop) for stop in stops), default=0)
        yield held[: len(held) - keep]
        held = held[len(held) - keep :]
    yield held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


def _continue(
    model: GPT2 | Llama,
    tokenizer: TextTokenizer | None,
    text: str | None,
    ids: list[int],
    number: int,
    args: argparse.Namespace,
) -> bool:
    """Write one sample to stdout; False if Ctrl-C ended it."""
    eos = () if args.ignore_eos else end_of_text_ids(model)
    new_ids: list[int] = []
    pieces: list[str] = []
    times, reason = [time.perf_counter()], "stop"

    def tokens() -> Iterator[int]:
        nonlocal reason
        for token in _generate(model, tokenizer, ids, number, args):
            times.append(time.perf_counter())
            new_ids.append(token)
            if token in eos:
                reason = "end of text"
                return
            yield token
        reason = "length"

    try:
        for piece in until_stop(_as_text(tokens(), tokenizer, ids), args.stop):
            pieces.append(piece)
            if not args.json:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        reason = "interrupted"
    if args.json:
        new_text = None if tokenizer is None else "".join(pieces)
        sample = {"prompt": text, "prompt_ids": ids, "text": new_text, "ids": new_ids}
        print(json.dumps({**sample, "finish_reason": reason}, ensure_ascii=False))
    else:
        print(flush=True)
    if args.verbose:
        _report(len(ids), times, reason)
    return reason != "interrupted"


def _generate(
    model: GPT2 | Llama,
    tokenizer: TextTokenizer | None,
    ids: list[int],
    number: int,
    args: argparse.Namespace,
) -> Iterator[int]:
    allowed = None
    if tokenizer is not None:
        from npgpt.text.tokenizer import decodable_ids

        allowed = decodable_ids(tokenizer, model.rows)
    return model.generate(
        ids,
        args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=None if args.seed is None else args.seed + number,
        stop_ids=() if args.ignore_eos else None,
        allowed=allowed,
        use_cache=not args.no_cache,
        slide=args.slide,
    )


def _as_text(
    tokens: Iterator[int], tokenizer: TextTokenizer | None, prompt: list[int]
) -> Iterator[str]:
    if tokenizer is None:
        return (f"{' ' if n else ''}{token}" for n, token in enumerate(tokens))
    from npgpt.text.tokenizer import stream_text

    return stream_text(tokenizer, tokens, after=prompt)


def _start_of_text(model: GPT2 | Llama) -> list[int]:
    """An empty prompt starts where texts start."""
    start = start_of_text_ids(model)
    if not start:
        raise ValueError("the prompt is empty and this model has no id to start a text from.")
    which = "end-of-text" if start[0] in end_of_text_ids(model) else "begin-of-text"
    print(f"{PROG}: empty prompt, starting from {which} (id {start[0]})", file=sys.stderr)
    return [*start]


def _report(prompt_length: int, times: list[float], reason: str) -> None:
    if len(times) < 2:
        return
    prefill, rest = times[1] - times[0], times[-1] - times[1]
    speed = f"{(len(times) - 2) / rest:.1f} tokens/s" if rest else "no second token to time"
    print(
        f"{PROG}: {prompt_length} prompt tokens, first token after {prefill:.3f} s; "
        f"{len(times) - 1} new tokens, {speed}; ended by: {reason}",
        file=sys.stderr,
    )


def _check(args: argparse.Namespace) -> None:
    cli.check_text_or_ids(args.prompt, args.ids, "prompt")
    check_settings(args.temperature or 0.0, args.top_k, args.top_p)
    if args.num_samples < 1:
        raise ValueError(f"--num-samples must be at least 1, but is {args.num_samples}.")
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"--seed must be >= 0, but is {args.seed}.")
    if "" in args.stop:
        raise ValueError("--stop must not be empty; leave it out to stop at the end of text only.")
    if args.stop and args.ids is not None:
        raise ValueError("--stop looks for text, so it does not go with --ids.")


def _remark(sampling: Sampling, args: argparse.Namespace) -> None:
    """Say on stderr that the model's files sample, or which options greedy decoding ignores."""
    if sampling.temperature > 0:
        if args.temperature is None:
            said = ", ".join(f"{name} {value:g}" for name, value in sampling._asdict().items())
            given = args.top_k is not None or args.top_p is not None
            files = "as the model's files say" + " but for the options" * given
            print(f"{PROG}: sampling with {said}, {files}", file=sys.stderr)
        return
    if args.num_samples > 1:
        print(f"{PROG}: temperature 0 is greedy: all samples will be equal", file=sys.stderr)
    options = {"--top-k": args.top_k, "--top-p": args.top_p, "--seed": args.seed}
    if unused := [option for option, value in options.items() if value is not None]:
        print(
            f"{PROG}: temperature 0 is greedy and ignores {' and '.join(unused)}; to sample, add "
            "for example --temperature 0.8",
            file=sys.stderr,
        )


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(PROG, "Continue a text with a GPT-2 or a Llama, in NumPy.")
    add = parser.add_argument
    cli.add_text(parser, "the text to continue", "prompt")
    add("--ids", metavar="IDS", help="the prompt as token ids (in: ids, out: ids; no vocabulary)")
    cli.add_model(parser)
    add("--max-new-tokens", type=int, metavar="N", help="default: as the model's files say, or 40")
    add("--temperature", type=float, metavar="X", help="default: as the files say, or 0, greedy")
    add("--top-k", type=int, metavar="K", help="sample among the K likeliest tokens (0: all)")
    add("--top-p", type=float, metavar="P", help="… among the likeliest that reach P (1: all)")
    add("--seed", type=int, metavar="N", help="same seed, same text; sample i uses N + i")
    add("--num-samples", type=int, default=1, metavar="N", help="how many continuations")
    add(
        "--stop",
        action="append",
        default=[],
        type=cli.text,
        metavar="TEXT",
        help="end before TEXT; repeatable",
    )
    add("--ignore-eos", action="store_true", help="go on after end-of-text")
    add("--special", action="store_true", help="<|endoftext|> in the prompt is the token, not text")
    add("--slide", action="store_true", help="go on beyond the context: forget its older half")
    add("--no-cache", action="store_true", help="compute everything anew for each token")
    add("--json", action="store_true", help="one JSON object per sample, on a line of its own")
    add("--verbose", action="store_true", help="timings on stderr")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
