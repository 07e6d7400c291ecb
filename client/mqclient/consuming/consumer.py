"""Reading messages as a member of a consumer group.

::

    async with Consumer("127.0.0.1:9876", "CG", {"Orders": "*"}) as consumer:
        async for message in consumer:
            ...

Three ways to take messages, one at a time: iterate, `poll` a list, or `run` a handler. A message
is finished when its handler returns or the application comes back for more, those of a poll also
when the block is left in order; or by `commit(message)` and `nack`. What is finished and has no gap
below is committed every second and on leaving, or by `commit`. So nothing is lost, and a crash or a
rebalance delivers again what was not committed, never what was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import anyio

from dledger.errors import BadInput
from dledger.observe import get_logger
from dledger.remoting.bodies import ConsumerData, Dialect, HeartbeatData, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import UnregisterClientHeader
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import RETRY_PREFIX
from dledger.remoting.names import check_group_name
from mqclient import limits
from mqclient.connection.lifetime import Living, together
from mqclient.connection.session import Session
from mqclient.consuming.assignment import Assignment, ConsumeFrom
from mqclient.consuming.fetching import QueueFetcher
from mqclient.consuming.filters import check_filters
from mqclient.consuming.handling import Handler, Handling, check_pace
from mqclient.consuming.handout import HandOut
from mqclient.consuming.lanes import Order
from mqclient.consuming.running_info import running_info
from mqclient.consuming.sending_back import (
    Delay,
    OnError,
    SendingBack,
    check_on_error,
    check_schedule,
    check_times,
)
from mqclient.consuming.subscriptions import ALL, Sql, parse_subscription
from mqclient.errors import ClientClosed, NotAssigned
from mqclient.models import Rebalance, ReceivedMessage

log = get_logger(__name__)


class Consumer(Living):
    """A member of `group`, subscribed to topics by tags ("*" or "TagA || TagB") or by `Sql`.

    `consume_from` is where a group that never committed begins: "first" at the oldest message,
    "last" at the next one to come. Entering the block asks a broker whether it can read a `Sql`,
    and raises BadInput with its words if not. `on_rebalance` is told of every change of queues and
    its cause.

    Without `auto_commit` only `commit` and `nack` say what was processed. `retry_delays_s` is when
    a message that was not handled comes again: so long after the first failure, the second, and so
    on, the last for all that follow; without it the broker's levels say.
    """

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
        if not subscriptions:
            raise BadInput(f"consumer of group {group!r}: no subscription was given")
        check_group_name(group)
        self.group = group
        self._started_ms = version_ms = int(time.time() * 1000)
        wanted: dict[str, str | Sql] = {RETRY_PREFIX + group: ALL, **subscriptions}
        self._subscriptions = {
            topic: parse_subscription(topic, expression, version_ms)
            for topic, expression in wanted.items()
        }
        self._consume_from: ConsumeFrom = consume_from
        self._auto_commit = auto_commit
        self._auto_commit_interval_s = auto_commit_interval_s
        self._on_rebalance = on_rebalance
        self._session = Session(namesrv_addr, self._asked)
        self._assignment: Assignment | None = None
        self._schedule = check_schedule(retry_delays_s)
        self._handout = HandOut(self._readings, asking_finishes=auto_commit)

    @property
    def client_id(self) -> str:
        """How brokers and the other members know this consumer."""
        return self._session.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's at the moment."""
        return tuple(sorted(self._assigned().fetchers))

    async def _start(self) -> None:
        await self._session.__aenter__()
        try:
            with anyio.move_on_after(limits.REQUEST_TIMEOUT_S):
                await check_filters(self._session, self.group, self._subscriptions.values())
        except BaseException:
            await self._session.__aexit__(None, None, None)
            raise
        tasks = self._session.tasks
        assignment = self._assignment = Assignment(
            session=self._session,
            tasks=tasks,
            group=self.group,
            subscriptions=self._subscriptions,
            consume_from=self._consume_from,
            beat=self._beat,
            on_arrival=self._handout.arrived.announce,
            on_rebalance=self._rebalanced,
        )
        self._session.on_route_change.append(self._route_changed)
        tasks.start_soon(self._join, assignment)
        tasks.start_soon(self._watch_leaders, assignment)
        if self._auto_commit:
            tasks.start_soon(self._keep_committing, assignment)

    async def _end(self, *, failed: bool) -> None:
        """Commit what is finished (if `auto_commit`) and leave the group."""
        assignment, self._assignment = self._assignment, None
        if self._auto_commit and not failed:
            self._handout.finish_polled()
        try:
            with anyio.move_on_after(limits.REQUEST_TIMEOUT_S, shield=True):
                if assignment is not None and self._auto_commit:
                    await assignment.commit(limits.REQUEST_TIMEOUT_S)
                await self._session.leave(
                    UnregisterClientHeader(client_id=self.client_id, consumer_group=self.group)
                )
        finally:
            await self._session.__aexit__(None, None, None)
            self._handout.arrived.announce()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Wait for the next message; asking for it says that the one before is processed."""
        self.check_open()
        return await self._handout.next_message()

    async def next_after(self, message: ReceivedMessage | None) -> ReceivedMessage:
        """For handlers in the caller's thread: `message` is handled; wait for the next one."""
        self.check_open()
        reading = None if message is None else self._readings().get(message.queue)
        if message is not None and reading is not None:
            reading.progress.finish(message.queue_offset, message.queue_offset)
        return (await self._handout.take_one())[0]

    async def give_back(self, message: ReceivedMessage) -> None:
        """For handlers in the caller's thread: `message` was not handled, and is the next again."""
        self.check_open()
        reading = self._readings().get(message.queue)
        if reading is not None:
            reading.progress.give_back(message, reading.progress.epoch)

    async def poll(self, max_messages: int = 1024, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Up to `max_messages` messages, as soon as there are any; an empty list after `timeout_s`.

        Polling says that all messages of the poll before are processed.
        """
        self.check_open()
        return await self._handout.poll(max_messages, timeout_s)

    async def run(
        self,
        handler: Handler,
        concurrency: int = 1,
        *,
        order: Order = "queue",
        timeout_s: float | None = None,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        on_error: OnError = "retry",
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with each message until cancelled; await it if it is asynchronous.

        Up to `concurrency` messages are handled at a time, of `max_bytes` in all: each queue's one
        after the other (`order="queue"`), each key's within a queue ("key"), or as they come
        ("none"). A message whose handler raises, or takes longer than `timeout_s` and is cancelled,
        comes again later (`Nack` says when), and after `max_reconsume_times` (by default the
        group's setting, 16) goes to the dead letters; those behind it do not wait. With
        `on_error="raise"` the exception ends `run` and reaches the caller, and the message is
        delivered again to whoever reads its queue then.
        """
        back = self.sending_back(on_error, max_reconsume_times)
        pace = check_pace(concurrency, max_bytes, order, timeout_s)
        arrived = self._handout.arrived
        await Handling(self._readings, arrived, handler, back.settle, pace).run()

    async def nack(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> None:
        """For who iterates or polls: `message` could not be handled, and is to come again.

        Its copy arrives after `delay_s`, or the delay of the level (-1: in the dead letters at
        once), or when the group's schedule or the broker says. The message itself is finished.
        Raises NotAssigned if its queue is another member's by now, who gets it anyway; Refused, or
        another ClientError or RemotingError, if the copy may not be stored.
        """
        back, delay = self.sending_back(), Delay.of(delay_level, delay_s)
        progress = self._reading(message.queue, "nack").progress
        await back.send_back(message, delay)
        progress.finish(message.queue_offset, message.queue_offset)

    def sending_back(
        self, on_error: OnError = "retry", times_max: int | None = None
    ) -> SendingBack:
        """How this group's messages are sent back. Raises ClientClosed, BadInput."""
        self.check_open()
        finder, on_error = self._session.finder, check_on_error(on_error)
        return SendingBack(self.group, finder, self._schedule, on_error, check_times(times_max))

    async def commit(
        self,
        message: ReceivedMessage | None = None,
        *,
        timeout_s: float = limits.REQUEST_TIMEOUT_S,
    ) -> dict[MessageQueue, int]:
        """`message` is processed; or, without one, all that were handed out so far. Commit.

        Committed is what has no gap below: the offset of the first message that is not processed.
        The result is what brokers newly hold. Queues whose leader could not be reached in time are
        left out (and logged). Raises NotAssigned if the message's queue is another member's by now.
        """
        self.check_open()
        if message is None:
            self._handout.finish_handed()
            return await self._assigned().commit(timeout_s)
        progress = self._reading(message.queue, "commit").progress
        progress.finish(message.queue_offset, message.queue_offset)
        return await self._assigned().commit(timeout_s, (message.queue,))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading `queue` at `offset`. Raises NotAssigned unless the queue is ours."""
        fetcher = self._reading(queue, "seek")
        fetcher.progress.seek(offset)
        fetcher.restart()

    def lag(self) -> dict[MessageQueue, int]:
        """Messages not processed yet by queue, as of the last answer of each queue's broker."""
        return {
            queue: max(0, fetcher.progress.max_offset - fetcher.progress.position)
            for queue, fetcher in self._assigned().fetchers.items()
        }

    def _readings(self) -> Mapping[MessageQueue, QueueFetcher]:
        return self._assigned().fetchers

    def _reading(self, queue: MessageQueue, purpose: str) -> QueueFetcher:
        fetcher = self._readings().get(queue)
        if fetcher is None:
            raise NotAssigned(
                f"can't {purpose}: {queue} is not read by this consumer of group {self.group!r}, "
                f"which has {len(self._readings())} queues. A rebalance may have moved it: what "
                "was not committed is delivered to its reader"
            )
        return fetcher

    def _assigned(self) -> Assignment:
        if self._assignment is None:
            raise ClientClosed(
                f"the consumer of group {self.group!r} is not open: use it inside its `with` block"
            )
        return self._assignment

    async def _join(self, assignment: Assignment) -> None:
        """Make ourselves known to the brokers, then share queues out and stay known."""
        for topic in self._subscriptions:
            await assignment.find_route(topic)
        await self._beat()
        self._session.tasks.start_soon(self._session.keep_beating, self._heartbeat)
        await assignment.keep_balanced()

    async def _keep_committing(self, assignment: Assignment) -> None:
        while True:
            await anyio.sleep(self._auto_commit_interval_s)
            # A group that is gone does not hold up the others' commits for longer.
            await assignment.commit(limits.HEARTBEAT_TIMEOUT_S)

    async def _watch_leaders(self, assignment: Assignment) -> None:
        """Notice a leader that fell silent or was replaced while a pull of ours waits there."""
        while True:
            await anyio.sleep(limits.HEARTBEAT_S)
            async with together() as tasks:
                for broker_name in {queue.broker_name for queue in assignment.fetchers}:
                    tasks.start_soon(self._watch_leader, assignment, broker_name)

    async def _watch_leader(self, assignment: Assignment, broker_name: str) -> None:
        """One look at one group; one that shows no leader for a while is looked at again later."""
        finder = self._session.finder
        leader = self._session.routes.leader(broker_name)
        info = None if leader is None else await finder.group_info(leader)
        if info is not None and info.role == "leader":
            return
        with anyio.move_on_after(limits.HEARTBEAT_S):
            found = await finder.find(broker_name)
            for queue, fetcher in assignment.fetchers.items():
                if queue.broker_name == broker_name and found != leader:
                    fetcher.interrupt()

    def _asked(self, address: str, command: Command) -> Command | None:
        """A broker announces that the group's members changed, or asks on a tool's behalf."""
        assignment = self._assignment
        if assignment is None:
            return None
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            assignment.look_again(f"{address} announced a change of members")
        elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            fetchers = assignment.fetchers
            info = running_info(
                name_servers=self._session.name_servers,
                started_ms=self._started_ms,
                subscriptions=self._subscriptions.values(),
                queues={queue: fetcher.progress for queue, fetcher in fetchers.items()},
            )
            return command.reply(body=encode_body(info, Dialect.LOOSE))
        return None

    def _route_changed(self, topic: str) -> None:
        if self._assignment is not None and topic in self._subscriptions:
            self._assignment.look_again(f"the route of {topic} changed")

    def _rebalanced(self, event: Rebalance) -> None:
        if self._on_rebalance is not None:
            self._on_rebalance(event)

    async def _beat(self) -> None:
        await self._session.beat(self._heartbeat())

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[],
            consumer_data_set=[
                ConsumerData(
                    group_name=self.group,
                    consume_type="CONSUME_ACTIVELY",
                    message_model="CLUSTERING",
                    consume_from_where=(
                        "CONSUME_FROM_FIRST_OFFSET"
                        if self._consume_from == "first"
                        else "CONSUME_FROM_LAST_OFFSET"
                    ),
                    subscription_data_set=list(self._subscriptions.values()),
                )
            ],
        )
