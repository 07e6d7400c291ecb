"""How one peer is reached, under trio: by the addresses that its host has.

A host may be a name. It is looked up off the event loop, for as long as a resolver may take; the
addresses that were found last are tried before, so a slow or silent resolver does not keep a node
from a peer that it knows. Whoever answers proves that it is that peer (`handshake`), so an address
that has become another's does no harm.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import trio

from dledger.addresses import check_host, check_port
from dledger.errors import FrameError
from dledger.keepalive import end_unacknowledged
from dledger.raft.limits import (
    CONNECT_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    LOOKUP_AGAIN_S,
    LOOKUP_S,
    UNACKNOWLEDGED_S,
)
from dledger.raft.network.handshake import Handshaker
from dledger.tls.options import TlsFailed
from dledger.trust.proof import Session
from dledger.world import Found, world

if TYPE_CHECKING:
    from dledger.tls.channel import Channel
    from dledger.tls.servers import ServerContexts

Connected: TypeAlias = "tuple[socket.socket | Channel, Session | None]"


class Dialling:
    """The address of a peer, and where it was found."""

    def __init__(
        self,
        handshaker: Handshaker,
        peer_id: str,
        host: str,
        port: int,
        tls: ServerContexts | None = None,
    ) -> None:
        self.peer_id = peer_id
        self._handshaker = handshaker
        self._host = host
        self._port = port
        self._tls = tls
        self._found: list[Found] = []
        self._look_up_at = float("-inf")
        self._problem: OSError | FrameError = OSError(f"{host!r} has no address")

    async def connect(self) -> Connected:
        """A socket on which both sides have proven. Raises OSError, FrameError, BadInput."""
        check_host(self._host)
        check_port(self._port)
        connected = await self._first_of(self._found)
        if connected is None and trio.current_time() >= self._look_up_at:
            found = await self._lookup()
            new = [each for each in found if each not in self._found]
            self._found = found
            connected = await self._first_of(new)
        if connected is None:
            raise self._problem
        return connected

    async def _lookup(self) -> list[Found]:
        """The present address of the host. A peer that is down is dialled often, and looked up
        seldom."""
        try:
            with trio.fail_after(LOOKUP_S):
                return await world().lookup(self._host, self._port)
        except (OSError, trio.TooSlowError) as error:
            late = isinstance(error, trio.TooSlowError)
            reason = f"no answer within {LOOKUP_S:g} s" if late else str(error)
            self._problem = OSError(f"{self._host!r} could not be looked up: {reason}")
            raise self._problem from error
        finally:
            self._look_up_at = trio.current_time() + LOOKUP_AGAIN_S

    async def _first_of(self, addresses: Iterable[Found]) -> Connected | None:
        ways = (None,) if self._tls is None else self._tls.ways_to_members
        for family, address in addresses:
            for tls in ways:
                try:
                    return await self._connect(family, address, tls)
                except TlsFailed as error:
                    self._problem = error
                except (OSError, FrameError) as error:
                    self._problem = error
                    break
        return None

    async def _connect(
        self,
        family: int,
        address: tuple[str | int | bytes, ...],
        tls: ServerContexts | None,
    ) -> Connected:
        """Connect to an address and prove to know the secret. Raises OSError, FrameError, and
        TlsFailed if encryption is what failed."""
        sock = world().socket(family)
        try:
            tune(sock)
            with trio.move_on_after(CONNECT_TIMEOUT_S) as waiting:
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
                await trio.lowlevel.wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
            if waiting.cancelled_caught:
                raise OSError(f"no answer within {CONNECT_TIMEOUT_S:g} s")
            agreed = sock if tls is None else await self._agreed(sock, tls)
            return agreed, await self._handshaker.dial(agreed, self.peer_id)
        except BaseException:
            sock.close()
            raise

    async def _agreed(self, sock: socket.socket, tls: ServerContexts) -> Channel:
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            return await tls.dial_member(sock, self._host)
        raise TlsFailed(f"no TLS handshake within {HANDSHAKE_TIMEOUT_S} s")


def tune(sock: socket.socket) -> None:
    """Set the options that sockets between nodes have."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end_unacknowledged(sock, UNACKNOWLEDGED_S)
