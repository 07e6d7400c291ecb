"""A node of a simulated group: a real engine and log, stepped as the ledger's loops would.

The node is stepped when the engine says so, and not otherwise: at a deadline that the engine does
not name nothing happens.

What the ledger does in threads, syncs, preparing segments, writing checkpoints, takes simulated
time here and ends in a later step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol

from dledger.buffers import Buffer
from dledger.errors import DledgerError, FrameError, OutcomeUnknown, Rot, StorageError
from dledger.log.entry import Entry, Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.jobs import SyncJob, TrimJob
from dledger.log.recovery.scrub import Scrub
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import PreparedSegment
from dledger.log.store import SegmentedLog
from dledger.raft.appends import OnDone
from dledger.raft.election.transfer import Preference
from dledger.raft.engine import RaftEngine
from dledger.raft.library.adapter import use_clock
from dledger.raft.membership.configuration import Member
from dledger.raft.membership.members import Members, open_members
from dledger.raft.messages import decode_message
from dledger.raft.replication.base_state import Hold
from dledger.raft.roles import Timing
from dledger.raft.turn import send, turn
from dledger.testing.disk import SimulatedDisk
from dledger.testing.simulation.judge.invariants import Judge
from dledger.testing.simulation.network import Network
from dledger.testing.simulation.odds import Odds
from dledger.testing.simulation.streams import Streams

PREFERRED_HEALTHY_S = 1.0
SCRUB = 0.02
"""The odds, in one step, that a part of the log is read again. When all is calm all are read."""
BUSY = 0.1
"""The share of a busy node's steps in which it waits for a processor."""
PICTURE_SLICES = 1
FOLDER = Path("/log")


class Group(Protocol):
    """The parts of the simulation that a node needs."""

    streams: Streams
    odds: Odds
    network: Network
    judge: Judge
    node_ids: list[str]
    disks: dict[str, SimulatedDisk]
    nodes: dict[str, SimulatedNode]
    snapshots: dict[str, int]

    def note(self, text: str) -> None:
        """Write a line of the transcript."""

    def members_of(self, node_id: str) -> dict[str, Member]:
        """The members by a node's config file."""

    def sync_time_s(self, node_id: str) -> float:
        """How long a node's next sync takes."""


class Recorder:
    """The state machine of a simulated node: the judge hears what it applies."""

    def __init__(self, node_id: str, group: Group, applied_index: int) -> None:
        self.applied_index = applied_index
        self._node_id = node_id
        self._group = group

    @property
    def saved_index(self) -> int:
        """Index at which this node's next process begins."""
        return self._group.snapshots[self._node_id]

    def capture(self) -> Generator[Hold, None, tuple[int, bytes]]:
        """The state is how far it got, before the first slice and at the end of the last."""
        index = self.applied_index
        for _ in range(PICTURE_SLICES):
            yield Hold.APPLYING
        payload = b"%d" % self.applied_index
        yield Hold.NOTHING
        return index, payload

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        """Take another node's state, in two slices."""
        yield
        self._group.judge.on_install(self._node_id, index, payload)
        self._group.note(f"{self._node_id} has the state of entry {index}")
        self.applied_index = first_index - 1

    def apply(self, entry: Entry) -> object:
        """Report an applied entry to the judge."""
        node = self._group.nodes[self._node_id]
        self._group.judge.on_apply(self._node_id, node.engine, entry)
        return entry.index

    def leading(self, term: int) -> None:
        """Report a leader that serves."""
        self._group.note(f"{self._node_id} serves in term {term}")
        self._group.judge.client.on_leading(self._node_id, term, self.applied_index)

    def following(self, leader: str | None, term: int) -> None:
        """Note in the transcript which leader the node follows."""
        self._group.note(f"{self._node_id} follows {leader} in term {term}")


class SimulatedNode:
    """A node that is up, and what the threads of its ledger are doing."""

    def __init__(
        self, node_id: str, group: Group, applied_index: int, committed_end: int | None = None
    ) -> None:
        self.node_id = node_id
        self.disk = group.disks[node_id]
        self.group = group
        self.paused_until = 0.0
        self.fenced = False
        self.is_rotten = False
        self.heard_at: dict[str, float] = {}
        self.clock_ahead_s = 0.0
        self._rate = 1 + group.streams["clock_drift"].uniform(-1, 1) * group.odds.clock_drift
        self._look_s = self._spent_s = 0.0
        self._passed_at = group.network.now
        #: The node's time when its last step began; the step does what is due then.
        self.began_s = 0.0
        self._sync: tuple[float, int, SyncJob] | None = None
        self._prepared: tuple[float, PreparedSegment] | None = None
        self._checkpoint: tuple[float, bytes] | None = None
        self._trim: tuple[float, TrimJob] | None = None
        self._save: tuple[float, int] | None = None
        use_clock(self.clock)
        preferred = "n0" if group.odds.preferred else None
        self.log, members = self._open(committed_end)
        self._scrub = Scrub(self.log)
        if applied_index > self.log.last_index:
            group.note(f"{node_id} can't use its state of entry {applied_index}")
            applied_index = group.snapshots[node_id] = 0
        self.engine = RaftEngine(
            node_id,
            members,
            self.log,
            HardStateFile(FOLDER / "term", self.disk),
            Recorder(node_id, group, applied_index),
            sync=True,
            timing=Timing(),
            clock=self.clock,
            rng=random.Random(group.streams["engine"].random()),
            preference=Preference(preferred, PREFERRED_HEALTHY_S) if preferred else None,
        )

    def _open(self, committed_end: int | None) -> tuple[SegmentedLog, Members]:
        """Open the log and the members, as :mod:`dledger.ledger.opening` does."""
        by_config = self.group.members_of(self.node_id)
        while True:
            log = open_log(FOLDER, self.group.odds.segment_bytes, self.disk, committed_end)[0]
            try:
                return log, open_members(FOLDER, self.disk, log, by_config)
            except Rot as rot:
                log.checkpoints.doubt(rot)

    @property
    def peer_ids(self) -> list[str]:
        """Other nodes, members or not."""
        return [other for other in self.group.node_ids if other != self.node_id]

    def clock(self) -> float:
        """Time of this node's own clock, in seconds. It goes on within a step if the node is
        busy."""
        if self._look_s:
            self._spent_s += self.group.streams["busy"].uniform(0, self._look_s)
        return self.group.network.now * self._rate + self.clock_ahead_s + self._spent_s

    def _wait_for_a_processor(self) -> None:
        """Make some steps busy, between looks at the clock, and let spent time pass meanwhile."""
        passed_s, self._passed_at = self.group.network.now - self._passed_at, self.group.network.now
        self._spent_s = max(0.0, self._spent_s - passed_s * self._rate)
        self.began_s = self.clock()
        busy_s = self.group.odds.busy_s
        self._look_s = busy_s if busy_s and self.group.streams["busy"].random() < BUSY else 0.0

    def step(self, *, calm: bool = False) -> bool:
        """Receive what is due, step, and let the threads go on, as the ledger does.

        False if the disk has failed, so that the node takes no further part.
        """
        use_clock(self.clock)
        self._wait_for_a_processor()
        try:
            self._receive()
            self._end_sync()
            if self.engine.urgent or self.clock() >= self.engine.next_step_at():
                self._step_engine()
            self._begin_sync()
            self._keep_house()
            if calm or self.group.streams["scrub"].random() < SCRUB:
                self._scrub_some()
        except (DledgerError, OSError) as error:
            self.fence(error)
        finally:
            self._look_s = 0.0
        return not self.fenced

    def _step_engine(self) -> None:
        """Step until nothing is left to do. While a state is read or taken over in slices, only
        one: others are stepped, and messages arrive, between two slices."""
        transfer = self.engine.state_transfer
        begin_sync = self._begin_sync if self.group.odds.sync_in_step else lambda: None
        while turn(self.engine, begin_sync):
            if transfer.is_busy:
                self.engine.urgent = True
                return

    def _receive(self) -> None:
        """Take what has arrived; a frame that is damaged ends its link, as it does for sockets."""
        for link, frame in self.group.network.due(self.node_id, self.peer_ids):
            try:
                message = decode_message(memoryview(frame))
            except FrameError as error:
                link.end(str(error))
                use_clock(self.clock)  # the other node heard of it, by its own
                continue
            self.heard_at[link.sender] = self.clock()
            self.group.judge.on_receive(link.sender, self.node_id, message)
            self.engine.receive(link.sender, link.other, message)

    def append(self, body: bytes, on_done: OnDone) -> None:
        """Append an entry, as the ledger does. Raises AppendError."""
        use_clock(self.clock)
        try:
            self.engine.append(body, Kind.MESSAGES, on_done)
        except (StorageError, OSError) as error:
            self.fence(error)
            raise OutcomeUnknown(str(error)) from error

    def change_members(self, change: Callable[[], object]) -> None:
        """Add or remove a member, as the ledger does. Raises MembershipError, AppendError."""
        use_clock(self.clock)
        try:
            change()
        except (StorageError, OSError) as error:
            self.fence(error)
            raise OutcomeUnknown(str(error)) from error

    def fence(self, error: DledgerError | OSError) -> None:
        """Take no further part, as is right if the disk failed, or an entry on it is rotten."""
        if isinstance(error, Rot):
            self.log.checkpoints.doubt(error)
            self.is_rotten = True
        elif not self.disk.failed:
            raise error
        self.group.note(f"{self.node_id} is fenced: {error}")
        self.fenced = True
        self.engine.fence(error)

    def _begin_sync(self) -> None:
        if self._sync is None:
            job = self.log.start_sync()
            if job is not None:
                takes_s = self.group.sync_time_s(self.node_id)
                self._sync = self.group.network.now + takes_s, self.disk.writes, job
                if not takes_s:
                    self._end_sync()

    def _end_sync(self) -> None:
        if self._sync is None or self._sync[0] > self.group.network.now:
            return
        (_, writes, job), self._sync = self._sync, None
        error: OSError | None = None
        try:
            with self.disk.syncing_from(writes):
                job.run()
        except OSError as caught:
            error = caught
        send(self.engine.synced(job, error), self.log)

    def _keep_house(self) -> None:
        """Do the work of threads, which takes its time: prepare segments, write checkpoints, remove
        segments."""
        now, streams = self.group.network.now, self.group.streams
        if self._prepared is not None and self._prepared[0] <= now:
            self.log.adopt_segment(self._prepared[1])
            self._prepared = None
        elif self._prepared is None and self.log.wants_segment:
            rng = streams["prepare"]
            wait_s = rng.uniform(0, rng.choice((0.05, 2.0)))
            try:
                self._prepared = now + wait_s, self.log.next_segment.prepare()
            except OSError as error:
                if not self.log.space.lacks(error):
                    raise
        if self._checkpoint is not None and self._checkpoint[0] <= now:
            self.log.checkpoints.save(self._checkpoint[1])
            self.log.release_idle()
            self._checkpoint = None
        elif self._checkpoint is None and (
            streams["checkpoint"].random() < 0.01 or self.log.checkpoints.is_due
        ):
            done_at = now + streams["checkpoint"].uniform(0, 0.1)
            self._checkpoint = done_at, self.log.checkpoints.take()
        if self._trim is not None and self._trim[0] <= now:
            self._trim[1].run()
            self._trim = None
        elif self._trim is None and streams["trim"].random() < self.group.odds.trim:
            self._begin_trim(now)
        self._save_what_is_waited_for(now)

    def _scrub_some(self) -> None:
        part = self._scrub.next_slice(self.log.kept_index)
        if part is not None:
            self._scrub.checked(part, part.check())

    def _save_what_is_waited_for(self, now: float) -> None:
        """A node that is not counted before its state is saved saves it."""
        base_state = self.engine.base_state
        if self._save is not None and self._save[0] <= now:
            (_, applied_index), self._save = self._save, None
            self.save_state(applied_index)
        elif self._save is None and not base_state.is_saved and not base_state.is_missing:
            rng = self.group.streams["save_state"]
            wait_s = rng.uniform(0, rng.choice((0.05, 1.0)))
            self._save = now + wait_s, self.engine.machine.applied_index

    def save_state(self, applied_index: int) -> bool:
        """Save the state as it was after an entry; not if the log on the disk ends before it."""
        if applied_index > self.log.durable_index:
            return False
        saved = self.group.snapshots
        saved[self.node_id] = max(saved[self.node_id], applied_index)
        return True

    def _begin_trim(self, now: float) -> None:
        """Save the state machine, and drop what a restart will not need."""
        applied_index = self.engine.machine.applied_index
        if not self.save_state(applied_index):
            return
        job = self.log.trim(applied_index + 1)
        if job is not None:
            self.group.note(f"{self.node_id} drops what lies before entry {job.head.first_index}")
            self._trim = now + self.group.streams["trim"].uniform(0, 0.2), job
