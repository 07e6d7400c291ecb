"""Stopping a program in order, by the signals that end one.

::

    async with Consumer(namesrv, "CG", {"Orders": "*"}) as consumer:
        await run_until_signal(lambda: consumer.run(handle), consumer)

Signals are taken over only while that runs, and only in a program that calls it: a framework that
has its own way to stop calls `drain` itself. Calls that run at the same time share their signals:
at the first signal all of them drain.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio
from anyio.lowlevel import RunVar

from dledger.errors import BadInput
from mqclient import limits
from mqclient.connection.lifetime import together
from mqclient.signatures import checked_call


class Drained(Protocol):
    """A client that can be stopped in order."""

    async def drain(self, timeout_s: float) -> bool:
        """Finish all work that was begun. Returns whether it was finished in time."""


@checked_call
async def run_until_signal(
    run: Callable[[], Awaitable[object]],
    *clients: Drained,
    timeout_s: float = limits.DRAIN_S,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Await `run()`; at the first signal drain the clients, one after the other, for `timeout_s`
    each. A second signal has its usual effect. Call this only in the main thread. Calls may run at
    the same time; they drain at the same signal. BadInput if their `signals` differ."""

    async def drain_at_signal(listening: _Listening) -> None:
        await listening.wait()
        for client in clients:
            await client.drain(timeout_s)

    with _listen(frozenset(signals)) as listening:
        async with together() as tasks:
            tasks.start_soon(drain_at_signal, listening)
            await run()
            tasks.cancel_scope.cancel()


class _Listening:
    """The signals of all calls that run. Handlers are restored in the reverse order of their
    installation only, so the calls have one for all of them."""

    def __init__(self, signals: frozenset[signal.Signals]) -> None:
        self.signals = signals
        self.calls = 0
        self._turn = anyio.Lock()
        self._before = {each: signal.getsignal(each) for each in signals}
        self._receiver = anyio.open_signal_receiver(*signals)
        self._received = self._receiver.__enter__()
        self.ended = False

    async def wait(self) -> None:
        """Wait for the first signal. One call listens; if it ends, the next one does."""
        async with self._turn:
            if not self.ended:
                await anext(self._received)
                self.end()

    def end(self) -> None:
        """Give each signal the handler that it had before the calls."""
        if not self.ended:
            self.ended = True
            self._receiver.__exit__(None, None, None)
            for each, handler in self._before.items():
                signal.signal(each, handler)  # asyncio leaves the default one


_LISTENING: RunVar[_Listening | None] = RunVar("mqclient listening", None)
"""The listening of each event loop: a forked child has its parent's objects, but its own loop."""


@contextmanager
def _listen(signals: frozenset[signal.Signals]) -> Iterator[_Listening]:
    """The listening that all running calls share, until the last of them ends or a signal comes."""
    ours = _LISTENING.get()
    if ours is None or ours.ended:
        ours = _Listening(signals)
        _LISTENING.set(ours)
    if ours.signals != signals:
        names, others = (
            ", ".join(sorted(s.name for s in each)) for each in (signals, ours.signals)
        )
        raise BadInput(
            f"this program runs until {others} already, and can't run until {names} at the same "
            "time: give both calls the same signals"
        )
    ours.calls += 1
    try:
        yield ours
    finally:
        ours.calls -= 1
        if not ours.calls:
            ours.end()
