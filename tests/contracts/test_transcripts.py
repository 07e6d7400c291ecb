"""Scenarios of Raft in readable text are what the nodes say today.

If one has changed for a good reason, write all anew, and look at the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.transcript import play

FOLDER = Path(__file__).parents[1] / "data" / "transcripts"
COMMAND = "python -m dledger.testing.scripted.transcript tests/data/transcripts/*.txt"
SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.txt"))


def text_of(scenario: str) -> str:
    return (FOLDER / f"{scenario}.txt").read_text()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_as_it_is_written(scenario: str) -> None:
    """A scenario has every message with its terms and indexes, and each node's reaction."""
    assert play(text_of(scenario)) == text_of(scenario), f"to write it anew: {COMMAND}"


@pytest.mark.parametrize(
    ("scenario", "bug", "seen"),
    [
        ("old_term_entry", "commit an older term's entry by counting", "n1: committed 3"),
        (
            "held_acknowledgement",
            "acknowledge before the sync",
            "0.00  n1 -> n0  ACK term 1: holds up to 3",
        ),
        ("prevote_refused", "elect without asking", "n2: stands for term 2"),
        ("read_index", "answer a read without asking", "n0: read of all up to 3"),
        (
            "power_loss",
            "sync nothing",
            "n1: follows nobody in term 1; is eligible; log ends with 1 of",
        ),
        ("check_quorum", "never check the quorum", "not within 10.0 s"),
    ],
)
def test_a_planted_bug_changes_its_scenario(scenario: str, bug: str, seen: str) -> None:
    """A scenario's text tells when the rule that it is about is taken out."""
    with plant(bug):
        try:
            told = play(text_of(scenario))
        except AssertionError as error:
            told = str(error)
    assert told.count(seen) > text_of(scenario).count(seen)


def test_a_command_that_is_none_is_refused() -> None:
    """A typing error must not pass for a scenario in which nothing happens."""
    with pytest.raises(ValueError, match="no command reads 'n0 sings'"):
        play("> a new group: n0\n> n0 sings\n")
