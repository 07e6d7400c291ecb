"""Things that live in an `async with` block: connections, sessions, producers, consumers.

What goes wrong in the block is the caller's own: it leaves as it is, never in an ExceptionGroup of
our task groups. So no part is shown the exception, only whether there was one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Living(ABC):
    """`async with thing:` is `start`, the block, and `end` whatever came of the block."""

    @abstractmethod
    async def _start(self) -> None:
        """The block is entered."""

    @abstractmethod
    async def _end(self, *, failed: bool) -> None:
        """The block is left, by an exception if it has `failed`."""

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end(failed=exc_type is not None)
