"""Appends what named producers write, each write once, and registers their names.

The leader decides whether a write is stored, by the applied state and by what it has appended and
not yet applied. It has applied all of the terms before its own, so it knows everything. Of each
stream of a producer one write is on its way at a time, and of each consumed queue one move of its
offset. A write is refused while its producer's name is being registered anew. So an entry that is
appended is still right when it is applied, and none has to be taken back: its outputs have queue
offsets then, and other producers' messages may be behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from dledger.errors import AppendError, NotLeader
from dledger.raft.appends import Appended
from dledger.remoting.codes import ResponseCode
from dledger.remoting.record import Record
from dledger.remoting.record.columns import RecordColumns, record_starts
from mqbroker import limits
from mqbroker.leader.appending.append import Admit, Appender, always
from mqbroker.leader.appending.drafts import NotedDraft, PlainDraft
from mqbroker.leader.appending.in_flight import Flight, InFlight, Stored, Tell
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.log import Log
from mqbroker.leader.offset_commits import OffsetCommits, check_room
from mqbroker.refusal import Refused, busy, illegal_message, invalid, no_permission
from mqbroker.state.aside import encode_note
from mqbroker.state.control import ClaimProducer, ForgetProducers, RegisterProducer
from mqbroker.state.derived.indexing import index_entry
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.machine import Machine
from mqbroker.state.once import Decision, Once, decode_decision, mark_of
from mqbroker.state.producers import Claim, Judged, Stamp, Written

_FORGOTTEN_MAX: Final = limits.PRODUCERS_FORGOTTEN_MAX
_FULL: Final = (
    f"{limits.PRODUCERS_MAX} producers have names; one that is not used for "
    f"{limits.PRODUCER_KEPT_S // 86_400} days gives up its own, one that wrote nothing at once"
)
NOBODYS: Final = Claim()
_REMEDY: Final = "This instance must not go on: stop it, or give it a name of its own"


def taken(name: str) -> Refused:
    """The answer to a user who asks for another one's name."""
    return no_permission(
        f"the producer name {name!r} belongs to another user, who registered it first: choose "
        "another name, or ask as a super user"
    )


def once_draft(
    once: Once, parts: Sequence[PlainDraft], assignments: Assignments, store_host: bytes
) -> NotedDraft:
    """The entry of a write. Raises RecordError if its note can't be a record."""
    return NotedDraft([mark_of(once), encode_note(once)], parts, assignments, store_host)


class _Write(Flight):
    """A write on its way."""

    __slots__ = ("once",)

    def __init__(self, once: Once, draft: NotedDraft, *tell: Tell[Stored]) -> None:
        super().__init__(draft, *tell)
        self.once = once

    @property
    def stamp(self) -> Stamp:
        """The writer of a write, and its number."""
        return self.once.stamp


@dataclass(eq=False, slots=True)
class OnceAppender:
    """Decides and appends the writes of named producers."""

    _machine: Machine
    _log: Log
    _definitions: Definitions
    _appender: Appender
    _commits: OffsetCommits
    _registering: dict[str, int] = field(default_factory=dict, init=False)
    #: By producer and stream.
    _writing: InFlight[tuple[str, int], _Write] = field(default_factory=InFlight, init=False)

    def register(
        self, name: str, instance: str, now_ms: int, tell: Tell[int], claim: Claim = NOBODYS
    ) -> None:
        """Give a name to an instance; `tell` gets its epoch. Raises Refused, BadInput."""

        def done(outcome: Appended | AppendError) -> None:
            self._registering[name] -= 1
            if not self._registering[name]:
                del self._registering[name]
            if isinstance(outcome, AppendError):
                tell(outcome)
            else:
                tell(self._registered(name, outcome.result))

        self._make_room(name, now_ms)
        self._registering[name] = self._registering.get(name, 0) + 1
        wanted: ClaimProducer | RegisterProducer = RegisterProducer(name, instance, now_ms)
        if claim.user:
            wanted = ClaimProducer(name, instance, claim.user, claim.over, now_ms)
        self._definitions.change(wanted, done)

    def _make_room(self, name: str, now_ms: int) -> None:
        """If all names are taken, have some forgotten that never wrote anything. Raises Refused if
        there are none."""
        producers = self._machine.producers
        coming = sum(producers.epoch(each) is None for each in self._registering)
        is_known = producers.epoch(name) is not None or name in self._registering
        if is_known or len(producers) + coming < limits.PRODUCERS_MAX:
            return
        writing = {of for of, _ in self._writing}
        idle = producers.idle(now_ms - int(limits.PRODUCER_IDLE_S * 1000))
        names = islice((each for each in idle if each not in writing), _FORGOTTEN_MAX)
        if forgotten := [*names]:
            self._definitions.change(ForgetProducers(forgotten, now_ms))
        elif not producers.are_outdated(now_ms):
            raise busy(_FULL)

    def _registered(self, name: str, result: object) -> int | Refused:
        if isinstance(result, int):
            return result
        if result is Judged.FENCED:
            newer = self._machine.producers.epoch(name)
            return Refused(
                ResponseCode.PRODUCER_FENCED,
                f"this instance of producer {name!r} was replaced: epoch {newer} has the name. "
                f"{_REMEDY}",
            )
        return taken(name) if result is Judged.TAKEN else busy(_FULL)

    def knows(self, stamp: Stamp) -> bool:
        """Whether a write is stored, or on its way there."""
        on_its_way = self._writing.get((stamp.name, stamp.stream))
        if on_its_way is not None and on_its_way.stamp == stamp:
            return True
        return self._machine.producers.judge(stamp) is Judged.REPEATED

    def write(
        self, draft: NotedDraft, once: Once, tell: Tell[Stored], admit: Admit = always
    ) -> None:
        """Append a write; `tell` is called once, after it can be read, or with why it can't.

        Raises Refused or an AppendError if it is certain at once that nothing is stored now.
        """
        stamp = once.stamp
        if stamp.name in self._registering:
            raise busy(f"producer {stamp.name!r} is being registered anew")
        first = self._writing.get((stamp.name, stamp.stream))
        if first is not None and first.stamp.epoch == stamp.epoch:
            if first.stamp != stamp or (isinstance(once, Decision) and first.once != once):
                raise busy(f"write {first.stamp.sequence} of the stream is on its way")
            held, asked = first.draft.body_crcs(), draft.body_crcs()
            first.join(tell, lambda stored: _same(stamp, stored, held, asked))
            return
        if isinstance(once, Decision):
            self._check_batch(once)
        judged = self._machine.producers.judge(stamp)
        if judged is Judged.REPEATED:
            tell(self._first_answer(stamp, draft.body_crcs()))
            return
        if judged is not Judged.NEW:
            raise self._refusal(stamp, judged)
        self._check_moves(once)
        self._append(draft, once, tell, admit)

    def _append(self, draft: NotedDraft, once: Once, tell: Tell[Stored], admit: Admit) -> None:
        moved = {QueueKey(once.group, each.topic, each.queue_id): each.end for each in once.moves}
        for key, end in moved.items():
            self._commits.begin_move(key, end)

        def ended(outcome: Stored | Refused | AppendError) -> None:
            error = None if isinstance(outcome, Stored) else NotLeader(None)
            for key in moved:
                self._commits.end_move(key, error)

        write = _Write(once, draft, ended, tell)
        self._writing.add((once.stamp.name, once.stamp.stream), write)
        try:
            self._appender.submit(write, admit)
        except BaseException:
            ended(NotLeader(None))
            raise

    def _check_batch(self, decision: Decision) -> None:
        """Refuse a batch that is decided, to the same write again, too: its writer goes on with
        what was decided, which may be another attempt of it."""
        last = self._machine.decisions.last(decision.name)
        if last is not None and decision.batch <= last.batch:
            raise Refused(
                ResponseCode.BATCH_DECIDED,
                f"batch {decision.batch} of producer {decision.name!r} is decided, as all up to "
                f"{last.batch}: ask for the decision, and go on with that",
            )
        for stream in range(limits.STREAMS_PER_PRODUCER_MAX):
            other = self._writing.get((decision.name, stream))
            if other is not None and isinstance(other.once, Decision):
                raise busy(f"another decision of producer {decision.name!r} is on its way")

    def decision(self, name: str) -> Decision | None:
        """The last decision under a name; None if there is none, or the log has it no more."""
        last = self._machine.decisions.last(name)
        if last is None or last.position < self._machine.first_position:
            return None
        body = self._log.view(last.position, last.size)
        mark = Record(body)
        return decode_decision(Record(body[mark.size :]).body)

    def _check_moves(self, once: Once) -> None:
        """Refuse offsets that did not begin where the group is."""
        new = 0
        for move in once.moves:
            key = QueueKey(once.group, move.topic, move.queue_id)
            if self._commits.is_moving(key):
                raise busy(f"another transaction of queue {move.queue_id} of {move.topic!r} ends")
            present = self._commits.latest(key)
            new += present is None
            if present is not None and present != move.begin:
                raise Refused(
                    ResponseCode.OFFSET_MOVED_ON,
                    f"queue {move.queue_id} of {move.topic!r} is at {present} for group "
                    f"{once.group!r}, not at {move.begin}, where this transaction began: another "
                    "member has committed it, or the group was reset. Nothing was stored; go on "
                    f"at {present}",
                )
        check_room(self._machine.offsets.shares, once.group, new)

    def _refusal(self, stamp: Stamp, judged: Judged) -> Refused:
        code, who = ResponseCode.PRODUCER_FENCED, f"producer {stamp.name!r}, epoch {stamp.epoch}"
        if judged is Judged.FENCED:
            newer = self._machine.producers.epoch(stamp.name)
            return Refused(code, f"{who} is fenced: epoch {newer} has the name. {_REMEDY}")
        if judged is Judged.FORGOTTEN:
            days = limits.PRODUCER_KEPT_S // 86_400
            remedy = (
                f"It was not used for {days} days, or wrote nothing while all names were taken, or "
                "never registered: begin anew"
            )
            return Refused(code, f"{who} is not known. {remedy}")
        last = self._machine.producers.written(stamp.name, stamp.stream)
        return invalid(
            f"write {stamp.sequence} of {who} comes after {last.sequence if last else 0} in stream "
            f"{stamp.stream}: it is not stored now; whether it was before is not known any more"
        )

    def _first_answer(self, stamp: Stamp, asked: list[int]) -> Stored | Refused:
        """The answer to a repeat, read from the log; without places if retention has taken it."""
        written = self._machine.producers.written(stamp.name, stamp.stream)
        assert written is not None, "it was judged a repeat"
        if written.position < self._machine.first_position:
            return Stored([], [], 0, duplicate=True)
        return self._first_copy(stamp, written, asked)

    def _first_copy(self, stamp: Stamp, written: Written, asked: list[int]) -> Stored | Refused:
        body = self._log.view(written.position, written.size)
        notes, *parts = index_entry(body, written.position)[1]
        runs = [run for part in parts for run in part.runs]
        positions = [int(at) for run in runs for at in run.decoded()["position"]]
        outputs = body[positions[0] - written.position :] if positions else body[:0]
        stored = Stored(
            positions,
            [(run.queue_id, run.first_offset) for run in runs],
            notes.store_timestamp_ms,
            duplicate=True,
        )
        held = RecordColumns(outputs, record_starts(outputs)).body_crcs if positions else []
        return _same(stamp, stored, held, asked)


def _same(stamp: Stamp, stored: Stored, held: list[int], asked: list[int]) -> Stored | Refused:
    """A repeat must be the same write again, or its answer would be another one's."""
    if held == asked:
        return stored
    return illegal_message(
        f"write {stamp.sequence} in stream {stamp.stream} of producer {stamp.name!r} is stored "
        f"with {len(held)} other messages: a repeat must be the same, a new write has a sequence "
        "of its own"
    )
