"""The segmented log does what a list of entries would, whatever is done to it in what order.

Operations are drawn, and done to the real log on a simulated disk and to the model. Between them,
and in the middle of any of them, the process dies or the power goes; then the real log may have
lost what was not durable, and the entries of the operation may be there or not: nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dledger.errors import DledgerError
from dledger.log.entry import HEADER_BYTES, Kind, make_header
from dledger.log.head import LogHead
from dledger.log.jobs import SyncJob, TrimJob
from dledger.log.segments.segment import PreparedSegment
from dledger.log.store import SegmentedLog
from dledger.testing.contracts.log_model import MemoryLog
from dledger.testing.disk import Crashed
from dledger.testing.log_store import (
    SEGMENT_BYTES,
    LogStore,
    OnSimulatedDisk,
    copy_to,
    entries_of,
)
from dledger.testing.planted.catalogue import plant

seeds = st.integers(0, 1 << 16)
shares = st.floats(0, 1)


def ends_of(log: LogStore) -> tuple[int, ...]:
    """Where a log begins and ends, in which state: equal chain CRCs are equal entries."""
    return (
        log.first_index,
        log.last_index,
        log.first_position,
        log.end_position,
        log.chain_crc,
        log.durable_index,
        log.commit_index,
    )


class LogAndModel(RuleBasedStateMachine):
    """The log, the model, and the syncs of both that are under way."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = OnSimulatedDisk()
        self.log: SegmentedLog = self.storage.open()
        self.model = MemoryLog()
        self.term = 1
        self.syncing: tuple[SyncJob, SyncJob | None, int] | None = None
        self.power_goes: tuple[int, float] | None = None
        self.start_dies: tuple[int, tuple[int, float] | None] | None = None
        self.prepared: PreparedSegment | None = None
        self.trimming: tuple[TrimJob, MemoryLog] | None = None
        self.checkpoint: bytes | None = None

    @property
    def idle(self) -> bool:
        return self.syncing is None

    @property
    def kept_index(self) -> int:
        """The last index that no leader contradicts: committed, or at the log's beginning."""
        return max(self.model.commit_index, self.model.first_index)

    def do(self, operation: Callable[[LogStore], object]) -> None:
        """Run an operation on both logs: done, or in part, or not, if the node dies meanwhile."""
        before = self.model.copy()
        operation(self.model)
        try:
            operation(self.log)
        except Crashed:
            self.found(before)

    def found(self, *before: MemoryLog) -> None:
        """Open the log; it must be one that the model, as it is or as it was, could have left."""
        if self.power_goes is not None:
            self.storage.lose_power(*self.power_goes)
        self.power_goes = None
        models = [self.model, *before]
        if self.trimming is not None:
            # The old segments are gone or not: the log begins where it did, or where it should.
            models += [model.behind(self.trimming[1]) for model in models]
        self.syncing = self.prepared = self.checkpoint = self.trimming = None
        self.log = self.start()
        for model in models:
            promised = min(model.durable_index, self.model.last_index)
            if model.first_index != self.log.first_index or self.log.last_index < promised:
                continue
            again = model.after(self.log.last_index, self.log.commit_index)
            if entries_of(self.log) == entries_of(again):
                assert self.log.commit_index <= model.commit_index
                self.model = again
                return
        raise AssertionError(
            f"found {self.log.first_index} to {self.log.last_index}; the model has "
            f"{self.model.first_index} to {self.model.last_index}, durable up to "
            f"{self.model.durable_index}"
        )

    def start(self) -> SegmentedLog:
        """Open the log anew. If a start was told to die, another one follows it."""
        if self.start_dies is not None:
            (operations, power_goes), self.start_dies = self.start_dies, None
            with contextlib.suppress(Crashed):
                self.storage.open(operations)
            if power_goes is not None:
                self.storage.lose_power(*power_goes)
        return self.storage.open()

    # -- what a node does ------------------------------------------------------------------

    @rule(count=st.integers(1, 12), size=st.integers(0, 1200), new_term=st.booleans())
    def append(self, count: int, size: int, new_term: bool) -> None:
        """Append a leader's own entries."""
        self.term += new_term
        first = self.model.last_index + 1

        def append_all(log: LogStore) -> None:
            for index in range(first, first + count):
                log.append(index, self.term, Kind.MESSAGES, bytes([index % 251]) * size)

        self.do(append_all)

    @rule(count=st.integers(1, 20))
    def append_copies(self, count: int) -> None:
        """A follower takes the entries of a leader, which has what it has."""
        leader = self.model.copy()
        for _ in range(count):
            leader.append(leader.last_index + 1, self.term, Kind.CONTROL, b"leader" * 9)
        self.do(lambda log: copy_to(log, leader, leader.last_index))

    @precondition(lambda self: self.idle)
    @rule()
    def sync(self) -> None:
        self.do(lambda log: log.sync())

    @precondition(lambda self: self.idle)
    @rule()
    def begin_sync(self) -> None:
        """Begin a sync of all that is written now, which another rule ends."""
        try:
            job, writes = self.log.start_sync(), self.storage.simulated.writes
        except Crashed:
            self.found()
            return
        if job is not None:
            self.syncing = job, self.model.start_sync(), writes

    @precondition(lambda self: not self.idle)
    @rule()
    def end_sync(self) -> None:
        """End a sync, which covers nothing that came later."""
        assert self.syncing is not None
        (job, models_job, writes), self.syncing = self.syncing, None
        try:
            with self.storage.simulated.syncing_from(writes):
                job.run()
        except Crashed:
            self.found()
            return
        self.log.finish_sync(job)
        if models_job is not None:
            self.model.finish_sync(models_job)

    @rule(share=shares)
    def commit(self, share: float) -> None:
        """Commit a part of the log, as a majority holds it."""
        first, last = self.model.commit_index, self.model.last_index
        self.log.commit_index = self.model.commit_index = round(first + share * (last - first))

    @precondition(lambda self: self.model.last_index > self.kept_index)
    @rule(share=shares)
    def cut(self, share: float) -> None:
        """Cut the log, as another leader's entries differ from here on."""
        first = self.kept_index + 1
        first_index = round(first + share * (self.model.last_index - first))
        self.term += 1
        self.do(lambda log: log.cut(first_index))

    @precondition(lambda self: self.trimming is None)
    @rule(share=shares)
    def trim(self, share: float) -> None:
        """Drop old segments, which nobody needs."""
        before, index = self.model.copy(), round(share * self.model.last_index)
        job = self.log.trim(index)
        if not self.idle or self.log.is_dirty:
            # Segments that a sync is to write to stay; an old one takes a mark for the next.
            index = min(index, self.log.first_index)
        assert (self.model.trim(index) is None) == (job is None)
        if job is not None:
            self.trimming = job, before

    @precondition(lambda self: self.trimming is not None)
    @rule()
    def remove_what_was_trimmed(self) -> None:
        """Remove from the disk, in a thread, the segments that a trim has dropped."""
        assert self.trimming is not None
        try:
            self.trimming[0].run()
        except Crashed:
            self.found()
        self.trimming = None

    @rule(ahead=st.integers(1, 300), crc=seeds)
    def begin_anew(self, ahead: int, crc: int) -> None:
        """The leader's log begins behind what this one holds."""
        index = self.model.last_index + ahead
        base = (self.model.end_position // SEGMENT_BYTES + ahead) * SEGMENT_BYTES
        _, raw = make_header(
            crc, index=index, term=self.term, position=base, kind=16, body=b"first"
        )
        head = LogHead(base, index, crc, (raw + b"first").ljust(HEADER_BYTES + 8, b"\0"))
        self.do(lambda log: log.replace_by(head))

    # -- what its threads do, of which the model knows nothing: other things come in between ---

    @precondition(lambda self: self.log.wants_segment and self.prepared is None)
    @rule()
    def prepare_segment(self) -> None:
        """A thread makes the next segment."""
        try:
            self.prepared = self.log.next_segment.prepare()
        except Crashed:
            self.found()

    @precondition(lambda self: self.prepared is not None)
    @rule()
    def adopt_segment(self) -> None:
        """A segment is made; the log may have been cut meanwhile."""
        assert self.prepared is not None
        prepared, self.prepared = self.prepared, None
        try:
            self.log.adopt_segment(prepared)
        except Crashed:
            self.found()

    @rule()
    def take_checkpoint(self) -> None:
        """Take a checkpoint of the sealed segments."""
        self.checkpoint = self.log.checkpoints.take()

    @precondition(lambda self: self.checkpoint is not None)
    @rule()
    def save_checkpoint(self) -> None:
        """A checkpoint is written; by now it may be old."""
        assert self.checkpoint is not None
        checkpoint, self.checkpoint = self.checkpoint, None
        try:
            self.log.checkpoints.save(checkpoint)
            self.log.release_idle()
        except Crashed:
            self.found()

    # -- what happens to it ----------------------------------------------------------------

    @precondition(lambda self: self.idle)
    @rule()
    def restart(self) -> None:
        """The process stops as it should."""
        self.do(lambda log: log.close())
        self.found()

    @rule()
    def kill(self) -> None:
        """The process dies, the machine does not."""
        self.found()

    @rule(seed=seeds, keep=shares)
    def lose_power(self, seed: int, keep: float) -> None:
        """The disk forgets, and tears what it was writing."""
        self.power_goes = seed, keep
        self.found()

    @rule(operations=st.integers(0, 12), power_goes=st.none() | st.tuples(seeds, shares))
    def die_soon(self, operations: int, power_goes: tuple[int, float] | None) -> None:
        """Die in the middle of the next operation."""
        self.storage.simulated.crash_in = operations
        self.power_goes = power_goes

    @rule(operations=st.integers(0, 12), power_goes=st.none() | st.tuples(seeds, shares))
    def die_starting(self, operations: int, power_goes: tuple[int, float] | None) -> None:
        """Die in the middle of the next start, or right after it."""
        self.start_dies = operations, power_goes

    @invariant()
    def agree(self) -> None:
        """Log and model begin and end alike, and the same is durable."""
        assert ends_of(self.log) == ends_of(self.model)
        assert self.log.durable_index <= self.log.last_index


TestLogAndModel = LogAndModel.TestCase
TestLogAndModel.settings = settings(stateful_step_count=40)


def lose_the_name(node: LogAndModel) -> None:
    """A new segment, synced, and the power goes."""
    node.append(3, 100, new_term=False)
    node.sync()
    node.lose_power(0, 0.0)


def die_twice(node: LogAndModel) -> None:
    """The process dies before its sync, and the machine after the next start."""
    node.append(3, 100, new_term=False)
    node.begin_sync()
    node.kill()
    node.lose_power(0, 0.0)


def cut_during_a_sync(node: LogAndModel) -> None:
    """Replace entries that a sync under way covers."""
    node.append(9, 100, new_term=False)
    node.begin_sync()
    node.cut(0.0)
    node.append(9, 100, new_term=True)
    node.end_sync()


def cut_what_was_durable(node: LogAndModel) -> None:
    """Two syncs, so that the second one's watermark vouches for what the first one covered."""
    for _ in range(2):
        node.append(5, 100, new_term=False)
        node.sync()
    node.cut(0.0)
    node.kill()


def adopt_what_was_cut(node: LogAndModel) -> None:
    """Begin a segment that a thread prepares, and cut the log back."""
    node.append(3, 900, new_term=False)
    node.prepare_segment()
    node.append(3, 900, new_term=False)
    node.sync()
    node.cut(0.0)
    node.adopt_segment()
    node.append(6, 900, new_term=True)
    node.sync()
    node.kill()


def save_an_old_checkpoint(node: LogAndModel) -> None:
    """Save a checkpoint whose segments were cut and replaced meanwhile."""
    node.append(12, 900, new_term=False)
    node.sync()
    node.take_checkpoint()
    node.cut(0.0)
    node.append(12, 800, new_term=True)
    node.sync()
    node.save_checkpoint()
    node.kill()


def die_while_trimming(node: LogAndModel) -> None:
    """Die in each file operation of a trim in turn."""
    for operation in range(8):
        node.append(12, 900, new_term=False)
        node.sync()
        node.commit(1.0)
        node.trim(1.0)
        node.die_soon(operation, (operation, 1.0))
        node.remove_what_was_trimmed()
        node.kill()


def die_while_beginning_anew(node: LogAndModel) -> None:
    """Die in each file operation of a new beginning in turn."""
    for operation in range(10):
        node.append(3, 100, new_term=False)
        node.sync()
        node.die_soon(operation, (operation, 0.0))
        node.begin_anew(5, 7)
        node.kill()


def die_in_a_cut(node: LogAndModel) -> None:
    """Die in each file operation of a cut in turn, and then lose power.

    After the process dies, the next one sees what is left, and then the machine dies: a removed
    segment must not come back.
    """
    node.append_copies(1)
    for operation in range(13):
        node.append(11, 305, new_term=False)
        node.die_soon(operation, None)
        node.cut(0.0)
        node.lose_power(0, 0.0)
        node.cut(0.0)


def die_trimming_and_starting(node: LogAndModel) -> None:
    """Die in each file operation of a trim, and in each of the next start.

    The old head must not come back when the segments before the new one are gone.
    """
    for operation in range(4):
        for later in range(5):
            node.append(12, 900, new_term=False)
            node.sync()
            node.commit(1.0)
            node.trim(1.0)
            node.die_soon(operation, None)
            node.die_starting(later, (1, 0.5))
            node.remove_what_was_trimmed()
            node.kill()


def compare(story: Callable[[LogAndModel], None]) -> None:
    """Do what a story says to both, and look whether they agree."""
    node = LogAndModel()
    story(node)
    node.agree()


def trim_during_a_sync(node: LogAndModel) -> None:
    """The sync also marks an old segment, which vouches for the next one: that one stays."""
    node.append(11, 252, new_term=True)
    node.append_copies(20)
    node.append(12, 246, new_term=False)
    node.restart()
    node.append(11, 0, new_term=False)
    node.begin_sync()
    node.commit(1.0)
    node.trim(0.8)
    node.agree()
    node.end_sync()
    node.trim(0.8)
    assert node.trimming is not None


def test_a_segment_that_is_being_marked_is_trimmed_later() -> None:
    """A trim during a sync leaves the segment that the sync marks, for later."""
    compare(trim_during_a_sync)


@pytest.mark.parametrize(
    ("story", "bug"),
    [
        (lose_the_name, "forget the folder's sync"),
        (die_twice, "vouch for what a killed process left"),
        (cut_during_a_sync, "vouch for what a cut replaced"),
        (cut_what_was_durable, "keep the watermark in a cut"),
        (adopt_what_was_cut, "use a removed segment"),
        (save_an_old_checkpoint, "believe a stale checkpoint"),
        (die_while_trimming, "remove before the head is written"),
        (die_while_beginning_anew, "begin anew without the first entry"),
        (die_in_a_cut, "rely on names that were not synced"),
        (die_trimming_and_starting, "rely on names that were not synced"),
    ],
)
def test_a_broken_store_differs(story: Callable[[LogAndModel], None], bug: str) -> None:
    """A store without its fix differs from the model in a story that chance found."""
    compare(story)
    with plant(bug), pytest.raises((AssertionError, DledgerError)):
        compare(story)
