"""Consumer groups: who consumes, and how far they are."""

from __future__ import annotations

from client.admin.results import GroupProgress, QueueProgress
from client.admin.session import UnknownTarget, run_for_each
from client.admin.topics import TopicAdmin
from client.errors import Refused
from dledger.remoting.bodies import BrokerData, ConsumerConnection, ConsumeStats, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import GetConsumerConnectionListHeader, GetConsumeStatsHeader
from dledger.remoting.message import RETRY_PREFIX


class GroupAdmin(TopicAdmin):
    """The calls about consumer groups. They find the groups by their retry topics."""

    async def consumer_progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """How far a group is in every queue that it has consumed from."""
        found = await self._progress(group, topic)
        if not found.queues and not found.members:
            raise UnknownTarget(
                f"consumer group {group!r} has neither offsets nor members"
                f"{f' for topic {topic!r}' if topic else ''}: check the name "
                "(mqadmin consumerProgress lists the groups), or start a consumer of it"
            )
        return found

    async def consumer_groups(self) -> tuple[GroupProgress, ...]:
        """How far every group is that has a retry topic, which each gets with its first member."""
        names = [
            info.topic.removeprefix(RETRY_PREFIX)
            for info in await self.topic_list()
            if info.kind == "retry"
        ]
        return await run_for_each(self._progress, names)

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
