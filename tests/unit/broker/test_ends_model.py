"""Requests for a queue's ends, or for a group's place, agree on every code.

A model holds them over lives of queues: new, filled, emptied by retention, deleted, made again,
with more or fewer queues.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    ResetOffsetBody,
    TopicStats,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import ExtValue
from dledger.remoting.json_dialect import MessageQueue
from mqbroker.state.control import DropHead
from mqbroker.testing import MemoryBroker, memory_broker, until
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ask,
    commit_request,
    heartbeat,
    oneway,
    produce_request,
    pull_request,
    topic_request,
)

Code = ResponseCode
QUEUES_MAX = 3
QUEUE = st.sampled_from([0, 0, 0, 0, 1, 2, QUEUES_MAX])
STEPS = st.one_of(
    st.tuples(st.just("send"), QUEUE, st.integers(1, 3)),
    st.tuples(st.just("commit"), QUEUE, st.integers(-1, 9), st.booleans()),
    st.tuples(st.just("pull"), QUEUE, st.integers(0, 9)),
    st.tuples(st.just("reset"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("resize"), st.integers(1, QUEUES_MAX), st.integers(1, QUEUES_MAX)),
    st.tuples(st.just("retain"), st.integers(1, 6)),
    st.tuples(st.just("begin")),
    st.tuples(st.just("delete")),
    st.tuples(st.just("fail over")),
)


@dataclass
class Queue:
    """A queue in the model: its messages' positions and a group's place."""

    born: int
    positions: list[int] = field(default_factory=list)
    begin: int = 0
    place: int | None = None
    #: Where a reset has set it, while no member knows it; whether a pull was told.
    unknown: int | None = None
    told: bool = False

    @property
    def end(self) -> int:
        return len(self.positions)


@dataclass
class Model:
    """The topic in the model; `clock` counts entries as the log would."""

    read: int = 0
    write: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    begun: int | None = None
    made: int = 0
    clock: int = 0

    @property
    def is_there(self) -> bool:
        return self.read > 0

    def resize(self, read: int, write: int) -> None:
        if not self.is_there:
            self.made = self.clock
        for number in range(max(read, write)):
            self.queues.setdefault(number, Queue(self.made))
        for number in range(self.read, read):
            self.queues[number].born = self.clock
        self.read, self.write = read, write

    def has(self, number: int) -> bool:
        """Within the topic, or left of a time when it had more queues."""
        queue = self.queues.get(number)
        return queue is not None and (number < max(self.read, self.write) or queue.end > 0)

    def told(self, number: int) -> int | None:
        """Where the group is said to be."""
        queue = self.queues[number]
        if queue.place is None:
            is_newer = self.begun is not None and queue.born > self.begun
            return queue.begin if is_newer else None
        return min(max(queue.place, queue.begin), queue.end)


class Scene:
    """The broker, a member of the group and a tool, beside the model."""

    def __init__(self, broker: MemoryBroker, member: Peer, tool: Peer) -> None:
        self.broker, self.member, self.tool = broker, member, tool
        self.model = Model()
        self.keys = itertools.count()

    async def take(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        self.model.clock += 1
        steps: dict[str, Callable[..., Awaitable[None]]] = {
            "send": self.send,
            "commit": self.commit,
            "pull": self.pull,
            "reset": self.reset,
            "resize": self.resize,
            "retain": self.retain,
            "begin": self.begin,
            "delete": self.delete,
            "fail over": self.fail_over,
        }
        await steps[name](*arguments)
        await self.check()

    async def send(self, number: int, count: int) -> None:
        request = produce_request(f"k{next(self.keys)}", runs=[(number, count)])
        answer = await self.tool.request(request, TIMEOUT_S)
        if not self.model.is_there or number >= self.model.write:
            assert answer.code != Code.SUCCESS or not self.model.is_there
            if answer.code == Code.SUCCESS:  # the send has made the topic
                config = self.broker.machine.topics.get(TOPIC)
                assert config is not None
                self.model.resize(config.read_queue_nums, config.write_queue_nums)
            else:
                return
        assert answer.code == Code.SUCCESS
        size = len(request.payload) // count
        first = int(str(answer.ext["position"]))
        self.model.queues[number].positions += [first + n * size for n in range(count)]

    async def commit(self, number: int, offset: int, is_oneway: bool) -> None:
        request = commit_request(offset, number)
        model = self.model
        fits = model.has(number) and 0 <= offset <= model.queues[number].end
        if model.is_there and model.has(number) and model.begun is None:
            model.begun = model.clock  # its first commit
        if not is_oneway:
            answer = await self.tool.request(request, TIMEOUT_S)
            assert (answer.code == Code.SUCCESS) is (model.is_there and fits), answer.remark
        else:
            self.tool.send_oneway(oneway(request))
            await ask(self.tool, RequestCode.GET_BROKER_CONFIG)  # it has come before this
            commits = self.broker.broker._commits
            await until(lambda: not (commits._gathered or commits._on_its_way))
        if model.is_there and fits:
            queue = model.queues[number]
            if not is_oneway:
                queue.place, queue.unknown = offset, None
            elif offset == queue.unknown or (
                queue.unknown is None and offset >= (queue.place or 0)
            ):
                queue.place = offset

    async def pull(self, number: int, offset: int) -> None:
        """Pull from any offset: the answer has the queue's ends, and the next offset is within
        them.
        """
        answer = await self.member.request(pull_request(number, offset), TIMEOUT_S)
        model = self.model
        if not model.is_there:
            assert answer.code == Code.TOPIC_NOT_EXIST
            return
        if number >= model.read:
            assert answer.code == Code.SYSTEM_ERROR
            return
        if model.begun is None:
            model.begun = model.clock
        queue = model.queues[number]
        ends = answer.ext["minOffset"], answer.ext["maxOffset"]
        assert ends == (queue.begin, queue.end)
        next_offset = int(str(answer.ext["nextBeginOffset"]))
        assert queue.begin <= next_offset <= queue.end
        if queue.unknown is not None and not queue.told and offset != queue.unknown:
            queue.told = True
            assert (answer.code, next_offset) == (Code.PULL_OFFSET_MOVED, queue.unknown)
            return
        queue.unknown = None
        if offset > queue.end:
            at = model.told(number)
            assert (answer.code, next_offset) == (
                Code.PULL_OFFSET_MOVED,
                queue.begin if at is None else at,
            )

    async def reset(self, offset: int, is_force: bool) -> None:
        answer = await ask(
            self.tool,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            topic=TOPIC,
            group=GROUP,
            timestamp=-1 if offset > 4 else 0,
            isForce=is_force,
            queueId=-1,
        )
        model = self.model
        if not model.is_there:
            assert answer.code == Code.TOPIC_NOT_EXIST
            return
        if model.begun is None:
            model.begun = model.clock
            told = dict.fromkeys(range(model.read))
        else:
            told = {number: model.told(number) for number in range(model.read)}
        table = decode_body(ResetOffsetBody, answer.payload).offset_table
        for number in range(model.read):
            queue = model.queues[number]
            target = queue.end if offset > 4 else queue.begin
            at = told[number]
            queue.place = target if is_force or at is None else min(at, target)
            queue.unknown, queue.told = queue.place, False
            assert table[MessageQueue(TOPIC, "broker-a", number)] == queue.place

    async def resize(self, read: int, write: int) -> None:
        request = topic_request(queues=1)
        request.ext |= {"readQueueNums": read, "writeQueueNums": write, "force": True}
        assert (await self.tool.request(request, TIMEOUT_S)).code == Code.SUCCESS
        self.model.resize(read, write)

    async def retain(self, kept: int) -> None:
        """The head of the log goes, up to one of its last entries."""
        entry = [*self.broker.ledger.entries(1)][-kept:][0]
        definitions = self.broker.broker.core.definitions
        await definitions.changed(DropHead(entry.position, entry.index))
        for queue in self.model.queues.values():
            lost = sum(at < entry.position for at in queue.positions)
            queue.begin = max(queue.begin, lost)

    async def begin(self) -> None:
        await ask(self.member, RequestCode.HEART_BEAT, heartbeat("c1"))
        if self.model.begun is None:
            self.model.begun = self.model.clock

    async def delete(self) -> None:
        await ask(self.tool, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        self.model.read = self.model.write = 0
        self.model.queues.clear()

    async def fail_over(self) -> None:
        self.broker.ledger.follow("n1")
        self.broker.ledger.lead()
        await until(lambda: self.broker.broker.core.role.serving)
        for queue in self.model.queues.values():
            queue.unknown = None

    async def check(self) -> None:
        """All requests that tell numbers give the model's."""
        model, broker_name = self.model, "broker-a"
        lags = 0
        stats = await self.tool_body(ConsumeStats, RequestCode.GET_CONSUME_STATS, topic=TOPIC)
        assert len(stats.offset_table) == model.read
        status = await ask(self.tool, RequestCode.GET_TOPIC_STATS_INFO, topic=TOPIC)
        assert (status.code == Code.SUCCESS) is model.is_there
        if not model.is_there:
            return
        ends = decode_body(TopicStats, status.payload).offset_table
        assert len(ends) == max(model.read, model.write)
        spans = await self.tool_body(
            QueryConsumeTimeSpanBody, RequestCode.QUERY_CONSUME_TIME_SPAN, topic=TOPIC, group=GROUP
        )
        assert len(spans.consume_time_span_set) == model.read
        for number in range(QUEUES_MAX + 1):
            place: dict[str, ExtValue] = {"topic": TOPIC, "queueId": number}
            last = await ask(self.tool, RequestCode.GET_MAX_OFFSET, **place)
            assert (last.code == Code.SUCCESS) is model.has(number)
            if not model.has(number):
                continue
            queue, at = model.queues[number], model.told(number)
            assert last.ext["offset"] == queue.end
            first = await ask(self.tool, RequestCode.GET_MIN_OFFSET, **place)
            assert first.ext["offset"] == queue.begin
            units = await self.tool_body(
                QueryConsumeQueueResponseBody,
                RequestCode.QUERY_CONSUME_QUEUE,
                index=queue.begin,
                count=99,
                **place,
            )
            assert (units.min_queue_index, units.max_queue_index) == (queue.begin, queue.end)
            assert [each.physic_offset for each in units.queue_data or []] == queue.positions[
                queue.begin :
            ]
            for time, boundary, expected in (
                (0, "LOWER", queue.begin),
                (1 << 50, "LOWER", queue.end),
                (1 << 50, "UPPER", max(queue.begin, queue.end - 1)),
            ):
                found = await ask(
                    self.tool,
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                    timestamp=time,
                    boundaryType=boundary,
                    **place,
                )
                assert found.ext["offset"] == expected
            oldest = await ask(self.tool, RequestCode.GET_EARLIEST_MSG_STORETIME, **place)
            assert (oldest.ext["timestamp"] == -1) is (queue.begin == queue.end)
            told = await ask(
                self.tool,
                RequestCode.QUERY_CONSUMER_OFFSET,
                consumerGroup=GROUP,
                setZeroIfNotFound=False,
                **place,
            )
            if number < model.read or queue.place is not None:
                assert (told.code == Code.SUCCESS) is (at is not None)
                assert told.ext.get("offset") == at
            name = MessageQueue(TOPIC, broker_name, number)
            if number < max(model.read, model.write):
                assert (ends[name].min_offset, ends[name].max_offset) == (queue.begin, queue.end)
            if number < model.read:
                progress = stats.offset_table[name]
                expected = queue.begin if at is None else at
                assert (progress.broker_offset, progress.consumer_offset) == (queue.end, expected)
                assert expected <= progress.pull_offset <= queue.end
                if any(each.place is not None for each in model.queues.values()):
                    lags += queue.end - expected
        everything = await self.tool_body(
            ConsumeStatsList, RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False
        )
        assert everything.total_diff == lags

    async def tool_body(self, kind: Any, code: int, **ext: ExtValue) -> Any:
        ext.setdefault("consumerGroup", GROUP)
        answer = await ask(self.tool, code, **ext)
        assert answer.code == Code.SUCCESS, answer.remark
        return decode_body(kind, answer.payload)


async def live(steps: list[tuple[Any, ...]], directory: Path) -> None:
    async with (
        memory_broker(directory) as broker,
        connect_peer("127.0.0.1", broker.port) as member,
        connect_peer("127.0.0.1", broker.port) as tool,
    ):
        scene = Scene(broker, member, tool)
        for step in steps:
            await scene.take(step)


@settings(max_examples=30)
@given(st.lists(STEPS, min_size=1, max_size=14))
def test_all_codes_tell_the_same(steps: list[tuple[Any, ...]]) -> None:
    """Ends never go back in a life, no lag is negative, and no commit is of what is not there."""
    with tempfile.TemporaryDirectory() as directory:
        trio.run(live, steps, Path(directory))
