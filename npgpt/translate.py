"""`python -m npgpt.translate "TEXT" --model …`: what an encoder-decoder makes of a text.

For Marian's translators (extra `spm`), and for models whose characters stand in config.json. Only
the translation goes to stdout, one line for each line of the text.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from npgpt import cli
from npgpt.files.hub import Files
from npgpt.models.auto import find_supported, from_pretrained, model_type
from npgpt.models.transformer.model import Transformer
from npgpt.text.seq2seq import Seq2SeqTokenizer, load_seq2seq_tokenizer

PROG = "npgpt.translate"
DEFAULT_MODEL = "Helsinki-NLP/opus-mt-en-zh"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    cli.check_text_or_ids(args.text, args.ids)

    def files(place: Path) -> Sequence[Files]:
        """Marian's vocabulary has files of its own, which ids do not need."""
        spm = args.ids is None and model_type(place) == "marian"
        return ("spm", "model") if spm else ("model",)

    place = find_supported("translate", args.model, args.revision, files)
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    if args.ids is not None:
        _write(model, None, None, cli.parse_ids(args.ids), args)
        return 0
    tokenizer = load_seq2seq_tokenizer(place, model.config)
    for line in cli.text_or_stdin(args.text).splitlines():
        if line.strip():
            _write(model, tokenizer, line, tokenizer.encode(line), args)
        elif not args.json:
            print()
    return 0


def _write(
    model: Transformer,
    tokenizer: Seq2SeqTokenizer | None,
    text: str | None,
    ids: list[int],
    args: argparse.Namespace,
) -> None:
    start = time.perf_counter()
    new_ids = model.generate(
        ids,
        max_new_tokens=args.max_new_tokens,
        num_beams=args.beams,
        length_penalty=args.length_penalty,
        use_cache=not args.no_cache,
    )
    seconds = time.perf_counter() - start
    translation = None if tokenizer is None else tokenizer.decode(new_ids)
    if args.json:
        line = {"text": text, "ids": ids, "translation": translation, "new_ids": new_ids}
        print(json.dumps(line, ensure_ascii=False), flush=True)
    else:
        print(" ".join(map(str, new_ids)) if translation is None else translation, flush=True)
    if args.verbose:
        speed = f"{len(new_ids) / seconds:.1f} tokens/s"
        print(f"{PROG}: {len(ids)} ids read, {len(new_ids)} written, {speed}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(PROG, "Translate with an encoder-decoder, in NumPy.")
    add = parser.add_argument
    cli.add_text(parser, "the text, line by line")
    add("--ids", metavar="IDS", help="the source as ids, its end included (in: ids, out: ids)")
    cli.add_model(parser, "a folder, weights/NAME, or a hub id (%(default)s)", DEFAULT_MODEL)
    add("--beams", type=int, metavar="N", help="beginnings kept in play (1: greedy)")
    add("--length-penalty", type=float, metavar="X", help="above 0 helps long translations")
    add("--max-new-tokens", type=int, metavar="N", help="default of all three: as the model says")
    add("--no-cache", action="store_true", help="compute everything anew for each token")
    add("--json", action="store_true", help="one JSON object per line of text")
    add("--verbose", action="store_true", help="timings on stderr")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
