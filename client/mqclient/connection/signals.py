"""Two ways for a task to wait for a callback.

Callbacks of a connection run in its reading task and must not block: they call `set` here, and a
task that waits takes it from there. Both work under trio and asyncio alike.
"""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint


class Wakeup:
    """A way for a task to wait until others wake it. A wake-up while it is busy is not lost;
    several count as one."""

    def __init__(self) -> None:
        self._set = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake the waiting task, or let its next `wait` return at once."""
        if self._set:
            return
        self._set = True
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until woken, or for `timeout_s` at most."""
        if self._set:
            await checkpoint()
        else:
            self._event = anyio.Event()
            with anyio.move_on_after(timeout_s):
                await self._event.wait()
            self._event = None
        self._set = False


class Broadcast:
    """Any number of tasks wait for the next announcement; each one wakes all of them."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def announce(self) -> None:
        """Wake everyone who waits now."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next announcement."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
