"""Topics: create, change, delete, list, their routes, and the offsets of their queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import anyio
import msgspec

from dledger.remoting.bodies import (
    BrokerData,
    TopicConfig,
    TopicList,
    TopicStats,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Language
from dledger.remoting.headers import (
    DeleteTopicInBrokerHeader,
    DeleteTopicInNamesrvHeader,
    GetRouteinfoByTopicHeader,
    GetTopicsByClusterHeader,
    GetTopicStatsInfoHeader,
    UpdateAndCreateTopicHeader,
)
from dledger.remoting.message import DEFAULT_TOPIC
from dledger.remoting.names import topic_kind
from mqclient import limits
from mqclient.admin.requests import expect_success
from mqclient.admin.results import (
    GroupRoute,
    QueueStatus,
    TopicChange,
    TopicInfo,
    TopicRoute,
    TopicStatus,
)
from mqclient.admin.session import (
    AdminSession,
    Part,
    UnknownTarget,
    broker_name,
    change_each,
    known_somewhere,
    run_for_each,
    tell_leaders,
)
from mqclient.admin.settings import Settings
from mqclient.connection.answers import route_in
from mqclient.errors import NoRoute

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of key-value configs that holds the queue counts of ordered topics."""


class Topics(Part):
    """Part `admin.topics`: makes, changes, deletes and lists topics."""

    async def update(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: str | None = None,
        force: bool = False,
    ) -> TopicChange:
        """Create or change a topic on every group of a cluster, or on one broker group.

        What is not given stays as it is on each group; a new topic has 8 queues to read and to
        write (as many as of the others, if only one number is given) and both permissions.

        `broker` is its name, or the address of any of its members. Without either there must be one
        cluster only. Returns when every name server shows the topic there, so that clients can use
        it at once. With `order`, the queue counts become part of the topic's route: producers use
        the same queues even while a group is not there. `attributes` alters those of 5.x:
        "+name=value,-name". A change after which no consumer could get some messages is Refused
        without `force`; with it, the result says which.
        """
        named = {
            "read_queue_nums": read_queues,
            "write_queue_nums": write_queues,
            "perm": perm,
            "order": order,
        }
        named = {name: value for name, value in named.items() if value is not None}
        changes = wire_names(TopicConfig, named)
        groups = await self._session.broker_groups(cluster, broker, only_one_cluster=True)

        async def update(group: BrokerData) -> tuple[TopicConfig, str | None]:
            known = await self._requests.topic_config(group, topic)
            if known is None:
                queues = read_queues or write_queues or limits.NEW_TOPIC_QUEUES
                known = TopicConfig(topic, queues, queues)
            config = msgspec.structs.replace(known, **named)
            header = UpdateAndCreateTopicHeader(
                topic=topic,
                default_topic=DEFAULT_TOPIC,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
                attributes=attributes,
                force=force or None,
                changes=changes,
            )
            answer = await self._requests.ask_leader(group, header)
            # Brokers of RocketMQ have a remark at each answer.
            return config, answer.remark if answer.language is Language.PYTHON else None

        found = await change_each(update, [*groups], broker_name)
        configs = {
            group.broker_name: config for group, (config, _) in zip(groups, found, strict=True)
        }
        await self._put_order(topic, configs)
        await self._wait_for_route(topic, set(configs))
        groups.check_all_there()
        return TopicChange(
            topic,
            tuple(configs),
            tuple(remark for _, remark in found if remark),
        )

    async def _put_order(self, topic: str, configs: Mapping[str, TopicConfig]) -> None:
        """Set an ordered topic's queue counts on these groups, keep those of others, and remove
        those of groups where it is not ordered any more."""
        settings = Settings(self._session)
        text = await settings.kv_config(ORDER_TOPIC_CONFIG, topic) or ""
        known = dict(entry.rsplit(":", 1) for entry in text.split(";") if ":" in entry)
        ordered = {
            name: str(config.write_queue_nums) for name, config in configs.items() if config.order
        }
        counts = {name: count for name, count in known.items() if name not in configs} | ordered
        if counts == known:
            return
        if not counts:
            await settings.delete_kv_config(ORDER_TOPIC_CONFIG, topic)
            return
        text = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
        await settings.update_kv_config(ORDER_TOPIC_CONFIG, topic, text)

    async def delete(self, topic: str, cluster: str | None = None) -> tuple[str, ...]:
        """Delete a topic with its messages and offsets on every group of a cluster.

        Returns the broker names. Raises UnknownTarget if neither they nor a name server know it.
        """

        async def has(group: BrokerData) -> bool:
            return await self._requests.topic_config(group, topic) is not None

        groups = await self._session.broker_groups(cluster, only_one_cluster=True)
        listed = {info.topic for info in await self.list(cluster)}
        if topic not in listed and not await known_somewhere(has, groups):
            away = f"; {', '.join(groups.away)} may have it, and is away" if groups.away else ""
            raise UnknownTarget(
                f"there is no topic {topic!r} in cluster {groups[0].cluster!r}: check the name "
                f"(mqadmin topicList){away}"
            )
        names = await delete_on(self._session, topic, groups)
        groups.check_all_there()
        return names

    async def list(self, cluster: str | None = None) -> tuple[TopicInfo, ...]:
        """Every topic with a route, sorted by name; with `cluster`, those of its groups."""
        if cluster is None:
            await self._session.note_away()
            answer = await self._requests.ask_name_server(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            )
        else:
            await self._session.broker_groups(cluster)
            answer = await self._requests.ask_name_server(GetTopicsByClusterHeader(cluster=cluster))
        expect_success(answer, "the topic list", "the name server")
        topics = sorted(decode_body(TopicList, answer.payload).topic_list)
        system = await self._requests.ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        expect_success(system, "the names of clusters and brokers", "the name server")
        owners = frozenset(decode_body(TopicList, system.payload).topic_list)
        return tuple(TopicInfo(topic, topic_kind(topic, owners)) for topic in topics)

    async def route(self, topic: str) -> TopicRoute:
        """Where the queues of a topic are. NoRoute if no name server knows it."""
        data = await self._session.route(topic)
        groups = {group.broker_name: group for group in data.broker_datas}
        return TopicRoute(
            topic,
            data.order_topic_conf,
            tuple(
                GroupRoute(
                    queue.broker_name,
                    groups[queue.broker_name].cluster,
                    queue.read_queue_nums,
                    queue.write_queue_nums,
                    queue.perm,
                    groups[queue.broker_name].broker_addrs,
                )
                for queue in sorted(data.queue_datas, key=lambda queue: queue.broker_name)
                if queue.broker_name in groups
            ),
        )

    async def clusters(self, topic: str) -> tuple[str, ...]:
        """The clusters that serve a topic, sorted. NoRoute if none does."""
        return tuple(sorted({group.cluster for group in (await self.route(topic)).groups}))

    async def status(self, topic: str) -> TopicStatus:
        """The offsets of every queue of a topic."""
        header = GetTopicStatsInfoHeader(topic=topic)

        async def stats(group: BrokerData) -> TopicStats:
            answer = await self._requests.ask_leader(group, header)
            return decode_body(TopicStats, answer.payload)

        found = await run_for_each(stats, (await self._session.route(topic)).broker_datas)
        queues = tuple(
            QueueStatus(
                queue.broker_name,
                queue.queue_id,
                offsets.min_offset,
                offsets.max_offset,
                offsets.last_update_timestamp,
            )
            for queue, offsets in sorted(row for one in found for row in one.offset_table.items())
        )
        messages = sum(queue.max_offset - queue.min_offset for queue in queues)
        return TopicStatus(topic, messages, queues)

    async def _wait_for_route(self, topic: str, broker_names: set[str]) -> None:
        """Return when every name server shows the topic on these groups."""
        header = GetRouteinfoByTopicHeader(topic=topic, accept_standard_json_only=True)
        until = anyio.current_time() + self._session.timeout_s
        for name_server in self._requests.name_servers:
            while True:
                answer = await self._requests.ask(name_server, header)
                shown: Iterable[str] = ()
                if answer.code == ResponseCode.SUCCESS:
                    queues = route_in(answer).queue_datas
                    shown = {queue.broker_name for queue in queues}
                if broker_names.issubset(shown):
                    break
                if anyio.current_time() >= until:
                    raise NoRoute(
                        topic,
                        "use",
                        f"the brokers have it, but name server {name_server} does not show it on "
                        f"{', '.join(sorted(broker_names.difference(shown)))} yet",
                    )
                await anyio.sleep(limits.FIND_BACKOFF_MAX_S)


def wire_names(config: type[msgspec.Struct], names: Collection[str]) -> str:
    """Fields of a config as brokers call them, separated by commas."""
    fields = msgspec.structs.fields(config)
    return ",".join(field.encode_name for field in fields if field.name in names)


async def delete_on(
    session: AdminSession, topic: str, groups: Sequence[BrokerData]
) -> tuple[str, ...]:
    """Delete a topic, which need not exist, on the groups that are there."""
    header = DeleteTopicInBrokerHeader(topic=topic)

    names = await tell_leaders(session.requests, [*groups], header)
    await session.requests.ask_every_name_server(
        DeleteTopicInNamesrvHeader(topic=topic, cluster_name=groups[0].cluster),
    )
    await Settings(session).delete_kv_config(ORDER_TOPIC_CONFIG, topic)
    return names
