"""The same client for programs without an event loop: same names, no `async`, no `await`.

::

    with Producer("127.0.0.1:9876", group="PG") as producer:
        result = producer.send(Message("Orders", b"hello"))

Each object runs the asynchronous one in an event loop of its own, in one thread of its own that
ends with its `with` block. Methods may be called from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from client import consumer as consumers
from client import limits
from client import producer as producers
from client.assignment import ConsumeFrom
from client.errors import ClientClosed
from client.models import Message, Rebalance, ReceivedMessage, Selector, SendResult
from client.pending import PendingSend
from dledger.errors import DledgerError
from dledger.remoting.json_dialect import MessageQueue


class _Face:
    """What both faces share: a thread with an event loop for the time of the `with` block."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: BlockingPortal | None = None

    @property
    def _portal(self) -> BlockingPortal:
        if self._running is None:
            raise ClientClosed("this client is not open: use it inside `with`")
        return self._running

    def _enter(self, client: Callable[[BlockingPortal], AbstractContextManager[object]]) -> None:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("trio"))
            stack.enter_context(client(portal))
            self._running = portal
            self._stack = stack.pop_all()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close the client as leaving the asynchronous one's block does."""
        self._running = None
        return self._stack.__exit__(exc_type, exc, traceback)


class Producer(_Face):
    """`client.Producer`, blocking. See there for the parameters and for what is raised."""

    def __init__(
        self,
        namesrv_addr: str = "127.0.0.1:9876",
        group: str = "DEFAULT_PRODUCER",
        *,
        timeout_s: float = limits.SEND_TIMEOUT_S,
        linger_s: float = 0.0,
    ) -> None:
        super().__init__()
        self._async = producers.Producer(
            namesrv_addr, group, timeout_s=timeout_s, linger_s=linger_s
        )

    def __enter__(self) -> Self:
        self._enter(lambda portal: portal.wrap_async_context_manager(self._async))
        return self

    def send(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send one message and wait until it is stored; where it went."""
        send = partial(
            self._async.send,
            message,
            queue_id=queue_id,
            key=key,
            selector=selector,
            timeout_s=timeout_s,
        )
        return self._portal.call(send)

    def send_soon(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Future[SendResult]:
        """Hand over one message, waiting only for room; the future gets where it went."""
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()

        async def hand_over() -> None:
            pending = await self._async.send_soon(
                message, queue_id=queue_id, key=key, selector=selector, timeout_s=timeout_s
            )
            pending.add_callback(partial(_settle, future))

        self._portal.call(hand_over)
        return future

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        key: str | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic to one queue, stored all or none, next to each other."""
        send = partial(
            self._async.send_batch, messages, queue_id=queue_id, key=key, timeout_s=timeout_s
        )
        return self._portal.call(send)

    def send_oneway(
        self, message: Message, *, queue_id: int | None = None, key: str | None = None
    ) -> None:
        """Hand over a message that nobody acknowledges."""

        async def hand_over() -> None:
            await self._async.prepare(message.topic)
            self._async.send_oneway(message, queue_id=queue_id, key=key)

        self._portal.call(hand_over)

    def flush(self) -> None:
        """Wait until everything handed over so far is settled."""
        self._portal.call(self._async.flush)


class Consumer(_Face):
    """`client.Consumer`, blocking. See there for the parameters and for what is raised."""

    def __init__(
        self,
        namesrv_addr: str = "127.0.0.1:9876",
        group: str = "DEFAULT_CONSUMER",
        subscriptions: Mapping[str, str] | None = None,
        *,
        consume_from: ConsumeFrom = "first",
        auto_commit: bool = True,
        on_rebalance: Callable[[Rebalance], None] | None = None,
    ) -> None:
        super().__init__()
        self._async = consumers.Consumer(
            namesrv_addr,
            group,
            subscriptions,
            consume_from=consume_from,
            auto_commit=auto_commit,
            on_rebalance=on_rebalance,
        )

    def __enter__(self) -> Self:
        self._enter(lambda portal: portal.wrap_async_context_manager(self._async))
        return self

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages without end; asking for one says that the one before is processed."""
        while True:
            yield self._portal.call(self._async.__anext__)

    def poll(self, max_messages: int = 1024, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Up to `max_messages` messages, as soon as there are any; an empty list after a while."""
        return self._portal.call(self._async.poll, max_messages, timeout_s)

    def run(self, handler: Callable[[ReceivedMessage], None]) -> None:
        """Call `handler` with each message, in this thread, until it raises."""
        for message in self:
            handler(message)

    def commit(self, timeout_s: float = limits.REQUEST_TIMEOUT_S) -> dict[MessageQueue, int]:
        """Commit all messages handed out so far; the new offsets by queue."""
        return self._portal.call(self._async.commit, timeout_s)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading `queue` at `offset`."""
        self._portal.call(self._async.seek, queue, offset)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's at the moment."""
        return self._async.queues


def _settle(future: Future[SendResult], pending: PendingSend) -> None:
    try:
        future.set_result(pending.result())
    except DledgerError as error:
        future.set_exception(error)
