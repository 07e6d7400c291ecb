"""The time, threads, sockets and names that a program gets from its machine. One seam for all.

A test may put another world in the machine's place: one whose time can be jumped over, and whose
bytes stay in memory (`dledger.testing.virtual`). A world belongs to a context, as context variables
do: a task has that of the task that started it. So nobody hands clocks around, and a program's own
code runs in a test as it stands.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from dledger.failpoints import SEAM
from dledger.limits import LOOKUPS_MAX
from dledger.worker import ThreadWorker, Worker

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")
Found: TypeAlias = tuple[int, tuple[str | int | bytes, ...]]
"""An address family, and an address to connect to."""


class World:
    """The real clocks, threads, sockets and names of this machine."""

    #: Seconds of a clock that never goes back. It is asked for dozens of times for each send.
    steady_s: Callable[[], float] = staticmethod(time.monotonic)

    def unix_ms(self) -> int:
        """The wall clock: milliseconds of Unix time, put wrong if a chaos run wants it."""
        return time.time_ns() // 1_000_000 + SEAM.ahead_ms

    def seldom_s(self, period_s: float) -> float:
        """How often to do what is only done because a machine or a network may fail in silence:
        heartbeats, and looks for missed announcements. Patience with them grows with it."""
        return period_s

    async def in_thread(
        self,
        work: Callable[[*ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        abandon_on_cancel: bool = False,
    ) -> ResultT:
        """Do what may wait for a disk, while others go on. After a cancellation it is awaited, or
        abandoned."""
        return await to_thread.run_sync(work, *arguments, abandon_on_cancel=abandon_on_cancel)

    def worker(self, name: str) -> Worker:
        """A thread for work that comes again and again."""
        return ThreadWorker(name)

    def socket(self, family: int) -> socket.socket:
        """A new stream socket, for `bind`, or for `connect_ex`, with a host and a port."""
        return socket.socket(family, socket.SOCK_STREAM)

    async def lookup(self, host: str, port: int) -> list[Found]:
        """The addresses of a host that was checked (`dledger.addresses`). Raises OSError.

        A resolver may take its time, so a name is looked up in a thread. A caller that gives up
        leaves the thread behind; so a name has one thread at most, and names are bounded.
        """
        try:
            return _found(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            return await to_thread.run_sync(
                _found, host, port, 0, abandon_on_cancel=True, limiter=_limiter_of(host)
            )


def _found(host: str, port: int, flags: int) -> list[Found]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a name that can be looked up: {error}") from error
    return [(family, address) for family, _, _, _, address in found]


_limiters: RunVar[dict[str, CapacityLimiter]] = RunVar("lookups")


def _limiter_of(host: str) -> CapacityLimiter:
    """The one thread of a name. Raises OSError if too many names are being looked up."""
    limiters = _limiters.get({})
    _limiters.set(limiters)
    if host not in limiters and len(limiters) >= LOOKUPS_MAX:
        for name in [name for name, limiter in limiters.items() if not limiter.borrowed_tokens]:
            del limiters[name]
        if len(limiters) >= LOOKUPS_MAX:
            raise OSError(f"{LOOKUPS_MAX} names are being looked up already, the limit")
    return limiters.setdefault(host, CapacityLimiter(1))


_world: ContextVar[World] = ContextVar("world", default=World())  # noqa: B039 - it has no state


def world() -> World:
    """The world of the present context."""
    return _world.get()


def steady_s() -> float:
    """Seconds of a clock that never goes back."""
    return _world.get().steady_s()


def seconds_left(deadline_s: float) -> float:
    """How long until a time of `steady_s`; 0 behind it."""
    return max(0.0, deadline_s - steady_s())


def unix_ms() -> int:
    """The wall clock: milliseconds of Unix time."""
    return _world.get().unix_ms()


def move_to(other: World) -> None:
    """Use another world in this context from now on, and in the tasks that are started from it."""
    _world.set(other)


@contextmanager
def in_world(other: World) -> Iterator[None]:
    """Use another world in this context, and in the tasks that are started from it."""
    before = _world.get()
    _world.set(other)
    try:
        yield
    finally:
        # No token: it would bind the end to the very context of the beginning.
        _world.set(before)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that takes connections, and doesn't block. OSError if the address can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = _world.get().socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{error.strerror} ({host}:{port})") from error
    return listener
