"""Consumer groups: who consumes, and how far they are."""

from __future__ import annotations

from dledger.remoting.bodies import (
    BrokerData,
    ConsumerConnection,
    ConsumeStats,
    SubscriptionGroupConfig,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import (
    DeleteSubscriptiongroupHeader,
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetSubscriptiongroupConfigHeader,
)
from dledger.remoting.message import DLQ_PREFIX, RETRY_PREFIX
from mqclient.admin.results import GroupProgress, QueueProgress
from mqclient.admin.session import UnknownTarget, run_for_each
from mqclient.admin.topics import TopicAdmin
from mqclient.errors import Refused


class GroupAdmin(TopicAdmin):
    """The calls about consumer groups. They find the groups by their retry topics."""

    async def consumer_progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """How far a group is in every queue that it has consumed from."""
        found = await self._progress(group, topic)
        if not await self._exists(found):
            raise UnknownTarget(
                f"there is no consumer group {group!r}: no broker has its config, an offset or a "
                "member of it. Check the name "
                "(mqadmin consumerProgress lists the groups), or start a consumer of it"
            )
        return found

    async def consumer_groups(self) -> tuple[GroupProgress, ...]:
        """How far every group is that has a retry topic, which each gets with its first member.

        A group that was deleted and left that topic behind is none.
        """
        names = [
            info.topic.removeprefix(RETRY_PREFIX)
            for info in await self.topic_list()
            if info.kind == "retry"
        ]
        found = await run_for_each(self._progress, names)
        exist = await run_for_each(self._exists, found)
        return tuple(group for group, exists in zip(found, exist, strict=True) if exists)

    async def _exists(self, progress: GroupProgress) -> bool:
        """Whether a group has members, offsets, or a config on some broker."""
        if progress.members or any(queue.consumer_offset for queue in progress.queues):
            return True
        return await self.group_config(progress.group) is not None

    async def update_group(
        self,
        config: SubscriptionGroupConfig,
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[str, ...]:
        """Make a consumer group, or change it, on a cluster's broker groups or on one; their names.

        `broker` is a group's name or the address of any member.
        """
        body = encode_body(config)

        async def update(group: BrokerData) -> str:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await self.requests.ask_leader(group, code, body=body)
            return group.broker_name

        return await run_for_each(update, await self.groups(cluster, broker, only_one_cluster=True))

    async def group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """A consumer group's config on the first broker group that has it."""
        header = GetSubscriptiongroupConfigHeader(group=group)
        for broker in await self.groups():
            code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
            answer = await self.requests.ask_whoever_leads(broker, code, header)
            if answer.code == ResponseCode.SUCCESS:
                return decode_body(SubscriptionGroupConfig, answer.payload)
        return None

    async def delete_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        remove_offsets: bool = False,
    ) -> tuple[str, ...]:
        """Delete a consumer group; on a whole cluster also its retry and dead-letter topics.

        Returns the broker names. Raises UnknownTarget if there is no such group.
        """
        await self.consumer_progress(group)
        header = DeleteSubscriptiongroupHeader(
            group_name=group, remove_offset=remove_offsets, clean_offset=remove_offsets
        )

        async def delete(one: BrokerData) -> str:
            await self.requests.ask_leader(one, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            return one.broker_name

        brokers = await self.groups(cluster, broker, only_one_cluster=True)
        names = await run_for_each(delete, brokers)
        if broker is None:
            for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
                await self._delete_topic(topic, brokers)
        return names

    async def _progress(self, group: str, topic: str | None = None) -> GroupProgress:
        header = GetConsumeStatsHeader(consumer_group=group, topic=topic)

        async def stats(broker: BrokerData) -> tuple[ConsumeStats, ConsumerConnection | None]:
            answer = await self.requests.ask_leader(broker, RequestCode.GET_CONSUME_STATS, header)
            return decode_body(ConsumeStats, answer.payload), await self._connections(broker, group)

        found = await run_for_each(stats, await self.groups())
        queues = tuple(
            QueueProgress(
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                broker_offset=offsets.broker_offset,
                consumer_offset=offsets.consumer_offset,
                lag=offsets.broker_offset - offsets.consumer_offset,
                last_consumed_ms=offsets.last_timestamp,
            )
            for queue, offsets in sorted(
                row for one, _ in found for row in one.offset_table.items()
            )
        )
        online = [connections for _, connections in found if connections is not None]
        return GroupProgress(
            group=group,
            members=len({c.client_id for one in online for c in one.connection_set}),
            consume_type=online[0].consume_type if online else "",
            message_model=online[0].message_model if online else "",
            consumed_per_s=sum(one.consume_tps for one, _ in found),
            lag=sum(queue.lag for queue in queues),
            queues=queues,
        )

    async def _connections(self, broker: BrokerData, group: str) -> ConsumerConnection | None:
        """Who is connected for a group; None if nobody is."""
        header = GetConsumerConnectionListHeader(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        try:
            answer = await self.requests.ask_leader(broker, code, header)
        except Refused as refusal:
            if refusal.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        return decode_body(ConsumerConnection, answer.payload)
