"""A book of Project Gutenberg, without its licence -> the lines of its story -> plain paragraphs.

`clean` leaves out notes, sources, dedications, page numbers, marks of pictures and footnotes. A
paragraph becomes one line, verse keeps its lines. Left alone: spelling, accents, headings, words in
capitals, quotes and dashes, which some books have in ASCII and some in the shapes of a printer. The
patterns are those that the books of `make_tales.py` need.
"""

from __future__ import annotations

import re

FIRST_CHAPTER = re.compile(r"(CHAPTER|Chapter) (I|1|One)(\. .*)?|1\.  .*")
BY_LINE = re.compile(r"by .+")  # the third line, below the title
# The line that other stories start with, or their heading.
START = {
    "pg28": "The Cock and the Pearl",
    "pg54": "7                    Tip Manufactures a Pumpkinhead",
    "pg120": "PART ONE--The Old Buccaneer",
    "pg236": "Mowgli’s Brothers",
    "pg503": "THE BRONZE RING",
    "pg540": "THE TWELVE DANCING PRINCESSES",
    "pg640": "THE CAT AND THE MOUSE IN PARTNERSHIP",
    "pg641": "A TALE OF THE TONTLAWALD",
    "pg873": "THE YOUNG KING",
    "pg1597": "THE EMPEROR'S NEW CLOTHES",
    "pg1937": "HOW FEAR CAME",
    "pg2435": "Lovely Ilonka",
    "pg2591": "THE GOLDEN BIRD",
    "pg3027": "Once upon a time, at the town of Senna on the banks of the Zambesi, was",
    "pg3282": "What the Rose did to the Cypress [1]",
    "pg3454": "The Shifty Lad",
    "pg5314": "1 The Frog-King, or Iron Henry",
    "pg5615": "The Cat’s Elopement",
    "pg6746": "Donkey Skin",
    "pg7128": "The Lion and the Crane",
    "pg7277": "THE BLUE BIRD",
    "pg7439": "TOM TIT TOT",
    "pg7885": "CONNLA AND THE FAIRY MAIDEN",
    "pg8933": "TRUE AND UNTRUE",
    "pg11339": "THE FOX AND THE GRAPES",
    "pg11757": "HERE was once a velveteen rabbit, and in the beginning he was really",
    "pg14241": "The Pied Piper",
    "pg17208": "CINDERELLA, OR THE LITTLE GLASS SLIPPER.",
    "pg23661": "I. The Book of Beasts",
    "pg27826": "MADSCHUN",
    "pg29021": "Little Red Riding-Hood",
    "se": "The Story of a Fierce Bad Rabbit",
}
END = re.compile(  # the first line after a story
    r"NOTE\.|Notes and References|INTRODUCTION TO APPENDIX|ILLUSTRATIONS"
    r"|(OYEZ-OYEZ|MAN OR WOMAN BOY OR GIRL|And this is the end of Æsop|End of The Grey"
    r"|The Brothers Grimm, Jacob|The Wonderful Oz Books|Uniform with this Volume).*"
)

PLAIN = str.maketrans(
    {
        **dict.fromkeys("‘’`", "'"),
        **dict.fromkeys("“”", '"'),
        "–": "-",
        "—": "--",
        "…": "...",
    }
)
MARKS = re.compile(  # of pictures, footnotes, scenes, pages, italics, the frame around a sign
    r"\[(Illustration|Footnote)([^][]|\[[^][]*\])*\]|\[[\w ]* omitted\.\]"
    r"|^.*[Ll]ine-[Aa]rt [Dd]rawing.*$|^[\s*.+-]+$|^\d+( {5,}|$)|_|\|",
    re.M,
)
REFERENCE = re.compile(r" ?(\[(\*|\d+|FN#[^]]*)\]|\(\d+\)|\*)")
ASIDE = re.compile(  # a footnote, a short paragraph in brackets, a number, a dedication
    r"(\[(\d+|FN#\d+)\]|\*).*|\(\d+\).{,100}|\[.{,150}\]\.?|(FOOTNOTE|Footnote)s?:?|[IVXLC]+\.?"
    r"|TO [A-Z .\[\]]+|THE END|The End"
)
SOURCE = re.compile(  # what Andrew Lang puts above or below a tale
    r"^\(?(Adapted|Translated|Story) from|^\(?From (the )?\W?[A-Z].*[.\w]['’]?$|M[aäu]h?rchen"
    r"|Contes|\b(Grimm|Perrault|Aulnoy|Caylus|Fenelon|Sebillot|Kletke|Deulin|Southey|Asbjornsen|Lemoine"
    r"|Feroshepore|Punjâbi|oral tradition|Spanish Tradition|Folk Tale|Highland Tales|Swahili Tales"
    r"|Story\))"
)


def story(lines: list[str], name: str) -> list[str]:
    """The lines of the book `name` ("pg11") from where its story starts to where it ends.

    A book that has nothing but a title and its author above the story starts below them. Elsewhere
    the first line may also stand in the table of contents: the last one like it counts. Raises
    ValueError when it does not occur.
    """
    bare = [line.strip() for line in lines]
    known = START.get(name)
    if not known and BY_LINE.fullmatch("".join(bare[2:3])):
        return lines[3:]
    is_start = [line == known if known else bool(FIRST_CHAPTER.fullmatch(line)) for line in bare]
    if True not in is_start:
        wanted = known or "CHAPTER I"
        raise ValueError(f"{name} has no line {wanted!r}: name the line it starts with in START.")
    start = len(bare) - 1 - is_start[::-1].index(True)
    ends = (i for i in range(start, len(bare)) if END.fullmatch(bare[i]))
    return lines[start : next(ends, len(lines))]


def ascii_quotes(text: str) -> str:
    """The same text with quotes and dashes as a typewriter has them."""
    return text.translate(PLAIN)


def clean(lines: list[str]) -> str:
    """The lines of a story -> its paragraphs, with an empty line between them."""
    text = MARKS.sub("", "\n".join(lines).replace("‑", "-").replace("__", "--"))
    blocks = [block.split("\n") for block in re.split(r"\n(?:\s*\n)+", text.strip("\n"))]
    lengths = sorted(len(line) for block in blocks for line in block)
    width = lengths[len(lengths) * 9 // 10]
    paragraphs = [""]
    for block in blocks:
        whole = " ".join(" ".join(block).split())
        if ASIDE.fullmatch(whole) or (len(whole) < 200 and SOURCE.search(whole)):
            continue
        paragraph = REFERENCE.sub("", "\n".join(verse(block, width)) or whole).strip()
        if is_torn(paragraphs[-1], paragraph):
            paragraphs[-1] += ("" if paragraphs[-1].endswith("-") else " ") + paragraph
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs[1:]) + "\n"


def is_torn(before: str, after: str) -> bool:
    """Whether two paragraphs of prose are one that a picture or the end of a page tore apart."""
    torn = re.search(r"[a-z,;]-?$", before) and re.match("[a-z]", after)
    return bool(torn) and "\n" not in before + after


def verse(block: list[str], width: int) -> list[str]:
    """The lines that the author of a block broke; none if it is prose, wrapped at `width`.

    Verse is indented, or could have taken in the next line's first word. Its lines are short or
    start with a capital; one that does not is the rest of a long one.
    """
    lines = [" ".join(line.split()) for line in block]
    early = [
        len(line) + 1 + len(after.split()[0]) < width - 6
        for line, after in zip(block, lines[1:], strict=False)
    ]
    if 2 * sum(early) <= len(early) and not all(line.startswith("  ") for line in block):
        return []
    if max(map(len, lines)) < 40:
        return lines
    capital = [re.match(r"\W*[A-Z\d]", line) is not None for line in lines[1:]]
    if 2 * sum(capital) < len(capital):
        return []
    broken = lines[:1]
    for line, starts in zip(lines[1:], capital, strict=True):
        if starts:
            broken.append(line)
        else:
            broken[-1] += " " + line
    return broken
