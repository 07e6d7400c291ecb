"""A name server on a real socket: its answers to brokers, clients and tools."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from dledger.net import Peer, connect_peer, turns
from dledger.remoting.bodies import (
    BrokerMemberGroupBody,
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicRouteData,
    decode_body,
    encode_body,
)
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.framing import FrameDecoder
from mqnamesrv.app import serve
from mqnamesrv.config import NamesrvConfig

N0, N1 = "127.0.0.1:10911", "127.0.0.1:10921"


@asynccontextmanager
async def name_server(config: NamesrvConfig | None = None) -> AsyncIterator[int]:
    """A name server on a free port, for the length of a block."""
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, config or NamesrvConfig(listen_port=0))
        yield port
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client() -> AsyncIterator[Peer]:
    async with name_server() as port, connect_peer("127.0.0.1", port) as peer:
        yield peer


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with client() as found:
        yield found


async def ask(peer: Peer, code: int, body: bytes = b"", **ext: ExtValue) -> Command:
    return await peer.request(Command(code, ext, body), 2.0)


async def register(
    peer: Peer,
    address: str = N0,
    broker_id: int = 0,
    topics: int = 2,
    configs: dict[str, TopicConfig] | None = None,
    **ext: ExtValue,
) -> Command:
    names = ["TopicA", "TopicB", "TopicC"][:topics]
    configs = configs or {
        n: TopicConfig(topic_name=n, read_queue_nums=4, write_queue_nums=4) for n in names
    }
    wrapper = TopicConfigWrapper(
        topic_config_table=configs, data_version=DataVersion(counter=topics)
    )
    header: dict[str, ExtValue] = {
        "brokerName": "broker-a",
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "haServerAddr": address,
        "brokerId": broker_id,
        "term": 1,
        "heartbeatTimeoutMillis": 3000,
    }
    body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
    return await peer.request(Command(RequestCode.REGISTER_BROKER, header | ext, body), 2.0)


async def route(peer: Peer, topic: str = "TopicA") -> TopicRouteData | None:
    answer = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS
    return decode_body(TopicRouteData, answer.payload)


async def test_clients_get_the_route_that_brokers_registered(peer: Peer) -> None:
    """Clients get the route of registered brokers; before, and for unknown topics, code 17."""
    assert await route(peer) is None
    assert (await register(peer)).code == ResponseCode.SUCCESS
    await register(peer, N1, 2)
    found = await route(peer)
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: N0, 2: N1}
    assert [queue.write_queue_nums for queue in found.queue_datas] == [4]
    assert await route(peer, "TopicC") is None


async def test_followers_are_told_their_leader_and_brokers_the_order_config(peer: Peer) -> None:
    """The answer to a registration carries the leader's address and ORDER_TOPIC_CONFIG."""
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:4"}
    await ask(peer, RequestCode.PUT_KV_CONFIG, **put)
    await register(peer)
    answer = await register(peer, N1, 2)
    told = {"masterAddr": N0, "haServerAddr": N0, "takesChanges": True, "wiped": False}
    assert answer.ext == told
    assert decode_body(KVTable, answer.payload).table == {"TopicA": "broker-a:4"}
    found = await route(peer)
    assert found is not None
    assert found.order_topic_conf == "broker-a:4"


@pytest.mark.parametrize(
    ("version", "ext", "quoted"),
    [
        (400, {}, False),
        (401, {}, True),
        (0, {"acceptStandardJsonOnly": "true"}, True),
        (0, {"acceptStandardJsonOnly": "false"}, False),
    ],
)
async def test_the_route_is_standard_json_for_those_who_read_it(
    peer: Peer, version: int, ext: dict[str, ExtValue], quoted: bool
) -> None:
    """Numeric keys are quoted from client version 401 on or on demand; older ones get them bare."""
    await register(peer)
    request = Command(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "TopicA", **ext},
        version=version,
        encoding=HeaderEncoding.JSON,
    )
    body = bytes((await peer.request(request, 2.0)).payload)
    assert (b'"brokerAddrs":{"0":' in body) is quoted
    assert (b'"brokerAddrs":{0:' in body) is not quoted


async def test_cluster_info_and_topic_lists_are_what_the_tools_expect(peer: Peer) -> None:
    """Codes 106, 206, 224 and 304 are answered as tools expect."""
    await register(peer)
    answer = await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b'"brokerAddrs":{0:' in bytes(answer.payload)
    info = decode_body(ClusterInfo, answer.payload)
    assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}

    async def listed(code: int, **ext: ExtValue) -> TopicList:
        return decode_body(TopicList, (await ask(peer, code, **ext)).payload)

    everything = await listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert everything.topic_list == ["TopicA", "TopicB"]
    by_cluster = RequestCode.GET_TOPICS_BY_CLUSTER
    assert (await listed(by_cluster, cluster="DefaultCluster")) == everything
    assert (await listed(by_cluster, cluster="Other")).topic_list == []
    system = await listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert (system.topic_list, system.broker_addr) == (["DefaultCluster", "broker-a"], N0)


async def test_a_deleted_topic_has_no_route(peer: Peer) -> None:
    """A topic is deleted from all groups, or from those of one cluster."""
    await register(peer)
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    await ask(peer, delete, topic="TopicA", clusterName="Other")
    assert await route(peer) is not None
    await ask(peer, delete, topic="TopicA", clusterName="DefaultCluster")
    assert await route(peer) is None
    await ask(peer, delete, topic="TopicB")
    assert await route(peer, "TopicB") is None


async def test_write_permission_is_taken_and_given_by_broker_name(peer: Peer) -> None:
    """Codes 205 and 327 take and give write permission, and count the topics."""
    await register(peer)
    answer = await ask(peer, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert answer.ext == {"wipeTopicCount": 2}
    found = await route(peer)
    assert found is not None
    assert found.queue_datas[0].perm == 4
    answer = await ask(peer, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert answer.ext == {"addTopicCount": 2}


async def test_a_group_that_nobody_knows_is_not_wiped() -> None:
    """A typing error would be kept for ever. One that is away can be wiped: its keys move then."""
    wipe = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    async with name_server() as port, connect_peer("127.0.0.1", port) as peer:
        async with connect_peer("127.0.0.1", port) as broker:
            await register(broker)
            refused = await ask(peer, wipe, brokerName="broker-x")
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "no broker group 'broker-x' is known here" in (refused.remark or "")
            namespace: dict[str, ExtValue] = {"namespace": "WIPED_BROKERS"}
            listed = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, **namespace)
            assert listed.code == ResponseCode.QUERY_NOT_FOUND
        for _ in range(6000):
            if await route(peer) is None:
                break
            await trio.sleep(0.01)
        answer = await ask(peer, wipe, brokerName="broker-a")
        assert answer.ext == {"wipeTopicCount": 2}


async def test_key_value_config_is_kept_over_a_restart(tmp_path: Path) -> None:
    """Key-value config is put, got, listed and deleted over a restart; code 22 if missing."""
    config = NamesrvConfig(listen_port=0, kv_config_path=str(tmp_path / "kvConfig.json"))
    where: dict[str, ExtValue] = {"namespace": "n", "key": "k"}
    async with name_server(config) as port, connect_peer("127.0.0.1", port) as peer:
        assert (await ask(peer, RequestCode.PUT_KV_CONFIG, **where, value="v")).code == 0
    async with name_server(config) as port, connect_peer("127.0.0.1", port) as peer:
        assert (await ask(peer, RequestCode.GET_KV_CONFIG, **where)).ext == {"value": "v"}
        answer = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
        assert decode_body(KVTable, answer.payload).table == {"k": "v"}
        assert (await ask(peer, RequestCode.DELETE_KV_CONFIG, **where)).code == 0
        assert (await ask(peer, RequestCode.GET_KV_CONFIG, **where)).code == 22
        answer = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
        assert answer.code == 22


async def test_a_leader_of_an_older_term_is_answered_with_the_reason(peer: Peer) -> None:
    """Code 1 and a remark that names both terms; the route stays."""
    await register(peer, N1, term=2)
    answer = await register(peer, N0, term=1)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"{N0} comes with term 1 for broker-a, but {N1} leads in term 2"
    found = await route(peer)
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: N1}


async def test_a_closed_connection_removes_its_broker_at_once() -> None:
    """A closed connection removes its broker at once, without a timeout."""
    async with name_server() as port, connect_peer("127.0.0.1", port) as observer:
        async with connect_peer("127.0.0.1", port) as broker:
            await register(broker)
            assert await route(observer) is not None
        with trio.fail_after(10):
            while await route(observer) is not None:
                await trio.lowlevel.checkpoint()


async def test_unregistering_and_heartbeats(peer: Peer) -> None:
    """A heartbeat of a broker that is not registered is told so: code 211."""
    who: dict[str, ExtValue] = {
        "brokerName": "broker-a",
        "brokerAddr": N0,
        "clusterName": "DefaultCluster",
        "brokerId": 0,
    }
    await register(peer)
    beat = RequestCode.BROKER_HEARTBEAT
    assert (await ask(peer, beat, **who, epoch=1)).code == ResponseCode.SUCCESS
    assert (await ask(peer, beat, **who, epoch=0)).code == ResponseCode.SYSTEM_ERROR
    assert (await ask(peer, RequestCode.UNREGISTER_BROKER, **who)).code == 0
    assert (await ask(peer, beat, **who, epoch=1)).code == ResponseCode.BROKER_NOT_EXIST
    assert await route(peer) is None


async def test_a_broker_can_ask_whether_its_topics_are_known(peer: Peer) -> None:
    """Code 322 says that a broker's topics have changed, or has the stored version."""
    who: dict[str, ExtValue] = {
        "brokerName": "broker-a",
        "brokerAddr": N0,
        "clusterName": "DefaultCluster",
        "brokerId": 0,
    }
    query = RequestCode.QUERY_DATA_VERSION
    version = encode_body(DataVersion(counter=2))
    assert (await ask(peer, query, version, **who)).ext == {"changed": True}
    await register(peer)
    answer = await ask(peer, query, version, **who)
    assert answer.ext == {"changed": False}
    assert decode_body(DataVersion, answer.payload) == DataVersion(counter=2)
    answer = await ask(peer, query, encode_body(DataVersion(counter=3)), **who)
    assert answer.ext == {"changed": True}


async def test_a_damaged_registration_is_refused(peer: Peer) -> None:
    """A wrong checksum or a malformed body changes nothing; the connection lives on."""
    wrong = zlib.crc32(b"something else") & 0x7FFFFFFF
    answer = await register(peer, bodyCrc32=wrong)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "bodyCrc32" in (answer.remark or "")
    assert (await register(peer, compressed=True)).code == ResponseCode.SYSTEM_ERROR
    answer = await ask(peer, RequestCode.REGISTER_BROKER, brokerName="broker-a")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "brokerAddr" in (answer.remark or "")
    assert await route(peer) is None


async def test_the_running_config_can_be_read_and_partly_changed(peer: Peer) -> None:
    """Codes 318 and 319: one key may change, others need a restart, unknown ones are named."""
    text = bytes((await ask(peer, RequestCode.GET_NAMESRV_CONFIG)).payload).decode()
    assert "returnOrderTopicConfigToBroker=true\n" in text
    update = RequestCode.UPDATE_NAMESRV_CONFIG
    answer = await ask(peer, update, b"returnOrderTopicConfigToBroker=false\n")
    assert answer.code == ResponseCode.SUCCESS
    assert (await register(peer)).payload == b""
    answer = await ask(peer, update, b"kvConfigPath=/etc/passwd")
    assert answer.code == ResponseCode.NO_PERMISSION
    for text in ("noSuchKey=1", "returnOrderTopicConfigToBroker=maybe", "no equals sign"):
        answer = await ask(peer, update, text.encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert text.partition("=")[0] in (answer.remark or "")


async def test_unknown_codes_are_answered_and_one_way_requests_are_not(peer: Peer) -> None:
    """An unknown code is answered with code 3, and a one-way request not at all."""
    answer = await ask(peer, 12345)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    peer.send_oneway(Command(RequestCode.BROKER_HEARTBEAT, {}))
    peer.send_oneway(Command(12345, {}))
    assert await route(peer) is None


@pytest.mark.parametrize("encoding", list(HeaderEncoding))
async def test_every_header_encoding_is_served(peer: Peer, encoding: HeaderEncoding) -> None:
    """An answer has the encoding of its request, also where all values are strings."""
    await register(peer)
    ext: dict[str, ExtValue] = {"topic": "TopicA", "unknownField": "ignored"}
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, encoding=encoding)
    answer = await peer.request(request, 2.0)
    assert (answer.code, answer.encoding) == (0, encoding)
    assert json.loads(bytes(answer.payload))["queueDatas"][0]["brokerName"] == "broker-a"


async def test_silent_brokers_leave_and_their_connection_is_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A silent broker leaves after the timeout that it has named; others stay."""
    async with name_server() as port, connect_peer("127.0.0.1", port) as talking:
        async with connect_peer("127.0.0.1", port) as silent:
            await register(silent, N1, 2)
            await register(talking)
            for _ in range(5):
                await trio.sleep(1)
                await ask(
                    talking,
                    RequestCode.BROKER_HEARTBEAT,
                    brokerName="broker-a",
                    brokerAddr=N0,
                    clusterName="DefaultCluster",
                    epoch=1,
                )
            await silent.wait_closed()
        found = await route(talking)
        assert found is not None
        assert found.broker_datas[0].broker_addrs == {0: N0}


async def test_topics_of_units_are_listed_by_their_flags() -> None:
    """Topics are listed by their flags: of a unit, subscribed by one, and only subscribed."""
    configs = {
        name: TopicConfig(topic_name=name, topic_sys_flag=flags)
        for name, flags in {"None": 0, "Unit": 1, "Subscribed": 2, "Both": 3}.items()
    }
    async with client() as peer:
        await register(peer, configs=configs)
        lists = [
            decode_body(TopicList, (await ask(peer, code)).payload).topic_list
            for code in (
                RequestCode.GET_UNIT_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            )
        ]
    assert lists == [["Both", "Unit"], ["Both", "Subscribed"], ["Subscribed"]]


async def test_the_members_of_a_group_are_told_and_topics_come_from_brokers_only(
    peer: Peer,
) -> None:
    """A group's members are told to stock brokers and tools; an unknown group has none."""
    await register(peer)
    await register(peer, N1, 1)
    found = []
    for cluster, name in [
        ("DefaultCluster", "broker-a"),
        ("Other", "broker-a"),
        ("Other", "b"),
    ]:
        code = RequestCode.GET_BROKER_MEMBER_GROUP
        answer = await ask(peer, code, clusterName=cluster, brokerName=name)
        found.append(decode_body(BrokerMemberGroupBody, answer.payload).broker_member_group)
    assert [group.broker_addrs for group in found] == [{0: N0, 1: N1}, {}, {}]
    refused = await ask(peer, RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="T")
    assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "mqadmin updateTopic" in (refused.remark or "")


async def test_brokers_register_whatever_an_earlier_version_keeps_for_them(tmp_path: Path) -> None:
    """ORDER_TOPIC_CONFIG of 18 MB, in the file: registrations are answered without it, the list is
    refused with the reason, single keys are answered, and it can be made less."""
    path = tmp_path / "kv.json"
    entries = {f"T{number}": "x" * 60_000 for number in range(300)}
    path.write_text(json.dumps({"configTable": {"ORDER_TOPIC_CONFIG": entries}}))
    config = NamesrvConfig(listen_port=0, kv_config_path=str(path))
    ns = {"namespace": "ORDER_TOPIC_CONFIG"}
    async with name_server(config) as port, connect_peer("127.0.0.1", port) as peer:
        answer = await register(peer)
        assert answer.code == ResponseCode.SUCCESS
        assert decode_body(KVTable, answer.payload).table == {}
        listed = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, **ns)
        assert listed.code == ResponseCode.SYSTEM_ERROR
        assert "ask for less at a time" in (listed.remark or "")
        got = await ask(peer, RequestCode.GET_KV_CONFIG, **ns, key="T7")
        assert got.ext["value"] == entries["T7"]
        gone = await ask(peer, RequestCode.DELETE_KV_CONFIG, **ns, key="T7")
        assert gone.code == ResponseCode.SUCCESS
        more = await ask(peer, RequestCode.PUT_KV_CONFIG, **ns, key="T7", value="x")
        assert more.code == ResponseCode.SYSTEM_ERROR
        assert (await register(peer, broker_id=0)).code == ResponseCode.SUCCESS


async def test_what_brokers_get_follows_each_change(peer: Peer) -> None:
    """Registered brokers get the key-value config as it is after each change."""
    ns: dict[str, ExtValue] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA"}
    for value in ("broker-a:4", "broker-a:8"):
        await ask(peer, RequestCode.PUT_KV_CONFIG, **ns, value=value)
        for _ in range(2):
            table = decode_body(KVTable, (await register(peer)).payload).table
            assert table == {"TopicA": value}
    await ask(peer, RequestCode.DELETE_KV_CONFIG, **ns)
    assert decode_body(KVTable, (await register(peer)).payload).table == {}


async def test_our_clients_are_told_that_a_name_server_has_just_begun(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Our clients are told how long groups may still register, and stock ones are not.

    That ends early once all known groups have a leader.
    """
    groups = ("broker-a", "broker-b")

    async def settles_in_ms(peer: Peer) -> int | None:
        found = await route(peer)
        return None if found is None else found.settles_in_ms

    async with name_server() as port, connect_peer("127.0.0.1", port) as peer:
        await register(peer)
        left_ms = await settles_in_ms(peer)
        assert left_ms is not None
        assert 0 < left_ms <= 3000
        code, encoding = RequestCode.GET_ROUTEINFO_BY_TOPIC, HeaderEncoding.JSON
        plain = await peer.request(Command(code, {"topic": "TopicA"}, encoding=encoding), 2.0)
        assert b"settles" not in bytes(plain.payload)
        await trio.sleep(3)
        assert await settles_in_ms(peer) is None
    async with trio.open_nursery() as nursery:
        serving = partial(serve, NamesrvConfig(listen_port=0), groups=groups)
        port = await nursery.start(serving)
        async with connect_peer("127.0.0.1", port) as peer:
            await register(peer)
            assert await settles_in_ms(peer)
            await register(peer, N1, brokerName="broker-b")
            assert await settles_in_ms(peer) is None
        nursery.cancel_scope.cancel()


async def test_what_a_broker_says_after_a_long_registration_does_not_overtake_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker's later requests are handled after its long registration, which takes many turns."""
    monkeypatch.setattr(turns, "LOOP_SLICE_S", 0.0)
    configs = {f"T{number}": TopicConfig(f"T{number}") for number in range(300)}
    wrapper = TopicConfigWrapper(configs, DataVersion(1, 0, 1))
    ext: dict[str, ExtValue] = {"clusterName": "c", "brokerName": "b", "brokerAddr": N0}
    ext |= {"brokerId": 0, "haServerAddr": "", "term": 1}
    known = {**ext, "epoch": 1}
    asked = (
        Command(
            RequestCode.REGISTER_BROKER, ext, encode_body(RegisterBrokerBody(wrapper)), opaque=1
        ),
        Command(RequestCode.BROKER_HEARTBEAT, known, b"", opaque=2),
        Command(RequestCode.UNREGISTER_BROKER, ext, b"", opaque=3),
        Command(RequestCode.BROKER_HEARTBEAT, known, b"", opaque=4),
        Command(RequestCode.GET_BROKER_CLUSTER_INFO, {}, b"", opaque=5),
    )
    answers, decoder = list[tuple[int, int]](), FrameDecoder()
    async with name_server() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(
            b"".join(bytes(part) for each in asked for part in encode_frame(each))
        )
        while len(answers) < len(asked):
            data = await stream.receive_some()
            assert data
            decoder.feed(data)
            answers += [(answer.opaque, answer.code) for answer in decoder.frames()]
    answers.remove((5, ResponseCode.SUCCESS))
    assert answers == [(1, 0), (2, 0), (3, 0), (4, ResponseCode.BROKER_NOT_EXIST)]
