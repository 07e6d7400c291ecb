"""The times in a history: gaps, throughput, latencies, leaders. Pure; times in s from its start.

A history is read once, in the order of its time, and may be of any length: what is kept of it is a
bounded number of slots (:mod:`mqchaos.report.slots`), the faults and the leaders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from mqchaos.faults.kinds import KINDS, UNDONE
from mqchaos.history.events import Ack, Deliver, Event, Fail, Fault, Lead, Send
from mqchaos.limits import FAILURES_KEPT_MAX, NS_PER_S, UNANSWERED_MAX
from mqchaos.report.pauses import Gap, Mark, Pauses
from mqchaos.report.slots import Latencies, Slots
from mqchaos.report.verdict import FailoverFound


@dataclass(frozen=True, slots=True)
class Timeline:
    """The parts of a history that the report shows. Marks are in the order of time.

    `failures` are the first of the `failed` sends' words.
    """

    slots: Slots = field(default_factory=Slots)
    latencies: Latencies = field(default_factory=Latencies)
    gaps: list[Gap] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    leads: list[Mark] = field(default_factory=list)
    faults: list[Mark] = field(default_factory=list)
    end_s: float = 0.0


def timeline(events: Iterable[Event]) -> Timeline:
    """Read a whole history, in the order of time."""
    reading = _Reading()
    for event in events:
        reading.take(event)
    return reading.result()


class _Reading:
    """The figures of a history, as far as it was read."""

    def __init__(self) -> None:
        self._start: int | None = None
        self._end_s = 0.0
        self._slots = Slots()
        self._pauses = Pauses()
        self._unanswered: dict[str, int] = {}
        self._unanswered_count = 0
        self._failures: list[str] = []
        self._failed = 0
        self._leads: list[Mark] = []
        self._faults: list[Mark] = []

    def take(self, event: Event) -> None:
        """Count the next event, in the order of time."""
        if self._start is None:
            self._start = event.t
        at_s = (event.t - self._start) / NS_PER_S
        self._end_s = max(self._end_s, at_s)
        if isinstance(event, Send):
            self._unanswered_count += 1
            if len(self._unanswered) < UNANSWERED_MAX:
                self._unanswered[event.id] = event.t
        elif isinstance(event, Ack):
            self._acked(event, at_s)
        elif isinstance(event, Deliver):
            self._slots.at(at_s).delivered += 1
        elif isinstance(event, Fail):
            self._unanswered.pop(event.id, None)
            self._failed += 1
            self._failures += [event.error][: FAILURES_KEPT_MAX - len(self._failures)]
        elif isinstance(event, Lead):
            self._leads.append(Mark(at_s, "lead", event.node, event.term))
        elif isinstance(event, Fault):
            self._faults.append(Mark(at_s, event.fault, event.node))
            if event.fault in KINDS:
                self._pauses.injected(self._faults[-1])

    def _acked(self, event: Ack, at_s: float) -> None:
        self._unanswered_count -= 1
        self._pauses.acked(at_s)
        slot = self._slots.at(at_s)
        slot.acked += 1
        began = self._unanswered.pop(event.id, None)
        if began is not None:
            slot.latencies.add((event.t - began) / NS_PER_S)

    def result(self) -> Timeline:
        """The timeline of all events that were taken."""
        latencies = Latencies()
        for slot in self._slots.all:
            latencies.merge(slot.latencies)
        return Timeline(
            self._slots,
            latencies,
            self._pauses.gaps(self._end_s, waiting=self._unanswered_count > 0),
            self._failures,
            self._failed,
            self._leads,
            self._faults,
            self._end_s,
        )


def failovers(found: Timeline) -> list[FailoverFound]:
    """Failovers: the faults that were followed by a new leader before the next fault."""
    leader, result = "", list[FailoverFound]()
    hurt: Mark | None = None
    for mark in sorted([*found.leads, *found.faults], key=attrgetter("at_s")):
        if mark.what == "lead":
            if hurt is not None:
                times = {"at_s": hurt.at_s, "led_after_s": mark.at_s - hurt.at_s}
                result.append(FailoverFound(hurt.what, hurt.node, leader=mark.node, **times))
            leader, hurt = mark.node, None
        elif mark.what in KINDS:
            same = hurt is not None and hurt.at_s == mark.at_s
            hurt = mark if mark.node == leader else hurt if same else None
    return result


@dataclass(frozen=True, slots=True)
class Span:
    """A node's state from one moment to another: "leader", "follower", or a fault's."""

    node: str
    state: str
    began_s: float
    ended_s: float
    term: int = 0


def spans(nodes: Sequence[str], found: Timeline) -> list[Span]:
    """The states of each node, from the start to the end of the run."""
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
