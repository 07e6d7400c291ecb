"""Small habits of stock brokers that stock clients, tools and tests rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.net import Peer
from dledger.remoting.bodies import ConsumeStats, TopicConfigWrapper, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import BatchItem, batch_encode, properties_decode
from dledger.remoting.record import Record, walk
from mqbroker.config import BrokerConfig
from mqbroker.testing.memory import MemoryBroker, served
from mqbroker.testing.requests import (
    GROUP,
    TOPIC,
    ask,
    heartbeat,
    make_topic,
    produce_request,
    pull_request,
    send_request,
)


async def test_topics_named_like_cluster_and_broker_are_made(tmp_path: Path) -> None:
    """Topics named like the cluster and the broker are made, to be read, written and inherited."""
    config = BrokerConfig(broker_cluster_name="Blue", broker_name="blue-a")
    async with served(tmp_path, config) as (_, peer):
        answer = await ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG)
        topics = decode_body(TopicConfigWrapper, answer.payload).topic_config_table
        assert (topics["Blue"].perm, topics["blue-a"].perm) == (7, 7)
        assert (topics["Blue"].write_queue_nums, topics["blue-a"].write_queue_nums) == (16, 1)
        sent = await peer.request(send_request(b="blue-a", e="0"), 5)
        assert sent.code == ResponseCode.SUCCESS
        system = await ask(peer, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert b'"Blue"' in bytes(system.payload)
        assert b'"blue-a"' in bytes(system.payload)


async def test_a_broker_whose_name_no_topic_may_have_starts_all_the_same(tmp_path: Path) -> None:
    """A broker whose name is not a valid topic name starts without the topic of its name."""
    config = BrokerConfig(broker_name="broker.a")
    async with served(tmp_path, config) as (broker, _):
        names = {topic.topic_name for topic in broker.machine.topics}
        assert "DefaultCluster" in names
        assert "broker.a" not in names


@pytest.mark.parametrize("wait", ["", "WAIT\x01true\x02", "WAIT\x01false\x02", "CLUSTER\x01x\x02"])
@pytest.mark.parametrize("delay", ["", "DELAY\x011\x02", "TRAN_MSG\x01true\x02PGROUP\x01P\x02"])
async def test_properties_that_don_t_fit_are_the_messages_fault(
    peer: Peer, wait: str, delay: str
) -> None:
    """Properties that don't fit are refused with code 13: with code 1 clients would retry."""
    await make_topic(peer)
    for length in (32_768, 40_000, 200_000):
        sent = await peer.request(send_request(i=f"{wait}{delay}k\x01{'v' * length}\x02"), 5)
        assert sent.code == ResponseCode.MESSAGE_ILLEGAL, sent.remark


async def test_the_messages_of_a_batch_keep_that_nobody_waits(peer: Peer) -> None:
    """A batch's messages keep WAIT=false, and a single one loses it, as with stock brokers."""
    await make_topic(peer)
    own = "WAIT\x01false\x02UNIQ_KEY\x01K%d\x02"
    items = [BatchItem(b"x", (own % number).encode()) for number in range(2)]
    request = send_request(batch_encode(items), RequestCode.SEND_BATCH_MESSAGE, m="true")
    assert (await peer.request(request, 5)).code == ResponseCode.SUCCESS
    assert (await peer.request(send_request(i=own % 9), 5)).code == ResponseCode.SUCCESS
    view = memoryview(bytes((await peer.request(pull_request(1), 5)).payload))
    starts = walk(view)
    ends = [*starts[1:], len(view)]
    waits = [
        properties_decode(Record(view[start:end]).properties).get("WAIT")
        for start, end in zip(starts, ends, strict=True)
    ]
    assert waits == ["false", "false", None]


async def test_progress_shows_a_commit_that_was_taken_a_moment_ago(
    broker: MemoryBroker, peer: Peer
) -> None:
    """Progress has a one-way commit from the first, while it is gathered and on its way."""
    await make_topic(peer, queues=2)
    await peer.request(produce_request("a", runs=[(1, 9)]), 5)
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    broker.ledger.auto = False
    header = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 1, "commitOffset": 7}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    peer.send_oneway(Command(code, dict(header), encoding=HeaderEncoding.JSON))
    for named in ({}, {"topic": TOPIC}):
        assert broker.machine.offsets.get(GROUP, TOPIC, 1) is None
        found = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP, **named)
        stats = decode_body(ConsumeStats, found.payload).offset_table
        assert stats[MessageQueue(TOPIC, "broker-a", 1)].consumer_offset == 7
        assert stats[MessageQueue(TOPIC, "broker-a", 0)].consumer_offset == 0


async def test_progress_in_a_named_topic_lists_all_its_queues(peer: Peer) -> None:
    """Progress in a named topic has all its queues, without any commit, too."""
    await make_topic(peer, queues=3)
    code = RequestCode.GET_CONSUME_STATS
    found = await ask(peer, code, consumerGroup="New", topic=TOPIC)
    table = decode_body(ConsumeStats, found.payload).offset_table
    assert sorted(queue.queue_id for queue in table) == [0, 1, 2]
    assert {progress.consumer_offset for progress in table.values()} == {0}
    for unknown in ({"topic": "Missing"}, {}):
        found = await ask(peer, code, consumerGroup="New", **unknown)
        assert decode_body(ConsumeStats, found.payload).offset_table == {}
