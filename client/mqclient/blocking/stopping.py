"""Stopping a blocking program in order, by the signals that end one.

::

    with Consumer(namesrv, "CG", {"Orders": "*"}) as consumer:
        run_until_signal(lambda: consumer.run(handle), consumer)

A thread of its own drains: the main thread may be in the middle of a handler, for which the drain
waits. Signals are taken over only while that runs, and only in a program that calls it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from mqclient import limits
from mqclient.signatures import checked_call

if TYPE_CHECKING:
    from collections.abc import Iterator


class Drained(Protocol):
    """A client that can be stopped in order."""

    def drain(self, timeout_s: float) -> bool:
        """Finish all work that was begun. Returns whether it was finished in time."""


@checked_call
def run_until_signal(
    run: Callable[[], object],
    *clients: Drained,
    timeout_s: float = limits.DRAIN_S,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Call `run()`; at the first signal drain the clients, one after the other, for `timeout_s`
    each. A second signal has its usual effect. Call this only in the main thread."""
    # A signal may come in the middle of a call of this very queue, which takes that.
    signalled: SimpleQueue[bool] = SimpleQueue()

    def drain() -> None:
        if signalled.get():
            for client in clients:
                client.drain(timeout_s)

    draining = Thread(target=drain, name="mqclient drain", daemon=True)
    with _handled(signals, partial(signalled.put, True)):
        draining.start()
        try:
            run()
        finally:
            signalled.put(False)
            draining.join()


@contextmanager
def _handled(signals: Sequence[signal.Signals], at_first: Callable[[], object]) -> Iterator[None]:
    """Call a function at the first of these signals, and restore the signals' handlers."""
    before = {each: signal.getsignal(each) for each in signals}

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    def first(_number: int, _frame: FrameType | None) -> None:
        restore()
        at_first()

    for each in signals:
        signal.signal(each, first)
    try:
        yield
    finally:
        restore()
