"""Consumer groups: their settings, their progress, and resets of their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from dledger.remoting.attributes import parse_alteration
from dledger.remoting.bodies import (
    BrokerData,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    ResetOffsetBody,
    SetMessageRequestModeBody,
    SubscriptionGroupConfig,
    TopicStats,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import (
    DeleteSubscriptiongroupHeader,
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetTopicStatsInfoHeader,
    InvokeBrokerToResetOffsetHeader,
    QueryTopicConsumeByWhoHeader,
    UpdateAndCreateSubscriptiongroupHeader,
    UpdateConsumerOffsetHeader,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import DLQ_PREFIX, RETRY_PREFIX
from dledger.remoting.numbers import INT32_MAX
from mqclient.admin.messages import offset_at
from mqclient.admin.requests import expect_success
from mqclient.admin.results import END, GroupProgress, QueueProgress, QueueReset
from mqclient.admin.session import (
    AdminSession,
    Part,
    UnknownTarget,
    ask_each,
    broker_name,
    change_each,
    holders,
    known_somewhere,
    run_for_each,
    tell_leaders,
)
from mqclient.admin.topics import Topics, delete_on, wire_names
from mqclient.arguments import check_whole
from mqclient.errors import Refused

#: The broker can't name the group's consumers: then the offsets are set without telling them.
_NOT_INFORMED = frozenset(
    {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
)


class Groups(Part):
    """Part `admin.groups`: consumer groups' settings, progress and resets. It finds groups by their
    retry topics."""

    async def progress(
        self, group: str, topic: str | None = None, *, partly: bool = False
    ) -> GroupProgress:
        """The progress of a group in every queue that it has consumed from.

        A broker group that can't be asked, for example one without a leader, raises its error. With
        `partly` the others are shown, and the result's `unasked` names it.
        """
        found = await progress_of(self._session, group, topic, partly=partly)
        if not await self._exists(found):
            raise _unknown(group)
        if topic is not None and not found.queues:
            # Raises NoRoute if there is no such topic.
            await self._session.route(topic)
        self._session.note_unasked(found.unasked)
        return found

    async def list(self, *, partly: bool = False) -> tuple[GroupProgress, ...]:
        """The progress of every group that has a retry topic: each gets one with its first member.
        A deleted group whose retry topic remains is left out. `partly` as above.
        """
        names = [
            info.topic.removeprefix(RETRY_PREFIX)
            for info in await Topics(self._session).list()
            if info.kind == "retry"
        ]
        found = await run_for_each(
            lambda name: progress_of(self._session, name, partly=partly), names
        )
        exist = await run_for_each(self._exists, found)
        for each in found:
            self._session.note_unasked(each.unasked)
        return tuple(group for group, exists in zip(found, exist, strict=True) if exists)

    async def update(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        attributes: str | None = None,
        consume_enable: bool | None = None,
        consume_from_min_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        retry_queue_nums: int | None = None,
        retry_max_times: int | None = None,
        notify_consumer_ids_changed_enable: bool | None = None,
    ) -> tuple[str, ...]:
        """Make or change a consumer group on a cluster's broker groups or on one. Returns their
        names.

        What is not given stays as it is on each of them. `broker` is a broker group's
        name or the address of any member. `attributes` alters those of 5.x: "+name=value,-name".
        """
        altered = parse_alteration(attributes)
        counts = {"retry_queue_nums": retry_queue_nums, "retry_max_times": retry_max_times}
        for name, count in counts.items():
            if count is not None:
                check_whole(name, count, 0, INT32_MAX)
        given = {
            "consume_enable": consume_enable,
            "consume_from_min_enable": consume_from_min_enable,
            "consume_broadcast_enable": consume_broadcast_enable,
            "retry_queue_nums": retry_queue_nums,
            "retry_max_times": retry_max_times,
            "notify_consumer_ids_changed_enable": notify_consumer_ids_changed_enable,
        }
        named = {name: value for name, value in given.items() if value is not None}
        header = UpdateAndCreateSubscriptiongroupHeader(wire_names(SubscriptionGroupConfig, named))
        brokers = await self._session.broker_groups(cluster, broker, only_one_cluster=True)

        async def update(one: BrokerData) -> str:
            known = await self._requests.group_config(one, group) or SubscriptionGroupConfig(group)
            body = encode_body(msgspec.structs.replace(known, **named, attributes=altered))
            await self._requests.ask_leader(one, header, body)
            return one.broker_name

        return await change_each(update, brokers, broker_name)

    async def config(
        self, group: str, *, broker: str | None = None
    ) -> SubscriptionGroupConfig | None:
        """A consumer group's config on a broker group, or on the first one that has it."""
        for one in await self._session.broker_groups(broker=broker):
            config = await self._requests.group_config(one, group)
            if config is not None:
                return config
        return None

    async def delete(
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
        brokers = await self._session.broker_groups(cluster, broker, only_one_cluster=True)
        await self._check_known(group, brokers)
        header = DeleteSubscriptiongroupHeader(
            group_name=group, remove_offset=remove_offsets, clean_offset=remove_offsets
        )

        names = await tell_leaders(self._requests, [*brokers], header)
        if broker is None:
            for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
                await delete_on(self._session, topic, brokers)
        brokers.check_all_there()
        return names

    async def of_topic(
        self, topic: str, brokers: Sequence[BrokerData] | None = None
    ) -> tuple[str, ...]:
        """The groups that subscribe to a topic now, or have offsets in it, sorted; as all broker
        groups that have it say, or these."""
        header = QueryTopicConsumeByWhoHeader(topic=topic)

        async def ask(broker: BrokerData) -> Sequence[str]:
            answer = await self._requests.ask_leader(broker, header)
            return decode_body(GroupList, answer.payload).group_list

        if brokers is None:
            brokers = (await self._session.route(topic)).broker_datas
        found = await run_for_each(ask, brokers)
        return tuple(sorted({group for groups in found for group in groups}))

    async def set_request_mode(
        self,
        group: str,
        topic: str,
        mode: Literal["PULL", "POP"],
        *,
        share: int | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[str, ...]:
        """Set whether stock members whose queues brokers share out pull a topic, or pop it.

        With POP each pops its own share of the queues and those of the `share` members behind it;
        all queues if that is 0, as at first; it stays as it is if it is not given. Returns the
        broker groups' names. Raises UnknownTarget if there is no such group, Refused if there is no
        such topic.
        """
        if share is not None:
            check_whole("share", share, 0, INT32_MAX)
        await self._check_known(group, await self._session.broker_groups())
        body = encode_body(SetMessageRequestModeBody(topic, group, mode, share))
        return await self._change(RequestCode.SET_MESSAGE_REQUEST_MODE, body, cluster, broker)

    async def reset_offset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> tuple[QueueReset, ...]:
        """Reset a group's offsets to the first message stored at or after a time; END for the end.

        Connected consumers seek there. Without `force` an offset is only moved back. If no consumer
        is connected, only the offsets are set: one that starts later begins there.
        """
        header = InvokeBrokerToResetOffsetHeader(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=force
        )

        async def reset(broker: BrokerData) -> dict[MessageQueue, int]:
            answer = await self._requests.ask_whoever_leads(broker, header)
            if answer.code in _NOT_INFORMED:
                return await self._set_offsets(broker, group, topic, timestamp_ms)
            expect_success(answer, header, self._requests.leader(broker))
            return decode_body(ResetOffsetBody, answer.payload).offset_table

        found = await change_each(reset, holders(await self._session.route(topic)), broker_name)
        return tuple(
            QueueReset(queue.topic, queue.broker_name, queue.queue_id, offset)
            for queue, offset in sorted(row for one in found for row in one.items())
        )

    async def _exists(self, progress: GroupProgress) -> bool:
        """Whether a group has members, offsets, or a config on some broker, or may have."""
        if progress.members or any(queue.consumer_offset for queue in progress.queues):
            return True
        if progress.unasked:
            return True  # a broker group that can't be asked may have it
        return await self.config(progress.group) is not None

    async def _check_known(self, group: str, brokers: Sequence[BrokerData]) -> None:
        """Raise UnknownTarget if none of these brokers has the group."""

        async def known(broker: BrokerData) -> bool:
            stats, online = await _stats_on(self._session, broker, group)
            has_offset = any(row.consumer_offset for row in stats.offset_table.values())
            if online or has_offset:
                return True
            return await self._requests.group_config(broker, group) is not None

        if not await known_somewhere(known, brokers):
            raise _unknown(group)

    async def _set_offsets(
        self, broker: BrokerData, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Set a group's offsets by commits, as stock tools do for a group that is not online."""
        header = GetTopicStatsInfoHeader(topic=topic)
        answer = await self._requests.ask_leader(broker, header)
        offsets = {}
        for queue, stats in decode_body(TopicStats, answer.payload).offset_table.items():
            offset = stats.max_offset
            if timestamp_ms != END:
                offset = await offset_at(self._session, broker, queue, timestamp_ms)
            commit = UpdateConsumerOffsetHeader(
                consumer_group=group, topic=topic, queue_id=queue.queue_id, commit_offset=offset
            )
            await self._requests.ask_leader(broker, commit)
            offsets[queue] = offset
        return offsets


def _unknown(group: str) -> UnknownTarget:
    return UnknownTarget(
        f"there is no consumer group {group!r}: no broker has its config, an offset or a member of "
        "it. Check the name (mqadmin consumerProgress lists the groups), or start a consumer of it"
    )


async def progress_of(
    session: AdminSession,
    group: str,
    topic: str | None = None,
    *,
    partly: bool = False,
    brokers: Sequence[BrokerData] | None = None,
) -> GroupProgress:
    """The progress of a group, which may not exist; in all broker groups, or in these."""

    async def ask(broker: BrokerData) -> tuple[ConsumeStats, ConsumerConnection | None]:
        return await _stats_on(session, broker, group, topic)

    brokers, unasked = brokers or await session.broker_groups(), dict[str, str]()
    if partly:
        found, unasked = await ask_each(ask, brokers)
    else:
        found = await run_for_each(ask, brokers)
    queues = tuple(
        QueueProgress(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            broker_offset=offsets.broker_offset,
            consumer_offset=offsets.consumer_offset,
            lag=offsets.broker_offset - offsets.consumer_offset,
            last_consumed_ms=offsets.last_timestamp,
            in_flight=offsets.in_flight,
            state=offsets.state or "",
            reason=offsets.reason or "",
            since_ms=offsets.since or 0,
        )
        for queue, offsets in sorted(row for one, _ in found for row in one.offset_table.items())
    )
    online = [connections for _, connections in found if connections is not None]
    lag, consumed_per_s = (
        sum(queue.lag for queue in queues),
        sum(one.consume_tps for one, _ in found),
    )
    rates = [one.produce_tps for one, _ in found]
    known = [rate for rate in rates if rate is not None]
    produced_per_s = sum(known) if known and len(known) == len(rates) else None
    return GroupProgress(
        group=group,
        members=len({c.client_id for one in online for c in one.connection_set}),
        consume_type=online[0].consume_type if online else "",
        message_model=online[0].message_model if online else "",
        consumed_per_s=consumed_per_s,
        lag=lag,
        queues=queues,
        produced_per_s=produced_per_s,
        caught_up_s=None
        if unasked or (lag and not online)
        else caught_up_s(lag, consumed_per_s, produced_per_s),
        unasked=unasked,
    )


def caught_up_s(lag: int, consumed_per_s: float, produced_per_s: float | None) -> float | None:
    """Seconds until a lag is gone at these rates; None if it will not be, or nobody knows."""
    if not lag:
        return 0.0
    if produced_per_s is None or consumed_per_s <= produced_per_s:
        return None
    return lag / (consumed_per_s - produced_per_s)


async def _stats_on(
    session: AdminSession, broker: BrokerData, group: str, topic: str | None = None
) -> tuple[ConsumeStats, ConsumerConnection | None]:
    header = GetConsumeStatsHeader(consumer_group=group, topic=topic, reasons=True)
    answer = await session.requests.ask_leader(broker, header)
    return decode_body(ConsumeStats, answer.payload), await consumers_on(session, broker, group)


async def consumers_on(
    session: AdminSession, broker: BrokerData, group: str
) -> ConsumerConnection | None:
    """The connected consumers of a group; None if there are none."""
    header = GetConsumerConnectionListHeader(consumer_group=group)
    try:
        answer = await session.requests.ask_leader(broker, header)
    except Refused as refusal:
        if refusal.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise
    return decode_body(ConsumerConnection, answer.payload)
