"""The base of all blocking classes: calls that wait for an event loop in another thread."""

from __future__ import annotations

import atexit
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar
from weakref import WeakSet

from anyio.from_thread import BlockingPortal

from dledger.observe import get_logger
from mqclient import limits
from mqclient.blocking.loop import Loop, check_thread
from mqclient.connection.forks import forked_from, root_here, uproot
from mqclient.connection.lifetime import refuse_copy
from mqclient.errors import ClientClosed
from mqclient.habits import Hinting
from mqclient.signatures import checked, checks_itself

log = get_logger(__name__)

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[object])
P = ParamSpec("P")
R = TypeVar("R")
FaceT = TypeVar("FaceT")


def _result(called: Future[R]) -> R:
    """The result of a call, once there is one.

    CPython's locks do not notice a signal that came just before the wait for them, or that another
    thread received. Its handler runs when this thread wakes up, so this thread wakes now and then.
    """
    while True:
        try:
            return called.result(limits.SIGNAL_NOTICED_S)
        except TimeoutError:
            if called.done():
                return called.result()


class Caller(ABC, Generic[T]):
    """An asynchronous object, and a way to call it; `blocking` makes the methods."""

    _client: T

    @abstractmethod
    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call `function` in the event loop, and wait for its result."""


class Part(Caller[T]):
    """A part of a client, such as a transaction: it calls through the face that it belongs to."""

    def __init__(self, face: Caller[Any], part: T) -> None:
        self._face = face
        self._client = part

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call `function` in the event loop, and wait for its result."""
        return self._face.call(function)


class Face(Hinting, Caller[ClientT]):
    """A client, and the thread with its event loop, for the time of the `with` block.

    A client that a program has forgotten to close is closed when the program exits: a producer in
    order, so that all messages handed over are sent, a consumer without waiting for its handlers.
    """

    _ends_in_order = False

    def __init_subclass__(cls) -> None:
        checked(cls)

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._stack = ExitStack()
        self._running: BlockingPortal | None = None
        self._opened_in = 0
        self._is_forked = False

    @property
    def portal(self) -> BlockingPortal:
        """The way into the event loop's thread. Raises ClientClosed outside the block, and in a
        fork of the process that entered it; BadInput in a task of trio."""
        if self._running is None:
            if self._is_forked:
                raise self._forked()
            raise ClientClosed(
                f"this {type(self).__name__} is not open: use it inside its `with` block"
            )
        self._check_thread()
        return self._running

    def _check_thread(self) -> None:
        name = type(self).__name__
        check_thread(f"a blocking {name}", f"the asynchronous {name} of `mqclient`")

    def _forked(self) -> ClientClosed:
        return ClientClosed(f"this {type(self).__name__} {forked_from(self._opened_in)}")

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call `function` in the event loop, and wait for its result. If a signal's handler raises
        an exception meanwhile, as for Ctrl-C, the call is cancelled: its caller is gone."""
        portal = self.portal
        try:
            called = portal.start_task_soon(function)
            try:
                return _result(called)
            finally:
                called.cancel()  # does nothing to one that has ended
        except (CancelledError, RuntimeError) as error:
            if self._running is not None:
                raise
            # Another thread has left the block meanwhile, which ended the event loop.
            raise ClientClosed(f"this {type(self).__name__} was closed during a call") from error

    @contextmanager
    def within(self, begin: Callable[[], AbstractAsyncContextManager[R]]) -> Iterator[R]:
        """A block of the client, as `begin` gives it, around one of the caller's."""
        portal = self.portal
        with ExitStack() as stack:
            value = stack.enter_context(portal.wrap_async_context_manager(begin()))
            try:
                yield value
            finally:
                if self._is_forked:
                    stack.pop_all()
            if self._is_forked:
                raise self._forked()

    def __enter__(self) -> Self:
        self._check_thread()
        if self._is_forked:
            raise self._forked()
        loop = Loop(f"{type(self).__module__}.{type(self).__name__}")
        with ExitStack() as stack:
            stack.push(partial(_stop, loop))
            stack.enter_context(loop.portal.wrap_async_context_manager(self._client))
            self._running = loop.portal
            self._stack = stack.pop_all()
        self._opened_in = os.getpid()
        root_here(self)
        _open.add(self)
        _hear_of_the_end()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close the client, as leaving an asynchronous client's block does."""
        if self._is_forked:
            return None  # the process that opened it closes it
        self._check_thread()
        self._running = None
        try:
            return self._stack.__exit__(exc_type, exc, traceback)
        finally:
            uproot(self)
            _open.discard(self)

    def open(self) -> Self:
        """Enter the block, for programs that can't write one."""
        return self.__enter__()

    def close(self) -> None:
        """Leave the block in order. Closing twice does nothing."""
        if self._running is not None:
            self.__exit__(None, None, None)

    def stay_behind(self) -> None:
        """Make this copy unusable: it is in a fork of the process that opened it."""
        self._running = None
        self._is_forked = True
        self._stack.pop_all()
        _open.discard(self)

    def __reduce__(self) -> NoReturn:
        refuse_copy(self)


_open: WeakSet[Face[Any]] = WeakSet()
_registered_in: set[int] = set()
"""The ids of processes in which `_hear_of_the_end` has done its work. A fork begins without it."""


def _hear_of_the_end() -> None:
    """Close open clients also at the end of a child of `multiprocessing`, which has no `atexit`."""
    ends = sys.modules.get("multiprocessing.util")
    if ends is not None and os.getpid() not in _registered_in:
        _registered_in.add(os.getpid())
        ends.Finalize(None, _close_forgotten, exitpriority=0)


@atexit.register
def _close_forgotten() -> None:
    for face in [*_open]:
        log.warning("client was not closed: close it, or use its `with` block", client=repr(face))
        end = None if face._ends_in_order else SystemExit()
        with suppress(Exception):
            face.__exit__(None if end is None else SystemExit, end, None)


def _stop(
    loop: Loop,
    exc_type: type[BaseException] | None,
    exc: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    loop.stop(cancel=exc_type is not None)


def taking_what(
    make: Callable[P, ClientT], **converted: Callable[[Any], object]
) -> Callable[[Callable[[FaceT, ClientT], None]], Callable[Concatenate[FaceT, P], None]]:
    """Make an `__init__` that takes what `make` takes, and is given the client that it makes.

    A function that is given by one of the names in `converted` is converted first.
    """
    made: Callable[..., ClientT] = make

    def decorate(
        begin: Callable[[FaceT, ClientT], None],
    ) -> Callable[Concatenate[FaceT, P], None]:
        @checks_itself
        @wraps(vars(make)["__init__"])
        def init(face: FaceT, /, *args: P.args, **kwargs: P.kwargs) -> None:
            given: dict[str, Any] = kwargs
            functions = {name: given[name] for name in converted if callable(given.get(name))}
            for name, function in functions.items():
                given[name] = converted[name](function)
            begin(face, made(*args, **given))

        return init

    return decorate


def blocking(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[Caller[T], P], R]:
    """Make the method of a face or a part that calls `method` of its client and waits for it."""

    @checks_itself
    @wraps(method)
    def call(caller: Caller[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return caller.call(partial(method, caller._client, *args, **kwargs))

    return call


def at_once(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Caller[T], P], R]:
    """Like `blocking`, for a `method` that does not wait: it is called in the event loop."""

    @checks_itself
    @wraps(method)
    def call(caller: Caller[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def called() -> R:
            return method(caller._client, *args, **kwargs)

        return caller.call(called)

    return call
