"""Interceptors and codecs: what an application wants done around each send and each handler.

An interceptor of a producer is given the message and the next step, and returns the step's result::

    async def stamp(message: Message, send: Send) -> object:
        return await send(replace(message, properties={"source": "shop"}))

An interceptor of a consumer is given the messages that a handler is about to get (one, or a batch),
and the next step::

    async def measure(messages: Sequence[ReceivedMessage], handle: Handle) -> None:
        with timer:
            await handle()

The first one of a list is the outermost. What an interceptor raises is the send's error, or the
handler's failure: the message comes again as after any other failure. A codec makes a message's
`body` of its `value`, and a value of a body; it is the innermost step.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, reduce
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dledger.errors import BadInput
from mqclient.errors import BadMessage
from mqclient.models import Message, ReceivedMessage

if TYPE_CHECKING:
    from mqclient.consuming.measuring import Measured

Send: TypeAlias = Callable[[Message], Awaitable[Any]]
SendInterceptor: TypeAlias = Callable[[Message, Send], Awaitable[Any]]
"""Returns what `send` returned: a SendResult, of `send_soon` a PendingSend, of `request` a Reply"""
Handle: TypeAlias = Callable[[], Awaitable[None]]
HandleInterceptor: TypeAlias = Callable[[Sequence[Any], Handle], Awaitable[None]]
Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes], Any]

SentT = TypeVar("SentT")
MessageT = TypeVar("MessageT", bound=ReceivedMessage)
_BatchHandler: TypeAlias = Callable[[Sequence[MessageT]], Awaitable[None] | None]

_PASSED: ContextVar[bool] = ContextVar("passed", default=False)
passed = _PASSED.get
"""Whether the message that is sent just now has passed the interceptors."""


class SendHooks:
    """The steps of a producer around its sends. `around` is all of them, as one interceptor."""

    def __init__(self, interceptors: Sequence[SendInterceptor], encode: Encode | None) -> None:
        self._interceptors = check_interceptors(interceptors)
        self._encode = encode
        steps = [*self._interceptors, *([] if encode is None else [self._encoding])]
        self.around: SendInterceptor = reduce(_inside, reversed(steps))

    async def once(self, message: Message, send: Callable[[Message], Awaitable[SentT]]) -> SentT:
        """Run the steps around a call that itself sends by calls which have hooks."""

        async def last(message: Message) -> SentT:
            before = _PASSED.set(True)
            try:
                return await send(message)
            finally:
                _PASSED.reset(before)

        sent: SentT = await self.around(message, last)
        return sent

    def _encoding(self, message: Message, send: Send) -> Awaitable[Any]:
        return send(self.encoded(message))

    def encoded(self, message: Message) -> Message:
        """The message with its value as its body. Raises BadMessage for a value that can't be."""
        if message.value is None or self._encode is None:
            return message
        if message.body:
            raise BadMessage(f"a message to {message.topic!r} has both a body and a value")
        try:
            body = self._encode(message.value)
        except Exception as error:
            raise BadMessage(
                f"the value of a message to {message.topic!r} can't be encoded: {error!r}"
            ) from error
        return replace(message, body=body, value=None)

    def without_waiting(self, message: Message, call: str) -> Message:
        """The message for a call that can't await interceptors. Raises BadInput if there are."""
        if self._interceptors and not passed():
            raise BadInput(
                f"{call} awaits nothing between its messages, and this producer has interceptors, "
                "which are awaited: use send or send_soon"
            )
        return self.encoded(message)


def _inside(inner: SendInterceptor, outer: SendInterceptor) -> SendInterceptor:
    """Both as one, which is made once and not for each message."""
    return lambda message, send: outer(message, partial(_with_send, inner, send))


def _with_send(inner: SendInterceptor, send: Send, message: Message) -> Awaitable[Any]:
    return inner(message, send)


class HandleHooks:
    """The steps of a consumer around its handlers."""

    def __init__(
        self,
        interceptors: Sequence[HandleInterceptor],
        decode: Decode | None,
        measured: Measured | None = None,
    ) -> None:
        self._interceptors = check_interceptors(interceptors)
        self._decode = decode
        self._measured = measured

    @property
    def awaits(self) -> bool:
        """Whether there is anything to await around a handler that is not asynchronous."""
        return bool(self._interceptors)

    def decodable(self, messages: Sequence[MessageT]) -> Sequence[MessageT]:
        """Messages whose `value` can be asked for."""
        if self._decode is not None:
            for message in messages:
                message.decode = self._decode
        return messages

    def before(self, handler: _BatchHandler[MessageT]) -> _BatchHandler[MessageT]:
        """The handler, with all that is to be done around it."""
        if self._decode is not None:
            handler = partial(_with_values, self, handler)
        if self._interceptors:
            handler = self._intercepted(handler)
        return handler if self._measured is None else self._measured.around(handler)

    def here(self, handler: Callable[[MessageT], None]) -> Callable[[MessageT], object]:
        """The handler with its hooks, to be called with single messages in the caller's thread;
        unless it `awaits`."""

        def first(messages: Sequence[MessageT]) -> None:
            handler(messages[0])

        before = self.before(first)
        return lambda message: before([message])

    def _intercepted(self, handler: _BatchHandler[MessageT]) -> _BatchHandler[MessageT]:
        outermost, *others = self._interceptors
        others.reverse()

        def call(messages: Sequence[MessageT]) -> Awaitable[None]:
            async def handle() -> None:
                outcome = handler(messages)
                if outcome is not None and (
                    type(outcome) is CoroutineType or inspect.isawaitable(outcome)
                ):
                    await outcome

            step: Handle = handle
            for interceptor in others:
                step = partial(interceptor, messages, step)
            return outermost(messages, step)

        return call


def _with_values(
    hooks: HandleHooks, handler: _BatchHandler[MessageT], messages: Sequence[MessageT]
) -> Awaitable[None] | None:
    for message in hooks.decodable(messages):
        _ = message.value  # it raises Undecodable before the handler has done half of its work
    return handler(messages)


HookT = TypeVar("HookT")


def check_interceptors(interceptors: Sequence[HookT]) -> tuple[HookT, ...]:
    """Raises BadInput for what can't be called."""
    for number, each in enumerate(interceptors):
        if not callable(each):
            raise BadInput(f"interceptors[{number}]={each!r:.100} can't be called")
    return tuple(interceptors)
