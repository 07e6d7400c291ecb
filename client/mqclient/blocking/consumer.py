"""Consuming, blocking: by a loop over messages, or by handlers in threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn, Self

from anyio import CapacityLimiter, to_thread

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.blocking.face import Face, blocking
from mqclient.consuming import consumer as consumers
from mqclient.consuming.assignment import ConsumeFrom
from mqclient.consuming.lanes import Order
from mqclient.consuming.sending_back import OnError, SendingBack
from mqclient.consuming.subscriptions import Sql
from mqclient.errors import ClientClosed
from mqclient.models import Rebalance, ReceivedMessage


class Consumer(Face[consumers.Consumer]):
    """`mqclient.Consumer`, blocking."""

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        group: str = limits.CONSUMER_GROUP,
        subscriptions: Mapping[str, str | Sql] | None = None,
        *,
        consume_from: ConsumeFrom = "first",
        auto_commit: bool = True,
        auto_commit_interval_s: float = limits.AUTO_COMMIT_S,
        retry_delays_s: Sequence[float] = (),
        on_rebalance: Callable[[Rebalance], None] | None = None,
    ) -> None:
        super().__init__(
            consumers.Consumer(
                namesrv_addr,
                group,
                subscriptions,
                consume_from=consume_from,
                auto_commit=auto_commit,
                auto_commit_interval_s=auto_commit_interval_s,
                retry_delays_s=retry_delays_s,
                on_rebalance=on_rebalance,
            )
        )

    poll = blocking(consumers.Consumer.poll)
    commit = blocking(consumers.Consumer.commit)

    def __iter__(self) -> Self:
        """Messages without end; asking for one says that the one before is processed."""
        return self

    def __next__(self) -> ReceivedMessage:
        """Wait for the next message; asking for it says that the one before is processed."""
        return self.call(self._client.__anext__)

    nack = blocking(consumers.Consumer.nack)

    def run(
        self,
        handler: Callable[[ReceivedMessage], None],
        concurrency: int = 1,
        *,
        order: Order = "queue",
        timeout_s: float | None = None,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        on_error: OnError = "retry",
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with each message, for ever: by this thread, or by `concurrency` threads.

        All is as with the asynchronous one, but a thread can't be cancelled: the message of one
        that takes longer than `timeout_s` comes again, and what the thread still does is its own.
        With a `timeout_s` this thread handles nothing itself.
        """
        if concurrency == 1 and timeout_s is None:
            self._run_here(handler, self._client.sending_back(on_error, max_reconsume_times))
        threads = CapacityLimiter(concurrency + limits.ABANDONED_HANDLERS_MAX)

        async def handle(message: ReceivedMessage) -> None:
            await to_thread.run_sync(
                handler, message, limiter=threads, abandon_on_cancel=timeout_s is not None
            )

        self.call(
            partial(
                self._client.run,
                handle,
                concurrency,
                order=order,
                timeout_s=timeout_s,
                max_bytes=max_bytes,
                on_error=on_error,
                max_reconsume_times=max_reconsume_times,
            )
        )

    def _run_here(self, handler: Callable[[ReceivedMessage], None], back: SendingBack) -> NoReturn:
        message: ReceivedMessage | None = None
        while True:
            message = self.call(partial(self._client.next_after, message))
            try:
                while not self._handled(handler, message, back):
                    pass
            except BaseException:
                with suppress(ClientClosed):
                    self.call(partial(self._client.give_back, message))
                raise

    def _handled(
        self,
        handler: Callable[[ReceivedMessage], None],
        message: ReceivedMessage,
        back: SendingBack,
    ) -> bool:
        try:
            handler(message)
        except Exception as error:
            return self.call(partial(back.settle, message, error))
        return True

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading `queue` at `offset`."""

        async def seek() -> None:
            self._client.seek(queue, offset)

        self.call(seek)

    def lag(self) -> dict[MessageQueue, int]:
        """Messages not processed yet by queue, as of the last answer of each queue's broker."""

        async def lag() -> dict[MessageQueue, int]:
            return self._client.lag()

        return self.call(lag)

    @property
    def client_id(self) -> str:
        """How brokers and the other members know this consumer."""
        return self._client.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's at the moment."""
        return self._client.queues
