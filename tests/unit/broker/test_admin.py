"""Tools, followers and strangers at a broker on a real socket: what they are answered."""

from __future__ import annotations

from pathlib import Path

import trio

from dledger.net import Peer
from dledger.remoting.bodies import (
    BrokerStatsData,
    ConsumerConnection,
    ConsumeStats,
    KVTable,
    TopicConfig,
    TopicConfigWrapper,
    TopicStats,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from mqbroker.config import BrokerConfig
from mqbroker.state.machine import Machine
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.leading import save
from mqbroker.testing.requests import (
    ask,
    commit,
    heartbeat,
    produce_request,
    pull_request,
    send_request,
)

Code = ResponseCode


async def test_tools_see_topics_queues_and_groups(peer: Peer) -> None:
    """mqadmin's topicStatus, consumerProgress and consumerConnection are answered."""
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    await peer.request(produce_request("a"), 5)
    await commit(peer, 1)
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
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "DefaultCluster_REPLY_TOPIC",
        "DefaultCluster",
        "broker-a",
        "%RETRY%C",
        "Orders",
    }
    one = await ask(peer, RequestCode.GET_TOPIC_CONFIG, topic="Orders")
    assert decode_body(TopicConfig, one.payload).read_queue_nums == 8
    runtime = await ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO)
    assert b"getTransferedTps" in bytes(runtime.payload)
    settings = await ask(peer, RequestCode.GET_BROKER_CONFIG)
    assert b"brokerName=broker-a\n" in bytes(settings.payload)


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
        assert refused.remark == "not the leader: ask 127.0.0.1:10912"
        assert refused.ext["leaderAddr"] == "127.0.0.1:10912"
        assert (await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))).code == Code.SUCCESS
        info = await ask(peer, RequestCode.GROUP_INFO)
        assert (info.ext["role"], info.ext["leaderId"]) == ("follower", "n1")
        assert info.ext["members"] == [["n0", "127.0.0.1:10911"], ["n1", "127.0.0.1:10912"]]
        broker.ledger.lead()
        info = await ask(peer, RequestCode.GROUP_INFO)
        assert (info.ext["role"], info.ext["leaderAddr"]) == ("leader", "127.0.0.1:10911")
        assert broker.machine.groups.get("C") is not None


async def test_an_unknown_code_and_a_bad_header_are_answered(peer: Peer) -> None:
    """The connection stays; a one-way request gets no answer at all."""
    unknown = await ask(peer, 31_337)
    assert unknown.code == Code.REQUEST_CODE_NOT_SUPPORTED
    bad = await ask(peer, RequestCode.PULL_MESSAGE, topic="Orders")
    assert bad.code == Code.SYSTEM_ERROR
    assert "consumerGroup" in (bad.remark or "")
    peer.send_oneway(Command(31_337))
    peer.send_oneway(send_request())
    assert (await ask(peer, RequestCode.GROUP_INFO)).code == Code.SUCCESS


async def test_settings_change_on_all_replicas_and_only_where_they_can(
    broker: MemoryBroker, peer: Peer, tmp_path: Path
) -> None:
    """Code 25 changes settings on all replicas, over restarts, and refuses others by name."""
    update = RequestCode.UPDATE_BROKER_CONFIG
    body = b"maxMessageSize=1000\ndefaultTopicQueueNums=3\n"
    assert (await ask(peer, update, body)).code == Code.SUCCESS
    shown = bytes((await ask(peer, RequestCode.GET_BROKER_CONFIG)).payload).decode()
    assert {"maxMessageSize=1000", "defaultTopicQueueNums=3"} <= set(shown.splitlines())
    assert (await peer.request(send_request(b"x" * 1001), 5)).code == Code.MESSAGE_ILLEGAL
    default = await ask(peer, RequestCode.GET_TOPIC_CONFIG, topic="TBW102")
    assert decode_body(TopicConfig, default.payload).write_queue_nums == 3

    fixed = await ask(peer, update, b"listenPort=1\n")
    assert (fixed.code, "listenPort" in (fixed.remark or "")) == (Code.NO_PERMISSION, True)
    for text, word in (
        (b"maxMesageSize=1", "maxMessageSize"),
        (b"maxMessageSize=lots", "lots"),
        (b"maxMessageSize=0", "within"),
    ):
        answer = await ask(peer, update, text)
        assert (answer.code, word in (answer.remark or "")) == (Code.SYSTEM_ERROR, True)

    assert (await ask(peer, update, b"maxMessageSize=\n")).code == Code.SUCCESS
    assert broker.machine.settings == {"defaultTopicQueueNums": "3"}
    save(broker.machine)
    restarted = Machine(tmp_path)
    assert restarted.restore() is None
    file_config = BrokerConfig(max_message_size=2000)
    restarted_config = file_config.with_settings(restarted.settings)
    assert restarted_config.default_topic_queue_nums == 3
    assert restarted_config.max_message_size == 2000


async def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    """GET_BROKER_CONFIG hides the secret: a reader of the config can't join the group."""
    secret = "-".join(("open", "sesame"))
    async with served(tmp_path, config=BrokerConfig(d_leger_secret=secret)) as (_, peer):
        shown = bytes((await ask(peer, RequestCode.GET_BROKER_CONFIG)).payload)
        assert b"dLegerSecret=******\n" in shown
        assert secret.encode() not in shown


async def test_a_deleted_group_keeps_its_offsets_unless_they_are_to_go(
    broker: MemoryBroker, peer: Peer
) -> None:
    """Code 207 keeps a deleted group's offsets unless they shall go, in both versions' words."""
    await peer.request(produce_request("a"), 5)
    for flag, kept in (
        ({}, 1),
        ({"removeOffset": "true"}, None),
        ({"cleanOffset": True}, None),
    ):
        await ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"C"}')
        await commit(peer, 1)
        done = await ask(peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="C", **flag)
        assert (done.code, broker.machine.groups.get("C")) == (Code.SUCCESS, None)
        assert broker.machine.offsets.get("C", "Orders", 0) == kept


async def test_traffic_is_counted_by_topic_and_group(peer: Peer) -> None:
    """Code 315 has what mqadmin statsAll asks for; 208 says how far a group has pulled."""
    await peer.request(produce_request("a"), 5)
    await peer.request(produce_request("a"), 5)  # a retry: known, and not stored again
    await peer.request(pull_request(), 5)

    async def total(name: str, key: str) -> int:
        answer = await ask(peer, RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        return decode_body(BrokerStatsData, answer.payload).stats_day.sum

    assert await total("TOPIC_PUT_NUMS", "Orders") == 3
    assert await total("GROUP_GET_NUMS", "Orders@C") == 2
    assert await total("BROKER_PUT_NUMS", "DefaultCluster") == 3
    assert await total("GROUP_GET_SIZE", "Orders@C") > 2 * 91
    unknown = await ask(
        peer, RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="None"
    )
    assert unknown.code == Code.SYSTEM_ERROR
    progress = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup="C")
    assert decode_body(ConsumeStats, progress.payload).offset_table == {}


async def test_every_replica_says_how_full_and_how_old_it_is(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A follower's runtime info tells its disk's use and the age of its oldest message."""

    async def figures() -> dict[str, str]:
        answer = await ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO)
        return decode_body(KVTable, answer.payload).table

    assert (await figures())["earliestMessageTimeStamp"] == "-1"
    await peer.request(produce_request("a"), 5)
    broker.ledger.follow("n1")
    table = await figures()
    stored_ms = int(broker.machine.queues.get("Orders", 0).read(0, 1)["store_timestamp_ms"][0])
    assert int(table["earliestMessageTimeStamp"]) == stored_ms
    assert 0 < float(table["commitLogDiskRatio"]) <= 1
    assert (table["sendThreadPoolQueueSize"], table["brokerRole"]) == ("0", "SLAVE")
    for code in (RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE):
        assert (await ask(peer, code)).code == Code.SUCCESS
    refused = await ask(peer, RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=9\n")
    assert refused.code == Code.SERVICE_NOT_AVAILABLE


async def test_what_is_not_applied_yet_is_behind(tmp_path: Path) -> None:
    """dispatchBehindBytes shows monitors a replica that replays."""
    async with served(tmp_path, auto=False) as (broker, peer), trio.open_nursery() as nursery:

        async def behind_bytes() -> int:
            answer = await ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO)
            return int(decode_body(KVTable, answer.payload).table["dispatchBehindBytes"])

        broker.ledger.commit()
        assert await behind_bytes() == 0
        nursery.start_soon(peer.request, produce_request("a", content=bytes(1000)), 5)
        await until(lambda: bool(broker.ledger.uncommitted))
        assert 3000 < await behind_bytes() < 4000
        broker.ledger.commit()
        assert await behind_bytes() == 0
