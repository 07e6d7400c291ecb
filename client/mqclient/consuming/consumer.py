"""Reading messages as a member of a consumer group.

::

    async with Consumer("127.0.0.1:9876", "CG", {"Orders": "*"}) as consumer:
        async for message in consumer:
            ...

There are three ways to take messages, one at a time: iterate, `poll` a list, or `run` a handler. A
message is finished when its handler returns, when the application asks for more, or by
`commit(message)` or `nack`; polled messages also when the block is left in order. Finished messages
with no unfinished one before them are committed every second and on leaving, or by `commit`. So
nothing is lost: a crash or a rebalance delivers uncommitted messages again, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Self

from dledger.errors import BadInput
from dledger.observe import get_logger
from dledger.remoting.json_dialect import MessageQueue
from dledger.tls.options import AskedTls
from mqclient import limits, tables
from mqclient.arguments import check_seconds
from mqclient.connection.credentials import Credentials
from mqclient.connection.session import Session
from mqclient.consuming.assignment import Assignment, OnRevoke
from mqclient.consuming.columns.many import ReadMany
from mqclient.consuming.handling import BatchHandler, Handler, Handling, Policy, check_policy
from mqclient.consuming.handout import HandOut
from mqclient.consuming.lanes import Order
from mqclient.consuming.measuring import measured_of
from mqclient.consuming.member import Member
from mqclient.consuming.membership.presence import Presence
from mqclient.consuming.progress import Ahead, QueueProgress
from mqclient.consuming.sending_back import (
    Delay,
    OnError,
    SendingBack,
    check_on_error,
    check_schedule,
    check_times,
)
from mqclient.consuming.sharing.locks import Locks
from mqclient.consuming.sharing.mode import Wanted, check_mode
from mqclient.consuming.sharing.offsets import KeepOffsets, NoOffsets, Offsets
from mqclient.consuming.sharing.plan import Assign, Plan
from mqclient.consuming.sharing.starts import Start, check_start
from mqclient.consuming.subscriptions import Sql
from mqclient.consuming.transacting.transaction import OnceTransaction, Transacting, Writes
from mqclient.hooks import Decode, HandleHooks, HandleInterceptor
from mqclient.large.fetching import LargeBodies
from mqclient.metrics import Metrics
from mqclient.models import Rebalance, ReceivedMessage
from mqclient.signatures import checked

log = get_logger(__name__)


@checked
class Consumer(Member):
    """A member of `group`, subscribed to topics by tags ("*" or "TagA || TagB") or by `Sql`.

    A topic may be a pattern of names: `re.compile("orders-.*")`. Members share queues out by the
    strategy `assign`: "averaged", "circular", "hashed" (RocketMQ's), "sticky", or an object. With
    "all" each member reads everything; a list of queues is read even if other members read them
    too. An `ordered` consumer locks its queues, so no other member has messages of them in hand.

    `consume_from` is the place where a queue without an offset begins: at the "first" message,
    behind the "last", or at a time. `offsets` are kept by the "broker" for the group, in a file of
    this consumer's own (a path), or nowhere (None). Without `auto_commit` only `commit` and `nack`
    mark messages as processed. `retry_delays_s` are the delays before redelivery after a message's
    first failure, its second, and so on; the last delay repeats. Without them the broker's delay
    levels apply. At most `prefetch_messages` and `prefetch_bytes` are fetched ahead from all queues
    together, an equal share from each.

    `on_revoke` is called with the queues that another member is about to read; this consumer has
    `revoke_timeout_s` to finish and commit their messages. `on_rebalance` is called with each
    change of the queues, and its cause. `interceptors` are called around each handler of `run`;
    `decode` turns a message's body into its `value` (`mqclient.hooks`). `metrics` count the
    messages received and handled (`mqclient.metrics`).

    `user` and `secret`, its password, sign each request; without a user, `secret` is the cluster's
    secret.

    Entering the block raises BadInput with the broker's reason if a broker can't read a `Sql`
    expression. It raises SubscriptionConflict if other members of the group have other
    subscriptions, unless `same_subscriptions=False`.
    """

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        group: str | None = None,
        subscriptions: Mapping[str | re.Pattern[str], str | Sql]
        | Mapping[str, str | Sql]
        | None = None,
        *,
        assign: Assign = "averaged",
        ordered: bool = False,
        consume_from: Start = "first",
        offsets: KeepOffsets = "broker",
        auto_commit: bool = True,
        auto_commit_interval_s: float = limits.AUTO_COMMIT_S,
        retry_delays_s: Sequence[float] = (),
        same_subscriptions: bool = True,
        prefetch_messages: int = limits.PREFETCH_RECORDS_MAX,
        prefetch_bytes: int = limits.PREFETCH_BYTES_MAX,
        revoke_timeout_s: float = limits.REVOKE_S,
        drain_timeout_s: float = limits.DRAIN_S,
        on_revoke: OnRevoke | None = None,
        on_rebalance: Callable[[Rebalance], None] | None = None,
        interceptors: Sequence[HandleInterceptor] = (),
        decode: Decode | None = None,
        metrics: Metrics | None = None,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        plan = Plan.of(assign)
        check_mode(plan, group, offsets, ordered=ordered)
        self.group = group
        self._wanted = Wanted.of(plan, group, subscriptions)
        self._keep_offsets = offsets
        self._auto_commit = auto_commit
        self._auto_commit_interval_s = check_seconds(
            "auto_commit_interval_s", auto_commit_interval_s, above_zero=True
        )
        self._revoke_timeout_s = check_seconds("revoke_timeout_s", revoke_timeout_s)
        self._on_revoke = on_revoke
        self._on_rebalance = on_rebalance
        self._ahead = Ahead(prefetch_messages, prefetch_bytes)
        self._schedule = check_schedule(retry_delays_s)
        self._presence = Presence(
            group=group,
            plan=plan,
            subscriptions=self._wanted.topics,
            consume_from=check_start(consume_from, "consume_from"),
            same_subscriptions=same_subscriptions and not self._wanted.patterns,
            paused=self._paused,
        )
        self._measured = None if metrics is None else measured_of(metrics, group, self._fetchers)
        #: Hooks around the handlers.
        self.hooks = HandleHooks(interceptors, decode, self._measured)
        credentials = Credentials.of(user, secret)
        self._session = Session(namesrv_addr, self._asked, credentials, tls, self._measured)
        self._drain_timeout_s = check_seconds("drain_timeout_s", drain_timeout_s)
        self._has_left = False
        self._offsets: Offsets = NoOffsets()
        self._assignment: Assignment | None = None
        self._large = LargeBodies(self._session.finder)
        self._handout = HandOut(self._readings, self._large.wait_for, asking_finishes=auto_commit)
        self._transacting: Transacting | None = None
        self._locks: Locks | None = None
        if ordered:
            announce = self._handout.arrived.announce
            self._locks = Locks(self._session, group or "", self._lost, announce)

    async def drain(self, timeout_s: float = limits.DRAIN_S) -> bool:
        """Stop in order: fetch nothing more, let handlers finish their messages, commit, leave.

        Other members take over at once. `run` returns, a loop ends, a waiting poll returns its
        messages, and later polls raise ClientClosed. Returns whether all messages were finished
        within `timeout_s`; unfinished messages are delivered again.
        """
        self.check_open()
        check_seconds("timeout_s", timeout_s)
        self._handout.ended = True
        done = await self._assigned().drain(timeout_s)
        if not done:
            log.warning("drained before all was finished", group=self.group, waited_s=timeout_s)
        await self._leave(commit=True)
        return done

    async def _wind_down(self) -> None:
        """Wait for handlers, for a time: the block is left in order."""
        if self._auto_commit:
            self._handout.finish_polled()
        if any(fetcher.progress.handling for fetcher in self._readings().values()):
            self._handout.forget_polled()
            await self.drain(self._drain_timeout_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Wait for the next message; the message before it is marked as processed."""
        self.check_open()
        return self.hooks.decodable([await self._handout.next_message()])[0]

    async def poll(
        self, max_messages: int = 1024, timeout_s: float = 1.0, *, one_group: bool = False
    ) -> list[ReceivedMessage]:
        """Up to `max_messages` messages, as soon as there are any; an empty list after `timeout_s`.

        A poll marks all messages of the poll before as processed. With `one_group` all messages are
        from one broker group, as a transaction needs.
        """
        self.check_open()
        polled = [*await self._handout.poll(max_messages, timeout_s, one_group=one_group)]
        return [*self.hooks.decodable(polled)]

    async def poll_many(
        self,
        max_messages: int = limits.POLL_MANY_MESSAGES,
        timeout_s: float = 1.0,
        *,
        one_group: bool = False,
    ) -> ReadMany:
        """Poll for high volumes: bodies and places by column, at a fraction of the cost of `poll`.

        The result also has the messages; a message object is made when you look at it.
        """
        self.check_open()
        await tables.bring()
        return await self._handout.poll(max_messages, timeout_s, one_group=one_group)

    def transaction(
        self, producer: Writes, *, timeout_s: float = limits.TRANSACTION_S
    ) -> AbstractAsyncContextManager[OnceTransaction]:
        """Store outputs, and the offsets of messages handed out, in one step: both or neither.

        The end of the block stores everything. If the block raises, nothing is stored, and the
        messages are delivered again. Needs `auto_commit=False` and a producer with a name.
        `mqclient.consuming.transacting.transaction` lists the errors.
        """
        self.check_open()
        check_seconds("timeout_s", timeout_s)
        if self._transacting is None:
            self._transacting = Transacting(
                self._session, self.group, self._offsets, self._handout, self._readings, self._locks
            )
        return self._transacting.block(producer, timeout_s, auto_commit=self._auto_commit)

    async def run(
        self,
        handler: Handler,
        concurrency: int = 1,
        *,
        order: Order = "queue",
        timeout_s: float | None = None,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        on_error: OnError | None = None,
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with each message until cancelled; await it if it is asynchronous.

        Up to `concurrency` messages are handled at a time, of `max_bytes` in all. `order` says
        which of them wait for each other: messages of a queue ("queue"), only messages of a queue
        with the same key ("key"), or none ("none"). A handler that takes longer than `timeout_s` is
        cancelled. If a handler raises or is cancelled, `on_error` says what happens.
        With "retry", the default for members of a group, the message is redelivered later (`Nack`
        sets the delay), and later messages do not wait; after `max_reconsume_times` (by default the
        group's setting, 16) it becomes a dead letter. With "suspend" the handler gets the message
        again after a second, and later messages in its order wait; after `max_reconsume_times`, if
        given, it becomes a dead letter. With "raise" the exception ends `run` and reaches the
        caller. A function is called for each failure as `on_error(exception, message, attempt)`,
        and may return one of these words for the message.
        """
        policy = check_policy(concurrency, max_bytes, order, timeout_s)
        await self._handle(
            lambda messages: handler(messages[0]), policy, on_error, max_reconsume_times
        )

    async def run_batches(
        self,
        handler: BatchHandler,
        max_messages: int = limits.HANDLED_BATCH_MESSAGES,
        concurrency: int = 1,
        *,
        order: Order = "queue",
        timeout_s: float | None = None,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        on_error: OnError | None = None,
        max_reconsume_times: int | None = None,
    ) -> None:
        """Call `handler` with batches of up to `max_messages` messages of a queue, until cancelled.

        All other parameters are as for `run`. If the handler raises, all messages of the batch are
        delivered again, except those that the handler finished by `commit(message)` or
        `nack(message)`.
        """
        policy = check_policy(concurrency, max_bytes, order, timeout_s, max_messages)
        await self._handle(handler, policy, on_error, max_reconsume_times)

    async def _handle(
        self, handler: BatchHandler, policy: Policy, on_error: OnError | None, times_max: int | None
    ) -> None:
        back = self.sending_back(on_error, times_max)
        if self._locks is not None and policy.order == "none":
            raise BadInput(
                "order='none': an ordered consumer keeps the order of its queues ('queue'), or of "
                "each key in them ('key')"
            )
        handler = self._large.before(self.hooks.before(handler))
        handling = Handling(
            self._readings,
            self._handout.arrived,
            handler,
            back.settle,
            policy,
            lambda: self._handout.ended,
        )
        await handling.run()

    async def nack(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> None:
        """Give back a polled or iterated `message` that was not handled: it is redelivered.

        A copy arrives after `delay_s`, or after the delay of the level (-1: in the dead letters at
        once), or by the group's or the broker's schedule. The message itself is finished. Raises
        NotAssigned if another member has the queue by now, which gets the message anyway; Refused,
        or another ClientError or RemotingError, if the copy may not have been stored.
        """
        back, delay = self.sending_back(), Delay.of(delay_level, delay_s)
        progress = self._reading(message.queue, "nack").progress
        await back.send_back(message, delay)
        self._finish(progress, message)

    def _finish(self, progress: QueueProgress, message: ReceivedMessage) -> None:
        progress.finish(message.queue_offset, message.queue_offset)
        if progress.closing:
            self._handout.arrived.announce()  # somebody may wait for that

    def sending_back(
        self, on_error: OnError | None = None, times_max: int | None = None
    ) -> SendingBack:
        """The way in which this group's messages are sent back. Raises ClientClosed, BadInput."""
        self.check_open()
        group = self.group if self._presence.plan.is_shared else None
        locks = self._locks
        return SendingBack(
            group,
            self._session.finder,
            self._schedule,
            check_on_error(on_error, group, ordered=locks is not None),
            check_times(times_max),
            None if locks is None else locks.leases.token,
            on_error if callable(on_error) else None,
        )

    async def commit(
        self,
        message: ReceivedMessage | None = None,
        *,
        timeout_s: float = limits.REQUEST_TIMEOUT_S,
    ) -> dict[MessageQueue, int]:
        """Mark `message` as processed, or all messages handed out so far, and commit.

        A queue's committed offset is the offset of its first unfinished message. The result has the
        newly committed offsets. Queues whose leader could not be reached in time are left out (and
        logged). Raises NotAssigned if another member has the message's queue by now.
        """
        self.check_open()
        check_seconds("timeout_s", timeout_s)
        if message is None:
            self._handout.finish_handed()
            return await self._assigned().commit(timeout_s)
        self._finish(self._reading(message.queue, "commit").progress, message)
        return await self._assigned().commit(timeout_s, (message.queue,))
