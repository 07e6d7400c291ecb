"""Stopping a program in order, by the signals that end one.

::

    async with Consumer(namesrv, "CG", {"Orders": "*"}) as consumer:
        await run_until_signal(lambda: consumer.run(handle), consumer)

Signals are taken over only while that runs, and only in a program that calls it: a framework that
has its own way to stop calls `drain` itself.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio

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
    each. A second signal has its usual effect. Call this only in the main thread."""

    async def drain_at_signal() -> None:
        with anyio.open_signal_receiver(*signals) as received:
            async for _ in received:
                break
        for client in clients:
            await client.drain(timeout_s)

    async with together() as tasks:
        tasks.start_soon(drain_at_signal)
        await run()
        tasks.cancel_scope.cancel()
