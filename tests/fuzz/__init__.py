"""Broken files of every kind that npgpt reads: each is refused in one sentence, or read rightly.

Each case begins with a sound, tiny file and makes one or two changes to its structure: another
type, a number out of its range, a name twice or missing, a wrong offset, an end too soon, a byte
turned. Everything about a case follows from its number.

    python -m tests.fuzz --cases 20000             # a long run, with a table
    python -m tests.fuzz --cases 1 --seed 4711     # case 4711 again

Written here, not with hypothesis: its strategies know no file format, so that every change below
would have to be written all the same, its shrinking has nothing to shrink in one or two changes,
and its cases are named by blobs that another version of it cannot read. Not with atheris: it wants
Clang, and hours, to find by coverage what the changes here know of the formats.
"""
