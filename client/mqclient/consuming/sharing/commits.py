"""The commits of one queue, one after the other.

A broker of RocketMQ's handles two commits of a queue side by side, and keeps the one that it
handles last. If two are under way together, the older one may stay, and messages that were
committed are delivered again. So a commit waits until the one before it is answered. Commits that
wait together are sent as one, of the newest place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from mqclient.consuming.progress import Place

_NOWHERE = Place(0)


@dataclass(slots=True)
class Commits:
    """How many were asked for, and how many of these are stored, by `_stored`."""

    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _asked: int = 0
    _newest: Place = _NOWHERE
    _covered: int = 0
    _stored: Place = _NOWHERE

    async def commit(
        self, place: Place, send: Callable[[Place, float], Awaitable[bool]], timeout_s: float
    ) -> Place | None:
        """The place that is stored, this one or a newer one; None if it is not stored in time.

        `send` gets how many seconds are left, 0 if the commit before took all of them.
        """
        self._asked += 1
        self._newest, number = place, self._asked
        until_s = anyio.current_time() + timeout_s
        with anyio.move_on_after(timeout_s) as waiting:
            await self._turn.acquire()
        if waiting.cancelled_caught:
            await send(place, 0)
            return None
        try:
            if self._covered < number:
                asked, newest = self._asked, self._newest
                if not await send(newest, max(0, until_s - anyio.current_time())):
                    return None
                self._covered, self._stored = asked, newest
            return self._stored
        finally:
            self._turn.release()
