"""Heartbeats, group membership and queue locks.

Every replica answers 34, 35 and 38, leader or not: clients close a connection that stalls, and a
new leader that knows its consumers already spares them a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from dledger.net import Connection
from dledger.observe import get_logger
from dledger.remoting import bodies, headers
from dledger.remoting.bodies import decode_body, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.trust.rights import GET, SUB, group
from mqbroker import limits
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.leader.locking import Locked, Locking, check_client_id
from mqbroker.refusal import Refused, system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.filters import parse_subscription
from mqbroker.requests.groups.membership import Client, Membership
from mqbroker.requests.held_pulls import HeldPull, HeldPulls, Takes
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_all, by_leader
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.topics import check_group_name

_log = get_logger(__name__)


class ClientHandler:
    """Keeps the membership and tells members of changes."""

    def __init__(
        self,
        core: Core,
        membership: Membership,
        wake: Callable[[Iterable[str]], None],
        left: Callable[[int, str], None],
        held: HeldPulls,
    ) -> None:
        """`wake` is called with the groups that have changed, when there are notices to tell;
        `left` with the connection and the group of a member that leaves."""
        self._core = core
        self._wake = wake
        self._left = left
        self._held = held
        self._changed: dict[str, None] = {}
        self._locking = Locking(core.machine, core.definitions, core.lock_clock)
        self._membership = membership
        self._connections: dict[int, Connection] = {}

    @by_all(RequestCode.HEART_BEAT, rights=rights.HEARTBEAT)
    def heartbeat(self, request: Command, connection: Connection) -> Command:
        """Note a client's groups and subscriptions. Missing consumer groups are made; the answer
        does not wait for them."""
        heartbeat = decode_body(bodies.HeartbeatData, request.payload)
        check_client_id(heartbeat.client_id)
        for consumer in heartbeat.consumer_data_set:
            check_group_name(consumer.group_name)
        host, port = connection.peer
        language = request.language.name if request.language is not None else "OTHER"
        client = Client(heartbeat.client_id, f"{host}:{port}", language, request.version)
        now_s = self._core.clock_s()
        self._connections[connection.id] = connection
        groups = self._membership.heartbeat(connection.id, client, heartbeat, now_s)
        self._count([connection.id])
        self._notify(groups)
        if self._core.role.serving:
            self._core.definitions.ensure_consumers(
                [consumer.group_name for consumer in heartbeat.consumer_data_set]
            )
        return request.reply()

    @by_all(RequestCode.UNREGISTER_CLIENT, rights=rights.LEFT)
    def unregister(self, request: Command, connection: Connection) -> Command:
        """A client leaves its groups."""
        header = decode_header(headers.UnregisterClientHeader, request)
        self._notify(
            self._membership.unregister(connection.id, header.producer_group, header.consumer_group)
        )
        if header.consumer_group is not None:
            self._left(connection.id, header.consumer_group)
        return request.reply()

    @by_all(RequestCode.GET_CONSUMER_LIST_BY_GROUP, rights=group(SUB, GET, at="consumerGroup"))
    def consumer_list(self, request: Command, _: Connection) -> Command:
        """The ids of a group's consumers."""
        header = decode_header(headers.GetConsumerListByGroupHeader, request)
        group = self._membership.consumers(header.consumer_group)
        if group is None:
            raise system_error(f"no consumer of {header.consumer_group!r} is here")
        ids = sorted({client.client_id for client in group.members.values()})
        return request.reply(body=encode_body(bodies.ConsumerIdList(ids)))

    @by_all(RequestCode.CHECK_CLIENT_CONFIG, rights=rights.CLIENT_CONFIG)
    def check_config(self, request: Command, _: Connection) -> Command:
        """Whether a subscription would be accepted."""
        subscription = decode_body(bodies.CheckClientConfigBody, request.payload).subscription_data
        parse_subscription(subscription.sub_string, subscription.expression_type)
        return request.reply()

    @by_leader(RequestCode.LOCK_BATCH_MQ, rights=rights.LOCKS)
    def lock(self, request: Command, connection: Connection) -> Later[Locked]:
        """The queues that are the client's now. If a bound left out some, the remark names it.

        A member that takes a queue over may wait until another one has unlocked it. Whatever else
        ends its waiting, it has the lock only if that is free, and if it still wants it.
        """
        body = decode_body(bodies.LockBatchBody, request.payload)
        request.body = b""  # as a view it would keep alive all bytes that arrived with it

        def lock(tell: Tell[Locked]) -> None:
            queues = self._own_queues(body.mq_set)
            self._locking.lock(body.consumer_group, body.client_id, queues, tell)

        def again(tell: Tell[Locked], question: HeldPull) -> None:
            try:
                self._core.role.check_serving()
                if question.takes is None:
                    tell(Locked([]))
                else:
                    lock(tell)
            except Refused as refused:
                tell(refused)

        def begin(tell: Tell[Locked]) -> None:
            then = connection.answer_by(request, partial(again, tell))
            question = self._question(body, connection, then)
            if question is None or not self._held.hold(question):
                lock(tell)

        return Later(begin, partial(self._locked, request, body))

    def _question(
        self, body: bodies.LockBatchBody, connection: Connection, again: Callable[[HeldPull], None]
    ) -> HeldPull | None:
        """The request for a queue's lock, to be held while another client has it; None if it need
        not wait."""
        queues = self._own_queues(body.mq_set)
        if not body.waits_ms or len(queues) != 1:
            return None
        key = QueueKey(body.consumer_group, *queues[0])
        waits_s = min(
            *(body.waits_ms / 1000, limits.PULL_HOLD_S_MAX),
            self._locking.held_for_s(body.client_id, key),
        )
        if waits_s <= 0:
            return None
        until_s = self._core.clock_s() + waits_s
        return HeldPull(connection.id, *key, until_s, frozenset(), again, Takes.LOCK)

    def _locked(self, request: Command, body: bodies.LockBatchBody, locked: Locked) -> Command:
        held = {(key.topic, key.queue_id): key for key in locked.keys}
        own = [queue for queue in body.mq_set if (queue.topic, queue.queue_id) in held]
        tokens = None
        if body.with_tokens:
            locks = self._core.machine.locks
            found = [locks.held(held[queue.topic, queue.queue_id]) for queue in own]
            tokens = [0 if lock is None else lock.token for lock in found]
        answer = encode_body(bodies.LockBatchResponseBody(own, tokens))
        return request.reply(body=answer, remark=locked.bound)

    @by_leader(RequestCode.UNLOCK_BATCH_MQ, rights=rights.LOCKS)
    async def unlock(self, request: Command, connection: Connection) -> Command:
        """Give queues back, and take none of them any more."""
        body = decode_body(bodies.LockBatchBody, request.payload)
        queues = self._own_queues(body.mq_set)
        for queue in queues:
            self._held.withdraw(connection.id, body.consumer_group, *queue)
        await self._locking.unlock(body.consumer_group, body.client_id, queues)
        return request.reply()

    def forget_locks(self) -> None:
        """Give up locks that ended long ago."""
        try:
            self._locking.forget_ended()
        except Refused as refused:
            _log.info("ended locks stay", reason=str(refused))

    def disconnected(self, connection: Connection) -> None:
        """A connection is gone: its groups must be told at once."""
        self._connections.pop(connection.id, None)
        groups = self._membership.disconnected(connection.id)
        found = [self._membership.consumers(group) for group in groups]
        self._count({group.described_by for group in found if group is not None})
        self._notify(groups)

    def expire(self) -> None:
        """Drop the clients that were silent for too long."""
        self._notify(self._membership.expire(self._core.clock_s()))

    def led(self) -> None:
        """Make the missing groups of connected consumers, as this replica serves from now on."""
        self._core.definitions.ensure_consumers(
            [group for group, _ in self._membership.consumer_groups()]
        )

    def members(self, group: str) -> list[tuple[Client, Connection]]:
        """The consumers of a group that are connected, and over which connections."""
        found = self._membership.consumers(group)
        members = found.members.items() if found is not None else ()
        return [
            (client, self._connections[connection_id])
            for connection_id, client in members
            if connection_id in self._connections
        ]

    def producers(self, group: str) -> list[Connection]:
        """The connections of a producer group's members. None that is closed: what is sent over
        one is lost."""
        found = map(self._connections.get, self._membership.producers(group))
        return [connection for connection in found if connection and not connection.closed]

    def connection_of(self, client_id: str) -> Connection | None:
        """The connection over which a client's last heartbeat came."""
        connection_id = self._membership.connection_of(client_id)
        return None if connection_id is None else self._connections.get(connection_id)

    def notices(self) -> Iterator[None]:
        """Tell the members of groups that have changed, one at each step."""
        changed, self._changed = self._changed, {}
        for name in changed:
            ext = encode_header(headers.NotifyConsumerIdsChangedHeader(name))
            for _, connection in self.members(name):
                connection.send_oneway_request(
                    Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext)
                )
                yield

    def _notify(self, groups: Iterable[str]) -> None:
        changed = dict.fromkeys(groups)
        self._changed.update(changed)
        if self._changed:
            self._wake(changed)

    def _count(self, connection_ids: Iterable[int]) -> None:
        """Charge connections for the memory that the membership keeps for them."""
        for connection_id in connection_ids:
            connection = self._connections.get(connection_id)
            if connection is not None:
                connection.kept_bytes = self._membership.kept_bytes(connection_id)
                connection.tell_kept()

    def _own_queues(self, queues: Iterable[MessageQueue]) -> list[tuple[str, int]]:
        """The (topic, queue id) of the queues that exist on this broker."""
        own = []
        for queue in queues:
            topic = self._core.definitions.lasting(queue.topic)
            if (
                topic is not None
                and queue.broker_name == self._core.config.broker_name
                and 0 <= queue.queue_id < topic.read_queue_nums
            ):
                own.append((queue.topic, queue.queue_id))
        return list(dict.fromkeys(own))
