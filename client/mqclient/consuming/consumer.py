"""Reading messages as a member of a consumer group.

::

    async with Consumer("127.0.0.1:9876", "CG", {"Orders": "*"}) as consumer:
        async for message in consumer:
            ...

Three ways to take messages, one at a time: iterate, `poll` a list, or `run` a handler. A message
counts as processed when the application comes back for the next one (the next poll; the handler's
return); what was processed is committed every second and on leaving, or by `commit`. So nothing
is lost, and a crash or a rebalance delivers again what was not committed, never what was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
from mqclient.consuming.filters import check_filters
from mqclient.consuming.handout import Handler, HandOut
from mqclient.consuming.running_info import running_info
from mqclient.consuming.sending_back import OnError, SendingBack, check_on_error, check_times
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
        self._handout = HandOut(lambda: self._assigned().fetchers)

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
        """Commit what was processed (if `auto_commit`) and leave the group."""
        assignment, self._assignment = self._assignment, None
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
        on_error: OnError = "retry",
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with each message until cancelled; await it if it is asynchronous.

        Up to `concurrency` queues are handled at a time, each in order. A message whose handler
        raises comes again later (`Nack` says when), and after `max_reconsume_times` (by default
        the group's setting, 16) goes to the dead letters; those behind it do not wait. With
        `on_error="raise"` the exception ends `run` and reaches the caller, and the message is
        delivered again to whoever reads its queue then.
        """
        back = self.sending_back(on_error, max_reconsume_times)
        async with together() as tasks:
            for _ in range(max(1, concurrency)):
                tasks.start_soon(self._handout.work, handler, back.settle)

    async def nack(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """For who iterates or polls: `message` could not be handled, and is to come again.

        Its copy arrives after the delay of the level (0: the broker's choice, longer each time;
        -1: in the dead letters). Go on to the next message then, as with any other. Raises
        Refused, or another ClientError or RemotingError, if it may not be stored.
        """
        await self.sending_back().send_back(message, delay_level)

    def sending_back(
        self, on_error: OnError = "retry", times_max: int | None = None
    ) -> SendingBack:
        """How this group's messages are sent back. Raises ClientClosed, BadInput."""
        self.check_open()
        finder, on_error = self._session.finder, check_on_error(on_error)
        return SendingBack(self.group, finder, on_error, check_times(times_max))

    async def commit(self, timeout_s: float = limits.REQUEST_TIMEOUT_S) -> dict[MessageQueue, int]:
        """Commit all messages handed out so far, the one in hand included; the new offsets.

        Queues whose leader could not be reached in time are left out (and logged).
        """
        self.check_open()
        self._handout.process_handed()
        return await self._assigned().commit(timeout_s)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading `queue` at `offset`. Raises NotAssigned unless the queue is ours."""
        fetcher = self._assigned().fetchers.get(queue)
        if fetcher is None:
            raise NotAssigned(
                f"{queue} is not read by this consumer of group {self.group!r}: it has "
                f"{len(self._assigned().fetchers)} queues; seek again when it is assigned"
            )
        fetcher.progress.seek(offset)
        fetcher.restart()

    def lag(self) -> dict[MessageQueue, int]:
        """Messages not processed yet by queue, as of the last answer of each queue's broker."""
        return {
            queue: max(0, fetcher.progress.max_offset - fetcher.progress.position)
            for queue, fetcher in self._assigned().fetchers.items()
        }

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
