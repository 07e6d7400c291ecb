"""Consuming, blocking: by a loop over messages, or by handlers in threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

from anyio import CapacityLimiter, to_thread

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.blocking.face import Face, blocking
from mqclient.consuming import consumer as consumers
from mqclient.consuming.assignment import ConsumeFrom
from mqclient.consuming.sending_back import OnError, SendingBack
from mqclient.consuming.subscriptions import Sql
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
        on_error: OnError = "retry",
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with each message, for ever; exceptions are dealt with as there.

        Up to `concurrency` queues are handled at a time, each in order: by this thread if that is
        1, else by as many threads.
        """
        if concurrency <= 1:
            back = self._client.sending_back(on_error, max_reconsume_times)
            for message in self:
                while not self._handled(handler, message, back):
                    pass
        threads = CapacityLimiter(concurrency)

        async def handle(message: ReceivedMessage) -> None:
            await to_thread.run_sync(handler, message, limiter=threads)

        self.call(
            partial(
                self._client.run,
                handle,
                concurrency,
                on_error=on_error,
                max_reconsume_times=max_reconsume_times,
            )
        )

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
