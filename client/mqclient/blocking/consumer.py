"""Consuming, blocking: by a loop over messages, or by handlers in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import Self

from anyio import to_thread

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.blocking.face import Face, Part, at_once, blocking, taking_what
from mqclient.blocking.producer import Producer
from mqclient.blocking.threads import in_threads
from mqclient.consuming import consumer as consumers
from mqclient.consuming.assignment import OnRevoke
from mqclient.consuming.lanes import Order
from mqclient.consuming.sending_back import OnError, SendingBack
from mqclient.consuming.transacting import transaction as transacting
from mqclient.errors import ClientClosed
from mqclient.models import ReceivedMessage, SendResult


class OnceTransaction(Part[transacting.OnceTransaction]):
    """`mqclient.OnceTransaction`, blocking."""

    send = blocking(transacting.OnceTransaction.send)

    def rollback(self) -> None:
        """Store nothing when the block ends; the messages are delivered again."""
        self._client.rollback()

    @property
    def results(self) -> list[SendResult]:
        """The places of the outputs, once they are stored."""
        return self._client.results


def _in_a_thread(on_revoke: Callable[[tuple[MessageQueue, ...]], None]) -> OnRevoke:
    """Call a handler in a thread, from which it may call the consumer."""

    async def tell(queues: tuple[MessageQueue, ...]) -> None:
        await to_thread.run_sync(on_revoke, queues, abandon_on_cancel=True)

    return tell


class Consumer(Face[consumers.Consumer]):
    """`mqclient.Consumer`, blocking."""

    @taking_what(consumers.Consumer, on_revoke=_in_a_thread)
    def __init__(self, client: consumers.Consumer) -> None:
        super().__init__(client)

    poll = blocking(consumers.Consumer.poll)
    poll_many = blocking(consumers.Consumer.poll_many)
    commit = blocking(consumers.Consumer.commit)
    drain = blocking(consumers.Consumer.drain)

    def __iter__(self) -> Self:
        """Messages without end; each step marks the message before as processed."""
        return self

    def __next__(self) -> ReceivedMessage:
        """Wait for the next message; the message before it is marked as processed."""
        try:
            return self.call(self._client.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    nack = blocking(consumers.Consumer.nack)

    @contextmanager
    def transaction(
        self, producer: Producer, *, timeout_s: float = limits.TRANSACTION_S
    ) -> Iterator[OnceTransaction]:
        """Store outputs, and the offsets of messages handed out, in one step: both or neither."""

        def begin() -> AbstractAsyncContextManager[transacting.OnceTransaction]:
            return self._client.transaction(producer.client, timeout_s=timeout_s)

        with self.within(begin) as transaction:
            yield OnceTransaction(self, transaction)

    def run(
        self,
        handler: Callable[[ReceivedMessage], None],
        concurrency: int = 1,
        *,
        order: Order = "queue",
        timeout_s: float | None = None,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        on_error: OnError | None = None,
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with each message, for ever: by this thread, or by `concurrency` threads.

        Everything is as with the asynchronous consumer, but a thread can't be cancelled: if a
        handler takes longer than `timeout_s`, the message is redelivered, and the thread goes on
        with its work. With a `timeout_s`, or interceptors, this thread handles nothing itself.
        """
        hooks = self._client.hooks
        if concurrency == 1 and timeout_s is None and not hooks.awaits:
            back = self._client.sending_back(on_error, max_reconsume_times)
            self._run_here(hooks.here(handler), back)
            return
        self.call(
            partial(
                self._client.run,
                in_threads(handler, concurrency, timeout_s),
                concurrency,
                order=order,
                timeout_s=timeout_s,
                max_bytes=max_bytes,
                on_error=on_error,
                max_reconsume_times=max_reconsume_times,
            )
        )

    def _run_here(self, handler: Callable[[ReceivedMessage], object], back: SendingBack) -> None:
        message = self.call(partial(self._client.next_after, None))
        while message is not None:
            try:
                while not self._handled(handler, message, back):
                    pass
            except BaseException:
                with suppress(ClientClosed):
                    self.call(partial(self._client.give_back, message))
                raise
            message = self.call(partial(self._client.next_after, message))

    def _handled(
        self,
        handler: Callable[[ReceivedMessage], object],
        message: ReceivedMessage,
        back: SendingBack,
    ) -> bool:
        try:
            handler(message)
        except Exception as error:
            return self.call(partial(back.settle, message, error))
        return True

    def run_batches(
        self,
        handler: Callable[[Sequence[ReceivedMessage]], None],
        max_messages: int = limits.HANDLED_BATCH_MESSAGES,
        concurrency: int = 1,
        *,
        order: Order = "queue",
        timeout_s: float | None = None,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        on_error: OnError | None = None,
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with batches of up to `max_messages` messages of a queue, in threads."""
        self.call(
            partial(
                self._client.run_batches,
                in_threads(handler, concurrency, timeout_s),
                max_messages,
                concurrency,
                order=order,
                timeout_s=timeout_s,
                max_bytes=max_bytes,
                on_error=on_error,
                max_reconsume_times=max_reconsume_times,
            )
        )

    seek_to = blocking(consumers.Consumer.seek_to)
    seek = at_once(consumers.Consumer.seek)
    pause = at_once(consumers.Consumer.pause)
    resume = at_once(consumers.Consumer.resume)
    paused = at_once(consumers.Consumer.paused)
    lag = at_once(consumers.Consumer.lag)

    @property
    def client_id(self) -> str:
        """The id by which brokers and members know this consumer."""
        return self._client.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer has at the moment."""
        return self._client.queues
