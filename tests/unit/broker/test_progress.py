"""Figures of groups for tools: progress, since when messages wait, subscriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.bodies import (
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    HeartbeatData,
    OffsetWrapper,
    ProducerData,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicList,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.json_dialect import MessageQueue, all_queues
from mqbroker import limits
from mqbroker.testing import MemoryBroker, served
from mqbroker.testing.requests import (
    GROUP,
    TOPIC,
    ask,
    commit,
    heartbeat,
    make_topic,
    pull_request,
    send_request,
)

Code = ResponseCode
QUEUE = MessageQueue(TOPIC, "broker-a", 1)


@pytest.fixture
async def broker_and_peer(tmp_path: Path) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    """A group has pulled 3 of 4 messages, stored at 1, 2, 3 and 4 s, and committed 2."""
    clock_ms = 0
    async with served(tmp_path, clock_ms=lambda: clock_ms) as (broker, peer):
        await make_topic(peer, queues=2)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        for number in range(4):
            if number == 3:
                await peer.request(pull_request(1), 5)
            clock_ms = 1000 * (number + 1)
            sent = await peer.request(send_request(b"%d" % number), 5)
            assert sent.code == Code.SUCCESS
        await commit(peer, 2, 1)
        clock_ms = 10_000
        yield broker, peer


async def test_the_broker_tells_how_far_all_its_groups_are(peer: Peer) -> None:
    """GET_BROKER_CONSUME_STATS has each group's lag and in-flight count, for brokerConsumeStats."""
    found = await ask(peer, RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    stats = decode_body(ConsumeStatsList, found.payload)
    assert (stats.total_diff, stats.total_inflight_diff) == (2, 1)
    (of_group,) = stats.consume_stats_list
    progress = of_group[GROUP][0].offset_table[QUEUE]
    assert (progress.broker_offset, progress.consumer_offset) == (4, 2)
    assert progress.last_timestamp == 2000
    ordered = await ask(peer, RequestCode.GET_BROKER_CONSUME_STATS, isOrder=True)
    assert decode_body(ConsumeStatsList, ordered.payload).consume_stats_list == []


async def told(peer: Peer) -> OffsetWrapper:
    """The progress in the queue that has messages, with the reason."""
    answer = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP, reasons=True)
    return decode_body(ConsumeStats, answer.payload).offset_table[QUEUE]


async def test_our_tools_are_told_why_a_group_is_not_further(peer: Peer) -> None:
    """Our tools are told a group's state and reason; others get RocketMQ's fields."""
    plain = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP)
    assert b"reason" not in bytes(plain.payload)
    assert b"produceTps" not in bytes(plain.payload)
    row = await told(peer)
    assert (row.state, row.in_flight) == ("handed out", 1)
    assert row.reason == "c1 has 1 messages in hand"
    await ask(peer, RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP)
    row = await told(peer)
    assert (row.state, row.in_flight) == ("no members", 0)
    disabled = encode_body(SubscriptionGroupConfig(GROUP, consume_enable=False))
    await ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, disabled)
    row = await told(peer)
    assert (row.state, row.reason) == ("group disabled", "the group's consumeEnable is false")


async def test_a_reader_that_asks_for_nothing_is_told(broker: MemoryBroker, peer: Peer) -> None:
    """A reader that has committed all and asks for no more is told as paused or busy."""
    await commit(peer, 3, 1)
    assert (await told(peer)).state == "being read"
    broker.broker.core.rates.sample(trio.current_time(), 1)
    await peer.request(pull_request(1, 2, maxMsgNums=1), 5)
    broker.broker.core.clock_s = lambda: trio.current_time() + limits.ASKS_AGAIN_S + 60
    row = await told(peer)
    assert row.state == "not asked for"
    assert str(row.reason).startswith("c1 reads the queue, and asks for no messages")
    assert row.since != 0


def member(paused: list[MessageQueue]) -> bytes:
    """A heartbeat of a member that tells its paused queues, as ours do."""
    data = ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC)], paused=paused)
    return encode_body(HeartbeatData("c1", [], [data]))


async def test_a_paused_reader_is_told_apart_from_a_busy_one(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A queue that its member has paused is told so, if it is one of this broker's."""
    name = broker.broker.core.config.broker_name
    own, others = MessageQueue(TOPIC, name, 1), MessageQueue(TOPIC, "elsewhere", 1)
    every = all_queues(TOPIC)
    many = [MessageQueue(f"t{n}", name, 0) for n in range(limits.PAUSED_QUEUES_MAX)]

    async def state(*paused: MessageQueue) -> str | None:
        await ask(peer, RequestCode.HEART_BEAT, member([*paused]))
        return (await told(peer)).state

    assert [await state(each) for each in (own, every, others)] == [
        *("paused", "paused", "handed out")
    ]
    await commit(peer, 3, 1)
    broker.broker.core.rates.sample(trio.current_time(), 1)
    await peer.request(pull_request(1, 2, maxMsgNums=1), 5)
    broker.broker.core.clock_s = lambda: trio.current_time() + limits.ASKS_AGAIN_S + 60
    assert [await state(*each) for each in ([own], [others], [], [*many, own])] == [
        *("paused", "busy", "busy", "busy")
    ]


async def test_rates_are_those_of_the_groups_topics(broker: MemoryBroker, peer: Peer) -> None:
    """Rates are messages a second into a group's topics, and out to the group."""
    rates, now_s = broker.broker.core.rates, trio.current_time()
    rates.statistics.sample(now_s)
    for number in range(3):
        await peer.request(send_request(b"%d" % number), 5)
        await peer.request(pull_request(1, 4 + number), 5)
    rates.statistics.sample(now_s + 10)
    broker.broker.core.clock_s = lambda: now_s + 10
    answer = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP, reasons=True)
    stats = decode_body(ConsumeStats, answer.payload)
    assert stats.consume_tps > 0
    assert (stats.produce_tps or 0) > 0


async def test_times_tell_how_long_messages_have_waited(peer: Peer) -> None:
    """Times are those of a queue's next message; an empty queue has none."""
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    found = await ask(peer, code, topic=TOPIC, group=GROUP)
    empty, span = decode_body(QueryConsumeTimeSpanBody, found.payload).consume_time_span_set
    assert span.message_queue == QUEUE
    assert (span.min_time_stamp, span.max_time_stamp) == (1000, 4000)
    assert (span.consume_time_stamp, span.delay_time) == (2000, 7000)
    assert (empty.min_time_stamp, empty.consume_time_stamp, empty.delay_time) == (0, 0, 0)
    new = await ask(peer, code, topic=TOPIC, group="New")
    span = decode_body(QueryConsumeTimeSpanBody, new.payload).consume_time_span_set[1]
    assert (span.consume_time_stamp, span.delay_time) == (1000, 9000)
    missing = await ask(peer, code, topic="Missing", group=GROUP)
    assert missing.code == Code.TOPIC_NOT_EXIST


async def test_a_group_goes_on_from_where_another_is(broker: MemoryBroker, peer: Peer) -> None:
    """CLONE_GROUP_OFFSET copies offsets of one topic or all, and is refused without any."""
    code = RequestCode.CLONE_GROUP_OFFSET
    done = await ask(peer, code, srcGroup=GROUP, destGroup="D", topic=TOPIC, offline=True)
    assert (done.code, broker.machine.offsets.get("D", TOPIC, 1)) == (Code.SUCCESS, 2)
    done = await ask(peer, code, srcGroup="D", destGroup="E")
    assert (done.code, broker.machine.offsets.get("E", TOPIC, 1)) == (Code.SUCCESS, 2)
    refused = await ask(peer, code, srcGroup=GROUP, destGroup="D", topic="Other")
    assert refused.code == Code.SYSTEM_ERROR
    assert "no offsets to clone in 'Other'" in (refused.remark or "")


async def test_a_groups_topics_and_subscription_are_told(peer: Peer) -> None:
    """A group's topics come from its offsets, its subscription from its members."""
    topics = await ask(peer, RequestCode.QUERY_TOPICS_BY_CONSUMER, group=GROUP)
    assert decode_body(TopicList, topics.payload).topic_list == [TOPIC]
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    for group, wanted in ((GROUP, "*"), ("Nobody", None)):
        answer = await ask(peer, code, group=group, topic=TOPIC)
        found = decode_body(QuerySubscriptionResponseBody, answer.payload).subscription_data
        assert (found.sub_string if found else None) == wanted


async def test_all_producers_are_told(peer: Peer) -> None:
    """Producers are told by group, with their addresses and last heartbeats."""
    body = encode_body(HeartbeatData("p1", [ProducerData("P")], []))
    await ask(peer, RequestCode.HEART_BEAT, body)
    answer = await ask(peer, RequestCode.GET_ALL_PRODUCER_INFO)
    ((group, (info,)),) = decode_body(ProducerTableInfo, answer.payload).data.items()
    assert (group, info.client_id, info.language) == ("P", "p1", "PYTHON")
    assert info.remote_ip.startswith("127.0.0.1:")
    assert 9000 <= info.last_update_timestamp <= 10_000


@pytest.mark.parametrize(("index", "count", "offsets"), [(1, 2, 2), (3, 9, 1), (4, 9, 0)])
async def test_units_of_a_queue_are_shown(
    broker: MemoryBroker, peer: Peer, index: int, count: int, offsets: int
) -> None:
    """Units of a queue, for mqadmin queryCq, have its messages' places in the log."""
    code = RequestCode.QUERY_CONSUME_QUEUE
    found = await ask(peer, code, topic=TOPIC, queueId=1, index=index, count=count)
    shown = decode_body(QueryConsumeQueueResponseBody, found.payload)
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 4)
    queue = broker.machine.queues.get(TOPIC, 1)
    assert queue is not None
    wanted = queue.read(index, offsets)["position"].tolist() if offsets else []
    assert [unit.physic_offset for unit in shown.queue_data] == wanted
    refused = await ask(peer, code, topic=TOPIC, queueId=7, index=0, count=1)
    assert refused.code == Code.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, "replicated log"),
        (RequestCode.GET_BROKER_HA_STATUS, "mqadmin raftStatus"),
        (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, "make an ordinary topic"),
        (31_999, "request code 31999 is not supported"),
    ],
)
async def test_what_is_not_served_is_refused_with_the_reason(
    tmp_path: Path, code: int, words: str
) -> None:
    """A code that is not served is refused with a reason, which stock tools print."""
    async with served(tmp_path) as (_, peer):
        refused = await ask(peer, code)
        assert refused.code == Code.REQUEST_CODE_NOT_SUPPORTED
        assert words in (refused.remark or "")
