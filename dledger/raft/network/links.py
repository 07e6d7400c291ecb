"""The sockets between the nodes of a group, under trio.

In each pair the node with the higher id dials, so there is one connection; a newer one replaces an
older one. Members do not all hear of a new member at the same time. So a node that was not dialled
for a second dials itself, and a node that is not known as a member is let in.

First both sides prove that they know the group's secret (`handshake`). From then on every frame
carries a tag that nobody else can make (`frame_tags`). Without a proof a stranger can hold only a
few connections, for two seconds each.

An address is the group's word, not this node's choice: it may be a name that nobody knows, or that
a resolver takes its time for. So names are looked up off the loop, and a peer that can't be dialled
costs nothing but its own task, and is reported (`unreached`). An unforeseen exception ends one
connection, or one attempt to make one; the owner sees to its own in `receive`.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import anyio
import trio

from dledger import limits, world
from dledger.buffers import Buffer
from dledger.errors import BadInput, FrameError
from dledger.observe import get_logger
from dledger.raft.limits import (
    ACCEPT_AGAIN_S,
    BUFFERS_PER_WRITE,
    HANDSHAKE_TIMEOUT_S,
    READ_BUFFER_BYTES,
    REDIAL_WAIT_S,
    UNDIALLED_WAIT_S,
)
from dledger.raft.membership.configuration import Configuration, Member
from dledger.raft.messages import PREFIX, PeerMessage, decode_message, frame_length
from dledger.raft.network.dialling import Connected, Dialling, tune
from dledger.raft.network.frame_tags import FrameTags, RunHash
from dledger.raft.network.handshake import Handshaker, readable_of
from dledger.trust.proof import TAG_BYTES, Session

if TYPE_CHECKING:
    from dledger.tls.channel import Channel
    from dledger.tls.servers import ServerContexts

CLOSED_BY_PEER = "the peer closed it"
_RETRY = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)

_REFUSED = (OSError, FrameError, trio.ClosedResourceError, anyio.ClosedResourceError)
"""Errors that end a connection before it is a link: the last two, if it is closed for another
one."""

log = get_logger("dledger.raft.network.links")


class LinkOwner(Protocol):
    """The owner of the links: the ledger."""

    def link_up(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer stands."""

    def link_down(self, node_id: str, link: SocketLink) -> None:
        """Note that a peer's link broke."""

    def link_drained(self, node_id: str) -> None:
        """Note that all frames queued for a peer have left."""

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        """Take a message that arrived."""

    def received_all(self) -> None:
        """No more messages have arrived for the moment."""


class SocketLink:
    """A connection to one peer. Writes go straight to the kernel while it takes them.

    With `tags` every frame sent or received is followed by its tag. An encrypting channel may
    stand for the socket.
    """

    def __init__(
        self, sock: socket.socket | Channel, node_id: str, tags: FrameTags | None = None
    ) -> None:
        self.node_id = node_id
        self.queued_bytes = 0
        self.closed_because: str | None = None
        self._socket = sock
        self._readable = readable_of(sock)
        self._queue: deque[memoryview] = deque()
        self._has_queued = trio.Event()
        self._tags = tags

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Queue bytes, and write at once if nothing is queued before them."""
        if self.closed_because is not None:
            return
        if self._tags is not None:
            buffers = self._tags.append(buffers)
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
        """Hand bytes to the kernel; returns how many it took, or None after an error, which
        closes."""
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
        except* Exception as errors:
            log.error("link failed", peer=self.node_id, exc_info=errors)
            self.close(f"unforeseen: {errors.exceptions[0]!r}")
        finally:
            self.close(CLOSED_BY_PEER)
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
        tags, prefix_bytes = self._tags, PREFIX.size
        tag_bytes = 0 if tags is None else TAG_BYTES
        # The link may have been closed while this task was about to wait for it.
        while self.closed_because is None:
            await self._readable()
            try:
                count = self._socket.recv_into(view[end:])
            except OSError as error:
                if error.errno in _RETRY:
                    continue
                raise
            if count == 0:
                return
            end += count
            first, needed = start, prefix_bytes
            while end - start >= prefix_bytes:
                needed = frame_length(buffer, start) + tag_bytes
                if end - start < needed:
                    break
                # Copied once: the buffer is used again while the message waits for its step.
                frame = memoryview(bytes(view[start : start + needed]))
                if tags is not None:
                    frame = tags.check(frame)
                owner.receive(self.node_id, self, decode_message(frame))
                start += needed
                needed = prefix_bytes
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
        self,
        node_id: str,
        handshaker: Handshaker,
        owner: LinkOwner,
        tls: ServerContexts | None = None,
    ) -> None:
        self._handshaker = handshaker
        self._tls = tls
        self._node_id = node_id
        self._owner = owner
        #: Why a peer could not be dialled last, by id; not of those that are connected.
        self.unreached: dict[str, str] = {}
        self._said: dict[tuple[str, str], str] = {}
        self._taken: Configuration | None = None
        self._members: dict[str, Member] = {}
        self._dialling: dict[str, trio.CancelScope] = {}
        self._linked: Counter[str] = Counter()
        self._link_ended = trio.Event()
        self._unproven: dict[socket.socket, str] = {}
        self._run_hash = RunHash()
        self._nursery: trio.Nursery | None = None

    async def run(self, listener: socket.socket, configuration: Configuration) -> None:
        """Keep a connection to every peer until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.take_members(configuration)
            nursery.start_soon(self._accept, listener, nursery)

    def take_members(self, configuration: Configuration) -> None:
        """Dial the current members, and no others. Open links stay open."""
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
                self.unreached.pop(peer_id, None)
        for peer_id in sorted({*self._members} - {*self._dialling}):
            scope = self._dialling[peer_id] = trio.CancelScope()
            self._nursery.start_soon(self._dial, peer_id, self._members[peer_id].address, scope)

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno not in _RETRY:
                    self._complain("the peer port can't accept", str(error))
                    await trio.sleep(ACCEPT_AGAIN_S)
                continue
            self._make_room()
            self._unproven[sock] = str(address[0])
            nursery.start_soon(self._serve, sock)

    def _make_room(self) -> None:
        """Close the oldest unproven connection of the address that has most of them."""
        if len(self._unproven) < limits.HANDSHAKES_MAX:
            return
        ((most, _),) = Counter(self._unproven.values()).most_common(1)
        oldest = next(sock for sock, address in self._unproven.items() if address == most)
        del self._unproven[oldest]
        self._complain(
            "a connection to the peer port was refused",
            f"{most} has too many connections that have not proven that they know the secret",
            peer=most,
        )
        trio.lowlevel.notify_closing(oldest)
        oldest.close()

    async def _serve(self, sock: socket.socket) -> None:
        try:
            tune(sock)
            agreed = await self._agreed(sock)
            peer_id, session = await self._handshaker.accept(agreed, self._admit)
        except _REFUSED as error:
            address = self._unproven.get(sock, "")
            self._complain("a connection to the peer port was refused", str(error), peer=address)
            sock.close()
            return
        except Exception as error:
            log.error("handshake failed", peer=self._unproven.get(sock, ""), exc_info=error)
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        finally:
            self._unproven.pop(sock, None)
        await self._run_link(agreed, peer_id, session)

    async def _agreed(self, sock: socket.socket) -> socket.socket | Channel:
        """The channel to a node that dialled. Raises OSError."""
        if self._tls is None:
            return sock
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            return await self._tls.begin_with_member(sock)
        raise FrameError(f"no handshake within {HANDSHAKE_TIMEOUT_S} s")

    async def _run_link(
        self, sock: socket.socket | Channel, peer_id: str, session: Session | None
    ) -> None:
        self._linked[peer_id] += 1
        tags = None if session is None else FrameTags(session, self._run_hash)
        link = SocketLink(sock, peer_id, tags)
        try:
            await link.run(self._owner)
        finally:
            if link.closed_because != CLOSED_BY_PEER:
                reason = str(link.closed_because)
                self._complain("connection to a peer ended", reason, of=peer_id, peer=peer_id)
            self._linked[peer_id] -= 1
            if not self._linked[peer_id]:
                del self._linked[peer_id]
            self._link_ended.set()
            self._link_ended = trio.Event()

    async def _dial(self, peer_id: str, address: tuple[str, int], scope: trio.CancelScope) -> None:
        wait_s = REDIAL_WAIT_S if self._node_id > peer_id else UNDIALLED_WAIT_S
        dialling = Dialling(self._handshaker, peer_id, *address, self._tls)
        with scope:
            if self._node_id < peer_id:
                await trio.sleep(wait_s)
            while True:
                connected = None if self._linked[peer_id] else await self._connect(dialling)
                if connected is not None:
                    sock, session = connected
                    await self._run_link(sock, peer_id, session)
                while self._linked[peer_id]:
                    self.unreached.pop(peer_id, None)
                    await self._link_ended.wait()
                await trio.sleep(wait_s)

    async def _connect(self, dialling: Dialling) -> Connected | None:
        """A connection to a peer, proven; None if there is none now, and `unreached` says why."""
        peer_id = dialling.peer_id
        try:
            return await dialling.connect()
        except FrameError as error:
            self._complain("peer refused", str(error), of=peer_id, peer=peer_id)
            problem = str(error)
        except (OSError, BadInput) as error:
            problem = str(error)
        except Exception as error:
            self._complain("peer not dialled", repr(error), of=peer_id, peer=peer_id)
            problem = f"unforeseen: {error!r}"
        self.unreached[peer_id] = problem
        return None

    def _complain(self, event: str, reason: str, *, of: str = "", **values: str) -> None:
        """Warn, unless this reason was the last one given for the event, and for the peer `of`."""
        key = event, of
        if self._said.get(key) != reason and len(self._said) < limits.CONNECTIONS_MAX:
            self._said[key] = reason
            log.warning(event, reason=reason, **values)

    def _admit(self, peer_id: str) -> None:
        """Raise FrameError for a node that may not connect. A stranger may: it may be a newer
        member.

        It has proven that it knows the group's secret, and its answers are never counted.
        """
        if peer_id in self._members and peer_id < self._node_id:
            raise FrameError(f"node {peer_id!r} must not dial this node: this node dials it")
        strangers = {*self._linked} - {*self._members} - {peer_id}
        if peer_id not in self._members and len(strangers) >= limits.STRANGERS_MAX:
            raise FrameError(
                f"{len(strangers)} nodes that are not members are connected: the limit"
            )


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at the peer port. Raises OSError with words that name the port."""
    try:
        return world.listen(host, port, limits.HANDSHAKES_MAX)
    except OSError as error:
        raise OSError(error.errno, f"the peer port can't be opened: {error.strerror}") from error
