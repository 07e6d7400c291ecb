"""The same client for programs without an event loop: same names, no `async`, no `await`.

::

    with Producer("127.0.0.1:9876", group="PG") as producer:
        result = producer.send(Message("Orders", b"hello"))

Each object runs the asynchronous one in an event loop of its own, in one thread of its own that
ends with its `with` block. Methods have the parameters, results and errors of the asynchronous
ones; they may be called from several threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
)
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dledger.errors import DledgerError
from dledger.remoting.json_dialect import MessageQueue
from mqclient import admin as admins
from mqclient import limits
from mqclient.consuming import consumer as consumers
from mqclient.consuming.assignment import ConsumeFrom
from mqclient.consuming.sending_back import OnError, SendingBack, check_on_error
from mqclient.consuming.subscriptions import Sql
from mqclient.errors import ClientClosed
from mqclient.models import Message, Rebalance, ReceivedMessage, SendResult
from mqclient.producing import producer as producers
from mqclient.producing import transactions
from mqclient.producing.pending import PendingSend
from mqclient.producing.transactions import Decision

ClientT_co = TypeVar("ClientT_co", bound=AbstractAsyncContextManager[object], covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class Face(Generic[ClientT_co]):
    """A thread with an event loop for the time of the `with` block, and the client in it."""

    def __init__(self, client: ClientT_co) -> None:
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
            # Another thread has left the block meanwhile, and taken the event loop with it.
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
    method: Callable[Concatenate[ClientT_co, P], Awaitable[R]],
) -> Callable[Concatenate[Face[ClientT_co], P], R]:
    """Make the method of a face that calls `method` of its client and waits for the result."""

    @wraps(method)
    def call(face: Face[ClientT_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return face.call(partial(method, face._client, *args, **kwargs))

    return call


def handing_over(
    method: Callable[Concatenate[ClientT_co, P], Awaitable[PendingSend]],
) -> Callable[Concatenate[Face[ClientT_co], P], Future[SendResult]]:
    """As `blocking`, for a `method` that only hands a message over: the outcome is a Future's."""

    @wraps(method)
    def call(face: Face[ClientT_co], /, *args: P.args, **kwargs: P.kwargs) -> Future[SendResult]:
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()

        async def hand_over() -> None:
            pending = await method(face._client, *args, **kwargs)
            pending.add_callback(partial(_settle, future))

        face.call(hand_over)
        return future

    return call


class Transaction:
    """`mqclient.Transaction`, blocking."""

    def __init__(
        self, face: Face[producers.Producer], transaction: transactions.Transaction
    ) -> None:
        self.sent = transaction.sent
        self._face = face
        self._transaction = transaction

    @property
    def ended(self) -> Decision | None:
        """How the caller ended it, None if not yet."""
        return self._transaction.ended

    def commit(self) -> None:
        """Let consumers see the message."""
        self._face.call(self._transaction.commit)

    def rollback(self) -> None:
        """Let nobody ever see the message."""
        self._face.call(self._transaction.rollback)


def in_a_block(
    method: Callable[
        Concatenate[producers.Producer, P], AbstractAsyncContextManager[transactions.Transaction]
    ],
) -> Callable[Concatenate[Face[producers.Producer], P], AbstractContextManager[Transaction]]:
    """As `blocking`, for a `method` whose transaction lives in a `with` block."""

    @wraps(method)
    @contextmanager
    def call(
        face: Face[producers.Producer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[Transaction]:
        portal = face.portal
        begun = method(face._client, *args, **kwargs)
        with portal.wrap_async_context_manager(begun) as transaction:
            yield Transaction(face, transaction)

    return call


class Producer(Face[producers.Producer]):
    """`mqclient.Producer`, blocking."""

    def __init__(
        self,
        namesrv_addr: str = "127.0.0.1:9876",
        group: str = "DEFAULT_PRODUCER",
        *,
        checker: Callable[[ReceivedMessage], Decision] | None = None,
        timeout_s: float = limits.SEND_TIMEOUT_S,
        linger_s: float = 0.0,
        batch_bytes_max: int = limits.BATCH_BYTES_MAX,
        pending_max: int = limits.PENDING_MESSAGES_MAX,
        pending_bytes_max: int = limits.PENDING_BYTES_MAX,
        at_least_once: bool = False,
    ) -> None:
        super().__init__(
            producers.Producer(
                namesrv_addr,
                group,
                checker=None if checker is None else _in_a_thread(checker),
                timeout_s=timeout_s,
                linger_s=linger_s,
                batch_bytes_max=batch_bytes_max,
                pending_max=pending_max,
                pending_bytes_max=pending_bytes_max,
                at_least_once=at_least_once,
            )
        )

    prepare = blocking(producers.Producer.prepare)
    send = blocking(producers.Producer.send)
    send_batch = blocking(producers.Producer.send_batch)
    request = blocking(producers.Producer.request)
    reply = blocking(producers.Producer.reply)
    recall = blocking(producers.Producer.recall)
    flush = blocking(producers.Producer.flush)

    send_soon = handing_over(producers.Producer.send_soon)
    transaction = in_a_block(producers.Producer.transaction)

    @property
    def client_id(self) -> str:
        """How brokers know this producer."""
        return self._client.client_id

    @property
    def pending(self) -> int:
        """Messages handed over and not settled yet."""
        return self._client.pending

    def send_oneway(
        self, message: Message, *, queue_id: int | None = None, key: str | None = None
    ) -> None:
        """Hand over a message that nobody acknowledges."""

        async def hand_over() -> None:
            await self._client.prepare(message.topic)
            self._client.send_oneway(message, queue_id=queue_id, key=key)

        self.call(hand_over)


class Consumer(Face[consumers.Consumer]):
    """`mqclient.Consumer`, blocking."""

    def __init__(
        self,
        namesrv_addr: str = "127.0.0.1:9876",
        group: str = "DEFAULT_CONSUMER",
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
            back = self._client.sending_back(max_reconsume_times)
            for message in self:
                while not self._handled(handler, message, check_on_error(on_error), back):
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
        on_error: OnError,
        back: SendingBack,
    ) -> bool:
        try:
            handler(message)
        except Exception as error:
            if on_error == "raise":
                raise
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


class Admin(Face[admins.Admin]):
    """`mqclient.Admin`, blocking."""

    def __init__(
        self, namesrv_addr: str = "127.0.0.1:9876", *, timeout_s: float = limits.REQUEST_TIMEOUT_S
    ) -> None:
        super().__init__(admins.Admin(namesrv_addr, timeout_s=timeout_s))

    add_node = blocking(admins.Admin.add_node)
    broker_config = blocking(admins.Admin.broker_config)
    broker_status = blocking(admins.Admin.broker_status)
    clean = blocking(admins.Admin.clean)
    cluster_list = blocking(admins.Admin.cluster_list)
    consumer_connection = blocking(admins.Admin.consumer_connection)
    consumer_groups = blocking(admins.Admin.consumer_groups)
    consumer_progress = blocking(admins.Admin.consumer_progress)
    consumer_status = blocking(admins.Admin.consumer_status)
    delete_group = blocking(admins.Admin.delete_group)
    delete_kv_config = blocking(admins.Admin.delete_kv_config)
    delete_topic = blocking(admins.Admin.delete_topic)
    group_config = blocking(admins.Admin.group_config)
    groups_of_topic = blocking(admins.Admin.groups_of_topic)
    kv_config = blocking(admins.Admin.kv_config)
    message_by_id = blocking(admins.Admin.message_by_id)
    messages_by_key = blocking(admins.Admin.messages_by_key)
    messages_by_unique_key = blocking(admins.Admin.messages_by_unique_key)
    namesrv_config = blocking(admins.Admin.namesrv_config)
    offset_at = blocking(admins.Admin.offset_at)
    producer_connection = blocking(admins.Admin.producer_connection)
    raft_status = blocking(admins.Admin.raft_status)
    read_queue = blocking(admins.Admin.read_queue)
    remove_node = blocking(admins.Admin.remove_node)
    reset_offset = blocking(admins.Admin.reset_offset)
    set_write_perm = blocking(admins.Admin.set_write_perm)
    topic_clusters = blocking(admins.Admin.topic_clusters)
    topic_list = blocking(admins.Admin.topic_list)
    topic_route = blocking(admins.Admin.topic_route)
    topic_status = blocking(admins.Admin.topic_status)
    traffic = blocking(admins.Admin.traffic)
    transfer_leader = blocking(admins.Admin.transfer_leader)
    update_broker_config = blocking(admins.Admin.update_broker_config)
    update_group = blocking(admins.Admin.update_group)
    update_kv_config = blocking(admins.Admin.update_kv_config)
    update_namesrv_config = blocking(admins.Admin.update_namesrv_config)
    update_topic = blocking(admins.Admin.update_topic)


def _in_a_thread(
    checker: Callable[[ReceivedMessage], Decision],
) -> Callable[[ReceivedMessage], Awaitable[Decision]]:
    """It may take its time: the event loop has other things to do."""

    async def check(message: ReceivedMessage) -> Decision:
        return await to_thread.run_sync(checker, message)

    return check


def _settle(future: Future[SendResult], pending: PendingSend) -> None:
    try:
        future.set_result(pending.result())
    except DledgerError as error:
        future.set_exception(error)
