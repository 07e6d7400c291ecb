"""The blocking producer: `send_soon` and the like give a Future, and transactions have `with`
blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
)
from functools import partial, wraps
from typing import Concatenate

from anyio import to_thread

from dledger.errors import DledgerError
from mqclient.blocking.face import ClientT, Face, P, Part, blocking, taking_what
from mqclient.models import Message, ReceivedMessage, SendResult
from mqclient.producing import producer as producers
from mqclient.producing.pending import PendingSend
from mqclient.producing.waiting import transactions
from mqclient.producing.waiting.transactions import Decision


def handing_over(
    method: Callable[Concatenate[ClientT, P], Awaitable[PendingSend]],
) -> Callable[Concatenate[Face[ClientT], P], Future[SendResult]]:
    """Like `blocking`, for a `method` that only hands a message over: returns a Future of the
    outcome."""

    @wraps(method)
    def call(face: Face[ClientT], /, *args: P.args, **kwargs: P.kwargs) -> Future[SendResult]:
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()

        async def hand_over() -> None:
            pending = await method(face._client, *args, **kwargs)
            pending.add_callback(partial(_settle, future))

        face.call(hand_over)
        return future

    return call


class Transaction(Part[transactions.Transaction]):
    """`mqclient.Transaction`, blocking."""

    @property
    def sent(self) -> SendResult:
        """The place of the half message."""
        return self._client.sent

    @property
    def ended(self) -> Decision | None:
        """The end that the caller gave the transaction, None if not yet."""
        return self._client.ended

    commit = blocking(transactions.Transaction.commit)
    rollback = blocking(transactions.Transaction.rollback)


def in_a_block(
    method: Callable[
        Concatenate[producers.Producer, P], AbstractAsyncContextManager[transactions.Transaction]
    ],
) -> Callable[Concatenate[Face[producers.Producer], P], AbstractContextManager[Transaction]]:
    """Like `blocking`, for a `method` whose transaction lives in a `with` block."""

    @wraps(method)
    @contextmanager
    def call(
        face: Face[producers.Producer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[Transaction]:
        with face.within(partial(method, face._client, *args, **kwargs)) as transaction:
            yield Transaction(face, transaction)

    return call


def _in_a_thread(
    checker: Callable[[ReceivedMessage], Decision],
) -> Callable[[ReceivedMessage], Awaitable[Decision]]:
    """Call in a thread a function that may take long: the event loop has other work."""

    async def check(message: ReceivedMessage) -> Decision:
        return await to_thread.run_sync(checker, message)

    return check


class Producer(Face[producers.Producer]):
    """`mqclient.Producer`, blocking."""

    _ends_in_order = True

    @taking_what(producers.Producer, checker=_in_a_thread)
    def __init__(self, client: producers.Producer) -> None:
        super().__init__(client)

    prepare = blocking(producers.Producer.prepare)
    send = blocking(producers.Producer.send)
    send_batch = blocking(producers.Producer.send_batch)
    send_many = blocking(producers.Producer.send_many)
    send_large = blocking(producers.Producer.send_large)
    request = blocking(producers.Producer.request)
    reply = blocking(producers.Producer.reply)
    recall = blocking(producers.Producer.recall)
    flush = blocking(producers.Producer.flush)
    drain = blocking(producers.Producer.drain)

    send_soon = handing_over(producers.Producer.send_soon)
    transaction = in_a_block(producers.Producer.transaction)

    @property
    def client(self) -> producers.Producer:
        """The asynchronous producer underneath. Raises ClientClosed outside the block."""
        self._client.check_open()
        return self._client

    @property
    def client_id(self) -> str:
        """The id by which brokers know this producer."""
        return self._client.client_id

    @property
    def pending(self) -> int:
        """Messages handed over and not settled yet."""
        return self._client.pending

    def send_oneway(
        self, message: Message, *, queue_id: int | None = None, key: str | None = None
    ) -> None:
        """Hand over a message that is not acknowledged."""

        async def hand_over() -> None:
            await self._client.prepare(message.topic)
            self._client.send_oneway(message, queue_id=queue_id, key=key)

        self.call(hand_over)


def _settle(future: Future[SendResult], pending: PendingSend) -> None:
    try:
        future.set_result(pending.result())
    except DledgerError as error:
        future.set_exception(error)
