"""The first four messages on a connection between two nodes: their ids, and their proofs.

`dledger/trust/proof.py` explains the protocol, and why a stranger learns nothing from it. This
module has its bytes. Each message is a u32 length and a msgpack array::

    dialler   version, group, segment bytes, its id, its nonce
    acceptor  version, group, segment bytes, its id, its nonce
    dialler   its proof
    acceptor  its proof

While the secret is replaced, a proof is one by each secret, one behind the other.

Without a secret the proofs are made with an empty one. They then only keep out programs that are no
node of this group. Frames have a CRC and no tag, and the peer port must not be reachable from other
machines (:func:`require_secret`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import msgpack
import trio

from dledger.errors import FrameError
from dledger.raft.limits import HANDSHAKE_TIMEOUT_S, HELLO_BYTES_MAX
from dledger.trust.proof import NONCE_BYTES, Acceptor, Dialler, Door, Hello, Session, check_hello
from dledger.trust.rolling import Secrets

if TYPE_CHECKING:
    from dledger.tls.channel import Channel

PROTOCOL_VERSION = 5
"""4 knew SHA-256 only, for the tags of frames."""


class Handshaker:
    """A node's side of the handshakes."""

    def __init__(
        self, group: str, node_id: str, segment_bytes: int, secret: bytes | Secrets
    ) -> None:
        self._door = Door("peer port", (PROTOCOL_VERSION, group, segment_bytes))
        self._node_id = node_id
        self._secrets = Secrets.of(secret)

    async def dial(self, sock: socket.socket | Channel, wanted_id: str) -> Session | None:
        """Handshake with the node that was dialled. Returns the session, None without a secret.

        Raises FrameError, OSError.
        """
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            side = Dialler(self._door, self._node_id, self._secrets, os.urandom(NONCE_BYTES))
            await self._say_hello(sock, side.hello)
            acceptor = self._checked(await _receive_small(sock))
            await _send_small(sock, [side.prove(acceptor, wanted_id)])
            try:
                (proof, *_) = await _receive_small(sock)
            except OSError as error:
                raise FrameError(
                    f"node {wanted_id!r} did not take this node's proof that it knows the group's "
                    "secret; its own log says why"
                ) from error
            return self._kept(side.check(proof))
        raise FrameError(f"no handshake within {HANDSHAKE_TIMEOUT_S} s")

    async def accept(
        self, sock: socket.socket | Channel, admit: Callable[[str], None]
    ) -> tuple[str, Session | None]:
        """Handshake with a node that dialled: its proof comes first. Returns its id, and the
        session, None without a secret.

        `admit` raises FrameError for an id that may not connect. Raises FrameError, OSError.
        """
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            side = Acceptor(self._door, self._node_id, self._secrets, os.urandom(NONCE_BYTES))
            hello = await _receive_small(sock)
            if self._is_of_this_group(hello):
                admit(self._checked(hello).node_id)
            # A node of another group is told this group's name, so that its own log can say so,
            # too.
            await self._say_hello(sock, side.hello)
            dialler = self._checked(hello)
            (said, *_) = await _receive_small(sock)
            proof, session = side.check(dialler, said)
            await _send_small(sock, [proof])
            return dialler.node_id, self._kept(session)
        raise FrameError(f"no handshake within {HANDSHAKE_TIMEOUT_S} s")

    def _kept(self, session: Session) -> Session | None:
        return session if self._secrets else None

    async def _say_hello(self, sock: socket.socket | Channel, hello: Hello) -> None:
        await _send_small(sock, [*self._door.terms, *hello])

    def _is_of_this_group(self, said: list[object]) -> bool:
        terms = [*self._door.terms]
        return len(said) == len(terms) + 2 and said[: len(terms)] == terms

    def _checked(self, said: list[object]) -> Hello:
        """Check the other side's hello. Raises FrameError."""
        terms = [*self._door.terms]
        if not self._is_of_this_group(said):
            raise FrameError(
                f"it says {said[: len(terms) + 1]!r}; this group has {terms!r} "
                "(protocol version, group, segment bytes)"
            )
        hello = check_hello(*said[len(terms) :])
        if hello.node_id == self._node_id:
            raise FrameError(f"node {hello.node_id!r} has the same id as this one")
        return hello


async def _send_small(sock: socket.socket | Channel, fields: list[object]) -> None:
    packed = msgpack.packb(fields)
    await trio.lowlevel.wait_writable(sock)
    if sock.send(len(packed).to_bytes(4, "big") + packed) != len(packed) + 4:
        raise OSError("a handshake message did not fit in the socket's buffer")


async def _receive_small(sock: socket.socket | Channel) -> list[object]:
    length = int.from_bytes(await _receive_exactly(sock, 4), "big")
    if length > HELLO_BYTES_MAX:
        raise FrameError(f"a handshake message of {length} bytes is above {HELLO_BYTES_MAX}")
    try:
        fields = msgpack.unpackb(await _receive_exactly(sock, length))
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"a handshake message is not valid msgpack: {error}") from error
    if not isinstance(fields, list) or not fields:
        raise FrameError(f"a handshake message is {fields!r}, not a list")
    return fields


async def _receive_exactly(sock: socket.socket | Channel, count: int) -> bytes:
    # Not `recv`, by which a channel gives all that it has decrypted.
    received, at = bytearray(count), 0
    readable = readable_of(sock)
    while at < count:
        await readable()
        try:
            piece = sock.recv_into(memoryview(received)[at:])
        except BlockingIOError:
            continue
        if not piece:
            raise OSError("the connection was closed during the handshake")
        at += piece
    return bytes(received)


def readable_of(sock: socket.socket | Channel) -> Callable[[], Awaitable[None]]:
    """A function that waits until there is something to read."""
    if isinstance(sock, socket.socket):
        return partial(trio.lowlevel.wait_readable, sock)
    return sock.readable
