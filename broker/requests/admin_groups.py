"""Administration of groups: codes 200, 201, 203, 204, 207, 208, 300, 352."""

from __future__ import annotations

from collections.abc import Iterable

from broker.leader.outcome import Outcome
from broker.refusal import Refused
from broker.requests.admin_topics import dialect_for
from broker.requests.core import Core
from broker.requests.membership import Client, Membership
from broker.state.topics import check_group_name
from dledger.net import Connection
from dledger.remoting.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    ProducerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    DeleteSubscriptiongroupHeader,
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetProducerConnectionListHeader,
    GetSubscriptiongroupConfigHeader,
    QueryTopicConsumeByWhoHeader,
    decode_header,
)
from dledger.remoting.json_dialect import MessageQueue


class GroupAdminHandler:
    """Answers them."""

    def __init__(self, core: Core, membership: Membership) -> None:
        self._core = core
        self._membership = membership

    async def put_group(self, request: Command, _: Connection) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: answered once applied."""
        config = decode_body(SubscriptionGroupConfig, request.payload)
        check_group_name(config.group_name)
        outcome = Outcome()
        self._core.definitions.put_group(config, outcome.set)
        await outcome.wait()
        return request.reply()

    async def delete_group(self, request: Command, _: Connection) -> Command:
        """DELETE_SUBSCRIPTIONGROUP; `removeOffset` (5.x: `cleanOffset`) takes its offsets too."""
        header = decode_header(DeleteSubscriptiongroupHeader, request)
        outcome = Outcome()
        with_offsets = bool(header.remove_offset or header.clean_offset)
        self._core.definitions.delete_group(header.group_name, with_offsets, outcome.set)
        await outcome.wait()
        return request.reply()

    def all_groups(self, request: Command, _: Connection) -> Command:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        groups = self._core.machine.groups
        table = {config.group_name: config for config in groups}
        return request.reply(body=encode_body(SubscriptionGroupWrapper(table, groups.version)))

    def group_config(self, request: Command, _: Connection) -> Command:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        name = decode_header(GetSubscriptiongroupConfigHeader, request).group
        config = self._core.machine.groups.get(name)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {name!r} does not exist"
            )
        return request.reply(body=encode_body(config))

    def consumers(self, request: Command, _: Connection) -> Command:
        """GET_CONSUMER_CONNECTION_LIST."""
        name = decode_header(GetConsumerConnectionListHeader, request).consumer_group
        group = self._membership.consumers(name)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of {name!r} is connected here"
            )
        answer = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.reply(body=encode_body(answer))

    def producers(self, request: Command, _: Connection) -> Command:
        """GET_PRODUCER_CONNECTION_LIST."""
        name = decode_header(GetProducerConnectionListHeader, request).producer_group
        members = self._membership.producers(name)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no producer of {name!r} is connected here")
        answer = ProducerConnection(_connections(members.values()))
        return request.reply(body=encode_body(answer))

    def consume_stats(self, request: Command, _: Connection) -> Command:
        """GET_CONSUME_STATS: how far a group is in each queue of the topics that it consumes."""
        header = decode_header(GetConsumeStatsHeader, request)
        name = header.consumer_group
        topics = set(self._core.machine.offsets.topics_of(name))
        online = self._membership.consumers(name)
        if online is not None:
            topics |= set(online.subscriptions)
        if header.topic:
            topics &= {header.topic}
        table = {
            MessageQueue(topic, self._core.config.broker_name, queue_id): progress
            for topic in topics
            for queue_id, progress in self._progress(name, topic)
        }
        return request.reply(body=encode_body(ConsumeStats(table), dialect_for(request)))

    def groups_of_topic(self, request: Command, _: Connection) -> Command:
        """QUERY_TOPIC_CONSUME_BY_WHO: who subscribes now, or has offsets."""
        topic = decode_header(QueryTopicConsumeByWhoHeader, request).topic
        groups = set(self._core.machine.offsets.groups_of(topic))
        groups |= {
            name
            for name, group in self._membership.consumer_groups()
            if topic in group.subscriptions
        }
        return request.reply(body=encode_body(GroupList(sorted(groups))))

    def _progress(self, group: str, topic: str) -> Iterable[tuple[int, OffsetWrapper]]:
        machine = self._core.machine
        config = machine.topics.get(topic)
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            queue = machine.queues.get(topic, queue_id)
            end = queue.end if queue is not None else 0
            offset = machine.offsets.get(group, topic, queue_id) or 0
            last_ms = 0
            if queue is not None and queue.begin < offset <= end:
                last_ms = int(queue.read(offset - 1, 1)["store_timestamp_ms"][0])
            pulled = self._core.rates.pull_offset((group, topic, queue_id))
            yield queue_id, OffsetWrapper(end, offset, last_ms, max(offset, pulled))


def _connections(clients: Iterable[Client]) -> list[ClientConnection]:
    return [
        ClientConnection(client.client_id, client.address, client.language, client.version)
        for client in clients
    ]
