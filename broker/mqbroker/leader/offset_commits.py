"""Commits of consumer offsets, many in one entry of the log.

Stock consumers commit every queue by itself, one-way, every five seconds; those are gathered for
`COMMIT_GATHER_S`. A commit that needs an answer is written at once, with all that were gathered.
While one entry is on its way the next commits are gathered, so a busy broker writes few entries. A
request for an offset waits for a commit of it that is under way: when a consumer leaves, the next
owner of its queues asks at once.

What transactions move (`mqbroker.leader.once`) has entries of its own; here it is known
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.errors import AppendError, NotLeader
from dledger.failpoints import failpoint
from dledger.raft.appends import Appended
from mqbroker import limits
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.leader.definitions import Definitions
from mqbroker.refusal import Refused, busy
from mqbroker.state.control import CommitOffsets
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.groups.places import place
from mqbroker.state.machine import Machine
from mqbroker.state.shares import Shares


class OffsetCommits:
    """Gathers the offsets that consumers commit, to write many in one entry. `wake` is called when
    `flush` should be called, after a while or at once."""

    def __init__(
        self, machine: Machine, definitions: Definitions, wake: Callable[[float], None]
    ) -> None:
        self._machine = machine
        self._definitions = definitions
        self._wake = wake
        self._gathered: dict[QueueKey, int] = {}
        self._waiting: list[Tell[None]] = []
        self._on_its_way: dict[QueueKey, int] = {}
        self._on_its_way_waiting: list[Tell[None]] = []
        #: Offsets that transactions on their way move: to where, and the calls that wait for it.
        self._moving: dict[QueueKey, tuple[int, list[Tell[None]]]] = {}

    def begin_move(self, key: QueueKey, end: int) -> None:
        """A transaction that takes a group there is on its way."""
        self._moving[key] = (end, [])

    def end_move(self, key: QueueKey, error: AppendError | None) -> None:
        """Note that a move was applied, or failed."""
        for tell in self._moving.pop(key)[1]:
            tell(error)

    def is_moving(self, key: QueueKey) -> bool:
        """Whether a transaction that moves this queue's offset is on its way."""
        return key in self._moving

    def gather(self, key: QueueKey, offset: int) -> None:
        """Take a one-way commit. Beyond a bound, or without a leader, the commit is dropped, as
        consumers commit again soon. Raises Refused then, to have the drop counted and logged."""
        if self.latest(key) != offset:
            self._take_room(key)
            self._gathered[key] = offset
            self._wake(limits.COMMIT_GATHER_S)

    def commit(self, key: QueueKey, offset: int, tell: Tell[None]) -> None:
        """Take a commit whose sender waits until it is applied. Refused beyond the bounds."""
        self._take_room(key)
        self._gathered[key] = offset
        self._waiting.append(tell)
        self._wake(0.0)

    def await_pending(self, key: QueueKey, tell: Tell[None]) -> bool:
        """Call `tell` when the commits of this queue that were taken are applied.

        Returns whether there is one; if not, the offset in the state is the newest. Refused beyond
        the bounds.
        """
        if key in self._moving:
            waiting = self._moving[key][1]
        elif key in self._gathered:
            waiting = self._waiting
        elif key in self._on_its_way:
            waiting = self._on_its_way_waiting
        else:
            return False
        if len(waiting) >= limits.COMMITS_PER_ENTRY_MAX:
            raise busy(f"{len(waiting)} requests wait for offset commits")
        waiting.append(tell)
        self._wake(0.0)
        return True

    def latest(self, key: QueueKey) -> int | None:
        """The newest offset that was taken for a queue, applied or not."""
        taken = self._gathered.get(key)
        if taken is None and key in self._moving:
            taken = self._moving[key][0]
        if taken is None:
            taken = self._on_its_way.get(key)
        return taken if taken is not None else self._machine.offsets.get(*key)

    def place(self, key: QueueKey) -> int | None:
        """Where a group is in a queue, if anywhere."""
        return place(self._machine, *key, self.latest(key))

    def resumes(self, key: QueueKey) -> int:
        """Where a reader goes on whose own position is none of the queue: at its group's place, or
        at the first message, so that nothing is passed over."""
        at = self.place(key)
        return self._machine.queues.span(key.topic, key.queue_id)[0] if at is None else at

    def topics_of(self, group: str) -> set[str]:
        """The topics with offsets of a group, applied or not."""
        taken = {topic for its, topic, _ in (*self._gathered, *self._on_its_way) if its == group}
        return taken.union(self._machine.offsets.topics_of(group))

    def flush(self) -> None:
        """Write the gathered commits as one entry, after the entry that is on its way, if there is
        one."""
        if self._on_its_way or not (self._gathered or self._waiting):
            return
        failpoint("offsets.write")
        # Behind the end of a topic in the log, its offsets would be taken for a new topic's.
        offsets = [
            (*key, offset)
            for key, offset in self._gathered.items()
            if self._definitions.lasting(key[1]) is not None
        ]
        waiting, self._waiting = self._waiting, []
        self._on_its_way, self._gathered = self._gathered, {}
        self._on_its_way_waiting = waiting

        def done(outcome: Appended | AppendError) -> None:
            self._on_its_way, self._on_its_way_waiting = {}, []
            error = outcome if isinstance(outcome, AppendError) else None
            for tell in waiting:
                tell(error)
            if self._gathered:
                self._wake(0.0 if self._waiting else limits.COMMIT_GATHER_S)

        try:
            self._definitions.change(CommitOffsets(offsets), done)
        except Refused:
            return  # done() was called; one-way commits are lost, which is allowed
        except Exception:
            done(NotLeader(None))  # waiting requests are to try again, and new ones can be written
            raise

    def topic_ended(self, topic: str) -> None:
        """A topic was deleted: what is gathered for it is not written any more."""
        self._gathered = {key: at for key, at in self._gathered.items() if key[1] != topic}

    def reset(self) -> None:
        """Leadership ended: commits that wait are refused, and one-way ones are lost."""
        waiting, self._waiting = self._waiting, []
        self._gathered.clear()
        for tell in waiting:
            tell(NotLeader(None))

    def _take_room(self, key: QueueKey) -> None:
        """Refuse a further commit that would exceed a bound."""
        if max(len(self._gathered), len(self._waiting)) >= limits.COMMITS_PER_ENTRY_MAX:
            raise busy(f"{limits.COMMITS_PER_ENTRY_MAX} offset commits wait")
        if self._machine.offsets.get(*key) is None:
            check_room(self._machine.offsets.shares, key.group, 1)


def check_room(shares: Shares, group: str, rows: int) -> None:
    """Refuse further offsets of a group that exceed its share of the table."""
    if rows > shares.room(group):
        raise busy(shares.full(group))
