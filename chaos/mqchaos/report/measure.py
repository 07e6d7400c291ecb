"""The times in a history: gaps, throughput, leaders. Pure; times in s from its start.

The gap of a fault is the longest time between two successive acknowledged sends, over all
producers, that ended after the fault and began before the next one: what an application feels of
it, whether the pause came with the fault itself or with the node's return. The next fault's own
pause begins with the last acknowledgement before it, so only what lies before it counts here.
Without an acknowledgement after it the gap lasts until the end, unless nothing waited for one: then
nobody felt anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from mqchaos.faults.kinds import KINDS, UNDONE
from mqchaos.limits import BUCKETS_MAX, NS_PER_S
from mqchaos.run.history import Ack, Deliver, Event, Fail, Fault, Lead, Send


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which something happened to a node."""

    at_s: float
    what: str
    node: str
    term: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A fault and the longest pause between acknowledged sends that followed. Times in s."""

    fault: Mark
    began_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Series:
    """Events per second, in buckets of equal width."""

    width_s: float
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The parts of a history that the report shows. Lists of moments are ascending."""

    sent: list[float] = field(default_factory=list)
    acked: list[float] = field(default_factory=list)
    delivered: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    leads: list[Mark] = field(default_factory=list)
    faults: list[Mark] = field(default_factory=list)
    end_s: float = 0.0

    def gaps(self) -> list[Gap]:
        """One gap for each fault that was injected, in order."""
        injected = _together([fault for fault in self.faults if fault.what in KINDS])
        untils = [*(fault.at_s for fault in injected), float("inf")][1:]
        return [self._gap(fault, until_s) for fault, until_s in zip(injected, untils, strict=False)]

    def _gap(self, fault: Mark, until_s: float) -> Gap:
        first = max(0, bisect_right(self.acked, fault.at_s) - 1)
        last = bisect_right(self.acked, until_s)
        moments = self.acked[first : last + 1]
        pauses = [
            (began_s, min(ended_s, until_s) - began_s) for began_s, ended_s in pairwise(moments)
        ]
        if not pauses:
            waited = len(self.sent) > len(self.acked)
            return Gap(fault, fault.at_s, max(0.0, self.end_s - fault.at_s) if waited else 0.0)
        return Gap(fault, *max(pauses, key=lambda pause: pause[1]))


def _together(marks: Sequence[Mark]) -> list[Mark]:
    """A fault that hurt several nodes at one moment is one: its mark names them all."""
    found: dict[tuple[float, str], list[str]] = {}
    for mark in marks:
        found.setdefault((mark.at_s, mark.what), []).append(mark.node)
    return [Mark(at_s, what, ", ".join(nodes)) for (at_s, what), nodes in found.items()]


def timeline(events: Iterable[Event]) -> Timeline:
    """Read a whole history, in any order of files."""
    by_kind: dict[type[Event], list[Event]] = {}
    for event in events:
        by_kind.setdefault(type(event), []).append(event)
    ends = [event.t for some in by_kind.values() for event in some]
    start = min(ends, default=0)

    def seconds(t: int) -> float:
        return (t - start) / NS_PER_S

    def moments(kind: type[Event]) -> list[float]:
        return sorted(seconds(event.t) for event in by_kind.get(kind, []))

    leads = [e for e in by_kind.get(Lead, []) if isinstance(e, Lead)]
    faults = [e for e in by_kind.get(Fault, []) if isinstance(e, Fault)]
    return Timeline(
        sent=moments(Send),
        acked=moments(Ack),
        delivered=moments(Deliver),
        failures=[e.error for e in by_kind.get(Fail, []) if isinstance(e, Fail)],
        leads=sorted(
            (Mark(seconds(e.t), "lead", e.node, e.term) for e in leads), key=attrgetter("at_s")
        ),
        faults=sorted(
            (Mark(seconds(e.t), e.fault, e.node) for e in faults), key=attrgetter("at_s")
        ),
        end_s=seconds(max(ends, default=0)),
    )


def series(moments: Sequence[float], end_s: float, width_s: float) -> Series:
    """Count moments into buckets of `width_s` from 0 to `end_s`."""
    counts = [0] * (int(end_s / width_s) + 1)
    for moment in moments:
        counts[min(int(moment / width_s), len(counts) - 1)] += 1
    return Series(width_s, tuple(count / width_s for count in counts))


def bucket_width(end_s: float) -> float:
    """A width that shows a gap of half a second, and makes at most BUCKETS_MAX buckets."""
    for width_s in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0):
        if end_s / width_s <= BUCKETS_MAX:
            return width_s
    return end_s / BUCKETS_MAX


@dataclass(frozen=True, slots=True)
class Span:
    """A node's state from one moment to another: "leader", "follower", or a fault's."""

    node: str
    state: str
    began_s: float
    ended_s: float
    term: int = 0


def spans(nodes: Sequence[str], found: Timeline) -> list[Span]:
    """What each node was, from the start to the end of the run."""
    return [span for node in nodes for span in _spans_of(node, found)]


def _spans_of(node: str, found: Timeline) -> list[Span]:
    """A node leads from when it was seen to lead until another is, or until it is hurt."""
    result: list[Span] = []
    state, since, term = "follower", 0.0, 0
    for mark in sorted([*found.leads, *found.faults], key=attrgetter("at_s")):
        after, after_term = _state_after(state, term, mark, node)
        if (after, after_term) != (state, term):
            result.append(Span(node, state, since, mark.at_s, term))
            state, since, term = after, mark.at_s, after_term
    return [*result, Span(node, state, since, found.end_s, term)]


def _state_after(state: str, term: int, mark: Mark, node: str) -> tuple[str, int]:
    kind = KINDS.get(mark.what) or UNDONE.get(mark.what)
    if mark.node == node and (kind is None or kind.state):
        if mark.what in KINDS:
            return KINDS[mark.what].state, mark.term
        return ("leader" if mark.what == "lead" else "follower"), mark.term
    if mark.what == "lead" and state == "leader":
        return "follower", 0
    return state, term
