"""What `python -m npgpt.compare` prints: tables of at most 100 columns.

The verdict stands first and last. Beside a station that is wrong stands what makes it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

from npgpt import cli
from npgpt.compare.activations import GRAD
from npgpt.compare.comparing import Comparison, Question
from npgpt.compare.differences import OK, Difference, LogitsDifference
from npgpt.compare.wiring import Range
from npgpt.models.llama.families import FAMILIES

TokenText = Callable[[int], str | None]

COLUMNS = 100
BEYOND = "beyond tolerance"
FOLLOWING = (
    "gradients: computed from these stations, so what is wrong of them may only follow; --local "
    "judges each by itself"
)
MOST_STEPS = 6  # of a range whose steps are listed


def as_text(comparison: Comparison, token_text: TokenText) -> str:
    """Verdict and title, tables, findings, names that only one side has, verdict."""
    c = comparison
    said = filled(verdict(c))
    blocks = [f"{said}\n{filled(title(c.asked))}"]
    blocks += [_table(head, rows, other_side(c.asked)) for head, rows in tables(c)]
    blocks += ["\n".join(filled(line) for line in lines) for lines in findings(c)]
    if c.logits is not None:
        blocks.append(next_token(c.asked, c.logits, token_text))
    blocks += [f"{head}:\n{filled('  ' + patterns(names))}" for head, names in one_sided(c)]
    return "\n\n".join([*blocks, said])


def colour_of(line: str) -> str | None:
    """The colour of a line of the text, where it has one."""
    if line.startswith("verdict: "):
        return "red" if BEYOND in line else "green"
    wrong = line.startswith("wrong: ") or line.endswith((" BEYOND", " NAN/INF"))
    return "red" if wrong else None


def title(asked: Question) -> str:
    """What is compared with what."""
    tolerance = "what rounding explains" if asked.tolerance is None else f"{asked.tolerance:g}"
    tokens = f"{len(asked.ids)} tokens"
    if asked.target_ids is not None:
        tokens += f" and {len(asked.target_ids)} of the target"
    local = "; local" if asked.local else ""
    head = f"{asked.model} ({asked.dtype}) against {asked.against}, {tokens}"
    return f"{head}; tolerance: {tolerance}{local}"


def verdict(c: Comparison) -> str:
    """The answer in a line."""
    kinds = {
        "stations": c.stations,
        "station gradients": c.arriving,
        "parameter gradients": c.gradients,
    }
    if c.within:
        said = _listed([f"{len(rows)} {kind}" for kind, rows in kinds.items() if rows])
        return f"verdict: all {said} are within tolerance"
    counts = [
        f"{wrong} of {len(rows)} {kind}"
        for kind, rows in kinds.items()
        if (wrong := sum(row.verdict != OK for row in rows))
    ]
    first = c.ranges[0].station
    named = f"first {first}" if not c.asked.local else shown([w.station for w in c.ranges])
    return f"verdict: {BEYOND}: {named}; {_listed(counts)}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def tables(c: Comparison) -> list[tuple[str, list[Difference]]]:
    """Head of the first column, and rows; only those that have any."""
    return [
        (head, rows)
        for head, rows in (
            ("station", c.stations),
            ("gradient at", [bare(row) for row in c.arriving]),
            ("gradient of, worst first", [bare(row) for row in c.gradients]),
        )
        if rows
    ]


def bare(row: Difference) -> Difference:
    """The row without `grad.`."""
    return row._replace(station=row.station.removeprefix(GRAD))


def findings(c: Comparison) -> list[list[str]]:
    """What is wrong, and what it does to the logits: sentences, of each subject a list."""
    found = [_where(alike, local=c.asked.local) for alike in _grouped(c.ranges)]
    forward_is_wrong = any(row.verdict != OK for row in c.stations)
    if forward_is_wrong and not c.asked.local and any(row.verdict != OK for row in c.backward):
        found.append([FOLLOWING])
    return found + ([_logits(c.logits)] if c.logits is not None else [])


def _grouped(ranges: Iterable[Range]) -> list[list[Range]]:
    """The same fault in several layers is one."""
    groups: dict[str, list[Range]] = {}
    for where in ranges:
        groups.setdefault(re.sub(r"\.\d+", ".N", str(where)), []).append(where)
    return [*groups.values()]


def _where(alike: Sequence[Range], *, local: bool) -> list[str]:
    where = alike[0]
    after, name = shown(where.after), where.station
    if where.within:
        behind = f"after {after} and " if after else ""
        place = f"somewhere {behind}up to {name}; dump {shown(where.dump)} to narrow it"
    elif local or not after:
        place = f"{name}, computed from {after}" if after else name
    else:
        place = f"{name}; {after} before it {'is' if len(where.after) == 1 else 'are'} ok"
    lines = [f"wrong: {place}"]
    if len(where.made_by) <= MOST_STEPS:
        lines.append(f"  made by: {'; '.join(where.made_by)}")
    if where.fits:
        lines.append(f"  fits exactly: {'; or: '.join(where.fits)}")
    if others := [other.station for other in alike[1:]]:
        lines.append(f"  likewise: {shown(others)}")
    if where.follows:
        lines.append(f"  may only follow from {shown(where.follows)}: not all in between is there")
    return lines


def one_sided(c: Comparison) -> list[tuple[str, list[str]]]:
    """Names that only one side has, under their heads."""
    lists = {
        "not in the file": c.missing,
        "in the file, but no station of this model": c.unknown,
        "in the file, but compared only with --gradients": c.unread,
    }
    return [(head, names) for head, names in lists.items() if names]


def patterns(names: Iterable[str]) -> str:
    """The names, those that differ only in consecutive numbers as one: h.0–11.attn."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for name in names:
        match = re.fullmatch(r"(.*?\.)(\d+)(\..*)?", name)
        if match is None:
            numbers[name, ""] = []
        else:
            numbers.setdefault((match[1], match[3] or ""), []).append(int(match[2]))
    found = []
    for (before, behind), layers in numbers.items():
        found += [f"{before}{span}{behind}" for span in _spans(sorted(layers))] or [before]
    return ", ".join(found)


def _spans(numbers: Sequence[int]) -> list[str]:
    """Consecutive numbers as "3–5"."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return [f"{a}–{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True)]


def shown(names: Sequence[str], most: int = 8) -> str:
    """The first few patterns of names, and how many more there are."""
    found = patterns(names).split(", ")
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def filled(line: str) -> str:
    """The line cut into several that fit, the others set in as the first, or by two columns."""
    indent = "  " + " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line,
        COLUMNS,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def other_side(asked: Question) -> str:
    """What the columns of the other side are called."""
    return "hf" if asked.against == "hf" else "file"


def cells_of(row: Difference) -> tuple[str, ...]:
    """A row of a table, as the heads of `heads`."""
    return (
        row.station,
        number(row.max_abs),
        number(row.relative),
        number(row.tolerance),
        "(" + ", ".join(map(str, row.worst)) + ")",
        f"{row.ours:.3e}",
        f"{row.theirs:.3e}",
        row.verdict if row.verdict == OK else row.verdict.upper(),
    )


def heads(first: str, other: str) -> tuple[str, ...]:
    """The heads of a table."""
    return (first, "max |Δ|", "relative", "tolerance", "worst at", "npgpt", other, "")


def _table(head: str, rows: Sequence[Difference], other: str) -> str:
    """One line for each difference; without the two values where long names leave no room."""
    cells, align = [heads(head, other), *map(cells_of, rows)], "lrrrlrrl"
    table = cli.table(cells, align)
    if max(map(cli.width, table.split("\n"))) <= COLUMNS:
        return table
    return cli.table([(*row[:5], row[7]) for row in cells], align[:5] + align[7])


def _logits(logits: LogitsDifference) -> list[str]:
    first = ""
    if logits.first_disagreement is not None:
        first = (
            f"; first disagreement at position {logits.first_disagreement}, where npgpt's logits "
            f"of the two tokens differ by {number(logits.gap)}"
        )
    return [
        f"argmax: the same at {logits.agreeing} of {logits.positions} positions{first}",
        f"KL divergence: mean {number(logits.kl_mean)}, max {number(logits.kl_max)} nats",
    ]


def next_token(asked: Question, logits: LogitsDifference, token_text: TokenText) -> str:
    """The likeliest tokens of both sides."""
    at = "after" if asked.model_type in ("gpt2", "gpt_neo", *FAMILIES) else "at"
    lines = [f"likeliest {at} position {logits.positions - 1}:"]
    lines.append(f"     {'npgpt':<42}{other_side(asked)}")
    for place, pair in enumerate(zip(logits.ours, logits.theirs, strict=True), start=1):
        cells = [f"{p:<8.2g}  {i:<6} {_quoted(token_text(i))}" for i, p in pair]
        lines.append(f"  {place}  {cells[0]:<42}{cells[1]}".rstrip())
    return "\n".join(lines)


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    quoted = repr(text)
    return quoted if len(quoted) <= 24 else quoted[:23] + "…"


def number(x: float) -> str:
    """Two digits."""
    return "0" if x == 0 else f"{x:.1e}"
