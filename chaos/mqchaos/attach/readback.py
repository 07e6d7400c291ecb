"""Judges a run by what consumers read back, without any file of the cluster's. Pure.

A consumer that was given everything shows what is lost, changed, twice or out of order, of any
queue at all. It does not show what the replicas hold: one of three may have lost a message that the
leader still serves. So of a property that is about replicas only this side is judged, and the
verdict says so.

The whole history is held as a few values a message: some 300 bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from dledger.verdict.form import TITLES, Property, Verdict, Violation
from mqchaos.history.events import Ack, Deliver, Event, Fail, Send
from mqchaos.limits import READBACK_SHOWN_MAX

NOTE = (
    "judged by what consumers read back: no replica's files were looked at, so a message that one "
    "replica lost and another still served is not seen"
)
FILES = "it is about replicas' files, which were not looked at"
UNJUDGED = {
    5: FILES,
    6: "it is about terms, which were not asked",
    7: FILES,
    8: "it was not asked for",
    10: "none was sent",
    11: "none was sent",
    12: "it was not asked for",
    13: FILES,
    14: "none was written",
    15: "acknowledgements of single messages were not noted",
    16: "none had a priority",
    17: "no tool was used",
    18: FILES,
    19: FILES,
}
Place = tuple[str, str, int, int]


@dataclass(slots=True)
class _Seen:
    """All that a history says about each message: sent, acknowledged, refused, read."""

    sent: dict[str, int] = field(default_factory=dict)
    acked: dict[str, Place] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    read: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    names: dict[Place, set[str]] = field(default_factory=lambda: defaultdict(set))
    altered: list[Violation] = field(default_factory=list)
    disorder: list[Violation] = field(default_factory=list)
    deliveries: int = 0
    _highest: dict[tuple[str, str, str, int], int] = field(default_factory=dict)
    _first: set[tuple[str, Place]] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """Take another event, in the order of time."""
        if isinstance(event, Send):
            self.sent[event.id] = event.crc
        elif isinstance(event, Fail) and event.definite:
            self.refused.add(event.id)
        elif isinstance(event, Ack):
            place = (event.broker, event.topic, event.queue_id, event.offset)
            self.acked[event.id] = place
            self.names[place].add(event.id)
        elif isinstance(event, Deliver):
            self._delivered(event)

    def _delivered(self, event: Deliver) -> None:
        self.deliveries += 1
        place = (event.broker, event.topic, event.queue_id, event.offset)
        self.read[event.id].add(place)
        self.names[place].add(event.id)
        if self.sent.get(event.id, event.crc) != event.crc:
            self.altered.append(_of("altered", event.id, place, "delivered with another body"))
        queue = (event.group, *place[:3])
        highest = self._highest.get(queue)
        if highest is not None and event.offset > highest + 1:
            self.disorder.append(
                _of("skipped", event.id, place, f"delivered after offset {highest}, first")
            )
        again = (event.group, place) in self._first
        if highest is not None and event.offset < highest and not again:
            self.disorder.append(_of("late", event.id, place, f"first after offset {highest}"))
        self._first.add((event.group, place))
        self._highest[queue] = max(event.offset, -1 if highest is None else highest)


def judge(events: Iterable[Event]) -> Verdict:
    """The verdict on a history, in the order of time."""
    seen = _Seen()
    for event in events:
        seen.take(event)
    lost, moved = _unread(seen)
    phantom, contested, twice = _unsent(seen), _contested(seen), _twice(seen)
    sums = (len(seen.acked), seen.deliveries, len(seen.names), len(seen.read))
    acked, deliveries, places, read = sums
    properties = [
        _property(1, "Every acknowledged message is read back", acked, lost + moved),
        _property(2, "Nothing is read that was not sent", deliveries, phantom + seen.altered),
        _property(3, "A queue offset names one message for ever", places, contested),
        _property(4, "Reads keep the order of a queue", deliveries, seen.disorder),
        _property(9, "No message is read at two places", read, twice),
        *(
            Property(number, TITLES[number], holds=True, checked=0, unjudged=reason)
            for number, reason in UNJUDGED.items()
        ),
    ]
    properties.sort(key=lambda each: each.number)
    counts: dict[str, int | bool | dict[str, int]] = {
        "sent": len(seen.sent),
        "acknowledged": acked,
        "stored": {},
        "consumed": read,
        "lost": len(lost),
        "phantom": len(phantom),
        "duplicated": len(twice),
        "reordered": len(seen.disorder),
    }
    holds = all(each.holds for each in properties)
    return Verdict("ok" if holds else "violated", properties, counts, [NOTE])


def _unread(seen: _Seen) -> tuple[list[Violation], list[Violation]]:
    """Acknowledged messages that are not read, and those that are read in another place only."""
    lost = [
        _of("lost", name, place, "acknowledged there, and never delivered")
        for name, place in seen.acked.items()
        if name not in seen.read
    ]
    moved = [
        _of("moved", name, place, f"acknowledged there, delivered at {_listed(seen.read[name])}")
        for name, place in seen.acked.items()
        if name in seen.read and place not in seen.read[name]
    ]
    return lost, moved


def _unsent(seen: _Seen) -> list[Violation]:
    """Messages that are read though they were never sent, or their send was refused."""
    phantom = [
        _of("phantom", name, min(places), "delivered, never sent")
        for name, places in seen.read.items()
        if name not in seen.sent
    ]
    return phantom + [
        _of("refused", name, min(seen.read[name]), "delivered, though its send definitely failed")
        for name in seen.refused
        if name in seen.read and name not in seen.acked
    ]


def _contested(seen: _Seen) -> list[Violation]:
    return [
        _of("contested", None, place, f"this offset is given to {'; '.join(sorted(names))}")
        for place, names in seen.names.items()
        if len(names) > 1
    ]


def _twice(seen: _Seen) -> list[Violation]:
    return [
        _of("duplicate", name, min(places), f"at {_listed(places)}")
        for name, places in seen.read.items()
        if len(places) > 1
    ]


def _property(number: int, title: str, checked: int, found: list[Violation]) -> Property:
    shown = found[:READBACK_SHOWN_MAX]
    return Property(number, title, not found, checked, shown, len(found))


def _of(what: str, name: str | None, place: Place, detail: str) -> Violation:
    broker, topic, queue_id, offset = place
    return Violation(what, name, broker, None, topic, queue_id, offset, None, detail)


def _listed(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}/{queue} offset {at}" for _, topic, queue, at in sorted(places))
