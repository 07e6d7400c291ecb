"""Objects that live in an `async with` block: connections, sessions, producers, consumers.

An exception in the block is the caller's own: it leaves the block unchanged, never in an
ExceptionGroup of our task groups. So the parts only learn whether there was one. The same holds for
an exception in a call: `together` is the task group for the tasks of one call.

Outside its block an object can't be used: no task would serve it. So its public calls begin with
`check_open`, and a block can be entered only once.
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
    """The state of an object, as named in errors."""

    NEW = "was not opened: use it inside its `with` block"
    OPEN = "is open"
    CLOSED = "was closed, when its `with` block was left: make a new one"


class Living(ABC):
    """`async with object:` is `_start`, the block, and then always `_end`."""

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
    """A task group whose first exception cancels the rest, and leaves the block unchanged."""
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
