"""The clients of groups: which are connected, and what they do."""

from __future__ import annotations

from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.remoting.bodies import (
    BrokerData,
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    decode_body,
)
from dledger.remoting.codes import ResponseCode
from dledger.remoting.headers import (
    GetConsumerRunningInfoHeader,
    GetProducerConnectionListHeader,
)
from dledger.remoting.json_dialect import MessageQueue, parse
from mqclient.admin.groups import consumers_on
from mqclient.admin.requests import expect_success
from mqclient.admin.results import (
    ClientInfo,
    ConsumerClients,
    ConsumerStatus,
    ProducerClients,
    Subscription,
)
from mqclient.admin.session import Part, UnknownTarget, run_for_each

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


class Clients(Part):
    """Part `admin.clients`: lists connected clients, and asks consumers how they do."""

    async def consumers(self, group: str) -> ConsumerClients:
        """The connected consumers of a group, and their subscriptions. Raises UnknownTarget if
        there are none."""
        found = await run_for_each(
            lambda broker: consumers_on(self._session, broker, group),
            await self._session.broker_groups(),
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

    async def producers(self, group: str, topic: str) -> ProducerClients:
        """The connected producers of a group on the brokers of a topic. Raises UnknownTarget if
        there are none."""
        header = GetProducerConnectionListHeader(producer_group=group)

        async def ask(broker: BrokerData) -> ProducerConnection | None:
            answer = await self._requests.ask_whoever_leads(broker, header)
            if answer.code == ResponseCode.SYSTEM_ERROR:  # what RocketMQ answers if there is none
                return None
            expect_success(answer, header, self._requests.leader(broker))
            return decode_body(ProducerConnection, answer.payload)

        found = await run_for_each(ask, (await self._session.route(topic)).broker_datas)
        clients = _clients([connection for connection in found if connection is not None])
        if not clients:
            raise UnknownTarget(
                f"no producer of group {group!r} is connected to the brokers of topic {topic!r}"
            )
        return ProducerClients(group, topic, clients)

    async def status(
        self, group: str, client_id: str | None = None, *, with_stacks: bool = False
    ) -> tuple[ConsumerStatus, ...]:
        """The running info of each consumer of a group, or why there is none."""
        clients = (await self.consumers(group)).clients
        chosen = [client for client in clients if client_id in (None, client.client_id)]
        if not chosen:
            ids = ", ".join(client.client_id for client in clients)
            raise UnknownTarget(f"group {group!r} has no client {client_id!r}; it has {ids}")
        brokers = await self._session.broker_groups()

        async def status(client: ClientInfo) -> ConsumerStatus:
            header = GetConsumerRunningInfoHeader(
                consumer_group=group, client_id=client.client_id, jstack_enable=with_stacks
            )
            problem = ""
            for broker in brokers:
                answer = await self._requests.ask_whoever_leads(broker, header)
                if answer.code == ResponseCode.SUCCESS:
                    return ConsumerStatus(client, running_info(answer.payload), "")
                problem = answer.remark or f"code {answer.code}"
            return ConsumerStatus(client, {}, problem)

        return await run_for_each(status, chosen)


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
    """The clients, each listed once even if it is connected to several brokers."""
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
