"""Objects that live in an `async with` block: connections, sessions, producers, consumers.

An exception in the block is the caller's own: it leaves the block unchanged, never in an
ExceptionGroup of our task groups. So the parts only learn whether there was one. The same holds for
an exception in a call: `together` is the task group for the tasks of one call.

Outside its block an object can't be used: no task would serve it. So its public calls begin with
`check_open`, and a block can be entered only once. The same holds in a fork of its process, and
an object can't be pickled: another process makes its own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from types import TracebackType
from typing import NoReturn, Self

import anyio
from anyio.abc import TaskGroup

from mqclient.connection.forks import forked_from, root_here, uproot
from mqclient.errors import ClientClosed
from mqclient.habits import Hinting


class _State(Enum):
    """The state of an object, as named in errors."""

    NEW = "was not opened: use it inside its `with` block, or call open() first"
    OPEN = "is open"
    CLOSED = "was closed, when its `with` block was left: make a new one"
    FORKED = "was opened in another process"


class Living(Hinting, ABC):
    """An object with a beginning and an end: `async with` runs `_start`, the block, and then always
    `_end`."""

    _state = _State.NEW
    _opened_in = 0

    def check_open(self) -> None:
        """Raises ClientClosed outside the block, and in a fork of the process that entered it."""
        if self._state is not _State.OPEN:
            forked = self._state is _State.FORKED
            what = forked_from(self._opened_in) if forked else self._state.value
            raise ClientClosed(f"this {type(self).__name__} {what}")

    @abstractmethod
    async def _start(self) -> None:
        """Start the client: its block is entered."""

    @abstractmethod
    async def _end(self, *, failed: bool) -> None:
        """The block is left, by an exception if it has `failed`."""

    async def __aenter__(self) -> Self:
        if self._state is not _State.NEW:
            if self._state is _State.FORKED:
                self.check_open()
            raise ClientClosed(f"this {type(self).__name__} is entered once only: make a new one")
        self._state = _State.OPEN
        self._opened_in = os.getpid()
        root_here(self)
        try:
            await self._start()
        except BaseException:
            self._state = _State.CLOSED
            uproot(self)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state is _State.FORKED:
            return  # the process that opened it ends it
        failed = exc_type is not None
        try:
            if not failed:
                await self._wind_down()
        except BaseException:
            failed = True
            raise
        finally:
            self._state = _State.CLOSED
            try:
                await self._end(failed=failed)
            finally:
                uproot(self)

    async def _wind_down(self) -> None:
        """The block is left in order: what has begun may end, as long as this is open."""
        self.check_open()

    async def open(self) -> Self:
        """Enter the block, for programs that can't write one; the same task must `close`."""
        return await self.__aenter__()

    async def close(self) -> None:
        """Leave the block in order. Closing twice does nothing."""
        if self._state is _State.OPEN:
            await self.__aexit__(None, None, None)

    def stay_behind(self) -> None:
        """Make this copy unusable: it is in a fork of the process that opened it."""
        self._state = _State.FORKED

    def __reduce__(self) -> NoReturn:
        refuse_copy(self)


def refuse_copy(thing: object) -> NoReturn:
    """Raises TypeError for a client that is to be pickled or copied."""
    raise TypeError(
        f"a {type(thing).__name__} can't be pickled or copied: it has connections and an identity "
        "of its own. Make one where it is used, in each process"
    )


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
