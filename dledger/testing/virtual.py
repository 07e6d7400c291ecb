"""A world in memory, on the time of an event loop: whole clusters run in it within a test.

With a `trio.testing.MockClock` that jumps by itself, time passes when every task waits: then it is
the next deadline's. That is sound only if nothing is on its way that no task can see. So

- bytes go through Unix sockets, which the receiver can read when the sender's call returns. Those
  of the loopback network may still be with another processor then, and a request would time out
  that nobody was slow to answer;
- what a program would do in a thread it does at once.

Who knows a host and a port reaches them from every such world of the process, and none from
outside. Nothing is left behind: these sockets have names in no file system.
"""

from __future__ import annotations

import itertools
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple

import trio
from anyio.lowlevel import checkpoint
from trio.testing import MockClock

from dledger.worker import InstantWorker, Worker
from dledger.world import Found, World

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

SELDOM = 10
"""Factor of periods, no larger: brokers must hear from clients every two minutes."""

_NAMES = f"\0dledger-{secrets.token_hex(8)}/"
_ports = itertools.cycle(range(1024, 65_536))


class MemorySocket(socket.socket):
    """A stream socket within this process that speaks of hosts and ports."""

    _name = ("127.0.0.1", 0)

    def __init__(self, descriptor: int | None = None) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)

    def bind(self, address: Any) -> None:
        """Take a host and a port; port 0 stands for any free one. Only a socket that listens needs
        it."""
        host, port = address[:2]
        self._name = (host, port or next(_ports))

    def listen(self, backlog: int = 0) -> None:
        """Take connections at the name that `bind` gave this socket."""
        super().bind(_named(self._name))
        super().listen(backlog)

    def connect_ex(self, address: Any) -> int:
        """Connect; 0, or why not."""
        return super().connect_ex(_named(address))

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, and an address that stands for its other end."""
        accepted, _ = super().accept()
        return MemorySocket(accepted.detach()), ("127.0.0.1", next(_ports))

    def getsockname(self) -> Any:
        """The host and port that the socket was bound to."""
        return self._name

    def setsockopt(self, *option: Any) -> None:
        """Set an option, unless it is one of TCP."""
        if option[0] == socket.SOL_SOCKET:
            super().setsockopt(*option)


def _named(address: Any) -> str:
    return f"{_NAMES}{address[0]}:{address[1]}"


class Timed(Protocol):
    """A clock of an event loop."""

    def current_time(self) -> float:
        """Seconds on the loop's own clock."""
        ...


class VirtualWorld(World):
    """The world of an event loop whose clock jumps: a MockClock of trio, or one of asyncio that
    does the same (`mqlocal.virtual_loop`). Its wall clock begins with the machine's time."""

    def __init__(self, clock: Timed) -> None:
        self._clock = clock
        self._began_ms = time.time_ns() // 1_000_000 - int(1000 * clock.current_time())

    def steady_s(self) -> float:
        """Time of the event loop, in seconds."""
        return self._clock.current_time()

    def unix_ms(self) -> int:
        """The wall clock, which passes with the event loop's time."""
        return self._began_ms + int(1000 * self._clock.current_time())

    def seldom_s(self, period_s: float) -> float:
        """The period, made much longer.

        A client that is gone here has closed its sockets, so no time is too long for a sign of
        life; and every wake-up of an idle cluster costs a test's real time.
        """
        return period_s * SELDOM

    async def in_thread(
        self,
        work: Callable[[*ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        abandon_on_cancel: bool = False,
    ) -> ResultT:
        """Do work now, as a clock that jumps would not wait for a thread."""
        await checkpoint()
        return work(*arguments)

    def worker(self, name: str) -> Worker:
        """A worker that does its work when it is waited for."""
        return InstantWorker()

    def socket(self, family: int) -> socket.socket:
        """A socket in memory, for any family of addresses."""
        return MemorySocket()

    async def lookup(self, host: str, port: int) -> list[Found]:
        """Every name is an address here."""
        return [(socket.AF_INET, (host, port))]


_of_run: trio.lowlevel.RunVar[VirtualWorld | None] = trio.lowlevel.RunVar("virtual world", None)


def virtual_world() -> VirtualWorld | None:
    """The one world of this trio run, or None if its clock is no MockClock, but the machine's."""
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock):
        return None
    found = _of_run.get()
    if found is None:
        found = VirtualWorld(clock)
        _of_run.set(found)
    return found
