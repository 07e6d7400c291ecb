"""A connection between two nodes, over real sockets: messages arrive whole and in order."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import trio

from dledger.errors import FrameError
from dledger.raft.messages import (
    Append,
    Denied,
    Given,
    PeerKind,
    PeerMessage,
    decode_message,
    encode_message,
)
from dledger.raft.network.links import SocketLink
from dledger.testing.planted.catalogue import plant


class Owner:
    """A link's owner that keeps what arrives."""

    def __init__(self) -> None:
        self.received: list[tuple[PeerKind, int, bytes]] = []
        self.drained = 0
        self.down = trio.Event()

    def link_up(self, node_id: str, link: SocketLink) -> None:
        """Do nothing with a new link."""

    def link_down(self, node_id: str, link: SocketLink) -> None:
        self.down.set()

    def link_drained(self, node_id: str) -> None:
        self.drained += 1

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        run = message.run if isinstance(message, Given) else b""
        self.received.append((message.kind, message.term, bytes(run)))

    def received_all(self) -> None:
        """Do nothing at the end of a burst."""


def two_links() -> tuple[SocketLink, SocketLink]:
    """Both ends of a connection whose kernel buffers are small."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 10)
    return SocketLink(ends[0], "b"), SocketLink(ends[1], "a")


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not holds():
            await trio.lowlevel.checkpoint()


async def test_what_the_kernel_does_not_take_at_once_follows_in_order() -> None:
    """Two hundred messages of up to 20 KiB go into a socket that takes 8 KiB at a time."""
    rng = random.Random(5)
    print("seed 5")
    messages = [(number, rng.randbytes(rng.randrange(20 << 10))) for number in range(1, 201)]
    first, second = two_links()
    sender, receiver = Owner(), Owner()
    for term, run in messages[:50]:
        first.send(encode_message(Given(term, 1, 1, 1, 1, run=run)))
    assert first.queued_bytes > 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run, sender)
        nursery.start_soon(second.run, receiver)
        for term, run in messages[50:]:
            first.send(encode_message(Given(term, 1, 1, 1, 1, run=run)))
            if rng.random() < 0.3:
                await trio.lowlevel.checkpoint()
        await until(lambda: len(receiver.received) == len(messages))
        assert first.queued_bytes == 0
        await until(lambda: sender.drained > 0)
        nursery.cancel_scope.cancel()
    assert receiver.received == [(PeerKind.GIVEN, term, run) for term, run in messages]


async def test_a_link_that_breaks_while_it_sends_keeps_nothing_and_says_why() -> None:
    """The other end is gone: the send closes the link, which holds no bytes any more."""
    first, second = two_links()
    owner = Owner()
    second.close("gone")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run, owner)
        first.send(encode_message(Given(1, 1, 1, 1, 1, run=bytes(1 << 20))))
        first.send(encode_message(Denied(1)))
        assert first.queued_bytes == 0
        assert first.closed_because is not None
        assert "sending failed" in first.closed_because
        with trio.fail_after(20):
            await owner.down.wait()


def test_a_bit_that_flips_anywhere_in_a_frame_is_noticed() -> None:
    """A flipped bit in any part of a frame makes the whole frame unusable."""
    frame = b"".join(encode_message(Append(7, 300, 299, 6, 1, 2, run=bytes(range(60)))))
    assert decode_message(memoryview(frame)) == Append(7, 300, 299, 6, 1, 2, bytes(range(60)))

    def taken() -> int:
        count = 0
        for bit in range(8 * len(frame)):
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            try:
                decode_message(memoryview(damaged))
            except FrameError:
                continue
            count += 1
        return count

    assert taken() == 0
    with plant("act on what was garbled"):
        assert taken() > 8 * 60


async def test_a_damaged_frame_ends_its_connection_and_nothing_behind_it_is_taken() -> None:
    """A damaged frame ends its connection; messages behind it come with the next one."""
    first, second = two_links()
    owner = Owner()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.run, owner)
        first.send(encode_message(Denied(1)))
        (damaged,) = encode_message(Denied(2))
        first.send((damaged[:-1] + bytes([damaged[-1] ^ 4]),))
        first.send(encode_message(Denied(3)))
        with trio.fail_after(20):
            await owner.down.wait()
    assert [term for _, term, _ in owner.received] == [1]
    assert "damaged on the way" in str(second.closed_because)
    first.close("end of the test")
