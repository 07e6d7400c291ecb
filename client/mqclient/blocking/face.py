"""The base of all blocking classes: a thread with an event loop, and calls that wait for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
)
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from mqclient.errors import ClientClosed

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[object])
P = ParamSpec("P")
R = TypeVar("R")


class Caller(ABC, Generic[T]):
    """An asynchronous object, and a way to call it; `blocking` makes the methods."""

    _client: T

    @abstractmethod
    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call `function` in the event loop, and wait for its result."""


class Face(Caller[ClientT]):
    """The client, and the thread with its event loop, for the time of the `with` block."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._stack = ExitStack()
        self._running: BlockingPortal | None = None

    @property
    def portal(self) -> BlockingPortal:
        """The way into the event loop's thread. Raises ClientClosed outside the block."""
        if self._running is None:
            raise ClientClosed(
                f"this {type(self).__name__} is not open: use it inside its `with` block"
            )
        return self._running

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call `function` in the event loop, and wait for its result."""
        portal = self.portal
        try:
            return portal.call(function)
        except (CancelledError, RuntimeError) as error:
            if self._running is not None:
                raise
            # Another thread has left the block meanwhile, which ended the event loop.
            raise ClientClosed(f"this {type(self).__name__} was closed during a call") from error

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("trio"))
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._running = portal
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close the client as leaving the asynchronous one's block does."""
        self._running = None
        return self._stack.__exit__(exc_type, exc, traceback)


def blocking(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[Caller[T], P], R]:
    """Make the method of a face or a part that calls `method` of its client and waits for it."""

    @wraps(method)
    def call(caller: Caller[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return caller.call(partial(method, caller._client, *args, **kwargs))

    return call
