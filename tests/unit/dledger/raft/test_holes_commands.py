"""Holes 11 and 16 to 18 of the Raft library: requests of peers and clients, and applying.

docs/explanation/raft-holes.md says how these tests work.
"""

from __future__ import annotations

import pickle
import socket
from itertools import pairwise
from unittest.mock import patch

import pytest
import trio
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import MemoryJournal
from pysyncobj.transport import Transport

from dledger.checksum import crc32
from dledger.errors import FrameError, NotLeader, OutcomeUnknown
from dledger.log.entry import Entry, Kind
from dledger.raft.appends import Appended
from dledger.raft.library.adapter import Node, use_clock
from dledger.raft.messages import PREFIX, PeerKind, decode_message
from dledger.raft.network.handshake import Handshaker
from dledger.raft.replication import applying
from dledger.testing.disk import SimulatedDisk
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import (
    Donor,
    Recorder,
    ScriptedNode,
    follower_of,
    log_without_head,
)
from dledger.trust import proof


class HandTransport(Transport):
    """A transport for the stock library: what it sends is kept, what it hears is put in."""

    ready = True

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.sent: list[tuple[str, dict]] = []

    def send(self, node: Node, message: dict) -> bool:
        self.sent.append((node.id, message))
        return True


class Stock(SyncObj):
    """The library as it comes, for the holes whose fix leaves nothing to take out."""

    def __init__(self, peers: tuple[str, ...] = ("f", "g"), **options: object) -> None:
        self.wire = HandTransport()
        self.now = 1000.0
        use_clock(lambda: self.now)
        config = SyncObjConf(autoTick=False, leaderFallbackTimeout=1e9, **options)
        super().__init__(Node("n"), [Node(p) for p in peers], config, transport=self.wire)
        for peer in peers:
            self.wire._onNodeConnected(Node(peer))

    def hear(self, peer: str, **message: object) -> None:
        self.wire._onMessageReceived(Node(peer), message)

    def hear_append(self, **message: object) -> None:
        """f leads and sends what follows the first entry."""
        self.hear("f", type="append_entries", prevLogIdx=1, prevLogTerm=0, **message)

    def tick(self, seconds: float = 0.01) -> None:
        self.now += seconds
        self.doTick(0)


class _Poison:
    """An object whose unpickling raises LookupError."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise LookupError('unpickled')",)


def test_hole_11_nothing_from_a_peer_is_unpickled() -> None:
    """A committed entry of the library's membership type, with a pickle for a body, is applied as
    the bytes it is. The stock library runs it."""
    pickled = pickle.dumps(_Poison())
    donor = Donor()
    donor.log.append(2, 1, Kind.MESSAGES, b"\x02" + pickled)
    node = ScriptedNode()
    node.receive_append("f", 1, donor, 2, 2, commit_index=2)
    node.step()
    assert node.machine.applied[-1] == (2, b"\x02" + pickled)

    stock = Stock()
    stock.hear_append(term=1, commit_index=2, entries=[(b"\x02" + pickled, 2, 1)])
    with pytest.raises(LookupError, match="unpickled"):
        stock.tick()


def test_hole_11_a_pickled_frame_closes_the_link() -> None:
    """The peers' wire is msgpack: a pickle is refused before anything looks into it."""
    pickled = pickle.dumps(_Poison())
    crc = crc32(pickled, len(pickled))
    frame = PREFIX.pack(6 + len(pickled), len(pickled), crc) + pickled
    with pytest.raises(FrameError, match="msgpack"):
        decode_message(memoryview(frame))


async def test_hole_11_who_does_not_know_the_secret_is_no_node() -> None:
    """The dialling node claims to be n1. Without the group's secret it is refused."""

    async def handshake(secret: bytes) -> str:
        ours = Handshaker("g", "n0", 1 << 20, b"right")
        theirs = Handshaker("g", "n1", 1 << 20, secret)
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        found: list[str] = []

        async def claim() -> None:
            with near:
                await theirs.dial(near, "n0")

        async def check() -> None:
            with far:
                found.append((await ours.accept(far, lambda _: None))[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(claim)
            nursery.start_soon(check)
        return found[0]

    assert await handshake(b"right") == "n1"
    with pytest.raises(ExceptionGroup) as refusal:
        await handshake(b"wrong")
    assert refusal.group_contains(FrameError, match="secret")
    with patch.object(proof, "_right_ones", lambda _, right, __: list(right)):
        assert await handshake(b"wrong") == "n1"


def test_hole_16_whoever_waits_for_a_deposed_leader_is_told() -> None:
    """The appends of a leader that another one replaced end at once, as unknown. Stock callbacks
    wait for ever."""

    def outcome() -> list[object]:
        node = ScriptedNode()
        term = node.serve("f")
        donor = Donor()
        donor.copy(node.log, 2)
        donor.add(term + 1)
        waiting = node.append()
        node.step()
        node.receive_append("g", term + 1, donor, 3, 3)
        node.step()
        node.advance(5)
        return [type(result) for result in waiting]

    assert outcome() == [OutcomeUnknown]
    with plant("never tell of lost leadership"):
        assert outcome() == []


def test_hole_16_what_was_refused_is_never_appended_later() -> None:
    """An append that a node did not take, since it did not lead, does not turn up when it does."""

    def bodies_after_leading() -> set[bytes]:
        node = ScriptedNode()
        with pytest.raises(NotLeader):
            node.append(b"refused")
        node.serve("f")
        node.step()
        return {
            bytes(node.log.reader.entry(index).body) for index in range(1, node.log.last_index + 1)
        }

    assert bodies_after_leading() == {b""}
    with plant("append what was refused"):
        assert bodies_after_leading() == {b"", b"refused"}


def test_hole_16_nothing_is_queued_or_forwarded_without_a_leader() -> None:
    """A follower refuses an append at once and names the leader.

    The stock library keeps it and sends it to whatever node leads ten minutes later.
    """
    donor = Donor()
    donor.add(1)
    node = follower_of(donor, 2)
    with pytest.raises(NotLeader) as refusal:
        node.append()
    assert refusal.value.leader == "f"
    node.advance(1)
    assert not any(message.kind is PeerKind.APPEND for message in node.take("f"))

    stock = Stock()
    stock._applyCommand(b"old", None)
    stock.tick(0.001)
    stock._SyncObj__raftElectionDeadline = stock.now + 1e6
    stock.now += 600
    stock.hear_append(term=9, commit_index=1, entries=[])
    stock.tick(0.001)
    assert [m["command"] for _, m in stock.wire.sent if m["type"] == "apply_command"] == [b"old"]


def test_hole_17_an_empty_body_is_an_entry_like_any_other() -> None:
    """An empty body is committed, applied, and followed by others.

    In the stock library every further tick raises.
    """
    node = ScriptedNode()
    node.serve("f")
    outcomes = [node.append(b""), node.append(b"next")]
    node.step()
    node.acknowledge("f", node.log.last_index)
    assert all(isinstance(outcome[0], Appended) for outcome in outcomes)

    stock = Stock(peers=())
    stock.tick(5)
    stock.tick()
    stock._applyCommand(b"", None)
    stock.tick()
    for _ in range(3):
        with pytest.raises(TypeError):
            stock.tick()


def test_hole_17_an_error_of_the_state_machine_is_not_the_librarys() -> None:
    """An error of the state machine reaches the shell, which ends the node.

    The library's tick is whole, and it knows nothing of the error; the stock library raises in
    every later tick.
    """

    class Failing(Recorder):
        def apply(self, entry: Entry) -> object:
            raise ZeroDivisionError

    node = ScriptedNode(machine=Failing())
    with pytest.raises(ZeroDivisionError):
        node.step()
    node.engine.core.doTick(0)
    assert node.engine.core.raftLastApplied == node.engine.core.commit_index

    stock = Stock(peers=())
    stock.tick(5)
    stock.tick()
    no_such_method = pickle.dumps(99)
    stock._applyCommand(no_such_method, None, 0)
    stock.tick()
    for _ in range(3):
        with pytest.raises(KeyError):
            stock.tick()


def test_hole_18_a_restart_applies_what_the_machine_lacks_in_bounded_steps() -> None:
    """The machine's snapshot holds 60 of 100 committed entries: the others are applied, a bounded
    number of bytes in a step, so that the loop is never held up."""
    disk = SimulatedDisk()
    log = log_without_head(1, 100, bytes(1000), disk)
    counts = [0]
    with patch.object(applying, "APPLY_BYTES_PER_STEP", 8000):
        node = ScriptedNode(disk=disk, log=log, machine=Recorder(applied_index=60))
        while node.turn():
            counts.append(len(node.machine.applied))
    assert [index for index, _ in node.machine.applied] == [*range(61, 101)]
    assert max(after - before for before, after in pairwise(counts)) == 8


def test_hole_18_a_log_without_its_head_is_applied() -> None:
    """The log begins at index 50, the machine's snapshot ends at 49. The stock library applies
    nothing, for ever."""
    disk = SimulatedDisk()
    log = log_without_head(50, 30, b"body", disk)
    node = ScriptedNode(disk=disk, log=log, machine=Recorder(applied_index=49))
    node.step()
    assert [index for index, _ in node.machine.applied] == [*range(50, 80)]

    class Headless(MemoryJournal):
        def getRaftCommitIndex(self) -> int:  # noqa: N802 - the library's name
            return 79

    journal = Headless()
    for index in range(50, 80):
        journal.add(b"\x01", index, 1)
    stock = Stock(peers=(), journalFile=journal)
    for _ in range(10):
        stock.tick(1)
    assert (stock.raftCommitIndex >= 79, stock.raftLastApplied) == (True, 1)
