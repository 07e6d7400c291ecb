"""Being a member of a group: telling brokers of it, and answering what they ask or announce.

Members of one group that subscribe to different things lose messages in silence: a queue goes to
one of them, whatever it wants of the topic. So brokers are asked to refuse a member that differs
from those that are there, unless the application says that this is what it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import anyio

from dledger.errors import BadInput
from dledger.observe import get_logger
from dledger.remoting.bodies import (
    ConsumerData,
    Dialect,
    HeartbeatData,
    SubscriptionData,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetConsumerStatusFromClientHeader,
    UnregisterClientHeader,
    decode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.world import world
from mqclient import limits
from mqclient.connection.lifetime import together
from mqclient.connection.session import Session
from mqclient.consuming.assignment import Assignment
from mqclient.consuming.membership.notices import (
    new_offsets,
    positions_reply,
    refused,
    running_info,
)
from mqclient.consuming.sharing.beginnings import learn_brokers
from mqclient.consuming.sharing.plan import Plan
from mqclient.consuming.sharing.starts import Start
from mqclient.errors import SubscriptionConflict

log = get_logger(__name__)

_WHERE: Mapping[Start, str] = {
    "first": "CONSUME_FROM_FIRST_OFFSET",
    "last": "CONSUME_FROM_LAST_OFFSET",
}


@dataclass(slots=True)
class Presence:
    """The facts that brokers know of one consumer; none if it belongs to no `group`.

    With `same_subscriptions` it is refused if other members subscribe to something else. Brokers
    know which queues are `paused`, so tools can say why those do not move.
    """

    group: str | None
    plan: Plan
    subscriptions: Mapping[str, SubscriptionData]
    consume_from: Start
    same_subscriptions: bool
    paused: Callable[[], list[MessageQueue]]
    started_ms: int = 0
    _telling: anyio.CancelScope | None = None

    async def beat(self, session: Session) -> list[Command]:
        """Tell every known broker that we are here; the answers of those that decline."""
        if self.group is None:
            return []
        return await session.heartbeats.tell(self._heartbeat(session.client_id, self.group))

    async def introduce(self, session: Session, assignment: Assignment) -> None:
        """The first time, as far as brokers are known.

        Raises SubscriptionConflict, or BadInput for a chosen queue that is not there.
        """
        is_known = True
        for topic in [*self.subscriptions]:
            there = await assignment.find_route(topic)
            is_known = is_known and bool(there)
            gone = [queue for queue in self.plan.queues or () if queue.topic == topic]
            gone = [queue for queue in gone if there and queue not in there]
            if gone:
                raise BadInput(
                    f"assign: {gone[0]} is not there; topic {topic!r} has {len(there)} queues to "
                    f"read, from {there[0]} to {there[-1]} (mqadmin topicRoute -t {topic})"
                )
        if self.consume_from != "first" and not is_known:
            await learn_brokers(session.finder)  # where the group begins by this heartbeat
        for answer in await self.beat(session):
            if answer.code == ResponseCode.SUBSCRIPTION_DIFFERS:
                raise SubscriptionConflict(self.group or "", answer.remark or "")

    def stay(self, session: Session) -> None:
        """Keep brokers knowing us, as long as the session lasts."""
        if self.group is not None:
            now = partial(self._heartbeat, session.client_id, self.group)
            session.tasks.start_soon(self._keep_telling, session, now)

    async def _keep_telling(self, session: Session, now: Callable[[], HeartbeatData]) -> None:
        with anyio.CancelScope() as self._telling:
            await session.heartbeats.keep_telling(now)

    def leave(self) -> None:
        """Tell brokers of us no more."""
        if self._telling is not None:
            self._telling.cancel()

    async def unregister(self, session: Session) -> None:
        """Tell brokers that this member leaves its group."""
        if self.group is not None:
            await session.leave(
                UnregisterClientHeader(client_id=session.client_id, consumer_group=self.group)
            )

    async def watch_leaders(self, session: Session, assignment: Assignment) -> None:
        """Notice a leader that fell silent or was replaced while a pull of ours waits there."""
        while True:
            await anyio.sleep(world().seldom_s(limits.HEARTBEAT_S))
            async with together() as tasks:
                for broker_name in {queue.broker_name for queue in assignment.fetchers}:
                    tasks.start_soon(self._watch_leader, session, assignment, broker_name)

    @staticmethod
    async def _watch_leader(session: Session, assignment: Assignment, broker_name: str) -> None:
        """Look at one group once; a group that shows no leader for a while is looked at again
        later."""
        finder = session.finder
        leader = session.routes.leader(broker_name)
        info = None if leader is None else await finder.group_info(leader)
        if info is not None and info.role == "leader":
            return
        with anyio.move_on_after(limits.HEARTBEAT_S):
            found = await finder.find(broker_name)
            for queue, fetcher in assignment.fetchers.items():
                if queue.broker_name == broker_name and found != leader:
                    fetcher.interrupt()

    def asked(
        self, session: Session, assignment: Assignment, address: str, command: Command
    ) -> Command | None:
        """A broker announces that the group's members changed, or asks on a tool's behalf."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            assignment.look_again(f"{address} announced a change of members")
        elif command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            assignment.reset(new_offsets(command, self.group))
        elif command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            topic = decode_header(GetConsumerStatusFromClientHeader, command).topic
            positions = {
                queue: fetcher.progress.position
                for queue, fetcher in assignment.fetchers.items()
                if queue.topic == topic and fetcher.progress.started
            }
            return positions_reply(command, positions)
        elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            fetchers = assignment.fetchers
            info = running_info(
                name_servers=session.name_servers,
                started_ms=self.started_ms,
                subscriptions=self.subscriptions.values(),
                queues={queue: fetcher.progress for queue, fetcher in fetchers.items()},
                ordered=assignment.locks is not None,
            )
            return command.reply(body=encode_body(info, Dialect.LOOSE))
        return refused(command)

    def _heartbeat(self, client_id: str, group: str) -> HeartbeatData:
        start = self.consume_from
        by_time = isinstance(start, datetime)
        data = ConsumerData(
            group_name=group,
            consume_type="CONSUME_ACTIVELY",
            message_model="BROADCASTING" if self.plan.is_broadcast else "CLUSTERING",
            consume_from_where="CONSUME_FROM_TIMESTAMP" if by_time else _WHERE[start],
            subscription_data_set=list(self.subscriptions.values()),
            same_subscriptions=self.same_subscriptions,
            allocation=self.plan.name,
            paused=self.paused(),
        )
        return HeartbeatData(client_id=client_id, producer_data_set=[], consumer_data_set=[data])
