"""Administration of topics: their settings and their queues."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

import trio

from dledger.ledger.outcome import outcome_of
from dledger.net import Connection
from dledger.net.turns import encode_in_turns, result_in_turns
from dledger.remoting import bodies, headers
from dledger.remoting.attributes import parse_alteration
from dledger.remoting.bodies import decode_body, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import DEFAULT_TOPIC
from dledger.remoting.names import UNSENDABLE, topic_kind
from dledger.trust.guard import Sight
from dledger.trust.rights import DELETE, GET, PUB, SIGNED, SUB, topic
from mqbroker import limits
from mqbroker.refusal import of_broker, system_error
from mqbroker.requests import rights
from mqbroker.requests.admin.changes import check_rows, named_only, out_of_reach
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_all, by_confirmed, by_leader, changes, passed_on
from mqbroker.requests.replies import dialect_for
from mqbroker.state.attributes import alter
from mqbroker.state.topics import check_config


class TopicAdminHandler:
    """Answers requests that make, change, delete or list topics. A change is answered once it is
    applied and name servers know it."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @passed_on(RequestCode.UPDATE_AND_CREATE_TOPIC, rights=rights.PUT_TOPIC)
    async def put_topic(self, request: Command, connection: Connection) -> Command:
        """Make or change a topic. Whoever may send may make one; to change one takes more."""
        header = decode_header(headers.UpdateAndCreateTopicHeader, request)
        config = bodies.TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            topic_filter_type=header.topic_filter_type,
            attributes=parse_alteration(header.attributes),
        )
        changes, force = header.changes, bool(header.force)
        return await self._put(request, connection, [config], changes, force)

    @passed_on(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, rights=rights.PUT_TOPICS)
    async def put_topics(self, request: Command, connection: Connection) -> Command:
        """Make or change all of these topics, or none."""
        given = decode_body(bodies.CreateTopicListBody, request.payload).topic_config_list
        check_rows("topicConfigList", given)
        return await self._put(request, connection, given)

    async def _put(
        self,
        request: Command,
        connection: Connection,
        given: list[bodies.TopicConfig],
        changes: str | None = None,
        force: bool = False,
    ) -> Command:
        names = [each.topic_name for each in given]
        is_system = any(topic_kind(name, self._core.config.names) == "system" for name in names)
        with self._core.replies.latencies.topics.timed(is_system=is_system):
            found = [self._changed(config, changes) for config in given]
            lost = [lost for _, lost in found if lost is not None]
            if lost and not force:
                raise system_error(
                    f"no consumer could get {lost[0]}: name the queues with -r and -w, or change "
                    "it all the same with our mqadmin's --force"
                )
            configs = [config for config, _ in found]
            if not self._core.door.is_admin(request, connection) and any(
                map(self._alters, configs)
            ):
                is_one = request.code == RequestCode.UPDATE_AND_CREATE_TOPIC
                asked = rights.PUT_TOPIC if is_one else rights.PUT_TOPICS
                raise self._core.door.refusal(request, connection, asked)
            await outcome_of(partial(self._core.definitions.put_topics, configs))
            for config in configs:
                await self._until_confirmed(config.topic_name)
            return request.reply(remark=f"no consumer gets {'; '.join(lost)}" if lost else None)

    def _changed(
        self, given: bodies.TopicConfig, changes: str | None
    ) -> tuple[bodies.TopicConfig, str | None]:
        """A topic as it would be, and the messages that no consumer could get then. Refused."""
        topic = given.topic_name
        known = self._core.definitions.lasting(topic)
        config = named_only(known, given, changes)
        check_config(config)
        config.attributes = alter(None if known is None else known.attributes, config.attributes)
        return config, out_of_reach(known, config, partial(self._ends, topic))

    def _alters(self, config: bodies.TopicConfig) -> bool:
        """Whether this changes a topic that is there, or makes one that a send would not make."""
        known = self._core.definitions.lasting(config.topic_name)
        makes = known is None and self._core.config.auto_create_topic_enable
        return not makes and known != config

    def _ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """A queue's first offset, and the one that its next message will have."""
        queue = self._core.machine.queues.get(topic, queue_id)
        begin = 0 if queue is None else queue.begin
        return begin, self._core.assignments.next_offset(topic, queue_id)

    @changes(RequestCode.DELETE_TOPIC_IN_BROKER, rights=topic(DELETE))
    async def delete_topic(self, request: Command, _: Connection) -> Command:
        """Delete a topic, with its queues, its locks, and every group's offsets in it."""
        topic = decode_header(headers.DeleteTopicInBrokerHeader, request).topic
        if topic in UNSENDABLE or topic == DEFAULT_TOPIC:
            raise system_error(of_broker(topic))
        await outcome_of(partial(self._core.definitions.delete_topic, topic))
        await self._until_confirmed(topic)
        return request.reply()

    async def _until_confirmed(self, topic: str) -> None:
        """Wait until name servers know of a change."""
        confirmed = trio.Event()
        self._core.announcements.when_confirmed(topic, confirmed.set)
        await confirmed.wait()

    @by_all(RequestCode.GET_ALL_TOPIC_CONFIG, rights=SIGNED)
    def all_topics(self, request: Command, _: Connection) -> Command | Awaitable[Command]:
        """Every topic's settings, as far as who asks may see them."""
        table, sight = self._core.topic_table(), self._core.guard.sight()
        if sight.sees_all:
            return request.reply(body=encode_body(table))
        return self._cut(request, table, sight)

    async def _cut(
        self, request: Command, table: bodies.TopicConfigWrapper, sight: Sight
    ) -> Command:
        seen = await result_in_turns(sight.topics(table.topic_config_table))
        return request.reply(body=encode_body(bodies.TopicConfigWrapper(seen, table.data_version)))

    @by_leader(RequestCode.GET_TOPIC_CONFIG, rights=topic(GET, SUB, PUB))
    def topic_config(self, request: Command, _: Connection) -> Command:
        """The settings of one topic."""
        topic = decode_header(headers.GetTopicConfigHeader, request).topic
        return request.reply(body=encode_body(self._core.definitions.topic(topic)))

    @by_confirmed(RequestCode.GET_TOPIC_STATS_INFO, rights=topic(GET))
    async def topic_stats(self, request: Command, _: Connection) -> Command:
        """The first and last offset of each queue, and its newest store time."""
        config = self._core.definitions.topic(
            decode_header(headers.GetTopicStatsInfoHeader, request).topic
        )
        table = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            key = MessageQueue(config.topic_name, self._core.config.broker_name, queue_id)
            table[key] = self._queue_stats(config.topic_name, queue_id)
        body = await encode_in_turns(bodies.TopicStats(table), dialect_for(request))
        return request.reply(body=body)

    @by_confirmed(RequestCode.QUERY_CONSUME_QUEUE, rights=topic(GET))
    def consume_queue(self, request: Command, _: Connection) -> Command:
        """Units of one queue, for people who search for a message's place."""
        header = decode_header(headers.QueryConsumeQueueHeader, request)
        self._core.check_queue(header.topic, header.queue_id)
        queue = self._core.machine.queues.get(header.topic, header.queue_id)
        begin, end = self._core.machine.queues.span(header.topic, header.queue_id)
        count = min(header.count, limits.QUERY_UNITS_MAX)
        units = queue.read(header.index, count) if queue and begin <= header.index < end else ()
        answer = bodies.QueryConsumeQueueResponseBody(
            max_queue_index=end,
            min_queue_index=begin,
            queue_data=[
                bodies.ConsumeQueueData(
                    int(unit["position"]), int(unit["size"]), int(unit["tags_code"])
                )
                for unit in units
            ],
        )
        return request.reply(body=encode_body(answer))

    @by_all(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, rights=SIGNED)
    def system_topics(self, request: Command, _: Connection) -> Command:
        """The topics that belong to the broker."""
        names = {*UNSENDABLE, DEFAULT_TOPIC, *self._core.config.names}
        return request.reply(body=encode_body(bodies.TopicList(sorted(names))))

    def _queue_stats(self, topic: str, queue_id: int) -> bodies.TopicOffset:
        queue = self._core.machine.queues.get(topic, queue_id)
        if queue is None or queue.end == queue.begin:
            return bodies.TopicOffset(*self._core.machine.queues.span(topic, queue_id))
        return bodies.TopicOffset(queue.begin, queue.end, queue.stored_ms(queue.end - 1))
