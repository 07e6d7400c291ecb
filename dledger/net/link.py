"""The parts that both ends of a connection have: a socket, a decoder, a send buffer.

Sending never waits. A command is encoded into the send buffer and the writer task is woken; it
runs when the event loop gets to it, so everything that was sent in the same turn leaves in one
system call. A reader that handles many requests in a row flushes by itself when it is through
with them.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import anyio

from dledger.buffers import Buffer
from dledger.errors import Busy
from dledger.limits import (
    BUSY_RETRY_S,
    FRAME_BYTES_MAX,
    PIECES_PER_CALL_MAX,
    RECEIVE_BYTES,
    RECEIVE_LARGE_BYTES,
    SEND_BUFFER_BYTES_MAX,
    SENDS_PER_TURN_MAX,
)
from dledger.remoting.codec import encode_frame
from dledger.remoting.command import Command
from dledger.remoting.framing import FrameDecoder

if TYPE_CHECKING:
    from dledger.tls.channel import Channel

_NO_LINGER = struct.pack("ii", 0, 0)


class Link:
    """A connected non-blocking socket that speaks commands. The owner runs `write_forever`.

    An encrypting `Channel` may stand for the socket: it has the methods that are called here.
    """

    def __init__(
        self,
        connected: socket.socket | Channel,
        send_buffer_bytes_max: int = SEND_BUFFER_BYTES_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        connected.setblocking(False)
        # Some systems refuse options on a connection that was reset already; the next read reports
        # that.
        with suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._decoder = FrameDecoder(frame_bytes_max)
        self._send_buffer_bytes_max = send_buffer_bytes_max
        self._outgoing: deque[Buffer] = deque()
        self._wake = anyio.Event()
        #: Bytes in the send buffer, and all that were ever put there.
        self.outgoing_bytes = 0
        self.queued_bytes = 0
        #: Set by code that will call `flush` shortly, so that the writer is not woken in vain.
        self.gathering = False
        #: Chunks received and commands sent: for telling a silent connection from a busy one.
        self.activity = 0

    async def begin(
        self, begin: Callable[[socket.socket], Awaitable[socket.socket | Channel]]
    ) -> bool:
        """Agree with the other end on what to speak over; whether it is encrypted. OSError."""
        assert isinstance(self._socket, socket.socket), "nothing was agreed before"
        agreed = await begin(self._socket)
        is_encrypted, self._socket = agreed is not self._socket, agreed
        return is_encrypted

    @property
    def written_bytes(self) -> int:
        """Bytes that the socket has taken since it was connected."""
        return self.queued_bytes - self.outgoing_bytes

    @property
    def frames(self) -> int:
        """Number of frames received. While this stays the same and `partial_bytes` is not 0, a
        frame is incomplete."""
        return self._decoder.count

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that has begun and is not complete."""
        return self._decoder.partial_bytes

    @property
    def held_bytes(self) -> int:
        """Memory kept for this connection: frames that are not complete, answers not sent."""
        return self._decoder.held_bytes + self.outgoing_bytes

    def send(self, command: Command, *, at_once: bool = False) -> None:
        """Put `command` into the send buffer; `at_once` also writes the buffer.

        Raises FrameError if it can't be encoded, Busy if there is no room; the buffer is
        then as it was. Raises OSError if writing fails.
        """
        pieces = encode_frame(command)
        size = sum(map(len, pieces))
        if self.outgoing_bytes + size > self._send_buffer_bytes_max:
            raise Busy(
                f"{self.outgoing_bytes} bytes wait to be sent, the bound is "
                f"{self._send_buffer_bytes_max}",
                BUSY_RETRY_S,
            )
        self._outgoing.extend(pieces)
        self.outgoing_bytes += size
        self.queued_bytes += size
        self.activity += 1
        if at_once:
            self.flush()
        elif not self.gathering:
            self._wake.set()

    def flush(self) -> None:
        """Write what the socket takes at once; the writer task does the rest. Raises OSError."""
        if self._outgoing and not self.write():
            self._wake.set()

    async def write_forever(self) -> None:
        """Write the send buffer whenever there is something in it. Raises OSError."""
        while True:
            await self.wait_outgoing()
            while not self.write():
                await self.wait_writable()

    async def wait_outgoing(self) -> None:
        """Wait until there is something to write that no `flush` will write."""
        await self._wake.wait()
        self._wake = anyio.Event()

    async def wait_writable(self) -> None:
        """Wait until the socket takes more."""
        await anyio.wait_writable(self._socket)

    async def wait_readable(self) -> None:
        """Wait until there are bytes, or an end, to `take`."""
        await anyio.wait_readable(self._socket)

    async def receive(self) -> Iterator[Command]:
        """Wait for bytes and `take` the commands that they complete."""
        await self.wait_readable()
        return self.take()

    def take(self) -> Iterator[Command]:
        """The commands that are complete with the bytes that came: take them all.

        Raises EOFError, OSError, and FrameError while iterating.
        """
        large = self._decoder.partial_bytes >= RECEIVE_BYTES
        try:
            data = self._socket.recv(RECEIVE_LARGE_BYTES if large else RECEIVE_BYTES)
        except BlockingIOError:
            return iter(())
        if not data:
            raise EOFError("closed by the other end")
        self.activity += 1
        self._decoder.feed(data)
        return self._decoder.frames()

    def close(self) -> None:
        """Close the socket, for which no task may still wait. Bytes that were written still
        arrive."""
        self._outgoing.clear()
        self._decoder.forget()
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._socket.close()

    def stay_behind(self) -> None:
        """Close this copy of the socket in a fork. The copies share their options: leave them."""
        self._socket.close()

    def write(self) -> bool:
        """Write until the buffer is empty (true), or other connections should have their turn
        (false).

        That is when the socket takes no more, or after some calls. Raises OSError.
        """
        for _ in range(SENDS_PER_TURN_MAX):
            if not self._outgoing:
                return True
            try:
                sent = self._socket.sendmsg(islice(self._outgoing, PIECES_PER_CALL_MAX))
            except BlockingIOError:
                return False
            self._drop(sent)
        return not self._outgoing

    def _drop(self, count: int) -> None:
        """Take `count` bytes that were sent out of the buffer."""
        self.outgoing_bytes -= count
        while count:
            piece = self._outgoing.popleft()
            if len(piece) > count:
                self._outgoing.appendleft(memoryview(piece)[count:])
                return
            count -= len(piece)
