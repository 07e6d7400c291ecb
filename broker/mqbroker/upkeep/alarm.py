"""Signals that wake a loop at once, and alarms that wake it later."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio


class Signal:
    """Wakes a loop: `wait` returns once for all calls of `set` since it last returned."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake the loop that waits, or the next `wait` at once."""
        self._event.set()

    async def wait(self) -> None:
        """Return when it was set."""
        await self._event.wait()
        self._event = trio.Event()


class Alarm:
    """Goes off at the earliest time that was set since it last went off; `clock_s` is monotonic."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._at_s = math.inf
        self._earlier = trio.Event()

    def set(self, at_s: float) -> None:
        """Go off at this time, if not before."""
        if at_s < self._at_s:
            self._at_s = at_s
            self._earlier.set()

    async def wait(self) -> None:
        """Return when it goes off. Then all times that were set are forgotten."""
        await trio.lowlevel.checkpoint()
        while (wait_s := self._at_s - self._clock_s()) > 0:
            with trio.move_on_after(wait_s):
                await self._earlier.wait()
            self._earlier = trio.Event()
        self._at_s = math.inf
