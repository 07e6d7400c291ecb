"""The clients of groups: who is connected, what they are doing, and where they are to go on."""

from __future__ import annotations

from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.remoting.bodies import (
    BrokerData,
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ResetOffsetBody,
    TopicStats,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import (
    GetConsumerRunningInfoHeader,
    GetProducerConnectionListHeader,
    GetTopicStatsInfoHeader,
    InvokeBrokerToResetOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from dledger.remoting.json_dialect import MessageQueue, parse
from mqclient.admin.groups import GroupAdmin
from mqclient.admin.messages import MessageAdmin
from mqclient.admin.requests import expect_success
from mqclient.admin.results import (
    END,
    ClientInfo,
    ConsumerClients,
    ConsumerStatus,
    ProducerClients,
    QueueReset,
    Subscription,
)
from mqclient.admin.session import UnknownTarget, run_for_each

#: A broker that can't tell the group's consumers: its offsets are then set without them.
_NOT_TOLD = frozenset({ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
#: Releases by the ordinals that clients report; others are shown as numbers.
_VERSIONS = {
    393: "V4_9_0",
    395: "V4_9_1",
    399: "V4_9_3",
    401: "V4_9_4",
    409: "V4_9_8",
    413: "V5_0_0",
    433: "V5_1_0",
    473: "V5_3_0",
    479: "V5_3_3",
}


class ClientAdmin(GroupAdmin, MessageAdmin):
    """The calls about connected clients."""

    async def consumer_connection(self, group: str) -> ConsumerClients:
        """Who consumes for a group now, and what. UnknownTarget if nobody does."""
        found = await run_for_each(
            lambda broker: self._connections(broker, group), await self.groups()
        )
        online = [connection for connection in found if connection is not None]
        if not online:
            raise UnknownTarget(
                f"no consumer of group {group!r} is connected: start one, or check the name "
                "(mqadmin consumerProgress lists the groups)"
            )
        subscriptions = {
            topic: Subscription(topic, data.sub_string, data.expression_type)
            for connection in online
            for topic, data in connection.subscription_table.items()
        }
        return ConsumerClients(
            group=group,
            consume_type=online[0].consume_type,
            message_model=online[0].message_model,
            consume_from_where=online[0].consume_from_where,
            clients=_clients(online),
            subscriptions=tuple(subscriptions[topic] for topic in sorted(subscriptions)),
        )

    async def producer_connection(self, group: str, topic: str) -> ProducerClients:
        """Who produces for a group on the brokers of a topic. UnknownTarget if nobody does."""
        header = GetProducerConnectionListHeader(producer_group=group)

        async def ask(broker: BrokerData) -> ProducerConnection | None:
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            answer = await self.requests.ask_whoever_leads(broker, code, header)
            if answer.code == ResponseCode.SYSTEM_ERROR:  # what RocketMQ answers if there is none
                return None
            expect_success(answer, code.name, self.requests.leader(broker))
            return decode_body(ProducerConnection, answer.payload)

        found = await run_for_each(ask, (await self._route(topic)).broker_datas)
        clients = _clients([connection for connection in found if connection is not None])
        if not clients:
            raise UnknownTarget(
                f"no producer of group {group!r} is connected to the brokers of topic {topic!r}"
            )
        return ProducerClients(group, topic, clients)

    async def consumer_status(
        self, group: str, client_id: str | None = None, *, with_stacks: bool = False
    ) -> tuple[ConsumerStatus, ...]:
        """What each consumer of a group says of itself, or why it says nothing."""
        clients = (await self.consumer_connection(group)).clients
        chosen = [client for client in clients if client_id in (None, client.client_id)]
        if not chosen:
            ids = ", ".join(client.client_id for client in clients)
            raise UnknownTarget(f"group {group!r} has no client {client_id!r}; it has {ids}")
        brokers = await self.groups()

        async def status(client: ClientInfo) -> ConsumerStatus:
            header = GetConsumerRunningInfoHeader(
                consumer_group=group, client_id=client.client_id, jstack_enable=with_stacks
            )
            problem = ""
            for broker in brokers:
                code = RequestCode.GET_CONSUMER_RUNNING_INFO
                answer = await self.requests.ask_whoever_leads(broker, code, header)
                if answer.code == ResponseCode.SUCCESS:
                    return ConsumerStatus(client, running_info(answer.payload), "")
                problem = answer.remark or f"code {answer.code}"
            return ConsumerStatus(client, {}, problem)

        return await run_for_each(status, chosen)

    async def reset_offset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> tuple[QueueReset, ...]:
        """Have a group go on at the first message stored at or after a time; END for the end.

        Connected consumers are told. Without `force` an offset is only ever moved back. If none
        is connected, only the offsets are set: one that starts later begins there.
        """
        header = InvokeBrokerToResetOffsetHeader(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=force
        )

        async def reset(broker: BrokerData) -> dict[MessageQueue, int]:
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            answer = await self.requests.ask_whoever_leads(broker, code, header)
            if answer.code in _NOT_TOLD:
                return await self._set_offsets(broker, group, topic, timestamp_ms)
            expect_success(answer, code.name, self.requests.leader(broker))
            return decode_body(ResetOffsetBody, answer.payload).offset_table

        found = await run_for_each(reset, (await self._route(topic)).broker_datas)
        return tuple(
            QueueReset(queue.topic, queue.broker_name, queue.queue_id, offset)
            for queue, offset in sorted(row for one in found for row in one.items())
        )

    async def _set_offsets(
        self, broker: BrokerData, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Set a group's offsets from here, as stock tools do for a group that is not online."""
        code, header = RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoHeader(topic=topic)
        answer = await self.requests.ask_leader(broker, code, header)
        offsets = {}
        for queue, stats in decode_body(TopicStats, answer.payload).offset_table.items():
            offset = stats.max_offset
            if timestamp_ms != END:
                offset = await self.offset_at(broker, queue, timestamp_ms)
            commit = UpdateConsumerOffsetHeader(
                consumer_group=group, topic=topic, queue_id=queue.queue_id, commit_offset=offset
            )
            await self.requests.ask_leader(broker, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            offsets[queue] = offset
        return offsets


def running_info(data: Buffer) -> dict[str, object]:
    """ConsumerRunningInfo as plain values; queues that are map keys become "topic/broker/id"."""
    document = _plain(parse(data))
    if not isinstance(document, dict):
        raise BadInput(f"a consumer's running info is a map, not {type(document).__name__}")
    return document


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: object) -> str:
    if isinstance(key, MessageQueue):
        return f"{key.topic}/{key.broker_name}/{key.queue_id}"
    return str(key)


def _clients(
    connections: list[ConsumerConnection] | list[ProducerConnection],
) -> tuple[ClientInfo, ...]:
    """The clients, each once, though it is connected to several brokers."""
    by_id: dict[str, ClientConnection] = {
        client.client_id: client
        for connection in connections
        for client in connection.connection_set
    }
    return tuple(
        ClientInfo(
            client.client_id,
            client.client_addr,
            client.language,
            _VERSIONS.get(client.version, str(client.version)),
        )
        for _, client in sorted(by_id.items())
    )
