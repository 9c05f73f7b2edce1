"""Faults, and the claims of the examples that each of them must break.

A module for each part of the article. To see a claim of an example fail, add a row under its name:
what is replaced in npgpt, by what, and words of the claim at which the example must stop.
"""

from __future__ import annotations

from tests.examples.faults import chapter_7, chapters_1_to_6, chapters_8_to_11
from tests.examples.faults.kinds import Faults

FAULTS: Faults = {**chapters_1_to_6.FAULTS, **chapter_7.FAULTS, **chapters_8_to_11.FAULTS}
