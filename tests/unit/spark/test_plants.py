"""Planted faults: each group of properties has many kinds, and the audit's page their number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from mqspark.testing.derived.plants import PLANTS as DERIVED
from mqspark.testing.small_plants import FAULTS, INNOCENT

PAGE: Final = Path(__file__).parents[3] / "docs" / "explanation" / "audit.md"
KINDS_MIN: Final = 30
#: The groups of properties by the chapters of the page. Property 18 is about files that a broker
#: makes from a small run's log: its plants change these.
GROUPS: Final = (
    (1, 2, 3, 4, 9, 12),
    (5, 6, 7, 13),
    (8, 14, 15, 16),
    (10, 11),
    (17,),
    (19,),
)


@pytest.mark.parametrize("numbers", GROUPS)
def test_each_group_of_properties_has_many_kinds_of_faults(numbers: tuple[int, ...]) -> None:
    """A group of properties has at least thirty faults, each another function."""
    kinds = {fault.plant for fault in FAULTS if fault.number in numbers}
    assert len(kinds) >= KINDS_MIN, len(kinds)


def test_derived_files_have_as_many_kinds_of_faults() -> None:
    """Property 18 has thirty kinds, too: bits, pages and files of a lying disk, units of a broker
    that takes one message for another, claims of a snapshot."""
    assert len(DERIVED.faults) >= KINDS_MIN


def test_the_page_says_how_many_plants_there_are() -> None:
    """The page tells how many faults there are, and how much only looks odd."""
    text = PAGE.read_text()
    (stated,) = re.findall(r"has (\d+) faults to plant in them, and (\d+) things", text)
    assert stated == (str(len(FAULTS)), str(len(INNOCENT)))
    (stated,) = re.findall(r"has (\d+) faults to plant in those files, and (\d+) things", text)
    assert stated == (str(len(DERIVED.faults)), str(len(DERIVED.innocents)))
