"""Half messages, and how transactions end.

A transactional message is stored as a half message first: in `RMQ_SYS_TRANS_HALF_TOPIC`, where no
consumer looks, with its place in REAL_TOPIC and REAL_QID. Its producer then says how the
transaction ended. A commit is a move (see `mqbroker.state.moves`) of the half message to its real
place, a rollback is a move that drops it. Each is one entry, so a transaction ends once, even if
the leader changes.

A producer that says nothing is asked (`checks`), first after `timeout_ms`, then every
`check_interval_ms`. After `check_max` intervals the half message goes to
`TRANS_CHECK_MAX_TIME_TOPIC`, for a person to look at. How old a half message is follows from its
store time, so a new leader goes on asking where the old one stopped. A half message ends with its
topic: nobody is asked about it.

A half message may be a staged entry (`dledger.remoting.bodies.staged`): its body is records, which
become messages by the move that ends it. About these no producer is asked
(`mqbroker.leader.staged`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dledger.buffers import Buffer
from dledger.errors import AppendError
from dledger.failpoints import failpoint
from dledger.log.entry import Draft, Kind
from dledger.raft.appends import Appended, OnDone
from dledger.remoting import message as names
from dledger.remoting.bodies import TopicConfig
from dledger.remoting.bodies.staged import Staged, parse_staged
from dledger.remoting.codes import ResponseCode
from dledger.remoting.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from dledger.remoting.record import TRANSACTION_BITS, Record, place_records
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord, NotedDraft, PlainDraft, RecordsDraft
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.role import Role
from mqbroker.leader.staged import Entry
from mqbroker.leader.waiting.deliveries import Arrival, move_draft
from mqbroker.refusal import Refused, busy, system_error
from mqbroker.state.aside import encode_note
from mqbroker.state.decisions import STAGED_MARK, StagedNote
from mqbroker.state.groups.places import is_of_life
from mqbroker.state.machine import Machine
from mqbroker.state.moves import Move, encode_move
from mqbroker.state.shares import owner_name

COMMITTED: Final = 0x8
_STAGED_QUEUE: Final = "-1"
"""The queue id of a staged entry, whose records have queues of their own; no client's message has
it."""


class Timing(NamedTuple):
    """When producers are asked, in ms; `check_max` times at most."""

    timeout_ms: int
    check_interval_ms: int
    check_max: int

    @property
    def age_max_ms(self) -> int:
        """The age after which no producer is asked about a half message."""
        return self.timeout_ms + self.check_max * self.check_interval_ms


class Half(NamedTuple):
    """A half message: its offset in the queue of half messages, and its record."""

    offset: int
    record: Record

    @property
    def properties(self) -> dict[str, str]:
        """The half message's properties, with its real place."""
        return names.properties_decode(self.record.properties)

    @property
    def staged(self) -> Staged | None:
        """The batch for which it waits, if it is a staged entry, whose body is records."""
        properties = self.properties
        if properties.get(names.REAL_QID) != _STAGED_QUEUE:
            return None
        return parse_staged(properties[names.STAGED])


class Checks(NamedTuple):
    """Half messages: those to ask about, to give up, and those whose topic's life is over."""

    asked: list[Half]
    given_up: list[Half]
    over: list[Half]


def half_message(
    topic: str, queue_id: int, properties: dict[str, str]
) -> tuple[str, int, dict[str, str]]:
    """Where a transactional message is stored first, and with which properties. It has no delay."""
    kept = {name: value for name, value in properties.items() if name not in names.DELAYS}
    return HALF_TOPIC, 0, kept | {names.REAL_TOPIC: topic, names.REAL_QID: str(queue_id)}


class Transactions:
    """Ends transactions, and knows which producers to ask. Used only while leading."""

    def __init__(
        self,
        machine: Machine,
        entries: Entries,
        role: Role,
        definitions: Definitions,
        assignments: Assignments,
        timing: Timing,
        store_host: bytes,
    ) -> None:
        self._machine = machine
        self._entries = entries
        self._log = entries.log
        self._role = role
        self._definitions = definitions
        self._assignments = assignments
        self._timing = timing
        self._store_host = store_host
        self._ending: set[int] = set()
        self._asked_ms: dict[int, int] = {}
        self._unheard: dict[int, str] = {}

    def reset(self) -> None:
        """Leadership begins: no end is on its way, and no producer was asked."""
        self._ending.clear()
        self._asked_ms.clear()
        self._unheard.clear()

    def end(self, half: Half, on_done: OnDone, *, commit: bool) -> None:
        """Commit a half message to its topic, or roll it back. Refused if the transaction ended
        already, or can't be committed."""
        if not commit:
            self._take(half.offset, self._to([]), on_done)
            return
        topic = self.lasting(half)
        # TRAN_MSG is kept, as in RocketMQ: with it consumers show the transaction's id.
        committed = NewRecord.copy(half.record)._replace(
            properties=names.properties_without(half.record.properties, names.REAL_PLACE),
            sys_flag=half.record.sys_flag & ~TRANSACTION_BITS | COMMITTED,
            prepared_offset=half.record.physical_offset,
        )
        queue_id = int(half.properties[names.REAL_QID]) % topic.read_queue_nums
        self._take(half.offset, self._to([Arrival(topic.topic_name, queue_id, committed)]), on_done)

    def _topic(self, half: Half) -> TopicConfig | None:
        """The topic of a half message, if it lasts and was not made again since."""
        topic = self._definitions.lasting(half.properties[names.REAL_TOPIC])
        at = half.record.physical_offset
        lasts = topic is not None and is_of_life(self._machine, topic.topic_name, at)
        return topic if lasts else None

    def give_up(self, half: Half, on_done: OnDone) -> None:
        """No producer knows how the transaction ended: move the half message to a topic
        of its own."""
        given_up = NewRecord.copy(half.record)
        self._take(half.offset, self._to([Arrival(CHECKED_TOO_OFTEN_TOPIC, 0, given_up)]), on_done)

    def as_sent(self, half: Half) -> Buffer:
        """The record as its producer sent it: with its real topic and queue."""
        properties = half.properties
        topic, queue_id = properties[names.REAL_TOPIC], int(properties[names.REAL_QID])
        record = half.record
        sent = NewRecord.copy(record).encode(topic, queue_id, record.store_host)
        place = half.offset, record.physical_offset, record.store_timestamp_ms
        place_records(sent, (0,), *place)
        return sent

    def half(self, offset: int) -> Half | None:
        """The half message at an offset, if it waits for its end."""
        queue = self._machine.queues.get(HALF_TOPIC, 0)
        if queue is None or offset not in self._machine.halves or offset in self._ending:
            return None
        units = queue.read(offset, 1)
        position, size = int(units["position"][0]), int(units["size"][0])
        return Half(offset, Record(self._log.view(position, size)))

    def checks(self, now_ms: int) -> Checks:
        """Half messages that something is to be done about now; a bounded number."""
        checks = asked, given_up, over = Checks([], [], [])
        timing = self._timing
        for offset, stored_ms in self._machine.halves.items():
            if now_ms < stored_ms + timing.timeout_ms:
                break  # later ones are younger
            if sum(map(len, checks)) >= limits.TRANSACTION_CHECKS_PER_TURN_MAX:
                break
            last_ms = self._asked_ms.get(offset)
            if last_ms is not None and now_ms < last_ms + timing.check_interval_ms:
                continue
            half = self.half(offset)
            if half is None or half.staged is not None:
                continue
            if self._topic(half) is None:
                over.append(half)
            elif now_ms >= stored_ms + timing.age_max_ms:
                given_up.append(half)
            elif now_ms >= stored_ms + _immunity_ms(half):
                self._asked_ms[offset] = now_ms
                asked.append(half)
        return checks

    def staged(self, now_ms: int, after: int) -> tuple[list[Entry], int]:
        """The staged entries behind an offset that nobody has ended for a while, and how far was
        looked, -1 for to the end; a bounded number."""
        found: list[Entry] = []
        looked = 0
        for offset, stored_ms in self._machine.halves.items():
            if now_ms < stored_ms + self._timing.timeout_ms:
                break  # later ones are younger
            if offset <= after:
                continue
            if looked == limits.STAGED_PER_LOOK_MAX:
                return found, offset - 1
            looked += 1
            half = self.half(offset)
            if half is not None and (staged := half.staged) is not None:
                found.append(Entry(offset, staged, stored_ms))
        return found, -1

    def unheard(self, half: Half) -> None:
        """No producer of its group is connected: `producer_came` will have it asked about again."""
        self._unheard[half.offset] = half.properties.get(names.PGROUP, "")

    def producer_came(self, connected: Callable[[str], bool]) -> None:
        """Ask soon about half messages whose producers were not connected, if one is by now."""
        for offset, group in list(self._unheard.items()):
            if connected(group):
                del self._unheard[offset]
                self._asked_ms.pop(offset, None)

    def staged_draft(self, topic: str, staged: Staged, group: str, records: Buffer) -> NotedDraft:
        """The entry by which records of a topic are staged, in the `group`'s share of the room.
        Refused if there is no room."""
        properties = {
            names.REAL_TOPIC: topic,
            names.REAL_QID: _STAGED_QUEUE,
            names.PGROUP: group,
            names.STAGED: staged.text,
        }
        owner = (topic, owner_name(properties[names.PGROUP].encode()))
        full = self._machine.halves.owners.full(owner)
        if full is not None:
            raise busy(full)
        encoded, now_ms = names.properties_encode(properties), self._assignments.now_ms()
        record = NewRecord(records, encoded, now_ms, self._store_host)
        half = RecordsDraft([record], HALF_TOPIC, [(0, 1)], self._assignments, self._store_host)
        notes = [STAGED_MARK, encode_note(StagedNote([half.size]))]
        return NotedDraft(notes, [half], self._assignments, self._store_host)

    def publish(self, half: Half, records: PlainDraft, on_done: OnDone) -> None:
        """End a staged entry: its records become messages."""

        def draft(move: Move) -> NotedDraft:
            note = encode_move(move)
            return NotedDraft([note], [records], self._assignments, self._store_host)

        self._take(half.offset, draft, on_done)

    def lasting(self, half: Half) -> TopicConfig:
        """The topic of a half message. Refused if it is deleted, or was made again."""
        topic = self._topic(half)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, "the topic of the transaction is deleted")
        return topic

    def _to(self, arrivals: list[Arrival]) -> Callable[[Move], Draft]:
        """The draft of a move to where these are."""
        return lambda move: move_draft(move, arrivals, self._assignments, self._store_host)

    def _take(self, offset: int, draft_of: Callable[[Move], Draft], on_done: OnDone) -> None:
        """Append the move of a half message. A second one of the same message must never be in the
        log."""
        if offset in self._ending:
            # The transaction's end is not committed yet: the producer may ask again.
            raise busy(f"the transaction of half message {offset} is ending")
        if offset not in self._machine.halves:
            raise system_error(f"the transaction of half message {offset} has ended")

        def done(outcome: Appended | AppendError) -> None:
            failpoint("transaction.ended")
            self._ending.discard(offset)
            self._asked_ms.pop(offset, None)
            self._unheard.pop(offset, None)
            on_done(outcome)

        move = Move(HALF_TOPIC, 0, ((offset, offset + 1),))
        draft = draft_of(move)
        failpoint("transaction.end")
        self._ending.add(offset)
        try:
            self._entries.append_nowait(draft, Kind.MESSAGES, done)
        except AppendError as error:
            self._ending.discard(offset)
            raise self._role.refusal_of(error) from error


def _immunity_ms(half: Half) -> int:
    """How long after the send the producer does not want to be asked."""
    value = half.properties.get(names.CHECK_IMMUNITY_TIME, "0")
    return int(value) * 1000 if value.isdecimal() and len(value) < 10 else 0
