"""The sockets between the nodes of a group, under trio.

Of each pair the node with the higher id dials, so there is one connection; a newer one replaces an
older one. Who belongs to the group changes, and not everybody hears of it at the same time: who is
not dialled for a second dials, and is let in where it is not known.

Before anything else both sides say who they are and prove that they know the group's secret: each
signs the other's nonce. Without a configured secret the proof only keeps out what is not a node of
this group at all, so then the peer port must not be reachable by others.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import socket
from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

import msgpack
import trio

from dledger import limits
from dledger.errors import FrameError
from dledger.observe import get_logger
from dledger.raft.configuration import Configuration, Member
from dledger.raft.messages import PREFIX, PeerMessage, decode_message, frame_length
from dledger.remoting.command import Buffer

PROTOCOL_VERSION = 3
HELLO_BYTES_MAX = 1024
HANDSHAKE_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 1.0
REDIAL_WAIT_S = 0.1
UNDIALLED_WAIT_S = 1.0
"""A peer that should dial and has not for so long may not know this node."""
READ_BUFFER_BYTES = 4 << 20
BUFFERS_PER_WRITE = 64
UNACKNOWLEDGED_TIMEOUT_MS = 5_000
"""TCP_USER_TIMEOUT: a peer whose host vanished without a word is given up after this."""

_RETRY = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)

log = get_logger("dledger.raft.links")


class LinkOwner(Protocol):
    """Who the links belong to: the ledger."""

    def link_up(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer stands."""

    def link_down(self, node_id: str, link: SocketLink) -> None:
        """It broke."""

    def link_drained(self, node_id: str) -> None:
        """What was queued for a peer has left."""

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        """A message arrived."""

    def received_all(self) -> None:
        """No more messages have arrived for the moment."""


class SocketLink:
    """A connection to one peer. Writes go straight to the kernel while it takes them."""

    def __init__(self, sock: socket.socket, node_id: str) -> None:
        self.node_id = node_id
        self.queued_bytes = 0
        self.closed_because: str | None = None
        self._socket = sock
        self._queue: deque[memoryview] = deque()
        self._has_queued = trio.Event()

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Queue bytes, and write at once if nothing is queued before them."""
        if self.closed_because is not None:
            return
        sent = 0 if self._queue else self._write(buffers)
        if sent is None:
            return
        for buffer in buffers:
            if sent < len(buffer):
                self._queue.append(memoryview(buffer)[sent:])
                self.queued_bytes += len(buffer) - sent
                self._has_queued.set()
            sent = max(0, sent - len(buffer))

    def _write(self, buffers: Sequence[Buffer]) -> int | None:
        """Hand bytes to the kernel; how many it took. None after an error, which closes."""
        try:
            return self._socket.sendmsg(buffers)
        except OSError as error:
            if error.errno in _RETRY:
                return 0
            self.close(f"sending failed: {error}")
            return None

    def _write_queued(self) -> None:
        sent = self._write([*islice(self._queue, BUFFERS_PER_WRITE)])
        if sent is None:
            return
        self.queued_bytes -= sent
        while self._queue and sent >= len(self._queue[0]):
            sent -= len(self._queue.popleft())
        if sent:
            self._queue[0] = self._queue[0][sent:]

    def close(self, reason: str) -> None:
        """Close the connection; its tasks end and the owner is told."""
        if self.closed_because is None:
            self.closed_because = reason
            self._queue.clear()
            self.queued_bytes = 0
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._has_queued.set()

    async def run(self, owner: LinkOwner) -> None:
        """Serve the connection until it ends."""
        owner.link_up(self.node_id, self)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, owner)
                await self._read(owner)
                nursery.cancel_scope.cancel()
        except* (OSError, FrameError, trio.ClosedResourceError) as errors:
            self.close(str(errors.exceptions[0]))
        finally:
            self.close("the peer closed it")
            owner.link_down(self.node_id, self)

    async def _drain(self, owner: LinkOwner) -> None:
        while self.closed_because is None:
            await self._has_queued.wait()
            self._has_queued = trio.Event()
            while self._queue and self.closed_because is None:
                await trio.lowlevel.wait_writable(self._socket)
                self._write_queued()
            owner.link_drained(self.node_id)

    async def _read(self, owner: LinkOwner) -> None:
        buffer = bytearray(READ_BUFFER_BYTES)
        view = memoryview(buffer)
        start = end = 0
        # The link may have been closed while this task was about to wait for it.
        while self.closed_because is None:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                count = self._socket.recv_into(view[end:])
            except OSError as error:
                if error.errno in _RETRY:
                    continue
                raise
            if count == 0:
                return
            end += count
            first, needed = start, PREFIX.size
            while end - start >= PREFIX.size:
                needed = frame_length(buffer, start)
                if end - start < needed:
                    break
                # Copied once: the buffer is used again while the message waits for its step.
                frame = memoryview(bytes(view[start : start + needed]))
                owner.receive(self.node_id, self, decode_message(frame))
                start += needed
                needed = PREFIX.size
            if start > first:
                owner.received_all()
            if start == end:
                start = end = 0
            elif start + max(needed, READ_BUFFER_BYTES // 4) > len(buffer):
                rest = bytes(view[start:end])
                if needed > len(buffer):
                    buffer = bytearray(2 * needed)
                    view = memoryview(buffer)
                view[: len(rest)] = rest
                start, end = 0, len(rest)


class PeerNetwork:
    """Dials and accepts the connections of one node."""

    def __init__(
        self, group: str, node_id: str, segment_bytes: int, secret: bytes, owner: LinkOwner
    ) -> None:
        self._identity = [PROTOCOL_VERSION, group, segment_bytes]
        self._node_id = node_id
        self._secret = secret
        self._owner = owner
        self._said: dict[str, str] = {}
        self._taken: Configuration | None = None
        self._members: dict[str, Member] = {}
        self._dialling: dict[str, trio.CancelScope] = {}
        self._linked: Counter[str] = Counter()
        self._nursery: trio.Nursery | None = None

    async def run(self, listener: socket.socket, configuration: Configuration) -> None:
        """Keep a connection to every peer until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.take_members(configuration)
            nursery.start_soon(self._accept, listener, nursery)

    def take_members(self, configuration: Configuration) -> None:
        """Dial those that belong to the group now, and no others. Links that stand stay."""
        if configuration is self._taken or self._nursery is None:
            return
        before, self._taken = self._members, configuration
        self._members = {
            node_id: member
            for node_id, member in configuration.members.items()
            if node_id != self._node_id
        }
        for peer_id in [*self._dialling]:
            if self._members.get(peer_id) != before.get(peer_id):
                self._dialling.pop(peer_id).cancel()
        for peer_id in sorted({*self._members} - {*self._dialling}):
            scope = self._dialling[peer_id] = trio.CancelScope()
            self._nursery.start_soon(self._dial, peer_id, self._members[peer_id].address, scope)

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                sock, _ = listener.accept()
            except OSError:
                continue
            nursery.start_soon(self._serve, sock)

    async def _serve(self, sock: socket.socket) -> None:
        try:
            _tune(sock)
            peer_id = await self._handshake(sock, None)
        except (OSError, FrameError, TimeoutError) as error:
            self._complain("a connection to the peer port was refused", str(error))
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        await self._run_link(sock, peer_id)

    async def _run_link(self, sock: socket.socket, peer_id: str) -> None:
        self._linked[peer_id] += 1
        try:
            await SocketLink(sock, peer_id).run(self._owner)
        finally:
            self._linked[peer_id] -= 1
            if not self._linked[peer_id]:
                del self._linked[peer_id]

    async def _dial(self, peer_id: str, address: tuple[str, int], scope: trio.CancelScope) -> None:
        wait_s = REDIAL_WAIT_S if self._node_id > peer_id else UNDIALLED_WAIT_S
        with scope:
            if self._node_id < peer_id:
                await trio.sleep(wait_s)
            while True:
                sock = None if self._linked[peer_id] else await self._connect(peer_id, address)
                if sock is not None:
                    await self._run_link(sock, peer_id)
                await trio.sleep(wait_s)

    async def _connect(self, peer_id: str, address: tuple[str, int]) -> socket.socket | None:
        host, port = address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            _tune(sock)
            with trio.fail_after(CONNECT_TIMEOUT_S):
                code = sock.connect_ex((host, port))
                if code not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
                await trio.lowlevel.wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
            await self._handshake(sock, peer_id)
        except (OSError, FrameError, trio.TooSlowError) as error:
            sock.close()
            if isinstance(error, FrameError):
                self._complain(f"peer {peer_id} was refused", str(error))
            return None
        except BaseException:
            sock.close()
            raise
        return sock

    def _complain(self, event: str, reason: str) -> None:
        if self._said.get(event) != reason and len(self._said) < limits.CONNECTIONS_MAX:
            self._said[event] = reason
            log.warning(event, reason=reason)

    # -- who is there ----------------------------------------------------------------------

    async def _handshake(self, sock: socket.socket, expected: str | None) -> str:
        """Say who we are, learn and check who the other is. Raises FrameError, OSError."""
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            nonce = os.urandom(16)
            await _send_small(sock, [*self._identity, self._node_id, nonce])
            said = await _receive_small(sock)
            if len(said) != len(self._identity) + 2 or list(said[:-2]) != self._identity:
                raise FrameError(
                    f"it says {said[:-1]!r}; this group has {self._identity!r} "
                    "(protocol version, group, segment bytes)"
                )
            peer_id, peer_nonce = said[-2:]
            peer_id = self._checked_id(peer_id, expected)
            await _send_small(sock, [self._sign(peer_nonce, self._node_id)])
            signature = (await _receive_small(sock))[0]
            if not isinstance(signature, bytes) or not hmac.compare_digest(
                signature, self._sign(nonce, peer_id)
            ):
                raise FrameError(f"node {peer_id!r} does not know the group's secret")
            return peer_id
        raise FrameError(f"no handshake within {HANDSHAKE_TIMEOUT_S} s")

    def _checked_id(self, peer_id: object, expected: str | None) -> str:
        """Raise FrameError for who may not connect. A stranger may: it may know what is new here.

        What it says is never counted. It proves that it knows the group's secret, as others do.
        """
        bytes_max = limits.NODE_ID_BYTES_MAX
        if not isinstance(peer_id, str) or not 0 < len(peer_id.encode()) <= bytes_max:
            raise FrameError(f"node id {peer_id!r} is no text of 1 to {bytes_max} bytes")
        if peer_id == self._node_id:
            raise FrameError(f"node {peer_id!r} has the same id as this one")
        if expected not in (None, peer_id):
            raise FrameError(f"node {peer_id!r} answers at the address of {expected!r}")
        if expected is None and peer_id in self._members and peer_id < self._node_id:
            raise FrameError(f"node {peer_id!r} must be dialled, it does not dial")
        strangers = {*self._linked} - {*self._members} - {peer_id}
        if peer_id not in self._members and len(strangers) >= limits.STRANGERS_MAX:
            raise FrameError(f"{len(strangers)} nodes that are no members are connected, the limit")
        return peer_id

    def _sign(self, nonce: object, node_id: str) -> bytes:
        if not isinstance(nonce, bytes):
            raise FrameError("the handshake's nonce is no bytes")
        return hmac.digest(self._secret, nonce + node_id.encode(), hashlib.sha256)


def listen(host: str, port: int) -> socket.socket:
    """A peer port, open. OSError names it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"the peer port {host}:{port} can't be opened ({error.strerror})"
        ) from error
    return listener


def _tune(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_TIMEOUT_MS)


async def _send_small(sock: socket.socket, fields: list[object]) -> None:
    packed = msgpack.packb(fields)
    await trio.lowlevel.wait_writable(sock)
    if sock.send(len(packed).to_bytes(4, "big") + packed) != len(packed) + 4:
        raise OSError("a handshake message did not fit in the socket's buffer")


async def _receive_small(sock: socket.socket) -> list[object]:
    length = int.from_bytes(await _receive_exactly(sock, 4), "big")
    if length > HELLO_BYTES_MAX:
        raise FrameError(f"a handshake message of {length} bytes is above {HELLO_BYTES_MAX}")
    try:
        fields = msgpack.unpackb(await _receive_exactly(sock, length))
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"a handshake message is no msgpack: {error}") from error
    if not isinstance(fields, list) or not fields:
        raise FrameError(f"a handshake message is {fields!r}, not a list")
    return fields


async def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        await trio.lowlevel.wait_readable(sock)
        try:
            piece = sock.recv(count - len(received))
        except BlockingIOError:
            continue
        if not piece:
            raise OSError("the connection was closed during the handshake")
        received += piece
    return received
