"""The progress of consumer groups.

A group's place in a queue is its committed offset; what was pulled and not committed is in flight.
Times are those at which messages were stored. Numbers are the reference's (AdminBrokerProcessor).
"""

from __future__ import annotations

from collections.abc import Iterable

from dledger.net import Connection
from dledger.net.serving import Right, serves
from dledger.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    CloneGroupOffsetHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    QueryConsumeTimeSpanHeader,
    decode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from mqbroker.leader.offset_commits import OffsetCommits, check_room
from mqbroker.leader.outcome import changed
from mqbroker.refusal import Refused
from mqbroker.requests.admin.topics import dialect_for
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.needs import Needs
from mqbroker.state.control import CommitOffsets
from mqbroker.state.derived.consume_queue import ConsumeQueue
from mqbroker.state.groups.places import fault
from mqbroker.state.topics import check_group_name


class ProgressHandler:
    """Answers questions about progress."""

    def __init__(self, core: Core, membership: Membership, commits: OffsetCommits) -> None:
        self._core = core
        self._membership = membership
        self._commits = commits

    @serves(RequestCode.GET_CONSUME_STATS, needs=Needs.LEADER, right=Right.ANYONE)
    def consume_stats(self, request: Command, _: Connection) -> Command:
        """The progress of a group in each queue of the topics that it consumes.

        A topic that is asked for by name is included even if the group never committed there.
        """
        header = decode_header(GetConsumeStatsHeader, request)
        name = header.consumer_group
        topics = {header.topic} if header.topic else self._commits.topics_of(name)
        online = self._membership.consumers(name)
        if online is not None and not header.topic:
            topics |= set(online.subscriptions)
        stats = self._stats(name, topics)
        return request.reply(body=encode_body(stats, dialect_for(request)))

    @serves(RequestCode.GET_BROKER_CONSUME_STATS, needs=Needs.LEADER, right=Right.ANYONE)
    def broker_stats(self, request: Command, _: Connection) -> Command:
        """The progress of all groups, topic by topic."""
        only_ordered = decode_header(GetBrokerConsumeStatsHeader, request).is_order
        machine, config = self._core.machine, self._core.config
        answer = ConsumeStatsList(broker_addr=f"{config.broker_ip1}:{config.listen_port}")
        for group in machine.groups:
            name, found = group.group_name, []
            for topic in sorted(machine.offsets.topics_of(name)):
                topic_config = machine.topics.get(topic)
                if topic_config is None or (only_ordered and not topic_config.order):
                    continue
                found.append(self._stats(name, [topic]))
            for progress in (each for stats in found for each in stats.offset_table.values()):
                answer.total_diff += progress.broker_offset - progress.consumer_offset
                answer.total_inflight_diff += progress.pull_offset - progress.consumer_offset
            if found:
                answer.consume_stats_list.append({name: found})
        return request.reply(body=encode_body(answer, dialect_for(request)))

    @serves(RequestCode.QUERY_CONSUME_TIME_SPAN, needs=Needs.LEADER, right=Right.ANYONE)
    def time_span(self, request: Command, _: Connection) -> Command:
        """The store times of the messages that a group has still to consume in a topic."""
        header = decode_header(QueryConsumeTimeSpanHeader, request)
        config = self._core.definitions.topic(header.topic)
        spans = [
            self._span(header.group, MessageQueue(header.topic, self._core.config.broker_name, n))
            for n in range(config.write_queue_nums)
        ]
        return request.reply(body=encode_body(QueryConsumeTimeSpanBody(spans)))

    @serves(RequestCode.CLONE_GROUP_OFFSET, needs=Needs.LEADER, right=Right.ADMIN)
    async def clone(self, request: Command, _: Connection) -> Command:
        """Set one group's offsets to those of another."""
        header = decode_header(CloneGroupOffsetHeader, request)
        check_group_name(header.dest_group)
        self._core.definitions.ensure_group(header.dest_group)
        rows = [
            (header.dest_group, topic, queue_id, offset)
            for topic, queues in self._core.machine.offsets.topics_of(header.src_group).items()
            if header.topic in (None, "", topic) and self._core.definitions.lasting(topic)
            for queue_id, offset in queues.items()
            if fault(self._core.machine, topic, queue_id, offset) is None
        ]
        if not rows:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the group {header.src_group!r} has no offsets to clone"
                + (f" in {header.topic!r}" if header.topic else ""),
            )
        offsets = self._core.machine.offsets
        new = sum(offsets.get(*row[:3]) is None for row in rows)
        check_room(offsets.shares, header.dest_group, new)
        await changed(self._core.definitions, CommitOffsets(rows))
        return request.reply()

    def _stats(self, group: str, topics: Iterable[str]) -> ConsumeStats:
        return ConsumeStats(
            {
                MessageQueue(topic, self._core.config.broker_name, queue_id): progress
                for topic in topics
                for queue_id, progress in self._progress(group, topic)
            }
        )

    def _progress(self, group: str, topic: str) -> Iterable[tuple[int, OffsetWrapper]]:
        machine = self._core.machine
        config = machine.topics.get(topic)
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            queue = machine.queues.get(topic, queue_id)
            end = queue.end if queue is not None else 0
            offset = self._commits.latest(group, topic, queue_id) or 0
            last_ms = _stored_ms(queue, offset - 1)
            pulled = self._core.rates.pull_offset((group, topic, queue_id))
            yield queue_id, OffsetWrapper(end, offset, last_ms, max(offset, pulled))

    def _span(self, group: str, of: MessageQueue) -> QueueTimeSpan:
        machine = self._core.machine
        queue = machine.queues.get(of.topic, of.queue_id)
        begin, end = (queue.begin, queue.end) if queue is not None else (0, 0)
        offset = max(machine.offsets.get(group, of.topic, of.queue_id) or 0, begin)
        first_ms = _stored_ms(queue, begin)
        next_ms = _stored_ms(queue, offset)
        return QueueTimeSpan(
            message_queue=of,
            min_time_stamp=first_ms,
            max_time_stamp=_stored_ms(queue, end - 1),
            consume_time_stamp=_stored_ms(queue, offset - 1) or first_ms,
            delay_time=max(0, self._core.clock_ms() - next_ms) if next_ms else 0,
        )


def _stored_ms(queue: ConsumeQueue | None, offset: int) -> int:
    """When the message at an offset was stored; 0 if none is there."""
    if queue is None or not queue.begin <= offset < queue.end:
        return 0
    return int(queue.read(offset, 1)["store_timestamp_ms"][0])
