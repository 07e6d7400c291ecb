"""Which queues are this consumer's, where reading them starts, and how far it has come.

Every member of a group shares the queues out by itself from the same two lists (see
`dledger.remoting.allocation`),
so all that matters is to look again whenever one of them may have changed: a broker announces a
change of members, a route changed, or some time has passed. A queue that is gained starts at the
group's committed offset; one that is lost has its progress committed first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from dledger.errors import BadInput, RemotingError
from dledger.observe import get_logger
from dledger.remoting.allocation import allocate_averagely
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetConsumerListByGroupHeader,
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    Header,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import RETRY_PREFIX
from mqclient import limits
from mqclient.connection.answers import consumers_in
from mqclient.connection.lifetime import together
from mqclient.connection.retry import backoff_s
from mqclient.connection.session import Session
from mqclient.connection.signals import Wakeup
from mqclient.consuming.fetching import QueueFetcher
from mqclient.consuming.progress import QueueProgress
from mqclient.errors import ClientError, NoRoute
from mqclient.models import Rebalance

log = get_logger(__name__)

#: Where a group without a committed offset begins: at the oldest message, or at the next to come.
ConsumeFrom = Literal["first", "last"]


@dataclass(slots=True, eq=False)
class Assignment:
    """The queues of one consumer. `on_arrival` and `on_rebalance` are called in the event loop.

    `beat` makes the brokers know this member.
    """

    session: Session
    tasks: TaskGroup
    group: str
    subscriptions: Mapping[str, SubscriptionData]
    consume_from: ConsumeFrom
    beat: Callable[[], Awaitable[None]]
    on_arrival: Callable[[], None]
    on_rebalance: Callable[[Rebalance], None]
    fetchers: dict[MessageQueue, QueueFetcher] = field(default_factory=dict)
    _wake: Wakeup = field(default_factory=Wakeup)
    _cause: str = "joined"
    _routeless: set[str] = field(default_factory=set)

    def look_again(self, cause: str) -> None:
        """Something changed: share the queues out again soon."""
        self._cause = cause
        self._wake.set()

    async def keep_balanced(self) -> None:
        """Rebalance whenever told to, and every few seconds, until cancelled."""
        attempt = 0
        while True:
            cause, self._cause = self._cause, "looked again"
            try:
                complete = await self.rebalance(cause)
            except (RemotingError, ClientError, BadInput) as error:
                log.warning("rebalance failed", group=self.group, reason=str(error))
                complete = False
            if complete:
                attempt = 0
                await self._wake.wait(limits.REBALANCE_POLL_S)
            else:
                attempt += 1
                await self.beat()
                await self._wake.wait(min(attempt * backoff_s(attempt), limits.REBALANCE_RETRY_S))

    async def rebalance(self, cause: str) -> bool:
        """Compute this member's queues and take over the difference; whether it could be done."""
        wanted: set[MessageQueue] = set()
        complete = True
        for topic in self.subscriptions:
            queues = await self.find_route(topic)
            members = await self._members(queues, topic)
            if self.session.client_id not in members:
                # No route, or the brokers do not know this member (yet, or again): what it has
                # stays for now.
                wanted.update(queue for queue in self.fetchers if queue.topic == topic)
                complete = complete and topic.startswith(RETRY_PREFIX)
                continue
            wanted.update(allocate_averagely(self.session.client_id, members, queues))
        revoked = tuple(sorted(set(self.fetchers) - wanted))
        assigned = tuple(sorted(wanted - set(self.fetchers)))
        if revoked:
            await self.revoke(revoked)
        for queue in assigned:
            self.tasks.start_soon(self._start, queue)
            self.fetchers[queue] = self._fetcher(queue)
        if assigned or revoked:
            event = Rebalance(cause, assigned, revoked, tuple(sorted(self.fetchers)))
            log.info(
                "queues assigned",
                group=self.group,
                cause=cause,
                gained=len(assigned),
                lost=len(revoked),
                queues=len(self.fetchers),
            )
            self.on_rebalance(event)
        return complete

    async def revoke(self, queues: tuple[MessageQueue, ...]) -> None:
        """Give queues up: stop fetching, commit what was processed, forget the rest."""
        for queue in queues:
            self.fetchers[queue].scope.cancel()
        with anyio.move_on_after(limits.HEARTBEAT_TIMEOUT_S):
            await self.commit(limits.HEARTBEAT_TIMEOUT_S, queues)
        for queue in queues:
            self.fetchers.pop(queue).progress.revoke()

    async def commit(
        self, timeout_s: float, queues: tuple[MessageQueue, ...] | None = None
    ) -> dict[MessageQueue, int]:
        """Commit what is finished; the offsets that the brokers newly hold.

        Queues whose commit failed are left out and logged: the next commit covers them.
        """
        committed: dict[MessageQueue, int] = {}

        async def commit_one(progress: QueueProgress, offset: int) -> None:
            if await self._commit(progress.queue, offset, timeout_s):
                progress.committed = offset
                committed[progress.queue] = offset

        async with together() as tasks:
            for queue, fetcher in self.fetchers.items():
                progress = fetcher.progress
                if queues is not None and queue not in queues:
                    continue
                if progress.started and progress.position != progress.committed:
                    tasks.start_soon(commit_one, progress, progress.position)
        return committed

    async def _commit(self, queue: MessageQueue, offset: int, timeout_s: float) -> bool:
        header = UpdateConsumerOffsetHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        try:
            await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s)
        except (RemotingError, ClientError) as error:
            log.warning(
                "commit failed",
                group=self.group,
                topic=queue.topic,
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
                reason=str(error),
            )
            return False
        return True

    async def find_route(self, topic: str) -> tuple[MessageQueue, ...]:
        """The topic's readable queues in order; none if there is no route yet."""
        try:
            route = await self.session.route(topic, "subscribe to")
        except NoRoute as error:
            if topic not in self._routeless and not topic.startswith(RETRY_PREFIX):
                self._routeless.add(topic)
                log.warning("no route yet", group=self.group, topic=topic, reason=str(error))
            return ()
        self._routeless.discard(topic)
        return route.readable

    async def _members(self, queues: Sequence[MessageQueue], topic: str) -> tuple[str, ...]:
        """The group's members, sorted, as the first broker group that answers knows them.

        Those with a known leader are asked first: one that is dead must not keep the members from
        sharing out the others' queues.
        """
        names = sorted(
            dict.fromkeys(queue.broker_name for queue in queues),
            key=lambda name: self.session.routes.leader(name) is None,
        )
        for name in names[:-1]:
            with suppress(RemotingError, ClientError):
                return await self._members_known_to(name, topic, limits.SUSPECT_AFTER_S)
        for name in names[-1:]:
            return await self._members_known_to(name, topic, limits.REQUEST_TIMEOUT_S)
        return ()

    async def _members_known_to(
        self, broker_name: str, topic: str, timeout_s: float
    ) -> tuple[str, ...]:
        header = GetConsumerListByGroupHeader(consumer_group=self.group)
        command = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, encode_header(header))
        answer = await self.session.finder.ask(broker_name, command, timeout_s, topic)
        if answer.code != ResponseCode.SUCCESS:
            return ()
        return consumers_in(answer)

    def _fetcher(self, queue: MessageQueue) -> QueueFetcher:
        return QueueFetcher(
            progress=QueueProgress(queue),
            group=self.group,
            subscription=self.subscriptions[queue.topic],
            finder=self.session.finder,
            on_arrival=self.on_arrival,
        )

    async def _start(self, queue: MessageQueue) -> None:
        """Find where to begin reading a gained queue, then read until it is given up."""
        fetcher = self.fetchers.get(queue)
        if fetcher is None:
            return
        attempt = 0
        with fetcher.scope:
            while not fetcher.progress.started:
                try:
                    fetcher.progress.start(await self._first_offset(queue))
                except (RemotingError, ClientError, BadInput) as error:
                    attempt += 1
                    log.warning("no start offset yet", topic=queue.topic, reason=str(error))
                    await anyio.sleep(backoff_s(attempt))
            await fetcher.run()

    async def _first_offset(self, queue: MessageQueue) -> int:
        """The group's committed offset, or where a group without one begins."""
        timeout_s = limits.REQUEST_TIMEOUT_S
        topic, queue_id = queue.topic, queue.queue_id
        query = QueryConsumerOffsetHeader(
            consumer_group=self.group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = await self._ask(
            queue, RequestCode.QUERY_CONSUMER_OFFSET, query, timeout_s, ResponseCode.QUERY_NOT_FOUND
        )
        if answer.code == ResponseCode.SUCCESS:
            return decode_header(QueryConsumerOffsetResponseHeader, answer).offset
        if self.consume_from == "first" or topic.startswith(RETRY_PREFIX):
            header: Header = GetMinOffsetHeader(topic=topic, queue_id=queue_id)
            answer = await self._ask(queue, RequestCode.GET_MIN_OFFSET, header, timeout_s)
            return decode_header(GetMinOffsetResponseHeader, answer).offset
        header = GetMaxOffsetHeader(topic=topic, queue_id=queue_id)
        answer = await self._ask(queue, RequestCode.GET_MAX_OFFSET, header, timeout_s)
        offset = decode_header(GetMaxOffsetResponseHeader, answer).offset
        # Else the next owner of the queue would begin later still, and skip what came between.
        await self._commit(queue, offset, timeout_s)
        return offset

    async def _ask(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: Header,
        timeout_s: float,
        also: ResponseCode = ResponseCode.SUCCESS,
    ) -> Command:
        """The answer of the queue's leader. Raises Refused unless it is success or `also`."""
        command = Command(code, encode_header(header))
        what = f"{code.name} of {queue} for group {self.group!r}"
        place = (queue.broker_name, queue.topic)
        return await self.session.finder.granted(what, *place, command, timeout_s, also)
