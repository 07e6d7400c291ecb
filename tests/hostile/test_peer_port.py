"""A stranger at the peer port, a wire that lies between two members, and a member that raves.

Nothing that the first two send gets to the engine; nothing that the third sends ends it.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgpack
import pytest
import trio
from owners import Owner

from dledger import limits
from dledger.checksum import crc32
from dledger.errors import FrameError
from dledger.raft.membership.configuration import Configuration, initial
from dledger.raft.messages import (
    LAYOUTS,
    PREFIX,
    Denied,
    PeerKind,
    PeerMessage,
    decode_message,
    encode_message,
    frame_length,
)
from dledger.raft.network import handshake
from dledger.raft.network.handshake import PROTOCOL_VERSION, Handshaker
from dledger.raft.network.links import PeerNetwork, listen
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import Donor, ScriptedNode, follower_of
from dledger.trust.proof import NONCE_BYTES, TAG_BYTES

WORD = b"the word of this group"
SEGMENT_BYTES = 1 << 20
PATIENCE_S = 10.0
OPENED: list[trio.SocketStream] = []
"""The strangers' connections of a test, closed at its end."""


class Node(NamedTuple):
    owner: Owner
    port: int


async def until(holds: Callable[[], object]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is waited for is polled here
            await trio.sleep(0.005)


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def start(
    nursery: trio.Nursery,
    node_id: str,
    ports: dict[str, int],
    secret: bytes = WORD,
    group: str = "g",
) -> Node:
    """A node's network on a port of its own; `ports` names its peers' ones."""
    owner, listener = Owner(), listen("127.0.0.1", 0)
    handshaker = Handshaker(group, node_id, SEGMENT_BYTES, secret)
    network = PeerNetwork(node_id, handshaker, owner)
    peers = {**ports, node_id: port_of(listener)}
    addresses = {name: ("127.0.0.1", port) for name, port in peers.items()}

    async def run() -> None:
        with listener:
            await network.run(listener, Configuration(initial(addresses)))

    nursery.start_soon(run)
    return Node(owner, port_of(listener))


@asynccontextmanager
async def running() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()
    while OPENED:
        await trio.aclose_forcefully(OPENED.pop())


# -- a stranger --------------------------------------------------------------------------------


class Stranger:
    """A stranger who knows the protocol and not the secret."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def say(self, *fields: object) -> None:
        packed = msgpack.packb(list(fields))
        await self._stream.send_all(len(packed).to_bytes(4, "big") + packed)

    async def say_hello(self, node_id: str, nonce: bytes) -> None:
        await self.say(PROTOCOL_VERSION, "g", SEGMENT_BYTES, node_id, nonce)

    async def hear(self) -> list[object] | None:
        """The next message; None when the connection is closed."""
        length = await self._exactly(4)
        if length is None:
            return None
        raw = await self._exactly(int.from_bytes(length, "big"))
        return None if raw is None else msgpack.unpackb(raw)

    async def _exactly(self, count: int) -> bytes | None:
        received = b""
        with trio.fail_after(PATIENCE_S):
            while len(received) < count:
                try:
                    piece = await self._stream.receive_some(count - len(received))
                except trio.BrokenResourceError:
                    return None
                if not piece:
                    return None
                received += piece
        return received


async def connection_to(port: int) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    OPENED.append(stream)
    return stream


async def stranger_at(port: int) -> Stranger:
    return Stranger(await connection_to(port))


Attack = Callable[[int], Awaitable[object]]


async def guess(port: int) -> list[object] | None:
    """Claim to be a member, with a proof of zeros."""
    stranger = await stranger_at(port)
    await stranger.say_hello("n2", os.urandom(NONCE_BYTES))
    await stranger.hear()
    await stranger.say(bytes(32))
    return await stranger.hear()


async def reflect_the_hello(port: int) -> list[object] | None:
    """Give the node its own hello back."""
    first, second = await stranger_at(port), await stranger_at(port)
    await first.say_hello("n2", os.urandom(NONCE_BYTES))
    hello = await first.hear()
    assert hello is not None
    await second.say(*hello)
    return await second.hear()


async def wait_for_the_proof(port: int) -> list[object] | None:
    """Say hello and nothing more, so that the node proves first."""
    stranger = await stranger_at(port)
    await stranger.say_hello("n2", os.urandom(NONCE_BYTES))
    await stranger.hear()
    return await stranger.hear()


async def use_another_connection(port: int) -> list[object] | None:
    """Make the node sign, on a second connection, the nonce that it gave on the first."""
    first, second = await stranger_at(port), await stranger_at(port)
    await first.say_hello("n2", os.urandom(NONCE_BYTES))
    hello = await first.hear()
    assert hello is not None
    await second.say_hello("n2", hello[-1])  # type: ignore[arg-type]
    await second.hear()
    await second.say(bytes(32))
    signed = await second.hear()
    await first.say(*(signed or [bytes(32)]))
    return signed


@pytest.mark.parametrize(
    "attack",
    [guess, reflect_the_hello, wait_for_the_proof, use_another_connection],
    ids=lambda attack: attack.__name__,
)
async def test_a_stranger_is_told_a_hello_and_nothing_signed(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger gets a hello and no signature, and its connection is closed without a link."""
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", 0.3)
    async with running() as nursery:
        node = start(nursery, "n1", {"n2": 1})
        assert await attack(node.port) is None
        assert not node.owner.links


@pytest.mark.parametrize(
    "first",
    [
        b"\xff" * 64,
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\xc0",
        b"\x00\x00\x00\x01\x90",
        b"\x7f\xff\xff\xff" + b"x" * 2048,
        b"\x00\x00\x03\xff" + b"\x91" * 1023,
        b"\x00\x00\x00\x05\x81\x80\x01\x01\x01",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=lambda first: first[:6].hex(),
)
async def test_bytes_that_are_no_hello_close_their_connection_only(first: bytes) -> None:
    """Bytes that are not a hello close their connection, and a member is let in beside them."""
    async with running() as nursery:
        node = start(nursery, "n1", {"n2": 1})
        stream = await connection_to(node.port)
        await stream.send_all(first)
        start(nursery, "n2", {"n1": node.port})
        await until(lambda: "n2" in node.owner.links)
        assert [*node.owner.links] == ["n2"]


async def test_silent_connections_do_not_keep_a_member_out() -> None:
    """A member gets in beside 400 silent connections from one address; the oldest of them go."""
    async with running() as nursery:
        node = start(nursery, "n1", {"n2": 1})
        silent = [await stranger_at(node.port) for _ in range(400)]
        began = trio.current_time()
        start(nursery, "n2", {"n1": node.port})
        await until(lambda: "n2" in node.owner.links)
        assert trio.current_time() - began < 1.5
        heard = 0
        for stranger in silent[: -limits.HANDSHAKES_MAX - 1]:
            heard += await stranger.hear() is None
        assert heard == len(silent) - limits.HANDSHAKES_MAX - 1


@pytest.mark.parametrize(
    "wrong",
    [{"secret": b"another"}, {"secret": b""}, {"group": "h"}],
    ids=["secret", "none", "group"],
)
async def test_who_belongs_to_another_group_gets_no_link(wrong: dict[str, object]) -> None:
    """A node of another group gets no link, in either direction."""
    async with running() as nursery:
        node = start(nursery, "n1", {})
        other = start(nursery, "n2", {"n1": node.port}, **wrong)  # type: ignore[arg-type]
        await trio.sleep(0.5)
        assert not node.owner.links
        assert not other.owner.links


# -- a wire that lies --------------------------------------------------------------------------

Change = Callable[[list[bytes]], list[bytes]]
"""Gets the frames of one direction that have left, with their tags; gives what arrives."""


def repeat(frames: list[bytes]) -> list[bytes]:
    return [frames[0], frames[0], *frames[1:]]


def leave_out(frames: list[bytes]) -> list[bytes]:
    return [frames[0], *frames[2:]]


def reorder(frames: list[bytes]) -> list[bytes]:
    return [frames[1], frames[0], *frames[2:]]


def change_the_term(frames: list[bytes]) -> list[bytes]:
    """Change the term and the CRC, as the frame's own sender would have written it."""
    (frame,) = encode_message(Denied(77))
    return [bytes(frame) + frames[0][-TAG_BYTES:], *frames[1:]]


def put_one_in(frames: list[bytes]) -> list[bytes]:
    (frame,) = encode_message(Denied(77))
    return [frames[0], bytes(frame) + bytes(TAG_BYTES), *frames[1:]]


class Wire:
    """Listens where n1 should, and passes on to it what n2 says, frame by frame, changed once."""

    def __init__(self, target: int, change: Change) -> None:
        self.listener = listen("127.0.0.1", 0)
        self._target = target
        self._change: Change | None = change

    async def run(self) -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self.listener))
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, near: trio.SocketStream) -> None:
        far = await connection_to(self._target)
        OPENED.append(near)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_on, far, near)
            await self._pass_changed(near, far)
            nursery.cancel_scope.cancel()

    async def _pass_on(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for data in source:
                await sink.send_all(data)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _pass_changed(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        """The two messages of the handshake as they are; the first three frames together."""
        held, change = b"", self._change
        self._change = None
        try:
            for _ in range(2):
                while len(held) < 4 or len(held) < 4 + int.from_bytes(held[:4], "big"):
                    held += await source.receive_some()
                length = 4 + int.from_bytes(held[:4], "big")
                await sink.send_all(held[:length])
                held = held[length:]
            frames: list[bytes] = []
            while change is not None and len(frames) < 3:
                while len(held) < PREFIX.size or len(held) < frame_length(held, 0) + TAG_BYTES:
                    held += await source.receive_some()
                length = frame_length(held, 0) + TAG_BYTES
                frames.append(held[:length])
                held = held[length:]
            await sink.send_all(b"".join(change(frames) if change else []) + held)
            await self._pass_on(source, sink)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


async def terms_over(change: Change) -> tuple[list[int], Owner]:
    """Terms, of 1 to 3 that n2 sends, that reach n1 over a lying wire, and n1's owner."""
    async with running() as nursery:
        node = start(nursery, "n1", {"n2": 1})
        wire = Wire(node.port, change)
        nursery.start_soon(wire.run)
        speaker = start(nursery, "n2", {"n1": port_of(wire.listener)})
        await until(lambda: speaker.owner.links and node.owner.links)
        for term in (1, 2, 3):
            speaker.owner.links["n1"].send(encode_message(Denied(term)))
        await until(lambda: node.owner.ended or len(node.owner.terms) >= 3)
        heard = [*node.owner.terms]
        # Messages on the way are lost with their connection; the next one is whole.
        await until(lambda: speaker.owner.links and node.owner.links)
        speaker.owner.links["n1"].send(encode_message(Denied(9)))
        await until(lambda: 9 in node.owner.terms)
        return heard, node.owner


@pytest.mark.parametrize(
    ("change", "reach"),
    [(repeat, [1]), (leave_out, [1]), (reorder, []), (change_the_term, []), (put_one_in, [1])],
    ids=["repeated", "left-out", "reordered", "changed", "put-in"],
)
async def test_a_frame_that_is_not_the_one_sent_ends_the_connection(
    change: Change, reach: list[int]
) -> None:
    """Frames before a changed one count, none behind it, and the two connect anew."""
    heard, owner = await terms_over(change)
    assert heard == reach
    assert "does not match its tag" in owner.ended[0]


async def test_without_tags_a_frame_of_a_strangers_making_arrives() -> None:
    """The wire's own term 77 is taken for n2's word."""
    with plant("check no tags"):
        heard, _ = await terms_over(put_one_in)
    assert 77 in heard


async def test_a_wire_that_only_passes_on_is_a_wire() -> None:
    """A relay of all bytes lets the two members talk, and nobody else."""
    heard, _ = await terms_over(lambda frames: frames)
    assert heard == [1, 2, 3]


# -- a member that raves -----------------------------------------------------------------------

RAVINGS = int(os.environ.get("RAVINGS", "1200"))
"""Messages of each kind. CONTRIBUTING.md has the long form."""
EDGES = (0, 1, 2, 3, 5, 255, 1 << 31, 1 << 32, (1 << 32) + 2, 1 << 62, (1 << 63) - 1, 1 << 63)
BEYOND = (-1, -(1 << 31), -(1 << 63), (1 << 64) - 1)
STRANGE = (None, True, False, "text", b"bytes", 1.5, [], [1], {}, {"a": 1}, float("nan"))


def raving(rng: random.Random, kind: PeerKind, donor: Donor) -> bytes:
    """A frame of a kind, with its CRC right and all else as chance has it."""
    values: list[object] = [
        rng.random() < 0.5 if each is bool else rng.choice(EDGES)
        for each in LAYOUTS[kind.value].types
    ]
    if rng.random() < 0.5:
        values[0] = rng.choice((0, 1, 2, 3))
    match rng.randrange(5):
        case 0:
            values[rng.randrange(len(values))] = rng.choice(BEYOND)
        case 1:
            values[rng.randrange(len(values))] = rng.choice(STRANGE)
        case 2:
            values = values[: rng.randrange(len(values) + 1)]
        case 3:
            values += [rng.choice(EDGES)] * rng.randrange(3)
    head = msgpack.packb([kind.value, *values])
    run = raving_run(rng, donor)
    length, head_length = len(head) + len(run) + 6, len(head)
    if rng.random() < 0.1:
        head_length = rng.randrange(1 << 16)
    if rng.random() < 0.1:
        length = rng.choice((0, 6, 7, length + 1, limits.PEER_FRAME_BYTES_MAX, (1 << 32) - 1))
    crc = crc32(run, crc32(head, head_length))
    return PREFIX.pack(length, head_length, crc) + head + run


def raving_run(rng: random.Random, donor: Donor) -> bytes:
    """Wrong entries: noise, or real ones that are cut, or lie about index, size or body."""
    if rng.random() < 0.4:
        return b""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(200))
    first = rng.randint(2, 5)
    run = bytearray(donor.run(first, rng.randint(first, 6)))
    run[rng.choice((*range(16), *range(40, 55)))] ^= 1 << rng.randrange(8)
    return bytes(run[: rng.randrange(len(run) + 1)]) if rng.random() < 0.3 else bytes(run)


def decoded(frame: bytes) -> PeerMessage | None:
    """The message that a link hands on, or None if it closes."""
    try:
        if frame_length(frame, 0) != len(frame):
            return None  # it waits for the rest, or takes what follows for a part of it
        return decode_message(memoryview(frame))
    except FrameError:
        return None


@pytest.mark.parametrize("kind", PeerKind, ids=lambda kind: kind.name)
def test_a_raving_member_ends_its_link_and_nothing_else(kind: PeerKind) -> None:
    """A raving member's 1,200 messages of each kind end its link alone, and the log stays good."""
    print(f"seed {kind.value}")
    rng, donor = random.Random(kind.value), Donor()
    donor.add(1, 5)
    node = follower_of(donor, 6, commit_index=4)
    reached = 0
    for _ in range(RAVINGS):
        if node.wires["g"].closed_because is not None:
            node.engine.link_down("g", node.wires["g"])
            node.connect("g")
        message = decoded(raving(rng, kind, donor))
        if message is not None:
            reached += 1
            node.engine.receive("g", node.wires["g"], message)
            node.step()
        assert node.engine.fenced is None
        assert node.log.last_index == 6
    assert reached > RAVINGS // 10
    core = node.engine.core
    assert core.term <= 3 + RAVINGS * limits.TERM_JUMP_MAX
    # A node that claimed to lead is believed in its own term, and no longer.
    node.connect("f")
    node.receive_append("f", core.term + 1, donor, 7, 6, commit_index=6)
    node.step()
    assert core.commit_index == 6


@pytest.mark.parametrize("kind", PeerKind, ids=lambda kind: kind.name)
def test_a_leader_serves_on_beside_a_raving_member(kind: PeerKind) -> None:
    """A leader commits appends as before, beside messages of its own term from a raving member."""
    rng, donor = random.Random(kind.value), Donor()
    donor.add(1, 5)
    node = ScriptedNode()
    term = node.serve("f")
    for number in range(RAVINGS):
        if node.wires["g"].closed_because is not None:
            node.engine.link_down("g", node.wires["g"])
            node.connect("g")
        message = decoded(raving(rng, kind, donor))
        if message is not None and message.term <= term:
            node.engine.receive("g", node.wires["g"], message)
            node.step()
        if number % 100 == 0:
            outcome = node.append()
            node.step()
            node.acknowledge("f", node.log.last_index)
            assert len(outcome) == 1
    assert node.engine.standing.serving
    assert (node.engine.fenced, node.engine.core.term) == (None, term)
