"""Things that live in an `async with` block: connections, sessions, producers, consumers.

What goes wrong in the block is the caller's own: it leaves as it is, never in an ExceptionGroup of
our task groups. So no part is shown the exception, only whether there was one. The same holds for
what goes wrong in a call: `together` is the task group for tasks that make up one call.

Before its block is entered and after it is left, a thing is of no use: what it starts would never
be served. So its public calls begin with `check_open`, and a block is entered once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from mqclient.errors import ClientClosed


class _State(Enum):
    """What is said of a thing that is not open."""

    NEW = "was not opened: use it inside its `with` block"
    OPEN = "is open"
    CLOSED = "was closed, when its `with` block was left: make a new one"


class Living(ABC):
    """`async with thing:` is `start`, the block, and `end` whatever came of the block."""

    _state = _State.NEW

    def check_open(self) -> None:
        """Raises ClientClosed outside the block."""
        if self._state is not _State.OPEN:
            raise ClientClosed(f"this {type(self).__name__} {self._state.value}")

    @abstractmethod
    async def _start(self) -> None:
        """The block is entered."""

    @abstractmethod
    async def _end(self, *, failed: bool) -> None:
        """The block is left, by an exception if it has `failed`."""

    async def __aenter__(self) -> Self:
        if self._state is not _State.NEW:
            raise ClientClosed(f"this {type(self).__name__} is entered once only: make a new one")
        self._state = _State.OPEN
        try:
            await self._start()
        except BaseException:
            self._state = _State.CLOSED
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._state = _State.CLOSED
        await self._end(failed=exc_type is not None)


@asynccontextmanager
async def together() -> AsyncIterator[TaskGroup]:
    """A task group whose first failure cancels the rest, and leaves the block as it is."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        cancelled = anyio.get_cancelled_exc_class()
        first = next((each for each in _leaves(group) if not isinstance(each, cancelled)), None)
        if first is None:
            raise
        raise first from None


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each
