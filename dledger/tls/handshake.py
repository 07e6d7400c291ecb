"""How an encrypted connection begins: by a handshake that is bounded in time and bytes.

A server waits for a connection's first byte as for any client's. 22 begins a handshake; a frame of
RocketMQ's protocol begins with 0, as it is shorter than 16 MiB. Nothing is read to tell them
apart. The steps of handshakes take turns with requests: each costs a server up to two
milliseconds, and strangers may ask for as many as they like.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.lowlevel

from dledger.limits import TLS_HANDSHAKE_BYTES_MAX, TLS_HANDSHAKE_S
from dledger.tls.channel import Channel, RecordReader
from dledger.tls.options import Mode, TlsFailed
from dledger.tls.reasons import explained

HANDSHAKE_BYTE = 22

InTurn: TypeAlias = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Takes a step of a handshake when it may take time of the loop."""


async def at_once(step: Callable[[], bool]) -> bool:
    """Take a step now: no stranger can ask this end for many."""
    await anyio.lowlevel.checkpoint()
    return step()


async def dial(sock: socket.socket, context: ssl.SSLContext, server_name: str) -> Channel:
    """Begin TLS with a server that was dialled. Raises TlsFailed."""
    try:
        channel = Channel(sock, context, server_name)
    except ValueError as error:  # a name that no certificate can have
        raise TlsFailed(f"TLS: {error}") from error
    return await _shaken(channel, sock, at_once)


async def begin(
    sock: socket.socket, mode: Mode, context: ssl.SSLContext, in_turn: InTurn = at_once
) -> Channel | socket.socket:
    """The channel to a client that dialled: TLS, or in `PERMISSIVE` mode the socket itself.

    Raises TlsFailed.
    """
    while True:
        await anyio.wait_readable(sock)
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        break
    if first and first[0] == HANDSHAKE_BYTE:
        return await _shaken(Channel(sock, context), sock, in_turn)
    if first and mode is Mode.ENFORCING:
        raise TlsFailed("it speaks plain text, and this port takes TLS alone: turn TLS on there")
    return sock


async def _shaken(channel: Channel, sock: socket.socket, in_turn: InTurn) -> Channel:
    records = RecordReader(sock, TLS_HANDSHAKE_BYTES_MAX)
    try:
        with anyio.move_on_after(TLS_HANDSHAKE_S):
            while True:
                done = await in_turn(channel.shake)
                while not channel.flush():
                    await anyio.wait_writable(sock)
                if done:
                    return channel
                channel.feed(await records.next())
    except ssl.SSLError as error:
        channel.tell_why()
        raise TlsFailed(f"TLS: {explained(error)}") from error
    except EOFError as end:
        raise TlsFailed(
            f"TLS: {end}: it speaks no TLS at this port, or refuses this end's certificate"
        ) from end
    except OSError as error:
        raise TlsFailed(f"TLS: {error.strerror or error}") from error
    raise TlsFailed(f"no TLS handshake within {TLS_HANDSHAKE_S:g} s")
