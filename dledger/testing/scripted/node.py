"""A node under test, on virtual time, with peers that a test plays by hand.

The node is a real :class:`~dledger.raft.engine.RaftEngine` over a real log on a simulated disk.
Its links are :class:`Wire`: they keep what the node sends until the test takes it. What the peers
say is put in by :meth:`ScriptedNode.receive`. Nothing happens by itself, neither syncs nor time, so
a test can stop between any two steps. A :class:`Donor` makes the runs of entries that a leader
would send; :func:`follower_of` and :func:`log_without_head` make what tests often begin with;
:func:`exchange` lets two scripted nodes talk to each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, overload

from dledger.buffers import Buffer
from dledger.errors import AppendError
from dledger.log.entry import HEADER_BYTES, Entry, Kind, make_header
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.head import LogHead, encode_head
from dledger.log.recovery.startup import open_log
from dledger.log.store import SegmentedLog
from dledger.raft.appends import Appended
from dledger.raft.engine import RaftEngine
from dledger.raft.library.adapter import use_clock
from dledger.raft.membership.configuration import initial
from dledger.raft.membership.members import open_members
from dledger.raft.messages import (
    EMPTY_RUN,
    Ack,
    Append,
    Head,
    PeerMessage,
    Prevote,
    Prevoted,
    Vote,
    Voted,
    decode_message,
    encode_message,
)
from dledger.raft.roles import Role, Timing
from dledger.raft.turn import send, turn
from dledger.testing.disk import SimulatedDisk
from dledger.testing.log_store import copy_to

FOLDER = Path("/log")
SEGMENT_BYTES = 1 << 16
TERM_AT = 23
"""The last byte of an entry's term, in its header: for tests in which it rots."""
_PATIENCE_S = 10.0

M = TypeVar("M", bound=PeerMessage)


class Wire:
    """A link whose other end is the test."""

    def __init__(self) -> None:
        self.queued_bytes = 0
        self.closed_because: str | None = None
        self._sent: list[bytes] = []

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Keep a frame until the test takes it."""
        if self.closed_because is None:
            self._sent.append(b"".join(buffers))

    def close(self, reason: str) -> None:
        """Note why the node closed the link."""
        self.closed_because = self.closed_because or reason

    def take(self) -> list[PeerMessage]:
        """Messages that were sent since the last call."""
        sent, self._sent = self._sent, []
        return [decode_message(memoryview(frame)) for frame in sent]


class Recorder:
    """A state machine that keeps what it is told."""

    def __init__(self, applied_index: int = 0) -> None:
        self.applied_index = applied_index
        self.applied: list[tuple[int, bytes]] = []
        self.serving = False

    def apply(self, entry: Entry) -> object:
        """Keep an entry's index and body."""
        self.applied.append((entry.index, bytes(entry.body)))
        return entry.index

    def leading(self, term: int) -> None:
        """Note that the node serves."""
        self.serving = True

    def following(self, leader: str | None, term: int) -> None:
        """Take no appends: another node leads."""
        self.serving = False


class Donor:
    """A log to take a leader's runs from. Entry 1 is the no-op that every group begins with."""

    def __init__(self) -> None:
        self.log = open_log(FOLDER, SEGMENT_BYTES, SimulatedDisk())[0]
        self.log.append(1, 0, Kind.NOOP, b"")

    def copy(self, log: SegmentedLog, last_index: int) -> None:
        """Take another log's entries up to `last_index`, so that the two agree that far."""
        copy_to(self.log, log, last_index)

    def add(self, term: int, count: int = 1, body: bytes = b"donated") -> int:
        """Append `count` equal entries of a term; the last index."""
        for _ in range(count):
            self.log.append(self.log.last_index + 1, term, Kind.MESSAGES, body)
        return self.log.last_index

    def run(self, first_index: int, last_index: int) -> bytes:
        """The raw entries between two indices."""
        return bytes(self.log.reader.run_of(first_index, last_index))

    def term_at(self, index: int) -> int:
        """The term of an entry."""
        return self.log.reader.header(index).term


class ScriptedNode:
    """The node under test, with a link to each peer."""

    def __init__(
        self,
        peers: Sequence[str] = ("f", "g"),
        *,
        node_id: str = "n",
        disk: SimulatedDisk | None = None,
        now: float = 1000.0,
        sync: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        log: SegmentedLog | None = None,
        machine: Recorder | None = None,
        eligible: bool = True,
        seed: int = 1,
    ) -> None:
        self.node_id = node_id
        self.now = now
        self.disk = disk or SimulatedDisk()
        self.machine = machine or Recorder()
        self.wires: dict[str, Wire] = {}
        self._segment_bytes = segment_bytes
        self._sequence = 0
        use_clock(self.clock)
        self.log = log or open_log(FOLDER, segment_bytes, self.disk)[0]
        hard_state = HardStateFile(FOLDER / "term", self.disk)
        if eligible:
            hard_state.save(replace(hard_state.state, eligible=True))
        addresses = dict.fromkeys((node_id, *peers), ("host", 1))
        self.engine = RaftEngine(
            node_id,
            open_members(FOLDER, self.disk, self.log, initial(addresses)),
            self.log,
            hard_state,
            self.machine,
            sync=sync,
            timing=Timing(),
            clock=self.clock,
            rng=random.Random(seed),
        )
        for peer in peers:
            self.connect(peer)

    def connect(self, peer: str) -> Wire:
        """A new link to a peer, or to a stranger."""
        wire = self.wires[peer] = Wire()
        self.engine.link_up(peer, wire)
        return wire

    def clock(self) -> float:
        """The virtual time in seconds."""
        return self.now

    # -- time, disk, crashes ---------------------------------------------------------------

    def step(self, *, sync: bool = True) -> None:
        """Do all that can be done now, and sync the log unless told not to."""
        use_clock(self.clock)
        while self.turn():
            pass
        if sync:
            self.sync()

    def sync(self) -> None:
        """Make the log durable and let the engine act on it."""
        if self.end_sync():
            while self.turn():
                pass

    def turn(self) -> bool:
        """Take one turn; returns whether another one is due at once."""
        return turn(self.engine, lambda: None)

    def end_sync(self) -> bool:
        """Make the log durable, and no step; whether anything was to be synced."""
        job = self.log.start_sync()
        if job is not None:
            job.run()
            send(self.engine.synced(job), self.log)
        return job is not None

    def advance(self, seconds: float, *, sync: bool = True) -> None:
        """Run virtual time, stepping every 10 ms."""
        for _ in range(round(seconds * 100)):
            self.now += 0.01
            self.step(sync=sync)

    def restarted(self, *, power_lost: bool) -> ScriptedNode:
        """The node that starts on this one's disk after its process or its machine died."""
        if power_lost:
            self.disk.lose_power(random.Random(0), keep=0.0)
        else:
            self.disk.stop_process()
        return ScriptedNode(
            list(self.wires),
            node_id=self.node_id,
            disk=self.disk,
            now=self.now,
            segment_bytes=self._segment_bytes,
            eligible=False,
        )

    # -- what peers say and hear -----------------------------------------------------------

    @overload
    def take(self, peer: str) -> list[PeerMessage]: ...

    @overload
    def take(self, peer: str, kind: type[M]) -> list[M]: ...

    def take(self, peer: str, kind: type[PeerMessage] = PeerMessage) -> Sequence[PeerMessage]:
        """Messages that were sent to a peer since the last call, of one kind or all."""
        return [message for message in self.wires[peer].take() if isinstance(message, kind)]

    def receive(self, peer: str, message: PeerMessage) -> None:
        """A message of a peer arrives on its live link."""
        frame = b"".join(encode_message(message))
        self.engine.receive(peer, self.wires[peer], decode_message(memoryview(frame)))

    def receive_append(
        self, peer: str, term: int, donor: Donor, first: int, last: int, commit_index: int = 1
    ) -> None:
        """A leader sends the donor's entries from `first` to `last` (none if `last` < `first`)."""
        self._sequence += 1
        run = memoryview(donor.run(first, last)) if last >= first else EMPTY_RUN
        count = max(0, last - first + 1)
        previous = first - 1, donor.term_at(first - 1)
        self.receive(peer, Append(term, commit_index, *previous, self._sequence, count, run))

    def begin_anew(self, peer: str, donor: Donor, first: int, last: int) -> None:
        """A leader of term 1 has this node begin anew with `first`, and sends the rest."""
        header, before = donor.log.reader.header(first), donor.log.reader.header(first - 1)
        fields = last, first, header.position, before.chain_crc, 7
        self.receive(peer, Head(1, *fields, run=memoryview(donor.run(first, first))))
        self.receive_append(peer, 1, donor, first + 1, last, commit_index=last)
        self.step()

    def elect(self, *voters: str) -> int:
        """Wait until this node asks, let the voters grant everything; the term that it leads."""
        give_up_at = self.now + _PATIENCE_S
        while self.engine.core.role is not Role.LEADER:
            assert self.now < give_up_at, f"no election within {_PATIENCE_S} s"
            self.advance(0.01)
            for voter in voters:
                for message in self.take(voter):
                    if isinstance(message, Prevote):
                        self.receive(voter, Prevoted(message.term, True, message.term))
                    elif isinstance(message, Vote):
                        self.receive(voter, Voted(message.term))
            self.step()
        return self.engine.core.term

    def serve(self, voter: str) -> int:
        """Lead, with the no-op committed by `voter`, so that appends are taken; the term."""
        term = self.elect(voter)
        self.acknowledge(voter, self.log.last_index)
        assert self.engine.standing.serving
        self.take(voter)
        return term

    def acknowledge(self, peer: str, index: int) -> None:
        """A peer says that it holds everything up to `index`, durable."""
        self.receive(peer, Ack(self.engine.core.term, index + 1, False, True, 1 << 32))
        self.step()

    # -- appends ---------------------------------------------------------------------------

    def append(self, body: bytes = b"body") -> list[Appended | AppendError]:
        """Append an entry; the list gets its outcome. Raises AppendError if it is refused."""
        outcome: list[Appended | AppendError] = []
        self.engine.append(body, Kind.MESSAGES, outcome.append)
        return outcome

    @property
    def terms(self) -> list[int]:
        """The terms of the log's entries, in order."""
        first, last = self.log.first_index, self.log.last_index
        return [self.log.reader.header(index).term for index in range(first, last + 1)]


def follower_of(
    donor: Donor, last_index: int, *, commit_index: int = 1, term: int = 1
) -> ScriptedNode:
    """A node that follows f and holds f's entries up to `last_index`, durable."""
    node = ScriptedNode()
    node.receive_append("f", term, donor, 2, last_index, commit_index)
    node.step()
    node.take("f")
    return node


def log_without_head(
    first_index: int, count: int, body: bytes, disk: SimulatedDisk, start: int = SEGMENT_BYTES
) -> SegmentedLog:
    """A log of `count` committed entries of term 1, as if those before position `start` had been
    removed."""
    before, _ = make_header(
        0, index=first_index - 1, term=1, position=start - HEADER_BYTES, kind=16, body=b""
    )
    head = LogHead(start, first_index, before.chain_crc)
    disk.replace(FOLDER / "head", encode_head(head))
    log = SegmentedLog(FOLDER, SEGMENT_BYTES, disk, [], None, head=head)
    for index in range(first_index, first_index + count):
        log.append(index, 1, Kind.MESSAGES, body)
    log.commit_index = log.last_index
    log.sync()
    HardStateFile(FOLDER / "term", disk).save(HardState(1, None, eligible=True))
    return log


def exchange(first: ScriptedNode, second: ScriptedNode) -> int:
    """Hand each node what the other sent to it since; how many messages that were."""
    count = 0
    for sender, receiver in ((first, second), (second, first)):
        for message in sender.take(receiver.node_id):
            receiver.receive(sender.node_id, message)
            count += 1
        receiver.step()
    return count
