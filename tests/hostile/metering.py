"""The length of an event loop's turns, on any machine.

A turn is what the loop runs between two waits for its sockets. Its length is the processor time
that the loop's thread has used, beside what a fixed piece of work needs on this machine. So neither
a busy machine nor a slow one changes the result much.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from itertools import islice

import trio
import trio.testing

from dledger.limits import LOOP_STALL_S
from dledger.net import Connection, Faults, Handler
from dledger.net.link import Link
from dledger.net.quota import ConnectionQuota
from dledger.remoting.command import Command

REFERENCE_S = 0.06
"""Seconds of the fixed piece of work on the machine whose figures the docs have."""
TRIES = 8
"""Measurements of work that seems too long. A neighbour on the machine only adds time, so the
least counts."""
_TRIES = 5


def _work() -> int:
    total = 0
    for number in range(2_000_000):
        total += number
    return total


def machine_pace() -> float:
    """How many times as long as the reference this machine takes."""
    taken = []
    for _ in range(_TRIES):
        began_s = time.thread_time()
        _work()
        taken.append(time.thread_time() - began_s)
    return min(taken) / REFERENCE_S


class Meter(trio.abc.Instrument):
    """The longest turn, but for the steps of the task that asks, in seconds of the reference."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._asking = trio.lowlevel.current_task()
        self._began_s: float | None = None
        self._turn_s = 0.0
        self.longest_s = 0.0
        self.whole_s = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note when a task goes on."""
        self._began_s = None if task is self._asking else time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the turn that has ended."""
        if self._began_s is not None:
            self._turn_s += (time.thread_time() - self._began_s) / self._pace
            self._began_s = None

    def before_io_wait(self, timeout: float) -> None:
        """Add up a turn at its end."""
        self.longest_s = max(self.longest_s, self._turn_s)
        self.whole_s += self._turn_s
        self._turn_s = 0.0


@contextmanager
def metered(pace: float) -> Iterator[Meter]:
    """Measure the turns within the block."""
    meter = Meter(pace)
    trio.lowlevel.add_instrument(meter)
    try:
        yield meter
    finally:
        trio.lowlevel.remove_instrument(meter)
        meter.before_io_wait(0.0)


class Asker:
    """A client of a server; what is answered is dropped."""

    def __init__(self, handler: Handler, faults: Faults, nursery: trio.Nursery) -> None:
        self._handler = handler
        self._faults = faults
        self._nursery = nursery
        self._numbers = iter(range(10_000_000, 20_000_000))
        self._connect()

    def _connect(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        number = next(self._numbers)
        peer, link = ("127.0.0.1", 1024), Link(theirs)
        self._connection = Connection(number, peer, link, ConnectionQuota(), 64, self._faults)
        self._nursery.start_soon(self._serve, self._connection)

    async def _serve(self, connection: Connection) -> None:
        await connection.serve(self._handler)

    def close(self) -> None:
        self._ours.close()

    async def ask(self, request: Command) -> None:
        """Handle a request until the server has nothing more to do."""
        await self._ready()
        request.opaque = next(self._numbers)
        self._nursery.start_soon(self._handle, request)
        await self._answered()

    async def send(self, frame: bytes) -> None:
        """Read and handle bytes until the server has nothing more to do."""
        await self._ready()
        with memoryview(frame) as left:
            sent = 0
            while sent < len(left) and not self._connection.closed:
                with suppress(BlockingIOError):
                    sent += self._ours.send(left[sent:])
                await trio.lowlevel.checkpoint()
        await self._answered()

    async def _ready(self) -> None:
        if self._connection.closed:
            self.close()
            self._connect()
        await trio.testing.wait_all_tasks_blocked()

    async def _answered(self) -> None:
        read = True
        while read:
            await trio.testing.wait_all_tasks_blocked()
            read = False
            with suppress(BlockingIOError, ConnectionResetError):
                while self._ours.recv(1 << 20):
                    read = True

    async def longest_turns_s(
        self, requests: Callable[[], Iterator[Command]], pace: float
    ) -> AsyncIterator[tuple[int, Command, float]]:
        """Yield each request with its number and its longest turn.

        A request whose turn is long is asked again, as the machine may be at fault: it may be
        slower now, so its speed is measured anew. The request is made anew with the one before it,
        since it may be the first of its key, or a repeat.
        """
        for number, request in enumerate(requests()):
            took_s = [await self._longest_turn_s(request, pace)]
            while min(took_s) > LOOP_STALL_S and len(took_s) < TRIES:
                again = islice(requests(), max(0, number - 1), number + 1)
                now = max(pace, machine_pace())
                took_s += [[await self._longest_turn_s(each, now) for each in again][-1]]
            yield number, request, min(took_s)

    async def longest_turn_of_frame_s(self, frame: bytes, pace: float) -> float:
        """How long a turn bytes make; read again if it is long."""
        took_s = list[float]()
        while not took_s or (min(took_s) > LOOP_STALL_S and len(took_s) < TRIES):
            with metered(max(pace, machine_pace()) if took_s else pace) as meter:
                await self.send(frame)
            took_s.append(meter.longest_s)
        return min(took_s)

    async def _longest_turn_s(self, request: Command, pace: float) -> float:
        with metered(pace) as meter:
            await self.ask(copy(request))
        return meter.longest_s

    async def _handle(self, request: Command) -> None:
        self._connection._handle(request, self._handler, self._nursery)
