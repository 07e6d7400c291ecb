"""The progress of consumer groups.

A group's place in a queue is shown as `mqbroker.state.groups.places` says, or as the queue's first
message if it is nowhere yet; what was pulled and not committed is in flight.
Times are those at which messages were stored. Numbers are the reference's (AdminBrokerProcessor).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import TypeAlias

from dledger.net import Connection
from dledger.net.turns import encode_in_turns, in_turns, result_in_turns
from dledger.remoting import bodies, headers
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.trust.rights import GET, cluster
from mqbroker import limits
from mqbroker.leader.offset_commits import check_room
from mqbroker.refusal import system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.lag import Standing
from mqbroker.requests.needs import by_confirmed, by_leader_to_admin
from mqbroker.requests.replies import dialect_for
from mqbroker.state.control import CommitOffsets
from mqbroker.state.groups.places import fault
from mqbroker.state.topics import check_group_name

#: Group, topic, queue id, offset.
_Row: TypeAlias = tuple[str, str, int, int]


class ProgressHandler:
    """Answers requests about consumer groups' progress, and copies one group's offsets to
    another."""

    def __init__(self, core: Core, standing: Standing) -> None:
        self._core = core
        self._standing = standing

    @by_confirmed(RequestCode.GET_CONSUME_STATS, rights=rights.PROGRESS)
    async def consume_stats(self, request: Command, _: Connection) -> Command:
        """The progress of a group in each queue of the topics that it consumes.

        A topic that is asked for by name is included even if the group never committed there.
        """
        header = decode_header(headers.GetConsumeStatsHeader, request)
        name = header.consumer_group
        topics = {header.topic} if header.topic else self._standing.topics_of(name)
        self._check_count(sum(map(self._standing.queues_of, topics)), "name a topic")
        stats = bodies.ConsumeStats()
        await in_turns(self._progress_steps(name, topics, stats.offset_table))
        came_per_s = await result_in_turns(self._rate_steps(name, topics, stats))
        if header.reasons:
            stats.produce_tps = came_per_s
            await in_turns(self._reason_steps(name, stats.offset_table))
        body = await encode_in_turns(stats, dialect_for(request))
        return request.reply(body=body)

    @by_confirmed(RequestCode.GET_BROKER_CONSUME_STATS, rights=cluster(GET))
    async def broker_stats(self, request: Command, _: Connection) -> Command:
        """The progress of all groups, topic by topic."""
        only_ordered = decode_header(headers.GetBrokerConsumeStatsHeader, request).is_order
        config = self._core.config
        asked = list[tuple[str, str]]()
        await in_turns(self._pairs_steps(asked, only_ordered=only_ordered))
        answer = bodies.ConsumeStatsList(broker_addr=f"{config.broker_ip1}:{config.listen_port}")
        await in_turns(self._broker_steps(asked, answer))
        return request.reply(body=await encode_in_turns(answer, dialect_for(request)))

    def _pairs_steps(self, asked: list[tuple[str, str]], *, only_ordered: bool) -> Iterator[None]:
        """The groups, and the topics that they have offsets in. Refused if they are too many."""
        machine, queues = self._core.machine, 0
        for name in [group.group_name for group in machine.groups]:
            for topic in sorted(machine.offsets.topics_of(name)):
                config = machine.topics.get(topic)
                if config is not None and (config.order or not only_ordered):
                    asked.append((name, topic))
                    queues += config.read_queue_nums
            self._check_count(queues, "ask for one group at a time (mqadmin consumerProgress -g)")
            yield

    def _broker_steps(
        self, asked: Iterable[tuple[str, str]], answer: bodies.ConsumeStatsList
    ) -> Iterator[None]:
        for name, of_group in itertools.groupby(asked, key=itemgetter(0)):
            found = list[bodies.ConsumeStats]()
            for _, topic in of_group:
                table: dict[MessageQueue, bodies.OffsetWrapper] = {}
                yield from self._progress_steps(name, [topic], table)
                found.append(bodies.ConsumeStats(table))
                for progress in table.values():
                    answer.total_diff += progress.broker_offset - progress.consumer_offset
                    answer.total_inflight_diff += progress.pull_offset - progress.consumer_offset
            answer.consume_stats_list.append({name: found})

    @staticmethod
    def _check_count(queues: int, instead: str) -> None:
        if queues > limits.PROGRESS_QUEUES_MAX:
            raise system_error(
                f"the progress in {queues} queues and more was asked for; at most "
                f"{limits.PROGRESS_QUEUES_MAX} are told at once: {instead}"
            )

    @by_confirmed(RequestCode.QUERY_CONSUME_TIME_SPAN, rights=rights.TIME_SPAN)
    async def time_span(self, request: Command, _: Connection) -> Command:
        """The store times of the messages that a group has still to consume in a topic."""
        header = decode_header(headers.QueryConsumeTimeSpanHeader, request)
        config = self._core.definitions.topic(header.topic)
        spans = await result_in_turns(self._span_steps(header, config.read_queue_nums))
        return request.reply(body=await encode_in_turns(bodies.QueryConsumeTimeSpanBody(spans)))

    def _span_steps(
        self, header: headers.QueryConsumeTimeSpanHeader, queues: int
    ) -> Generator[None, None, list[bodies.QueueTimeSpan]]:
        spans = list[bodies.QueueTimeSpan]()
        for queue_id in range(queues):
            queue = MessageQueue(header.topic, self._core.config.broker_name, queue_id)
            spans.append(self._span(header.group, queue))
            yield
        return spans

    @by_leader_to_admin(RequestCode.CLONE_GROUP_OFFSET, rights=rights.CLONED)
    async def clone(self, request: Command, _: Connection) -> Command:
        """Set one group's offsets to those of another."""
        header = decode_header(headers.CloneGroupOffsetHeader, request)
        check_group_name(header.dest_group)
        self._core.definitions.ensure_group(header.dest_group)
        offsets, rows = self._core.machine.offsets, list[_Row]()
        sources = offsets.topics_of(header.src_group)
        lasting = self._core.definitions.lasting
        topics = [each for each in sources if header.topic in (None, "", each) and lasting(each)]
        new = await result_in_turns(self._clone_steps(header, topics, rows))
        if not rows:
            raise system_error(
                f"the group {header.src_group!r} has no offsets to clone"
                + (f" in {header.topic!r}" if header.topic else "")
            )
        check_room(offsets.shares, header.dest_group, new)
        for begin in range(0, len(rows), limits.COMMITS_PER_ENTRY_MAX):
            some = rows[begin : begin + limits.COMMITS_PER_ENTRY_MAX]
            await self._core.definitions.changed(CommitOffsets(some))
        return request.reply()

    def _clone_steps(
        self, header: headers.CloneGroupOffsetHeader, topics: Iterable[str], rows: list[_Row]
    ) -> Generator[None, None, int]:
        """Gather what is to be committed, one topic at each step; returns how many are new."""
        machine, group, new = self._core.machine, header.dest_group, 0
        for topic in topics:
            source = machine.offsets.topics_of(header.src_group).get(topic, {})
            for queue_id, offset in source.items():
                if fault(machine, topic, queue_id, offset) is None:
                    rows.append((group, topic, queue_id, offset))
                    new += machine.offsets.get(group, topic, queue_id) is None
            yield
        return new

    def _progress_steps(
        self, group: str, topics: Iterable[str], table: dict[MessageQueue, bodies.OffsetWrapper]
    ) -> Iterator[None]:
        """Fill the table; one queue at each step."""
        broker_name = self._core.config.broker_name
        for topic in topics:
            for queue_id in range(self._standing.queues_of(topic)):
                key = MessageQueue(topic, broker_name, queue_id)
                table[key] = self._progress(group, topic, queue_id)
                yield

    def _rate_steps(
        self, group: str, topics: Iterable[str], stats: bodies.ConsumeStats
    ) -> Generator[None, None, float]:
        """Add how fast messages go out to the group, and return how fast they come into its topics;
        one topic at each step."""
        statistics, now_s = self._core.rates.statistics, self._core.clock_s()
        came = 0.0
        for topic in topics:
            out = statistics.windows("GROUP_GET_NUMS", f"{topic}@{group}", now_s)
            into = statistics.windows("TOPIC_PUT_NUMS", topic, now_s)
            stats.consume_tps += 0.0 if out is None else bodies.BrokerStatsItem(*out[0]).tps
            came += 0.0 if into is None else bodies.BrokerStatsItem(*into[0]).tps
            yield
        return came

    def _reason_steps(
        self, group: str, table: dict[MessageQueue, bodies.OffsetWrapper]
    ) -> Iterator[None]:
        """Add why messages are not done; one queue at each step."""
        for of, row in table.items():
            behind = self._standing.behind(group, of.topic, of.queue_id)
            found = self._standing.reason(group, of.topic, of.queue_id, behind)
            row.in_flight, row.state = behind.in_flight, found.why.value
            row.reason, row.since = found.text, found.since_ms
            yield

    def _progress(self, group: str, topic: str, queue_id: int) -> bodies.OffsetWrapper:
        behind = self._standing.behind(group, topic, queue_id)
        last_ms = self._core.machine.queues.stored_ms(topic, queue_id, behind.offset - 1)
        return bodies.OffsetWrapper(behind.end, behind.offset, last_ms, behind.pulled)

    def _span(self, group: str, of: MessageQueue) -> bodies.QueueTimeSpan:
        queues = self._core.machine.queues
        begin, end = queues.span(of.topic, of.queue_id)
        offset = self._standing.behind(group, of.topic, of.queue_id).offset
        stored_ms = partial(queues.stored_ms, of.topic, of.queue_id)
        first_ms, next_ms = stored_ms(begin), stored_ms(offset)
        return bodies.QueueTimeSpan(
            message_queue=of,
            min_time_stamp=first_ms,
            max_time_stamp=stored_ms(end - 1),
            consume_time_stamp=stored_ms(offset - 1) or first_ms,
            delay_time=max(0, self._core.clock_ms() - next_ms) if next_ms else 0,
        )
