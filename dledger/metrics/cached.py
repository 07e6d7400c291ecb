"""A page that takes a while to make: made seldom, a few milliseconds at a time, shared by all.

However often it is asked for, making it takes a small part of the loop's time: it is good for a
second, and for as many times as long as it took. Whoever asks while it is being made waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from dledger.errors import BadInput
from dledger.metrics import limits
from dledger.net.turns import in_turns


class CachedPage:
    """A page that is kept for a while. `make` yields its pieces, each within a slice of the loop's
    time."""

    def __init__(self, make: Callable[[], Iterable[str]]) -> None:
        self._make = make
        self._page = b""
        self._good_until_s = float("-inf")
        self._making: trio.Event | None = None
        #: How often it was made.
        self.made = 0

    async def page(self) -> bytes:
        """The page as bytes, made anew if the last one is too old. Raises BadInput if it is too
        long to be sent."""
        while self._making is not None:
            await self._making.wait()
        if trio.current_time() < self._good_until_s:
            return self._page
        self._making = trio.Event()
        try:
            await self._make_anew()
        finally:
            self._making.set()
            self._making = None
        return self._page

    async def _make_anew(self) -> None:
        pieces: list[bytes] = []
        used_s = await in_turns(_encoded(self._make(), pieces))
        self._page = b"".join(pieces)
        self.made += 1
        good_s = max(limits.PAGE_S, limits.PAGE_COST_FACTOR * used_s)
        self._good_until_s = trio.current_time() + good_s


def _encoded(pieces: Iterable[str], encoded: list[bytes]) -> Iterable[None]:
    size = 0
    for piece in pieces:
        encoded.append(piece.encode(errors="replace"))
        size += len(piece)
        if size > limits.ANSWER_BYTES_MAX:
            raise BadInput(
                f"the page would be above {limits.ANSWER_BYTES_MAX} bytes: ask for a part of it"
            )
        yield
