"""Reading messages for a time, as one of any number of members of a group.

::

    async with PopConsumer("127.0.0.1:9876", "CG", {"Orders": "*"}) as consumer:
        await consumer.run(handle, concurrency=16)

No member owns a queue: each message goes to any member that asks, and is hidden from the others for
`invisible_s`. It is done when it is acknowledged; otherwise it is delivered again. So there may be
more members than queues, a slow message holds up no other, and there is no rebalance when members
come and go. `run` acknowledges a message when its handler returns; if you poll, call `ack` and
`nack`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, Self

import anyio

from dledger.errors import BadInput, DledgerError
from dledger.observe import get_logger
from dledger.remoting.bodies import ConsumerData, Dialect, HeartbeatData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import UnregisterClientHeader
from dledger.remoting.headers.pop import FROM_END, FROM_FIRST
from dledger.remoting.json_dialect import all_queues
from dledger.remoting.names import check_group_name
from dledger.tls.options import AskedTls
from dledger.world import unix_ms
from mqclient import limits
from mqclient.arguments import check_count, check_seconds
from mqclient.connection.credentials import Credentials
from mqclient.connection.lifetime import Living, together
from mqclient.connection.session import Session
from mqclient.consuming.measuring import Measured
from mqclient.consuming.membership.filters import check_filters
from mqclient.consuming.membership.notices import (
    new_offsets,
    positions_reply,
    refused,
    running_info,
)
from mqclient.consuming.popping.message import PoppedMessage
from mqclient.consuming.popping.running import Handler, Policy, Running, delay_seconds
from mqclient.consuming.popping.settling import Settling
from mqclient.consuming.popping.taking import Taking
from mqclient.consuming.popping.window import retry_delay_s
from mqclient.consuming.sending_back import DEAD, Delay, OnFailure, SendingBack, check_schedule
from mqclient.consuming.sharing.beginnings import learn_brokers
from mqclient.consuming.subscriptions import Sql, check_readable, parse_subscription
from mqclient.errors import ClientClosed, NoRoute, SubscriptionConflict
from mqclient.hooks import Decode, HandleHooks, HandleInterceptor
from mqclient.large.fetching import LargeBodies
from mqclient.metrics import Metrics
from mqclient.signatures import checked

log = get_logger(__name__)


@checked
class PopConsumer(Living):
    """A member of `group`, subscribed to topics by tags ("*" or "TagA || TagB") or by `Sql`.

    `invisible_s` is how long a message in hand is hidden from other members. `consume_from` is the
    place where a group without an offset begins: at the "first" message, or behind the "last". An
    `ordered` consumer gets messages of a queue only if no member has earlier messages of it in
    hand. `retry_delays_s` are the delays before a message is delivered again after its first
    failure, its second, and so on; the last delay repeats. `interceptors`, `decode` and `metrics`
    are as in `Consumer`.

    `user` and `secret`, its password, sign each request; without a user, `secret` is the cluster's
    secret.

    Entering the block raises BadInput for a filter that no broker can read. It raises
    SubscriptionConflict if other members of the group have other subscriptions, unless
    `same_subscriptions=False`.
    """

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        group: str = "",
        subscriptions: Mapping[str, str | Sql] | None = None,
        *,
        invisible_s: float = limits.POP_INVISIBLE_S,
        consume_from: Literal["first", "last"] = "first",
        ordered: bool = False,
        retry_delays_s: Sequence[float] = limits.POP_RETRY_DELAYS_S,
        same_subscriptions: bool = True,
        drain_timeout_s: float = limits.DRAIN_S,
        interceptors: Sequence[HandleInterceptor] = (),
        decode: Decode | None = None,
        metrics: Metrics | None = None,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        if not group:
            raise BadInput("group is missing: two programs of one group share its messages")
        check_group_name(group)
        if not subscriptions:
            raise BadInput(f"pop consumer of group {group!r}: no subscription was given")
        check_seconds("invisible_s", invisible_s)
        if not limits.POP_INVISIBLE_S_MIN <= invisible_s <= limits.RETRY_DELAY_S_MAX:
            raise BadInput(
                f"invisible_s={invisible_s} is not within {limits.POP_INVISIBLE_S_MIN} and "
                f"{limits.RETRY_DELAY_S_MAX}"
            )
        if consume_from not in ("first", "last"):
            raise BadInput(f"consume_from={consume_from!r}: expected 'first' or 'last'")
        if not retry_delays_s:
            raise BadInput("retry_delays_s is empty: name one delay at least")
        check_schedule(retry_delays_s)
        self.group = group
        self._schedule = tuple(retry_delays_s)
        self._ordered, self._same_subscriptions = ordered, same_subscriptions
        for topic in subscriptions:
            check_readable(topic, group)
        version_ms = int(time.time() * 1000)
        self._topics = {
            topic: parse_subscription(topic, expression, version_ms)
            for topic, expression in subscriptions.items()
        }
        measured = self._measured(metrics)
        self._hooks = HandleHooks(interceptors, decode, measured)
        who = Credentials.of(user, secret)
        self._session = Session(namesrv_addr, self._asked, who, tls, measured)
        self._started_ms = 0
        self._runs: set[Running] = set()
        self._drain_timeout_s = check_seconds("drain_timeout_s", drain_timeout_s)
        self._has_left = False
        self._in_loop: PoppedMessage | None = None
        self._telling: anyio.CancelScope | None = None
        self._settling = Settling(self._session, group)
        self._large = LargeBodies(self._session.finder)
        self._taking = Taking(
            self._session,
            group,
            self._topics,
            self._settling,
            invisible_s=invisible_s,
            init_mode=FROM_FIRST if consume_from == "first" else FROM_END,
            ordered=ordered,
            measured=measured,
        )

        self._settling.on_sent = self._taking.arrived.announce

    def _measured(self, metrics: Metrics | None) -> Measured | None:
        if metrics is None:
            return None
        return Measured(metrics, self.group, lambda: self._taking.gauges())  # noqa: PLW0108

    @property
    def client_id(self) -> str:
        """The id by which brokers know this consumer. Raises ClientClosed before it is opened."""
        return self._session.client_id

    async def _start(self) -> None:
        self._started_ms = unix_ms()
        self._leaving = anyio.Lock()
        await self._session.__aenter__()
        try:
            with anyio.move_on_after(limits.REQUEST_TIMEOUT_S):
                await self._join()
        except BaseException:
            await self._session.__aexit__(None, None, None)
            raise
        tasks = self._session.tasks
        tasks.start_soon(self._keep_telling)
        tasks.start_soon(self._taking.keep, tasks)

    async def _join(self) -> None:
        session = self._session
        for topic in self._topics:
            try:
                await session.route(topic, "subscribe to")
            except NoRoute as error:
                log.warning("no route yet", group=self.group, topic=topic, reason=str(error))
                await learn_brokers(session.finder)  # where the group begins by this heartbeat
        await check_filters(session, self.group, self._topics.values())
        for answer in await session.heartbeats.tell(self._heartbeat()):
            if answer.code == ResponseCode.SUBSCRIPTION_DIFFERS:
                raise SubscriptionConflict(self.group, answer.remark or "")

    async def drain(self, timeout_s: float = limits.DRAIN_S) -> bool:
        """Stop in order: pop nothing more, give back messages that no handler has begun, let
        handlers finish the others, acknowledge these, and leave.

        `run` returns; a waiting poll returns its messages, and later polls raise ClientClosed.
        Polled messages can be acknowledged until the block is left. Returns whether all handlers
        ended within `timeout_s`.
        """
        self.check_open()
        check_seconds("timeout_s", timeout_s)
        self._taking.stop()
        self._session.tasks.start_soon(self._leave)  # nobody waits for what handlers have in hand
        with anyio.move_on_after(timeout_s) as scope:
            while self._runs:
                await self._taking.arrived.wait()
        if scope.cancelled_caught:
            log.warning("drained before all was finished", group=self.group, waited_s=timeout_s)
        await self._leave()
        return not scope.cancelled_caught

    async def _wind_down(self) -> None:
        """Wait for handlers, for a time: the block is left in order."""
        if any(running.is_at_work for running in self._runs):
            await self.drain(self._drain_timeout_s)

    async def _leave(self) -> None:
        """Leave the group, give back messages that no handler has begun, and send acknowledgements:
        as handlers begin to finish, and again when they have. One task may drain while another
        leaves the block: the second waits for the first."""
        with anyio.CancelScope(shield=True):
            async with self._leaving:
                await self._leave_now()

    async def _leave_now(self) -> None:
        self._taking.stop()
        if self._telling is not None:
            self._telling.cancel()
        with anyio.move_on_after(limits.REQUEST_TIMEOUT_S, shield=True):
            async with together() as tasks:
                if not self._has_left:
                    self._has_left = True
                    header = UnregisterClientHeader(self.client_id, consumer_group=self.group)
                    tasks.start_soon(self._session.leave, header)
                await self._taking.give_back()
                await self._taking.last_answers()
                await self._taking.give_back()
            try:
                await self._settling.flush()
            except DledgerError as error:
                log.warning("acknowledgements not sent", group=self.group, reason=str(error))

    async def _keep_telling(self) -> None:
        with anyio.CancelScope() as self._telling:
            await self._session.heartbeats.keep_telling(self._heartbeat)

    async def _end(self, *, failed: bool) -> None:
        """Leave the group, and give back messages that were popped since."""
        try:
            await self._leave()
        finally:
            self._taking.close()
            await self._session.__aexit__(None, None, None)

    async def poll(self, max_messages: int = 32, timeout_s: float = 1.0) -> list[PoppedMessage]:
        """Up to `max_messages` messages, as soon as there are any; an empty list after `timeout_s`.

        The list is shorter if the bodies would have more than 256 MiB together, inflated and
        fetched. The messages belong to this consumer until their `until_s`: `ack`, `nack` or
        `extend` them before.
        """
        self.check_open()
        check_count("max_messages", max_messages)
        check_seconds("timeout_s", timeout_s)
        if self._taking.stopped:
            raise ClientClosed("this consumer was drained: it hands out nothing more")
        found: list[PoppedMessage] = []
        room_bytes: int | None = None
        self._taking.want(max_messages)
        try:
            with anyio.move_on_after(timeout_s):
                while not found:
                    while len(found) < max_messages and (message := self._taking.take(room_bytes)):
                        found.append(message)
                        hand_bytes = sum(each.hand_bytes for each in found)
                        room_bytes = max(0, limits.POP_HAND_BYTES_MAX - hand_bytes)
                    if not found:
                        if self._taking.has_stopped():
                            break
                        await self._taking.arrived.wait()
        finally:
            self._taking.want(0)
        await self._large.see_to(found)
        return [*self._hooks.decodable(found)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PoppedMessage:
        """Wait for the next message; the message before it is acknowledged, unless `ack` or `nack`
        was called for it. If the loop's body raises, its message is delivered again later."""
        self.check_open()
        before, self._in_loop = self._in_loop, None
        if before is not None:
            self._settling.ack_soon(before)
        while not self._taking.stopped:
            found = await self.poll(1, limits.POP_SUSPEND_S)
            if found:
                self._in_loop = found[0]
                return found[0]
        raise StopAsyncIteration

    def pause(self) -> None:
        """Pop nothing and hand out nothing until `resume`. Messages that no handler has begun go to
        other members.

        Messages in hand may be finished.
        """
        self.check_open()
        self._taking.paused = True
        self._session.tasks.start_soon(self._taking.give_back)

    def resume(self) -> None:
        """Pop and hand out messages again, after `pause`."""
        self.check_open()
        self._taking.resume()

    def paused(self) -> bool:
        """Whether the consumer is paused."""
        self.check_open()
        return self._taking.paused

    async def ack(self, *messages: PoppedMessage) -> int:
        """Acknowledge messages: they are done for ever when this call returns.

        Returns an upper bound for the number of messages that were not acknowledged by this call:
        their time was over, so another member may have them, or they were done before. Raises a
        ClientError or RemotingError if it is not known whether the messages are done; they may be
        delivered again.
        """
        self.check_open()
        self._settled(*messages)
        return await self._settling.ack(messages)

    async def nack(
        self, message: PoppedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> bool:
        """Give back `message`: it is redelivered after `delay_s`, or by the schedule.

        After the tries that the group's config allows (`updateSubGroup -r`) it becomes a dead
        letter; with the level -1 it becomes one at once. Returns False if the call changed nothing:
        the message was done, or may have belonged to another member by then. Raises a ClientError
        or RemotingError if no broker could be reached; the message is delivered again when its time
        is over.
        """
        self.check_open()
        self._settled(message)
        delay = Delay.of(delay_level, delay_s)
        if delay.level == DEAD or message.reconsume_times >= self._taking.retry_max_times:
            dead = Delay(DEAD)
            late = await self._dead_letters().send_back(message, dead, message.pop_time_ms)
            if late is None:
                late = await self._settling.ack([message])
            return not late
        seconds = delay_seconds(delay)
        if seconds is None:
            seconds = retry_delay_s(self._schedule, message)
        return not await self._settling.hide([message], seconds, keep=False)

    async def extend(self, *messages: PoppedMessage, invisible_s: float | None = None) -> None:
        """Keep messages hidden from other members for `invisible_s` from now on; the default is the
        time that they had at first."""
        self.check_open()
        if not messages:
            return
        for_s = messages[0].invisible_s if invisible_s is None else invisible_s
        if not 0 < check_seconds("invisible_s", for_s) <= limits.RETRY_DELAY_S_MAX:
            raise BadInput(f"invisible_s={for_s} is not within 0 and {limits.RETRY_DELAY_S_MAX}")
        await self._settling.hide(messages, for_s, keep=True)

    async def run(
        self,
        handler: Handler,
        concurrency: int = 1,
        *,
        timeout_s: float | None = None,
        hold_s: float = limits.POP_HOLD_S,
        max_reconsume_times: int | None = None,
        on_error: OnFailure | None = None,
    ) -> None:
        """Call `handler` with each message until cancelled; await it if it is asynchronous.

        Up to `concurrency` messages are handled at a time. A message whose handler returns is
        acknowledged. A message whose handler raises, or takes longer than `timeout_s` and is
        cancelled, is delivered again later (`Nack` sets the delay). After `max_reconsume_times`, by
        default the group's setting (`updateSubGroup -r`), it becomes a dead letter. While a handler
        works, its message stays hidden, for `hold_s` at most; then another member may get it.
        Messages of an `ordered` consumer's queue are handled one after the other, and a failed
        message is handled again in its place. `on_error(exception, message, attempt)` is called for
        each failure.
        """
        self.check_open()
        policy = Policy(
            *(concurrency, timeout_s, hold_s, max_reconsume_times, self._schedule, self._ordered),
            on_error=on_error,
        )

        def handle(messages: Sequence[PoppedMessage]) -> Awaitable[None] | None:
            return handler(messages[0])

        large = self._large.before(self._hooks.before(handle))
        running = Running(large, policy, self._taking, self._settling, self._dead_letters())
        self._runs.add(running)
        try:
            await running.run()
        finally:
            self._runs.discard(running)
            self._taking.arrived.announce()

    def _settled(self, *messages: PoppedMessage) -> None:
        """The caller has seen to these: a loop does not."""
        if any(message is self._in_loop for message in messages):
            self._in_loop = None

    def _asked(self, address: str, command: Command) -> Command | None:
        """A broker tells of a reset, or asks on a tool's behalf; who else is a member is all the
        same here."""
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            self._taking.drop(new_offsets(command, self.group))
        elif command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return positions_reply(command, {})  # the brokers know: no member has a queue
        elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            info = running_info(
                name_servers=self._session.name_servers,
                started_ms=self._started_ms,
                subscriptions=self._topics.values(),
                queues={},
                ordered=self._ordered,
                consume_type="CONSUME_POP",
            )
            return command.reply(body=encode_body(info, Dialect.LOOSE))
        return refused(command)

    def _dead_letters(self) -> SendingBack:
        return SendingBack(self.group, self._session.finder)

    def _heartbeat(self) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=list(self._topics.values()),
            same_subscriptions=self._same_subscriptions,
            paused=[all_queues(topic) for topic in self._topics] if self._taking.paused else [],
        )
        return HeartbeatData(self.client_id, [], [data])
