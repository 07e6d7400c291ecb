"""For a task that waits for one call of a callback."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

ValueT = TypeVar("ValueT")


class Outcome(Generic[ValueT]):
    """Pass `set` as the callback, then `await wait()` for what it is called with."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._values: list[ValueT] = []

    def set(self, value: ValueT) -> None:
        """The callback."""
        self._values.append(value)
        self._event.set()

    async def wait(self) -> ValueT:
        """The value, when it is there."""
        await self._event.wait()
        return self._values[0]
