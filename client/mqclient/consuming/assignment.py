"""The queues of this consumer, where reading them starts, and how far it has come.

Every member of a group shares the queues out by itself from the same two lists (see
`dledger.remoting.allocation`), so all that matters is to look again whenever one of them may have
changed: a broker announces a change of members, a route changed, or some time has passed. A queue
that is gained starts at the offset that is kept for it. Of one that is lost nothing more is handed
out; the application hears of it, and has some time to finish messages in hand. Finished ones are
committed before the queue is given up. That takes as long as handlers take, so no other queue waits
for it, neither one that is lost together with it nor one that is gained meanwhile.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from dledger.errors import BadInput, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import GetConsumerListByGroupHeader, encode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import RETRY_PREFIX
from dledger.world import world
from mqclient import limits
from mqclient.connection.answers import consumers_in
from mqclient.connection.leaders import log_failure
from mqclient.connection.lifetime import together
from mqclient.connection.retry import backoff_s
from mqclient.connection.session import Session
from mqclient.connection.signals import Broadcast, Wakeup
from mqclient.consuming.fetching import QueueFetcher
from mqclient.consuming.measuring import Measured
from mqclient.consuming.progress import Ahead, Place, QueueProgress
from mqclient.consuming.sharing.locks import Locks
from mqclient.consuming.sharing.offsets import Offsets
from mqclient.consuming.sharing.plan import Plan
from mqclient.consuming.sharing.starts import Start, offset_of
from mqclient.errors import ClientError, NoRoute
from mqclient.models import Rebalance

log = get_logger(__name__)

_Share: TypeAlias = tuple[MessageQueue, ...]
#: Told which queues another member is to read; may still commit what it has of them.
OnRevoke: TypeAlias = Callable[[tuple[MessageQueue, ...]], Awaitable[None] | None]


@dataclass(slots=True, eq=False)
class Assignment:
    """The queues of one consumer. `arrived` is announced when they have more, and `on_rebalance`
    is called, in the event loop.

    `group` is whose name pulls bear. `beat` makes the brokers know this member.
    """

    session: Session
    tasks: TaskGroup
    group: str
    plan: Plan
    offsets: Offsets
    subscriptions: Mapping[str, SubscriptionData]
    consume_from: Start
    beat: Callable[[], Awaitable[None]]
    arrived: Broadcast
    on_rebalance: Callable[[Rebalance], None]
    on_revoke: OnRevoke | None
    revoke_timeout_s: float
    locks: Locks | None = None
    ahead: Ahead = field(default_factory=Ahead)
    measured: Measured | None = None
    fetchers: dict[MessageQueue, QueueFetcher] = field(default_factory=dict)
    draining: bool = False
    _wanted: set[MessageQueue] = field(default_factory=set)
    _wake: Wakeup = field(default_factory=Wakeup)
    _cause: str = "joined"
    #: Whether brokers are still to make the group's retry topic, or to tell name servers of it.
    _lacks_retries: bool = False
    _routeless: set[str] = field(default_factory=set)
    _computed: dict[str, tuple[tuple[str, ...], _Share, _Share]] = field(default_factory=dict)

    def look_again(self, cause: str) -> None:
        """Something changed: share the queues out again soon."""
        self._cause = cause
        self._wake.set()

    async def keep_balanced(self) -> None:
        """Rebalance whenever it is asked for, and every few seconds, until cancelled."""
        attempt = 0
        while True:
            cause, self._cause = self._cause, "looked again"
            try:
                complete = await self.rebalance(cause)
            except (RemotingError, ClientError, BadInput) as error:
                log_failure(log, "rebalance failed", error, group=self.group)
                complete = False
            if complete:
                attempt = 0
                poll_s = limits.REBALANCE_POLL_S
                await self._wake.wait(poll_s if self._lacks_retries else world().seldom_s(poll_s))
            else:
                attempt += 1
                await self.beat()
                await self._wake.wait(min(attempt * backoff_s(attempt), limits.REBALANCE_RETRY_S))

    async def rebalance(self, cause: str) -> bool:
        """Compute this member's queues and take over the difference; whether it could be done."""
        wanted: set[MessageQueue] = set()
        complete, self._lacks_retries = True, False
        asked: dict[tuple[str, ...], tuple[str, ...]] = {}
        for topic in [*self.subscriptions]:
            share = await self._share(topic, await self.find_route(topic), asked)
            if share is None:
                # No route, or the brokers do not know this member (yet, or again): what it has
                # stays for now.
                share = tuple(queue for queue in self.fetchers if queue.topic == topic)
                is_retries = topic.startswith(RETRY_PREFIX)
                self._lacks_retries |= is_retries
                complete = complete and is_retries
            wanted.update(share)
        if self.draining:
            return True
        self._wanted = wanted
        lost = tuple(sorted(queue for queue in self.fetchers if self._is_lost(queue)))
        assigned = tuple(sorted(wanted - set(self.fetchers)))
        for queue in assigned:
            self.tasks.start_soon(self._start, queue)
            self.fetchers[queue] = self._fetcher(queue)
        for queue in lost:
            self.fetchers[queue].close()
        if assigned:
            self._tell(Rebalance(cause, assigned, ()))
        if lost:
            self.tasks.start_soon(self.revoke, cause, lost)
        return complete

    async def _share(
        self, topic: str, queues: _Share, asked: dict[tuple[str, ...], tuple[str, ...]]
    ) -> _Share | None:
        """Queues of a topic that are this member's share; None while that can't be said.

        `asked` has the members that broker groups named just now.
        """
        strategy = self.plan.strategy
        if strategy is None:
            return self.plan.chosen(queues) or None
        names = tuple(sorted({queue.broker_name for queue in queues}))
        if names not in asked:
            asked[names] = await self._members(names, topic)
        members = asked[names]
        if self.session.client_id not in members:
            return None
        known = self._computed.get(topic)
        if known is None or known[:2] != (members, queues):
            share = strategy(self.session.client_id, members, queues)
            self._computed[topic] = known = (members, queues, share)
        return known[2]

    async def drain(self, timeout_s: float) -> bool:
        """Hand out nothing more, and wait until handlers and callers are through with what they
        have; whether they were."""
        self.draining = True
        for fetcher in self.fetchers.values():
            fetcher.close()
        self.arrived.announce()
        with anyio.move_on_after(timeout_s) as scope:
            while any(fetcher.progress.is_in_hand for fetcher in self.fetchers.values()):
                await self.arrived.wait()
        return not scope.cancelled_caught

    def _is_lost(self, queue: MessageQueue) -> bool:
        """Whether it is another's now, and is not being given up yet."""
        return queue not in self._wanted and not self.fetchers[queue].progress.closing

    def _tell(self, change: Rebalance) -> None:
        """The application, and the log, of queues that were gained or given up."""
        self.ahead.queues = len(self.fetchers)
        log.info(
            "queues assigned",
            group=self.group,
            cause=change.cause,
            gained=len(change.assigned),
            lost=len(change.revoked),
            queues=len(self.fetchers),
        )
        self.on_rebalance(replace(change, queues=tuple(sorted(self.fetchers))))

    async def revoke(self, cause: str, queues: _Share) -> None:
        """Give queues up, each when the application has finished with it, or time is up."""
        left = {queue: self.fetchers[queue] for queue in queues if queue in self.fetchers}
        async with together() as tasks:
            with anyio.move_on_after(self.revoke_timeout_s):
                await self._tell_application(queues)
                while left:
                    done = [each for each in left if not left[each].progress.is_in_hand]
                    if done:
                        tasks.start_soon(
                            self._give_up, cause, {each: left.pop(each) for each in done}
                        )
                    else:
                        await self.arrived.wait()
            if left:
                log.warning(
                    "queues given up before all was finished: it is delivered to their new reader",
                    group=self.group,
                    queues=[str(queue) for queue in left],
                    waited_s=self.revoke_timeout_s,
                )
                await self._give_up(cause, left)

    async def _give_up(self, cause: str, given_up: Mapping[MessageQueue, QueueFetcher]) -> None:
        """Commit what is finished, forget the rest, and let others read these queues; but for those
        that were lost meanwhile."""
        queues = tuple(each for each in given_up if self.fetchers.get(each) is given_up[each])
        if not queues:
            return
        with anyio.move_on_after(limits.HEARTBEAT_TIMEOUT_S):
            await self.commit(limits.HEARTBEAT_TIMEOUT_S, queues, last=True)
        with anyio.move_on_after(limits.HEARTBEAT_TIMEOUT_S):
            await self.offsets.give_up(queues)
        if self.locks is not None:
            with anyio.move_on_after(limits.HEARTBEAT_TIMEOUT_S):
                await self.locks.release(queues)
        for queue in queues:
            given_up[queue].progress.revoke()
            if self.fetchers.get(queue) is given_up[queue]:
                del self.fetchers[queue]
        self._tell(Rebalance(cause, (), queues))
        if not self._wanted.isdisjoint(queues):
            self.look_again("queues that were given up are this member's again")

    def lost(self, queue: MessageQueue) -> None:
        """Another member has the queue already: there is nothing left to finish or to commit."""
        fetcher = self.fetchers.pop(queue, None)
        if fetcher is None:
            return
        fetcher.scope.cancel()
        fetcher.progress.revoke()
        cause = "its lock was lost"
        self.on_rebalance(Rebalance(cause, (), (queue,), tuple(sorted(self.fetchers))))
        self.look_again(cause)

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """The group was reset: drop what was fetched of these queues, and read on from there.

        What is in the application's hands is not committed. The new offsets are, again: a commit of
        before may have come after the reset, and a consumer with a file keeps them there.
        """
        moved = tuple(queue for queue in offsets if queue in self.fetchers)
        for queue in moved:
            fetcher = self.fetchers[queue]
            if fetcher.progress.started:
                fetcher.progress.seek(offsets[queue])
                fetcher.restart()
            else:
                fetcher.progress.revoke()  # where it begins is asked again
        if moved:
            log.info("group was reset", group=self.group, topic=moved[0].topic, queues=len(moved))
            self.tasks.start_soon(self.commit, limits.REQUEST_TIMEOUT_S, moved)
            self.arrived.announce()

    async def _tell_application(self, queues: tuple[MessageQueue, ...]) -> None:
        if self.on_revoke is None:
            return
        try:
            outcome = self.on_revoke(queues)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:
            log.warning("on_revoke raised", group=self.group, error=repr(error))

    async def commit(
        self, timeout_s: float, queues: _Share | None = None, *, last: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit what is finished; the offsets that are newly kept.

        Queues whose commit failed are left out and logged: the next commit covers them. The `last`
        one is before they are given up.
        """
        ahead = {
            queue: Place(fetcher.progress.position, fetcher.progress.life)
            for queue, fetcher in self.fetchers.items()
            if (queues is None or queue in queues) and fetcher.progress.is_ahead
        }
        if not ahead:
            return {}
        stored = await self.offsets.store(ahead, timeout_s, last=last)
        for queue, place in stored.items():
            if queue in self.fetchers:
                self.fetchers[queue].progress.committed = place.offset
        return {queue: place.offset for queue, place in stored.items()}

    async def find_route(self, topic: str) -> tuple[MessageQueue, ...]:
        """The topic's readable queues in order; none if there is no route yet."""
        try:
            route = await self.session.route(topic, "subscribe to")
        except NoRoute as error:
            if topic not in self._routeless and not topic.startswith(RETRY_PREFIX):
                self._routeless.add(topic)
                log_failure(log, "no route yet", error, group=self.group, topic=topic)
            return ()
        self._routeless.discard(topic)
        return route.readable

    async def _members(self, names: Sequence[str], topic: str) -> tuple[str, ...]:
        """The group's members, sorted, as the first of these broker groups that answers knows them.

        Those with a known leader are asked first: one that is dead must not keep the members from
        sharing out the others' queues.
        """
        names = sorted(names, key=lambda name: self.session.routes.leader(name) is None)
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
            progress=QueueProgress(queue, self.ahead),
            group=self.group,
            subscription=self.subscriptions[queue.topic],
            finder=self.session.finder,
            on_arrival=self.arrived.announce,
            holds=None if self.locks is None else self.locks.holds,
            on_other_life=self._begin_again,
            measured=self.measured,
        )

    def _begin_again(self, queue: MessageQueue, place: Place) -> None:
        """The queue's topic was deleted and made again: what was fetched and handed out is of the
        life that is over, and so is the queue's lock."""
        before = self.fetchers.get(queue)
        if before is None:
            return
        cause = "its topic was made again"
        log.warning(cause, group=self.group, queue=str(queue), resumed_at=place.offset)
        if self.locks is not None:
            self.locks.lose(queue)
            return
        before.scope.cancel()
        before.progress.revoke()
        fetcher = self.fetchers[queue] = self._fetcher(queue)
        fetcher.progress.start(*place)
        fetcher.progress.paused = before.progress.paused
        self.tasks.start_soon(self._start, queue)
        self.on_rebalance(Rebalance(cause, (queue,), (queue,), tuple(sorted(self.fetchers))))

    async def _start(self, queue: MessageQueue) -> None:
        """Find where to begin reading a gained queue, then read until it is given up."""
        fetcher = self.fetchers.get(queue)
        if fetcher is None:
            return
        attempt = 0
        with fetcher.scope:
            if self.locks is not None:
                await self.locks.acquire(queue)
            while not fetcher.progress.started:
                try:
                    epoch, place = fetcher.progress.epoch, await self._first_place(queue)
                    if fetcher.progress.epoch == epoch:  # else the group was reset meanwhile
                        fetcher.progress.start(*place)
                except (RemotingError, ClientError, BadInput) as error:
                    attempt += 1
                    log_failure(log, "no start offset yet", error, topic=queue.topic)
                    await anyio.sleep(backoff_s(attempt))
            await fetcher.run()

    async def _first_place(self, queue: MessageQueue) -> Place:
        """The offset that is kept for it, or where a queue without one begins."""
        place = await self.offsets.load(queue)
        if place is not None:
            return place
        start = self.consume_from
        if start != "first" and (
            queue.topic.startswith(RETRY_PREFIX) or await self.offsets.is_younger(queue)
        ):
            start = "first"
        place = Place(await offset_of(self.session.finder, queue, start))
        # Without an offset the next owner of the queue might begin later and skip messages, and
        # nobody could tell how far behind the group is.
        await self.offsets.store({queue: place}, limits.REQUEST_TIMEOUT_S)
        return place
