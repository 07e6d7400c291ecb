"""Requests of a connection that must not overtake each other, though some take many turns.

A broker's registration of very many topics is read in slices of the loop's time. If the same
connection says next that the broker leaves, that comes after it. Connections without such a request
under way have no lane, and wait for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class Lanes:
    """The last request of each connection that is not answered yet."""

    def __init__(self) -> None:
        self._last: dict[int, trio.Event] = {}

    def is_busy(self, connection_id: int) -> bool:
        """Whether a request of a connection is under way."""
        return connection_id in self._last

    def follow(self, connection_id: int, answer: Callable[[], Awaitable[T] | T]) -> Awaitable[T]:
        """Call `answer` after the connection's requests that are under way. The result must be
        awaited, unless the connection is gone."""
        before, done = self._last.get(connection_id), trio.Event()
        self._last[connection_id] = done
        return self._follow(connection_id, answer, before, done)

    async def _follow(
        self,
        connection_id: int,
        answer: Callable[[], Awaitable[T] | T],
        before: trio.Event | None,
        done: trio.Event,
    ) -> T:
        try:
            if before is not None:
                await before.wait()
            found = answer()
            return await found if isinstance(found, Awaitable) else found
        finally:
            done.set()
            if self._last.get(connection_id) is done:
                del self._last[connection_id]

    def forget(self, connection_id: int) -> None:
        """Forget the lane of a connection that is gone."""
        self._last.pop(connection_id, None)
