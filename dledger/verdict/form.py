"""A verdict as data: what verdict.json holds, and whoever reads it gets.

A violation is shown by an exhibit: what the history says of it, line by line, and what each replica
has at the places that it is about. So who doubts a verdict can look by himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dledger.errors import BadInput

VERDICT_FILE = "verdict.json"
TITLES: Final = {
    1: "Every acknowledged message is on every replica",
    2: "Nothing is read that was not sent",
    3: "A queue offset names one message for ever",
    4: "Acknowledgements and reads keep the order of a queue",
    5: "A committed entry never changes",
    6: "A term has one leader, a node one vote in it",
    7: "A new leader holds all that was acknowledged",
    8: "A group's offset says what was delivered, and never goes back",
    9: "No message is in a log more often than it may be",
    10: "A transaction is seen if it was committed, and only then",
    11: "A message with a time comes in its time",
    12: "A queue's end is never told too low or too high",
    13: "All replicas are identical",
    14: "Each input that a group has passed has its output, and no other has",
    15: "A popped message that is done stays done; what is passed was given",
    16: "No message is popped while one of a higher priority waits",
    17: "What tools have set holds",
    18: "What is made from the log says what the log says",
    19: "A batch is whole or absent, and batches come in order",
}
"""All properties by number: docs/explanation/audit.md explains each."""
NUMBERS: Final = tuple(TITLES)


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of one replica at one position of its log.

    `what` says it in a few words. `entry` and `record` are the fields of the entry there and of the
    message record in it, if they can be read; `data` is where the bytes begin and the first of
    them, in hex, of `data_bytes` in all. `end` is where the replica's log ends.
    """

    replica: str
    position: int
    what: str
    end: int
    entry: dict[str, int | str] = {}
    record: dict[str, int | str] = {}
    data_at: int = 0
    data: str = ""
    data_bytes: int = 0


class Exhibit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The evidence of a violation. `lines` are the history's own, in time; `lines_hidden` counts
    further ones."""

    lines: list[str] = []
    lines_hidden: int = 0
    held: list[Held] = []


class Violation(msgspec.Struct, frozen=True):
    """A violation of a property. `what` is a word for its kind, `detail` a sentence; the others say
    where, if known."""

    what: str
    message_id: str | None = None
    broker: str | None = None
    replica: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    positions: list[int] | None = None
    detail: str | None = None
    exhibit: Exhibit | None = None


class Property(msgspec.Struct, frozen=True):
    """The judgement on one property. `count` is of all violations; some of them are spelled out.
    `kinds` are all of them by their kind.

    With `unjudged` it was not judged: the text says why.
    """

    number: int
    title: str
    holds: bool
    checked: int
    violations: list[Violation] = []
    count: int = 0
    unjudged: str | None = None
    kinds: dict[str, int] = {}

    @property
    def word(self) -> str:
        """Whether it holds, is violated, or was not judged."""
        return word(holds=self.holds, unjudged=self.unjudged, checked=self.checked)


def word(*, holds: bool, unjudged: str | None, checked: int) -> str:
    """The judgement on a property in a word or two: only what was looked at can hold."""
    if not holds:
        return "violated"
    if unjudged is not None:
        return "not judged"
    return "holds" if checked else "nothing to judge"


def headline(properties: Sequence[Property]) -> str:
    """The verdict in a few words."""
    violated = sum(not each.holds for each in properties)
    if violated:
        are = "is" if violated == 1 else "are"
        return f"{violated} of {len(properties)} properties {are} violated"
    judged = sum(each.word == "holds" for each in properties)
    if not judged:
        return "Nothing was judged"
    if judged < len(properties):
        return f"Every property that could be judged holds, {judged} of {len(properties)}"
    return "Every property holds"


class Verdict(msgspec.Struct, frozen=True):
    """All of it: "ok", "violated" or "undecided". `counts` is what people ask for first."""

    verdict: str
    properties: list[Property]
    counts: dict[str, int | bool | dict[str, int]]
    notes: list[str] = []

    @property
    def holds(self) -> bool:
        """Whether nothing was found against any property."""
        return self.verdict == "ok"


def write_verdict(directory: Path, verdict: Verdict) -> None:
    """Write a verdict to verdict.json in `directory`, indented."""
    data = msgspec.json.format(msgspec.json.encode(verdict), indent=2)
    (directory / VERDICT_FILE).write_bytes(data + b"\n")


def read_verdict(directory: Path) -> Verdict:
    """The verdict.json of a directory. Raises BadInput if there is none that can be read."""
    try:
        return msgspec.json.decode((directory / VERDICT_FILE).read_bytes(), type=Verdict)
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"the audit left no readable verdict in {directory}: {error}") from error
