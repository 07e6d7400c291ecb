"""Property 19: a batch is whole or absent, and batches come in order. Pure.

A sink's rows are staged; one decision names the staged entries of a batch that count; each of these
then ends, and its rows are messages (docs/explanation/spark-sink.md). The logs say all of it. A
decision counts if its batch is above the last one of its name, and its epoch not below. Of a batch
that a counting decision is about:

- each staged entry that it names was staged for it (misnamed), becomes messages once (twice), with
  the rows that were staged (altered), and is dropped only if its topic was deleted (dropped);
- all have ended when the next batch of the name is decided (missing);
- in each log they become messages in the order of the decisions, and of the places in a decision
  (disordered). So rows of a key do, which are all in one log.

No other staged entry becomes messages (undecided). A decision that does not count is in no log: of
a batch again (decided again), or of an older instance (fenced).

**What proves nothing.** The part of a log beyond which not all replicas hold it alike accuses
nobody, and may excuse. What a log's removed head said is not known. The log of one broker group
says of another one's only what it knows for certain: copies are made of one group after the other,
and a member that is not here may have more. So what a log lacks is held against another one only if
the log goes on behind it, or is *final*: of stopped members, a majority of them.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mqspark.source.batches import CLOSING, Decision, End, Rows, StagedBatches

#: A query's name, in the group that decides for it.
Query = tuple[str, str]
#: Where a staged entry is: broker group, offset, position.
Place = tuple[str, int, int]


class Fault(NamedTuple):
    """A contradiction in a query's batches. `offset` is that of a staged entry among the half
    messages."""

    what: str
    broker: str
    offset: int | None
    positions: tuple[int, ...]
    detail: str


@dataclass
class GroupLog:
    """The log of a broker group. It begins at `begin`, up to `alike` all replicas hold the
    same; `deleted` are the positions at which each topic was."""

    broker: str
    batches: StagedBatches
    begin: int = 0
    alike: int = 0
    is_final: bool = False
    deleted: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows: dict[tuple[int, int], Rows] = {}
        for each in self.batches.rows:
            self.rows.setdefault((each.offset, each.position), each)
        self.ends: dict[int, dict[int, End]] = defaultdict(dict)
        for end in self.batches.ends:
            self.ends[end.offset].setdefault(end.position, end)

    def ended(self, rows: Rows) -> list[End]:
        """The ends of a staged entry, in order; those that all replicas hold."""
        own = self.ends.get(rows.offset, {})
        return [own[at] for at in sorted(own) if rows.position < at < self.alike]

    def is_deleted(self, rows: Rows, before: int) -> bool:
        """Whether the topic of a staged entry was deleted while that waited."""
        positions = self.deleted.get(rows.topic, ())
        return bisect(positions, before) > bisect(positions, rows.position)


class Faults:
    """The contradictions about batches in the logs of some broker groups."""

    def __init__(self, logs: Iterable[GroupLog]) -> None:
        self._logs = {log.broker: log for log in logs}
        self.found: list[Fault] = []
        self._counting: dict[Query, list[Decision]] = {}
        #: The first decision of a name that names a place.
        self._naming: dict[tuple[Query, Place], Decision] = {}
        for log in self._logs.values():
            self._decide(log)
        for (home, _), decisions in self._counting.items():
            self._follow(self._logs[home], decisions)
        for log in self._logs.values():
            self._look_at_rows(log)

    @property
    def checked(self) -> int:
        """How many decisions and staged entries there are."""
        decisions = sum(map(len, self._counting.values()))
        return decisions + sum(len(log.rows) for log in self._logs.values())

    def _decide(self, home: GroupLog) -> None:
        """Sort the decisions of a home group into those that count, and those that contradict an
        earlier one."""
        by_position = {each.position: each for each in home.batches.decisions}
        for _, decision in sorted(by_position.items()):
            query = (home.broker, decision.name)
            counting = self._counting.setdefault(query, [])
            last = counting[-1] if counting else None
            if last is not None and not _follows(decision, last):
                if decision.position < home.alike:
                    what = "fenced" if decision.batch > last.batch else "decided again"
                    said = f"{_named(decision)}, though {_named(last)} before it"
                    at = (decision.position, last.position)
                    self.found.append(Fault(what, home.broker, None, at, said))
                continue
            counting.append(decision)
            for place in decision.places:
                self._naming.setdefault((query, place), decision)

    def _follow(self, home: GroupLog, decisions: Sequence[Decision]) -> None:
        """Look at what the decisions name, one after the other."""
        latest: dict[str, tuple[int, int]] = {}
        seen: set[tuple[Place, int, int]] = set()
        for number, decision in enumerate(decisions):
            if decision.position >= home.alike:
                return
            later = decisions[number + 1] if number + 1 < len(decisions) else None
            if later is not None and later.position >= home.alike:
                later = None
            for place in decision.places:
                log = self._logs.get(place[0])
                named = (place, decision.epoch, decision.batch)
                if log is None or named in seen:
                    continue
                seen.add(named)
                rows = self._rows_at(home, decision, log, place)
                if rows is not None:
                    self._end(home, decision, later, log, rows)
                    self._in_order(decision, log, rows, latest)

    def _rows_at(
        self, home: GroupLog, decision: Decision, log: GroupLog, place: Place
    ) -> Rows | None:
        """The staged entry that a decision names; None if it is none, or not known."""
        broker, offset, position = place
        rows = log.rows.get((offset, position))
        for_whom = (decision.name, decision.epoch, decision.batch, home.broker)
        if rows is not None and (rows.name, rows.epoch, rows.batch, rows.home) == for_whom:
            return rows
        if log.begin <= position < log.alike:
            held = "nothing is staged" if rows is None else f"is staged what waits for {_of(rows)}"
            said = f"{_named(decision)}, with staged entry {offset} at {position}: there {held}"
            self.found.append(Fault("misnamed", broker, offset, (position,), said))
        return None

    def _end(
        self,
        home: GroupLog,
        decision: Decision,
        later: Decision | None,
        log: GroupLog,
        rows: Rows,
    ) -> None:
        ends = log.ended(rows)
        for end in ends:
            if end.crc is None and not log.is_deleted(rows, end.position):
                said = f"{_named(decision)}, with staged entry {rows.offset}, which was dropped"
                self._about(log, "dropped", rows, end.position, said)
        sure = rows.position < log.alike and (log is home or log.is_final)
        if later is not None and sure and not log.ends.get(rows.offset):
            said = (
                f"{_named(decision)}, with staged entry {rows.offset}, which still waits, though "
                f"{_named(later)}"
            )
            self._about(log, "missing", rows, None, said)

    def _in_order(
        self, decision: Decision, log: GroupLog, rows: Rows, latest: dict[str, tuple[int, int]]
    ) -> None:
        at = next((end.position for end in log.ended(rows) if end.crc is not None), None)
        if at is None:
            return
        before, offset = latest.get(log.broker, (-1, -1))
        if at < before:
            said = (
                f"{_named(decision)}, with staged entry {rows.offset}, whose rows come before "
                f"those of {offset}, which is before it in the decisions"
            )
            self._about(log, "disordered", rows, at, said)
        else:
            latest[log.broker] = at, rows.offset

    def _look_at_rows(self, log: GroupLog) -> None:
        """Look at the ends of all that is staged in a log."""
        for rows in log.rows.values():
            ends = log.ended(rows)
            published = [end for end in ends if end.crc is not None]
            if not published:
                continue
            first = published[0]
            if first.crc != rows.crc:
                said = f"staged entry {rows.offset} became other rows than were staged"
                self._about(log, "altered", rows, first.position, said)
            if len(ends) > 1:
                said = f"staged entry {rows.offset} ended {len(ends)} times"
                self._about(log, "twice", rows, ends[1].position, said)
            if self._is_undecided(log, rows, first.position):
                said = (
                    f"staged entry {rows.offset} became messages, and no decision of {rows.home} "
                    f"about {_of(rows)} names it"
                )
                self._about(log, "undecided", rows, first.position, said)

    def _is_undecided(self, log: GroupLog, rows: Rows, at: int) -> bool:
        """Whether rows became messages at `at` though certainly no decision names them."""
        home = self._logs.get(rows.home)
        if home is None:
            return False
        query = (home.broker, rows.name)
        decision = self._naming.get((query, (log.broker, rows.offset, rows.position)))
        if decision is not None and (log is not home or decision.position < at):
            return False
        known = self._counting.get(query, ())
        is_known = not home.begin or any(each.batch <= rows.batch for each in known)
        is_certain = log is home or home.is_final or any(each.batch >= rows.batch for each in known)
        return is_known and is_certain

    def _about(
        self, log: GroupLog, what: str, rows: Rows, position: int | None, detail: str
    ) -> None:
        at = (rows.position,) if position is None else (position, rows.position)
        self.found.append(Fault(what, log.broker, rows.offset, at, detail))


def _follows(decision: Decision, last: Decision) -> bool:
    """Whether a decision counts behind another one of its name. A name that was closed may begin
    anew."""
    if last.batch == CLOSING:
        return True
    return decision.batch > last.batch and decision.epoch >= last.epoch


def _named(decision: Decision) -> str:
    batch = "the end of" if decision.batch == CLOSING else f"batch {decision.batch} of"
    return f"{batch} {decision.name} was decided in epoch {decision.epoch}"


def _of(rows: Rows) -> str:
    return f"batch {rows.batch} of {rows.name} in epoch {rows.epoch}"
