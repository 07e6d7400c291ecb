"""How one peer is reached, under trio: by the addresses that its host has.

A host may be a name. It is looked up off the event loop, for as long as a resolver may take; the
addresses that were found last are tried before, so a slow or silent resolver does not keep a node
from a peer that it knows. Whoever answers proves that it is that peer (`greeting`), so an address
that has become another's does no harm.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from typing import TypeAlias

import trio

from dledger.addresses import check_host, check_port
from dledger.errors import FrameError
from dledger.raft.greeting import Greeter
from dledger.raft.limits import CONNECT_TIMEOUT_S, LOOKUP_AGAIN_S, LOOKUP_S, UNACKNOWLEDGED_S
from dledger.trust.proof import Session
from dledger.vanished import end_unacknowledged
from dledger.world import Found, world

Connected: TypeAlias = tuple[socket.socket, Session | None]


class Dialling:
    """One peer's address, and where it was found."""

    def __init__(self, greeter: Greeter, peer_id: str, host: str, port: int) -> None:
        self.peer_id = peer_id
        self._greeter = greeter
        self._host = host
        self._port = port
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
        """What the host is now. A peer that is down is dialled often, and looked up seldom."""
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
        for family, address in addresses:
            try:
                return await self._connect(family, address)
            except (OSError, FrameError) as error:
                self._problem = error
        return None

    async def _connect(self, family: int, address: tuple[str | int | bytes, ...]) -> Connected:
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
            return sock, await self._greeter.dial(sock, self.peer_id)
        except BaseException:
            sock.close()
            raise


def tune(sock: socket.socket) -> None:
    """Set the options that sockets between nodes have."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end_unacknowledged(sock, UNACKNOWLEDGED_S)
