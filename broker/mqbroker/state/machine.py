"""The replicated state machine: the state of a broker's replicas, as a function of the log.

`apply` takes committed entries in log order, on every replica and after a restart. It depends on
the entries only: not on a clock, chance or config. Replicas at the same index have the same state.

* MESSAGES: the records' places go into the consume queues, their first unique key into the dedup
  window. Only now can a message be pulled. A move (`mqbroker.state.moves`) also takes messages out
  of a queue of the broker's own; what is written once (`mqbroker.state.once`) moves a group on;
  dead letters are acknowledged by their entry (`mqbroker.state.groups.given_up`).
* CONTROL: topics, groups, consumer offsets, queue locks, settings (see `mqbroker.state.control`).

`apply` is total: an entry is examined first, against the state before it, and then applied as a
whole; one that can't be is set aside (see `mqbroker.state.aside`) and changes nothing else. The
content of an entry never ends a process, with one exception: a replica that is older than its
leader stops at an operation that it does not know. Else its state would differ from the others'.

`mqbroker.state.saved.saving` saves the state, and restores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dledger.errors import CorruptLog, StorageError, WrittenByNewer
from dledger.log.entry import OF_MESSAGES, Entry, Kind
from dledger.remoting.message import PGROUP, REAL_TOPIC
from dledger.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from dledger.remoting.record import Record
from mqbroker.state import control
from mqbroker.state.aside import SetAside, Unusable
from mqbroker.state.derived.entry_index import EntryIndex
from mqbroker.state.derived.indexing import Due, Op, due_of, index_entry, index_sends, owner_of
from mqbroker.state.derived.units import DamagedFiles
from mqbroker.state.groups.given_up import GivenUp
from mqbroker.state.moves import Move
from mqbroker.state.once import Once
from mqbroker.state.saved.saving import SavedState
from mqbroker.state.watching import Watcher


class _Examined(NamedTuple):
    """An entry of messages that can be applied: what it adds, and the due times of its timers."""

    op: Op | None
    parts: Sequence[EntryIndex]
    dues: Sequence[Due]


class Machine(SavedState):
    """The state of one replica. `directory` is the replica's store."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._watcher = Watcher()
        self._tell_role: Callable[[Watcher], None] | None = None

    def apply(self, entry: Entry) -> object:
        """Apply a committed entry of any content. The result goes to the caller that appended
        it."""
        if not self._trimmed:
            self._trim()
        if entry.index != self.applied_index + 1:
            raise CorruptLog(f"entry {entry.index} was given after entry {self.applied_index}")
        result: object = None
        if entry.index <= self._ahead_index:
            self._derive_again(entry)
        else:
            try:
                change = self._examined(entry)
            except Unusable as unusable:
                result = self._set_aside(entry, str(unusable))
            else:
                try:
                    result = change()
                except DamagedFiles:
                    # Not the entry's fault. Nothing of it is applied yet, so it comes again.
                    self.derive_again()
                    return None
        self.applied_index = entry.index
        return result

    def _examined(self, entry: Entry) -> Callable[[], object]:
        """The function that applies the entry. Raises Unusable, and changes nothing.

        Examining depends on the entry and the state only: if it raises, it raises on every replica.
        """
        try:
            if entry.kind in OF_MESSAGES:
                return partial(self._apply_messages, entry, self._examine_messages(entry))
            if entry.kind == Kind.CONTROL:
                change = control.decode_control(entry.body)
                control.check_control(change, entry.position, entry.index)
                return partial(self._apply_control, change, entry)
        except (Unusable, StorageError, OSError, MemoryError):
            raise
        except Exception as error:
            raise Unusable(f"it can't be taken apart: {type(error).__name__}") from error
        if entry.kind in (Kind.NOOP, Kind.CONFIGURATION):
            return lambda: None
        raise WrittenByNewer(f"an entry of kind {entry.kind}")

    def _set_aside(self, entry: Entry, reason: str) -> SetAside:
        aside = self.aside.add(entry.index, reason)
        self._watcher.set_aside(entry.kind, aside)
        return aside

    def watch(self, watcher: Watcher) -> None:
        """Tell a watcher everything from now on, and the present role at once."""
        self._watcher = watcher
        if self._tell_role is not None:
            self._tell_role(watcher)

    def leading(self, term: int) -> None:
        """Tell the watcher: from now on appends may be made."""
        self._role_changed(lambda watcher: watcher.leading(term))

    def following(self, leader: str | None, term: int) -> None:
        """Tell the watcher that another replica leads, or none."""
        self._role_changed(lambda watcher: watcher.following(leader, term))

    def _role_changed(self, tell: Callable[[Watcher], None]) -> None:
        self._tell_role = tell
        tell(self._watcher)

    def _derive_again(self, entry: Entry) -> None:
        """Add a message entry to queues and key index only: the state holds it already."""
        if (
            entry.kind not in OF_MESSAGES
            or entry.position < self.first_position
            or entry.index in self.aside
        ):
            return
        try:
            _, parts = _taken_apart(entry)
        except Unusable:
            return  # set aside so long ago that the book has forgotten
        for index in parts:
            queues = self.queues.topic(index.topic)
            if queues is not None and entry.index >= queues.created_index:
                for run in index.runs:
                    if run.first_offset == self.queues.end(index.topic, run.queue_id):
                        self.queues.append(index.topic, run.queue_id, run.units, entry.index)
            self.keys.append(index.keys)

    def _examine_messages(self, entry: Entry) -> _Examined:
        """Examine an entry of messages. Raises Unusable if they can't be applied as a whole."""
        op, parts = _taken_apart(entry)
        if isinstance(op, Once):
            self.check_once(op)
        elif isinstance(op, Move):
            self._check_move(op)
        ends: dict[tuple[str, int], int] = {}
        dues: list[Due] = []
        for index in parts:
            for run in index.runs:
                key = (index.topic, run.queue_id)
                end = ends[key] if key in ends else self.queues.end(*key)
                if run.first_offset != end:
                    raise Unusable(
                        f"it has a message for {index.topic} queue {run.queue_id} at offset "
                        f"{run.first_offset}, but the queue ends at {end}"
                    )
                ends[key] = end + run.messages
            if index.topic == TIMER_TOPIC:
                dues += [due_of(offset, record) for offset, record in _records(entry, index)]
        return _Examined(op, parts, dues)

    def _check_move(self, move: Move) -> None:
        if move.topic == SCHEDULE_TOPIC:
            self.delays.check(move)
        elif move.topic == TIMER_TOPIC:
            self.timers.check(move)
        elif move.topic == HALF_TOPIC:
            self.halves.check(move)
        else:
            raise WrittenByNewer(f"a move out of {move.topic!r}")

    def _apply_messages(self, entry: Entry, examined: _Examined) -> None:
        op, parts, dues = examined
        if isinstance(op, Once):
            stored_ms = parts[0].store_timestamp_ms
            self.write_once(op, entry.body_position, len(entry.body), stored_ms)
        elif isinstance(op, GivenUp):
            self.give_up(op)
        elif isinstance(op, Move):
            waiting = {TIMER_TOPIC: self.timers, HALF_TOPIC: self.halves}
            waiting.get(op.topic, self.delays).take(op)
        for due in dues:
            self.timers.add(due.offset, due.at_ms, due.owner)
        if dues and not isinstance(op, Move):
            self._watcher.timers_set(dues)
        for index in parts:
            self._apply_part(entry, index, op.topic if isinstance(op, Move) else "")

    def _apply_part(self, entry: Entry, index: EntryIndex, origin: str) -> None:
        for run in index.runs:
            self.queues.append(index.topic, run.queue_id, run.units, entry.index)
        self.keys.append(index.keys)
        if index.topic == HALF_TOPIC:
            for offset, record in _records(entry, index):
                owner = owner_of(record, REAL_TOPIC, PGROUP)
                self.halves.add(offset, record.store_timestamp_ms, owner)
        if index.copies:
            self.dedup.add_all(index.copies)
        self.clock_ms = max(self.clock_ms, index.store_timestamp_ms)
        self._watcher.messages_arrived(index, origin)

    def _apply_control(self, change: control.Control, entry: Entry) -> object:
        result = self.change(change, entry.index, entry.position)
        match change:
            case control.PutSettings():
                self._watcher.settings_changed()
            case control.PutUser() | control.DeleteUser():
                self._watcher.users_changed()
            case control.LockQueues() | control.UnlockQueues():
                self._watcher.locks_changed(change)
            case control.PutTopics(topics):
                self._watcher.topics_changed([topic.topic_name for topic in topics])
            case control.DeleteTopic(topic):
                self.queues.delete(topic)
                self._watcher.topics_changed([topic])
            case control.PutGroups(groups):
                self._watcher.groups_changed([group.group_name for group in groups])
            case control.DeleteGroup(group):
                self._watcher.groups_changed([group])
            case control.DropHead(position, first_index):
                self._drop_head(position, first_index)
        return result

    def _drop_head(self, position: int, index: int) -> None:
        if position <= self.first_position:
            return
        gone = self.keys.files_before(position)
        self.queues.forget_before(position)
        for topic in {topic for _, topic, _ in self.popped}:
            for queue_id, queue in self.queues.topic(topic) or ():
                self.retain_from(topic, queue_id, queue.begin)
        self._outdated.update(self.keys.forget_files(gone))
        self.first_position = self.dedup.first_position = position
        self.first_index = index
        self.aside.forget_before(index)


def _taken_apart(entry: Entry) -> tuple[Op | None, Sequence[EntryIndex]]:
    """The messages of an entry, and what else it does. Raises Unusable."""
    if entry.kind == Kind.SENDS:
        return None, index_sends(entry.body, entry.body_position)
    return index_entry(entry.body, entry.body_position)


def _records(entry: Entry, index: EntryIndex) -> Iterator[tuple[int, Record]]:
    """(queue offset, record) of the messages that an entry adds to a topic."""
    for run in index.runs:
        for offset, position in enumerate(run.decoded()["position"].tolist(), run.first_offset):
            yield offset, Record(entry.body[position - entry.body_position :])
