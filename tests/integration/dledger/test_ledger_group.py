"""A group of real processes over real sockets: killed, stopped, lied to, and read afterwards.

Run as a program, this file is a node: it opens its ledger and answers `append` and `status` on a
control port, one JSON line each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from dledger import AppendError, Entry, LedgerConfig, NotLeader, limits, open_ledger
from dledger.log.disk import Disk
from dledger.log.entry import Kind, decode_header, padded
from dledger.log.recovery.startup import open_log
from dledger.log.recovery.verify import verify_replica
from dledger.log.scanning.checkpoint import decode_checkpoint
from dledger.log.scanning.tail import decode_watermark
from dledger.program.logs import configure_logging
from dledger.testing.lossy import lossy_folder, why_not

needs_fuse = pytest.mark.skipif(
    (reason := why_not()) is not None, reason=f"no folder with a lossy disk here: {reason}"
)

SEGMENT_BYTES = 1 << 20
WORD = "right"
KILLS = 5
ANSWER_S = 0.25
"""How long a writer waits for one answer. One that waited for a second at a stopped leader, and was
then sent there again by a follower who did not know better yet, measured its own patience."""
WRITERS = 8
PATIENCE_S = 20.0


# -- the node ----------------------------------------------------------------------------------


class Order(msgspec.Struct):
    """The command line of a node process."""

    node_id: str
    directory: str
    control_port: int
    peers: dict[str, int]
    group: str = "g"
    secret: str = WORD
    segment_bytes: int = SEGMENT_BYTES
    repair: bool = True
    scrub_pause_s: float = limits.SCRUB_PAUSE_S


class Machine:
    """Counts; what matters is in the log."""

    def __init__(self) -> None:
        self.applied_index = 0

    def apply(self, entry: Entry) -> object:
        return entry.index

    def leading(self, term: int) -> None:
        """Do nothing as a new leader."""

    def following(self, leader: str | None, term: int) -> None:
        """Do nothing as a follower."""


async def run_node(order: Order) -> None:
    limits.SCRUB_PAUSE_S = order.scrub_pause_s
    config = LedgerConfig(
        group=order.group,
        node_id=order.node_id,
        peers={peer: ("127.0.0.1", port) for peer, port in order.peers.items()},
        directory=Path(order.directory),
        segment_bytes=order.segment_bytes,
        secret=order.secret.encode(),
        repair=order.repair,
    )
    async with open_ledger(config, Machine()) as ledger:

        async def answer(request: dict[str, str]) -> dict[str, object]:
            if request["do"] == "status":
                status = ledger.status
                names = "role", "term", "leader_id", "last_index", "commit_index", "applied_index"
                return {name: getattr(status, name) for name in names}
            try:
                done = await ledger.append(request["body"].encode())
            except NotLeader as refusal:
                return {"leader": refusal.leader}
            except AppendError as error:
                return {"error": str(error)}
            return {"index": done.index, "term": done.term}

        async def serve(stream: trio.SocketStream) -> None:
            buffer = b""
            try:
                async for piece in stream:
                    buffer += piece
                    while b"\n" in buffer:
                        line, buffer = buffer.split(b"\n", 1)
                        reply = await answer(json.loads(line))
                        await stream.send_all(json.dumps(reply).encode() + b"\n")
            except trio.BrokenResourceError:
                return

        await trio.serve_tcp(serve, order.control_port, host="127.0.0.1")


# -- the group, seen from the test -------------------------------------------------------------


class Line:
    """A control connection to a node."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def ask(self, **request: str) -> dict:
        await self._stream.send_all(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._buffer:
            piece = await self._stream.receive_some()
            if not piece:
                raise trio.BrokenResourceError
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class Group:
    """The processes, by node id."""

    folder: Path
    orders: dict[str, Order]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, node_id: str, **other: object) -> None:
        order = msgspec.structs.replace(self.orders[node_id], **other)
        with (self.folder / f"{node_id}.log").open("ab") as output:
            self.processes[node_id] = subprocess.Popen(
                [sys.executable, __file__, msgspec.json.encode(order).decode()],
                stdout=output,
                stderr=output,
            )

    def start_all(self, **other: object) -> None:
        for node_id in self.orders:
            self.start(node_id, **other)

    def stop_all(self) -> None:
        for node_id in self.orders:
            self.stop(node_id)

    def stop(self, node_id: str) -> None:
        process = self.processes.pop(node_id)
        process.kill()
        process.wait()

    def said(self, node_id: str) -> str:
        return (self.folder / f"{node_id}.log").read_text()

    async def wait_until_vouched(self, node_id: str) -> None:
        """Wait until a node's checkpoint vouches for a segment, so that a start does not read
        it."""
        path = Path(self.orders[node_id].directory) / "log" / "checkpoint"
        with trio.fail_after(PATIENCE_S):
            while True:
                if decode_checkpoint(Disk().read(path)).sealed:
                    return
                await trio.sleep(0.1)

    async def wait_until_said(self, text: str, *node_ids: str) -> None:
        """Wait until the log of one of these nodes has a text."""
        with trio.fail_after(PATIENCE_S):
            while True:
                if any(text in self.said(node_id) for node_id in node_ids):
                    return
                await trio.sleep(0.05)

    async def line(self, node_id: str) -> Line:
        port = self.orders[node_id].control_port
        return Line(await trio.open_tcp_stream("127.0.0.1", port))

    async def status(self, node_id: str) -> dict | None:
        """A node's status; None while it can't be asked."""
        try:
            with trio.fail_after(1):
                async with await self.line(node_id) as line:
                    return await line.ask(do="status")
        except (OSError, trio.BrokenResourceError, trio.TooSlowError):
            return None

    async def wait_until_up(self, node_id: str) -> dict:
        """Wait until a node answers, which a busy machine delays; its status."""
        with trio.fail_after(PATIENCE_S):
            while True:
                status = await self.status(node_id)
                if status is not None:
                    return status
                await trio.sleep(0.05)

    async def leader(self) -> str:
        """The serving leader, waited for."""
        with trio.fail_after(PATIENCE_S):
            while True:
                for node_id in self.processes:
                    status = await self.status(node_id)
                    if status is not None and status["role"] == "leader":
                        return node_id
                await trio.sleep(0.02)

    async def wait_equal(self) -> None:
        """Wait until all nodes have applied the same, all of their logs."""
        with trio.fail_after(PATIENCE_S):
            while True:
                found = [await self.status(node_id) for node_id in self.orders]
                ends = {
                    (status["last_index"], status["applied_index"]) if status else None
                    for status in found
                }
                if len(ends) == 1 and None not in ends and len(set(ends.copy().pop())) == 1:
                    return
                await trio.sleep(0.05)

    def bodies(self, node_id: str) -> dict[int, bytes]:
        """Bodies in a stopped node's log."""
        order = self.orders[node_id]
        log, _ = open_log(Path(order.directory) / "log", order.segment_bytes)
        entries = (log.reader.entry(index) for index in range(1, log.last_index + 1))
        found = {e.index: bytes(e.body) for e in entries if e.kind == Kind.MESSAGES}
        log.close()
        return found


@contextmanager
def group_of(size: int, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> Iterator[Group]:
    ids = [f"n{at}" for at in range(size)]
    ports = free_ports(2 * size)
    peers = dict(zip(ids, ports[:size], strict=True))
    group = Group(
        folder,
        {
            node_id: Order(
                node_id, str(folder / node_id), control, peers, segment_bytes=segment_bytes
            )
            for node_id, control in zip(ids, ports[size:], strict=True)
        },
    )
    try:
        yield group
    finally:
        for node_id in list(group.processes):
            group.stop(node_id)


@dataclass
class Load:
    """Writers that append through the leader, with their acknowledgements and times."""

    group: Group
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    last_at: float = 0.0
    last_term: int = 0
    more: trio.Event = field(default_factory=trio.Event)

    async def write(self, name: str) -> None:
        number, target = 0, next(iter(self.group.orders))
        ids = list(self.group.orders)
        while True:
            leader = None
            with contextlib.suppress(OSError, trio.BrokenResourceError, trio.TooSlowError):
                async with await self.group.line(target) as line:
                    while leader is None:
                        number += 1
                        body = f"{name}:{number}"
                        with trio.fail_after(ANSWER_S):
                            reply = await line.ask(do="append", body=body)
                        if "index" not in reply:
                            leader = reply.get("leader")
                            break
                        self.note(reply["index"], reply["term"], body.encode())
            target = leader or ids[(ids.index(target) + 1) % len(ids)]
            await trio.sleep(0.005)

    def note(self, index: int, term: int, body: bytes) -> None:
        assert index not in self.acknowledged
        self.acknowledged[index] = body
        self.last_at, self.last_term = trio.current_time(), term
        self.more.set()
        self.more = trio.Event()

    async def goes_on(self) -> None:
        """Wait until one more append is acknowledged."""
        with trio.fail_after(PATIENCE_S):
            await self.more.wait()

    async def reaches(self, count: int) -> None:
        """Wait until `count` appends are acknowledged."""
        with trio.fail_after(3 * PATIENCE_S):
            while len(self.acknowledged) < count:
                await self.more.wait()

    async def gap_after(self, when: float) -> float:
        """Seconds from `when` to the first acknowledgement of the next leader.

        Answers of the last one may still be under way.
        """
        old_term = self.last_term
        with trio.fail_after(PATIENCE_S):
            while self.last_term <= old_term:
                await self.more.wait()
        return self.last_at - when


@asynccontextmanager
async def load_on(group: Group) -> AsyncIterator[Load]:
    load = Load(group)
    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(load.write, f"w{number}")
        await load.goes_on()
        yield load
        nursery.cancel_scope.cancel()


def assert_nothing_lost(group: Group, load: Load) -> None:
    for node_id in list(group.processes):
        group.stop(node_id)
    logs = {node_id: group.bodies(node_id) for node_id in group.orders}
    for node_id, held in logs.items():
        lost = {index for index, body in load.acknowledged.items() if held.get(index) != body}
        assert not lost, f"{node_id} lost acknowledged entries {sorted(lost)[:10]}"
    first, *others = logs.values()
    assert all(other == first for other in others)


@pytest.mark.alone
async def test_a_stopped_leader_is_replaced_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    """A leader that hangs closes no connection: its silence is noticed within 1.5 s. When it goes
    on, it follows, and what it had not committed is acknowledged by nobody."""
    with group_of(3, tmp_path) as group:
        group.start_all()
        async with load_on(group) as load:
            await trio.sleep(1)
            leader = await group.leader()
            os.kill(group.processes[leader].pid, signal.SIGSTOP)
            stopped_at = trio.current_time()
            gap = await load.gap_after(stopped_at)
            os.kill(group.processes[leader].pid, signal.SIGCONT)
            await trio.sleep(1)
            assert await group.leader() != leader
        await group.wait_equal()
        assert_nothing_lost(group, load)
    print(f"SIGSTOP to the next acknowledgement: {gap:.3f} s")
    assert gap <= 1.5


async def test_a_damaged_log_is_repaired_by_the_leader_before_its_node_takes_part(
    tmp_path: Path,
) -> None:
    """A follower with rotten bytes waits for the leader's entries, and then holds the others'."""
    with group_of(3, tmp_path) as group:
        group.start_all()
        async with load_on(group) as load:
            await trio.sleep(1)
            leader = await group.leader()
            victim = next(node_id for node_id in group.orders if node_id != leader)
            group.stop(victim)
            damaged = rot(Path(group.orders[victim].directory))
            await load.goes_on()
            group.start(victim)
            await group.wait_until_up(victim)
        await group.wait_equal()
        # Now, as a leader that is stopped before the others is followed by one with an entry more.
        found = [verify_replica(Path(order.directory)) for order in group.orders.values()]
        assert "log damaged" in group.said(victim)
        assert "log repaired" in group.said(victim)
        assert_nothing_lost(group, load)
    print(f"{len(load.acknowledged)} acknowledged; entries {damaged} of {victim} were damaged")
    assert not any(replica.damaged for replica in found)
    assert len({(replica.last_index, replica.last_chain_crc) for replica in found}) == 1


async def test_rot_in_an_old_segment_of_a_leader_is_found_and_repaired_while_it_runs(
    tmp_path: Path,
) -> None:
    """A leader with a rotten old segment hands over, is repaired, and takes part again.

    No start reads that segment. It goes on in the same process, which answers all the time.
    """
    with group_of(3, tmp_path, segment_bytes=1 << 16) as group:
        group.start_all()
        async with load_on(group) as load:
            await load.reaches(3000)
        victim = await group.leader()
        await group.wait_equal()
        await group.wait_until_vouched(victim)
        group.stop_all()
        rot(Path(group.orders[victim].directory), segment=0)
        group.start_all()
        await group.wait_until_said("log repaired", victim)
        assert "is damaged" in group.said(victim)
        assert group.processes[victim].poll() is None
        await group.wait_equal()
        assert_nothing_lost(group, load)
    assert not any(verify_replica(Path(o.directory)).damaged for o in group.orders.values())


@needs_fuse
async def test_what_the_disk_of_a_follower_cant_read_is_repaired_before_it_takes_part(
    tmp_path: Path,
) -> None:
    """A follower's unreadable pages are repaired, those with its watermark, too."""
    with group_of(3, tmp_path) as group:
        group.start_all()
        async with load_on(group) as load:
            await load.reaches(1000)
            leader = await group.leader()
            victim = next(node_id for node_id in group.orders if node_id != leader)
            group.stop(victim)
            with lossy_folder(Path(group.orders[victim].directory)) as folder:
                segment = written_segments(folder.path)[-1]
                folder.lose(segment, 5 * 4096)
                folder.lose(segment, SEGMENT_BYTES - 1)
                assert "the disk can't read it" in str(verify_replica(folder.path).faults)
                group.start(victim)
                await group.wait_until_up(victim)
                await load.goes_on()
                assert '"bytes_unreadable": 8192' in group.said(victim)
                assert not verify_replica(folder.path).damaged
                group.stop(victim)
        group.start(victim)
        await group.wait_equal()
        assert_nothing_lost(group, load)


@needs_fuse
async def test_an_old_page_that_a_leader_cant_read_any_more_is_repaired_while_it_runs(
    tmp_path: Path,
) -> None:
    """The scrub meets it, or a reader: neither ends the process."""
    with group_of(3, tmp_path, segment_bytes=1 << 16) as group:
        group.start_all()
        async with load_on(group) as load:
            await load.reaches(3000)
        victim = await group.leader()
        await group.wait_equal()
        await group.wait_until_vouched(victim)
        group.stop_all()
        with lossy_folder(Path(group.orders[victim].directory)) as folder:
            folder.lose(written_segments(folder.path)[0], 3 * 4096)
            group.start_all()
            await group.wait_until_said("log repaired", victim)
            assert "the disk can't read" in group.said(victim)
            assert group.processes[victim].poll() is None
            await group.wait_equal()
            group.stop(victim)
        group.start(victim)
        await group.wait_until_up(victim)
        assert_nothing_lost(group, load)
    assert not any(verify_replica(Path(o.directory)).damaged for o in group.orders.values())


@pytest.mark.parametrize("part", [60, 24], ids=["body", "header"])
async def test_bits_that_flip_under_running_nodes_are_repaired_under_load(
    part: int, tmp_path: Path
) -> None:
    """Flipped bits of a follower, and then of the leader, are repaired under load.

    Neither process ends, no other node is misled, and no acknowledged append is lost.
    """
    with group_of(3, tmp_path, segment_bytes=1 << 16) as group:
        group.start_all(scrub_pause_s=0.5)
        async with load_on(group) as load:
            await load.reaches(2000)
            leader = await group.leader()
            follower = next(node_id for node_id in group.orders if node_id != leader)
            for victim in (follower, leader):
                flip_under(Path(group.orders[victim].directory), part)
                await group.wait_until_said("log repaired", victim)
                await load.goes_on()
        await group.wait_equal()
        assert all(process.poll() is None for process in group.processes.values())
        assert_nothing_lost(group, load)
    assert not any(verify_replica(Path(o.directory)).damaged for o in group.orders.values())


async def test_a_leader_that_meets_rot_while_it_sends_stops_before_anybody_is_misled(
    tmp_path: Path,
) -> None:
    """A leader that reads a rotten header sends none of it, and is repaired.

    A follower that was away asks for old entries; the leader finds the rot long before the scrub
    comes by.
    """
    with group_of(3, tmp_path, segment_bytes=1 << 18) as group:
        group.start_all()
        leader = await group.leader()
        away = next(node_id for node_id in group.orders if node_id != leader)
        async with load_on(group) as load:
            await load.reaches(500)
            group.stop(away)
            await load.reaches(9000)
        leader = await group.leader()
        flip_under(Path(group.orders[leader].directory), 24, segment=1)
        group.start(away)
        await group.wait_until_said("log repaired", leader)
        await group.wait_equal()
        assert "fenced" not in group.said(away)
        assert_nothing_lost(group, load)
    assert not any(verify_replica(Path(o.directory)).damaged for o in group.orders.values())


async def test_without_repair_a_damaged_log_is_refused(tmp_path: Path) -> None:
    """A damaged log is refused with `repair` off, and not a byte of it is changed."""
    with group_of(3, tmp_path) as group:
        group.start_all()
        async with load_on(group):
            await trio.sleep(0.5)
        group.stop("n1")
        folder = Path(group.orders["n1"].directory)
        rot(folder)
        before = segments_of(folder)
        group.start("n1", repair=False)
        assert await trio.to_thread.run_sync(group.processes["n1"].wait, PATIENCE_S)
        assert "is damaged" in group.said("n1")
        assert segments_of(folder) == before


def segments_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.glob("log/*.seg")}


def written_segments(folder: Path) -> list[Path]:
    """Segments that have entries, the oldest first."""
    files = sorted((folder / "log").glob("*.seg"))
    return [path for path in files if any(path.read_bytes()[:4])]


def rot(folder: Path, segment: int = -1) -> list[int]:
    """Damage two durable entries of a segment of a stopped replica, by default the last; which."""
    path = written_segments(folder)[segment]
    raw = bytearray(path.read_bytes())
    durable_index = decode_watermark(memoryview(raw))
    offset, indices = 0, {}
    while (header := decode_header(raw, offset)).magic and header.index <= durable_index:
        indices[header.index] = offset, header.size
        offset += padded(header.size)
    chosen = sorted(indices)[len(indices) // 3 :: max(1, len(indices) // 3)][:2]
    for index in chosen:
        offset, size = indices[index]
        raw[offset + size // 2] ^= 0x10
    path.write_bytes(raw)
    return chosen


def flip_under(folder: Path, at: int, segment: int = 0) -> None:
    """Flip a bit of a sealed segment's tenth entry, at an offset in it, while its node runs."""
    path = sorted((folder / "log").glob("*.seg"))[segment]
    raw, offset = path.read_bytes(), 0
    for _ in range(10):
        offset += padded(decode_header(raw, offset).size)
    with path.open("r+b") as file:
        file.seek(offset + at)
        file.write(bytes([raw[offset + at] ^ 0x10]))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"secret": "wrong"}, "does not know the group's secret"),
        ({"group": "other"}, "protocol version, group, segment bytes"),
        ({"segment_bytes": 2 << 20}, "protocol version, group, segment bytes"),
    ],
    ids=["secret", "group", "segment-bytes"],
)
async def test_who_does_not_belong_is_refused(
    tmp_path: Path, wrong: dict[str, object], reason: str
) -> None:
    """A third process with another secret, group or segment size gets nothing of the log, and
    the two others go on. With the right settings it catches up."""
    with group_of(3, tmp_path) as group:
        group.start_all()
        await group.leader()
        await group.wait_equal()
        group.stop("n2")
        group.start("n2", directory=str(tmp_path / "stranger"), **wrong)
        await group.wait_until_up("n2")
        async with load_on(group) as load:
            await group.wait_until_said(reason, *group.orders)
            await trio.sleep(1)
            stranger = await group.wait_until_up("n2")
            told = stranger["leader_id"], stranger["last_index"], stranger["term"]
            assert told == (None, 1, 0)
            group.stop("n2")
            group.start("n2")
            await load.goes_on()
        await group.wait_equal()
        assert_nothing_lost(group, load)


GARBAGE = [
    b"",
    b"\xff" * 64,
    b"\x00\x00\x00\x00",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x00\x00\x00\x05\xc1\xc1\xc1\xc1\xc1",
    b"\x00\x00\x00\x01\xc0",
    b"\x00\x00\x00\x03\x93\x01\x02\x03",
    b"\x00\x00\x00\x15\x95\x01\xa1g\xce\x00\x10\x00\x00\xa2n2\xc4\x05short",
    b"\x00\x00\x03\xff" + b"\x91" * 1023,
    b"\x7f\xff\xff\xff" + b"x" * 4096,
]


async def test_garbage_on_the_peer_port_disturbs_nobody(tmp_path: Path) -> None:
    """Random bytes, lengths that can't be, half a handshake and connections that say nothing: the
    same leader serves on in the same term, and silent connections are closed."""
    with group_of(3, tmp_path) as group:
        group.start_all()
        for node_id in group.orders:
            await group.wait_until_up(node_id)
        async with load_on(group) as load:
            leader = await group.leader()
            before = await group.status(leader)
            ended = []

            async def annoy(port: int, garbage: bytes) -> None:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                async with stream:
                    try:
                        await stream.send_all(garbage)
                        while await stream.receive_some():
                            pass
                    except trio.BrokenResourceError:
                        pass
                ended.append(port)

            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        for port in group.orders["n0"].peers.values():
                            for garbage in GARBAGE:
                                nursery.start_soon(partial(annoy, port, garbage))
            assert len(ended) == 5 * 3 * len(GARBAGE)
            await load.goes_on()
            after = await group.status(leader)
            assert before is not None
            assert after is not None
            assert (after["role"], after["term"]) == ("leader", before["term"])
            assert all(process.poll() is None for process in group.processes.values())
        await group.wait_equal()
        assert_nothing_lost(group, load)


if __name__ == "__main__":
    configure_logging("json", "info")
    trio.run(run_node, msgspec.json.decode(sys.argv[1], type=Order))
