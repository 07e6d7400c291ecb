"""Reading by POP, blocking: by polls, or by handlers in threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

from mqclient import limits
from mqclient.blocking.face import Face, at_once, blocking, taking_what
from mqclient.blocking.threads import in_threads
from mqclient.consuming.popping import consumer as consumers
from mqclient.consuming.popping.message import PoppedMessage
from mqclient.consuming.sending_back import OnFailure


class PopConsumer(Face[consumers.PopConsumer]):
    """`mqclient.PopConsumer`, blocking."""

    @taking_what(consumers.PopConsumer)
    def __init__(self, client: consumers.PopConsumer) -> None:
        super().__init__(client)

    poll = blocking(consumers.PopConsumer.poll)
    ack = blocking(consumers.PopConsumer.ack)
    drain = blocking(consumers.PopConsumer.drain)
    nack = blocking(consumers.PopConsumer.nack)
    extend = blocking(consumers.PopConsumer.extend)
    pause = at_once(consumers.PopConsumer.pause)
    resume = at_once(consumers.PopConsumer.resume)
    paused = at_once(consumers.PopConsumer.paused)

    def __iter__(self) -> Self:
        """Messages without end; each step acknowledges the message before."""
        return self

    def __next__(self) -> PoppedMessage:
        """Wait for the next message; the message before it is acknowledged."""
        try:
            return self.call(self._client.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def run(
        self,
        handler: Callable[[PoppedMessage], None],
        concurrency: int = 1,
        *,
        timeout_s: float | None = None,
        hold_s: float = limits.POP_HOLD_S,
        max_reconsume_times: int | None = None,
        on_error: OnFailure | None = None,
    ) -> None:
        """Call `handler` with each message, for ever, by `concurrency` threads.

        A thread can't be cancelled: if a handler takes longer than `timeout_s`, the message is
        redelivered, and the thread goes on with its work.
        """
        self.call(
            partial(
                self._client.run,
                in_threads(handler, concurrency, timeout_s),
                concurrency,
                timeout_s=timeout_s,
                hold_s=hold_s,
                max_reconsume_times=max_reconsume_times,
                on_error=on_error,
            )
        )

    @property
    def client_id(self) -> str:
        """The id by which brokers know this consumer."""
        return self._client.client_id
