"""Channel, the encrypting socket: every byte in order, in any pieces, and counted as sent late.

Real sockets of the loopback have small buffers, so that each write is cut somewhere.
"""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.limits import TLS_SENT_AT_ONCE_BYTES
from dledger.testing.certificates import client, contexts
from dledger.tls.channel import Channel
from dledger.tls.clients import ClientContexts
from dledger.tls.handshake import begin, dial
from dledger.tls.options import Mode

SMALL = 4096


@asynccontextmanager
async def channels(folder: Path) -> AsyncIterator[tuple[Channel, Channel]]:
    """Both ends of an encrypted connection."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    accepting, dialling = contexts(folder / "server"), ClientContexts.of(client(folder / "client"))
    assert dialling is not None
    ends = list[Channel]()

    async def accept() -> None:
        found = await begin(theirs, Mode.ENFORCING, accepting._clients)
        assert isinstance(found, Channel)
        ends.append(found)

    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            dialled = await dial(ours, dialling.context, "localhost")
        yield dialled, ends[0]


async def send_all(channel: Channel, data: bytes, chance: random.Random) -> None:
    """Send as the layers above do: what was not told as sent is given again."""
    left = memoryview(data)
    while left:
        cuts = sorted(chance.randrange(len(left) + 1) for _ in range(chance.randrange(4)))
        ends = [*cuts, len(left)]
        pieces = [left[a:b] for a, b in zip([0, *cuts], ends, strict=True) if a < b]
        try:
            sent = channel.sendmsg(pieces)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(channel)
            continue
        assert 0 <= sent <= min(len(left), TLS_SENT_AT_ONCE_BYTES)
        left = left[sent:]
    while not channel.flush():
        await trio.lowlevel.wait_writable(channel)


async def receive(channel: Channel, count: int, chance: random.Random) -> bytes:
    """Read `count` bytes, by both ways of reading."""
    received = b""
    while len(received) < count:
        await channel.readable()
        try:
            if chance.random() < 0.5:
                received += channel.recv(chance.choice([1, 100, 65_536]))
            else:
                buffer = bytearray(chance.choice([1, 100, 65_536]))
                received += buffer[: channel.recv_into(memoryview(buffer))]
        except BlockingIOError:
            continue
    return received


@pytest.mark.parametrize("seed", range(6))
async def test_bytes_arrive_whole_and_in_order_in_both_directions(
    seed: int, tmp_path: Path
) -> None:
    """Bytes arrive whole and in order, however the writes are cut."""
    chance = random.Random(seed)
    one, other = chance.randbytes(300_000), chance.randbytes(chance.choice([1, 70_000]))
    got: dict[str, bytes] = {}
    async with channels(tmp_path) as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(send_all, ours, one, random.Random(seed))
        nursery.start_soon(send_all, theirs, other, random.Random(seed + 1))

        async def collect(name: str, channel: Channel, count: int) -> None:
            got[name] = await receive(channel, count, random.Random(seed + 2))

        nursery.start_soon(collect, "one", theirs, len(one))
        nursery.start_soon(collect, "other", ours, len(other))

    assert got == {"one": one, "other": other}


async def test_what_the_other_end_may_have_read_counts_as_sent(tmp_path: Path) -> None:
    """Bytes that the other end may have read count as sent, but for one.

    The last one makes the caller come again; else a request that was served might be called not
    sent.
    """
    async with channels(tmp_path) as (ours, theirs):
        sent, data = 0, bytes(TLS_SENT_AT_ONCE_BYTES)
        while True:
            try:
                sent += ours.sendmsg([data])
            except BlockingIOError:
                break
        read = 0
        while not ours.flush() or read <= sent:
            try:
                read += len(theirs.recv(1 << 20))
            except BlockingIOError:
                continue

        assert sent % TLS_SENT_AT_ONCE_BYTES == TLS_SENT_AT_ONCE_BYTES - 1
        assert read == sent + 1


async def test_an_end_is_an_end_and_garbage_an_error(tmp_path: Path) -> None:
    """A cut connection reads as on a plain socket, and a changed byte ends it."""
    async with channels(tmp_path / "a") as (ours, theirs):
        ours.close()
        await theirs.readable()
        assert theirs.recv(100) == b""
    async with channels(tmp_path / "b") as (ours, theirs):
        ours._socket.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        await theirs.readable()
        with pytest.raises(OSError, match="changed on the way"):
            theirs.recv(100)
