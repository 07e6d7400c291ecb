"""Tools, followers and strangers at a broker on a real socket: what they are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.config import BrokerConfig
from broker.testing import MemoryBroker, memory_broker
from broker.testing.requests import (
    ask,
    heartbeat,
    produce_request,
    pull_request,
    send_request,
)
from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    ConsumerConnection,
    ConsumeStats,
    TopicConfig,
    TopicConfigWrapper,
    TopicStats,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ProduceResponseHeader,
    decode_header,
)
from dledger.remoting.json_dialect import MessageQueue

Code = ResponseCode


@asynccontextmanager
async def served(
    directory: Path, *, auto: bool = True, config: BrokerConfig | None = None
) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    async with (
        memory_broker(directory, config, auto=auto) as broker,
        connect_peer("127.0.0.1", broker.port) as peer,
    ):
        yield broker, peer


async def test_tools_see_topics_queues_and_groups(tmp_path: Path) -> None:
    """What mqadmin's topicStatus, consumerProgress and consumerConnection ask for."""
    async with served(tmp_path) as (_, peer):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await peer.request(produce_request("a"), 5)
        await ask(
            peer,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="C",
            topic="Orders",
            queueId=0,
            commitOffset=1,
        )
        stats = await ask(peer, RequestCode.GET_TOPIC_STATS_INFO, topic="Orders")
        table = decode_body(TopicStats, stats.payload).offset_table
        assert table[MessageQueue("Orders", "broker-a", 0)].max_offset == 2
        assert len(table) == 8
        progress = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup="C")
        offsets = decode_body(ConsumeStats, progress.payload).offset_table
        queue = offsets[MessageQueue("Orders", "broker-a", 0)]
        assert (queue.broker_offset, queue.consumer_offset) == (2, 1)
        clients = await ask(peer, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="C")
        (client,) = decode_body(ConsumerConnection, clients.payload).connection_set
        assert client.client_id == "c1"
        who = await ask(peer, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="Orders")
        assert b'"C"' in bytes(who.payload)
        topics = await ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG)
        names = decode_body(TopicConfigWrapper, topics.payload).topic_config_table
        assert set(names) == {
            "TBW102",
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_MOVE_OP_TOPIC",
            "RMQ_SYS_TRACE_TOPIC",
            "%RETRY%C",
            "Orders",
        }
        one = await ask(peer, RequestCode.GET_TOPIC_CONFIG, topic="Orders")
        assert decode_body(TopicConfig, one.payload).read_queue_nums == 8
        runtime = await ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b"getTransferedTps" in bytes(runtime.payload)
        settings = await ask(peer, RequestCode.GET_BROKER_CONFIG)
        assert b"brokerName=broker-a\n" in bytes(settings.payload)


async def test_a_deleted_topic_is_gone_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    """Made again by a send it starts from offset 0."""
    async with served(tmp_path) as (broker, peer):
        await peer.request(produce_request("a"), 5)
        gone = await ask(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
        assert gone.code == Code.SUCCESS
        assert (await peer.request(pull_request(0), 5)).code == Code.TOPIC_NOT_EXIST
        again = await peer.request(produce_request("b"), 5)
        assert decode_header(ProduceResponseHeader, again).offsets == [(0, 0), (3, 0)]
        assert broker.machine.queues.end("Orders", 0) == 2


async def test_a_follower_answers_what_needs_no_leader_and_names_the_leader(
    tmp_path: Path,
) -> None:
    """Heartbeats, member lists and GROUP_INFO are answered everywhere, all else with code 14."""
    config = BrokerConfig(
        d_leger_peers="n0-127.0.0.1:1;n1-127.0.0.1:2",
        group_client_addrs="n0-127.0.0.1:10911;n1-127.0.0.1:10912",
    )
    async with served(tmp_path, config=config) as (broker, peer):
        broker.ledger.follow("n1")
        refused = await peer.request(pull_request(0), 5)
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert refused.ext["leaderAddr"] == "127.0.0.1:10912"
        assert (await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))).code == Code.SUCCESS
        info = await ask(peer, RequestCode.GROUP_INFO)
        assert (info.ext["role"], info.ext["leaderId"]) == ("follower", "n1")
        assert info.ext["members"] == [["n0", "127.0.0.1:10911"], ["n1", "127.0.0.1:10912"]]
        broker.ledger.lead()
        info = await ask(peer, RequestCode.GROUP_INFO)
        assert (info.ext["role"], info.ext["leaderAddr"]) == ("leader", "127.0.0.1:10911")
        assert broker.machine.groups.get("C") is not None


async def test_an_unknown_code_and_a_bad_header_are_answered(tmp_path: Path) -> None:
    """The connection stays; a one-way request gets no answer at all."""
    async with served(tmp_path) as (_, peer):
        unknown = await ask(peer, 31_337)
        assert unknown.code == Code.REQUEST_CODE_NOT_SUPPORTED
        bad = await ask(peer, RequestCode.PULL_MESSAGE, topic="Orders")
        assert bad.code == Code.SYSTEM_ERROR
        assert "consumerGroup" in (bad.remark or "")
        peer.send_oneway(Command(31_337))
        peer.send_oneway(send_request())
        assert (await ask(peer, RequestCode.GROUP_INFO)).code == Code.SUCCESS
