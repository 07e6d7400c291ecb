"""Packets of any content to a name server, which goes on answering and meets no fault."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replicas import Stranger
from strategies import documents, encoded, exts, seldom
from trio.testing import MockClock

from dledger.net import Connection, Faults
from dledger.net.link import Link
from dledger.net.quota import ConnectionQuota
from dledger.remoting import headers as H  # noqa: N812 -- a table of them follows
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.headers import Header
from dledger.testing.logs import capture_logs
from dledger.trust.proof import NONCE_BYTES
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.requests.dispatch import Dispatcher
from mqnamesrv.saved.kv_file import KvStore

Code = RequestCode
CONFIG = NamesrvConfig()
TOPIC_TABLE = {
    "Orders": {"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
}
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1}
REGISTRATION = {
    "topicConfigSerializeWrapper": {"topicConfigTable": TOPIC_TABLE, "dataVersion": VERSION},
    "filterServerList": [],
}
REQUESTS: dict[int, tuple[type[Header] | None, st.SearchStrategy[bytes]]] = {
    Code.SIGN_ON: (None, st.just(b"")),
    Code.REGISTER_USERS: (H.RegisterUsersHeader, st.binary(max_size=64)),
    Code.PUT_KV_CONFIG: (H.PutKvConfigHeader, st.just(b"")),
    Code.GET_KV_CONFIG: (H.GetKvConfigHeader, st.just(b"")),
    Code.DELETE_KV_CONFIG: (H.DeleteKvConfigHeader, st.just(b"")),
    Code.GET_KVLIST_BY_NAMESPACE: (H.GetKvlistByNamespaceHeader, st.just(b"")),
    Code.REGISTER_BROKER: (H.RegisterBrokerHeader, documents(REGISTRATION)),
    Code.UNREGISTER_BROKER: (H.UnregisterBrokerHeader, st.just(b"")),
    Code.BROKER_HEARTBEAT: (H.BrokerHeartbeatHeader, st.just(b"")),
    Code.QUERY_DATA_VERSION: (H.QueryDataVersionHeader, documents(VERSION)),
    Code.GET_ROUTEINFO_BY_TOPIC: (H.GetRouteinfoByTopicHeader, st.just(b"")),
    Code.GET_BROKER_CLUSTER_INFO: (None, st.just(b"")),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (None, st.just(b"")),
    Code.GET_TOPICS_BY_CLUSTER: (H.GetTopicsByClusterHeader, st.just(b"")),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: (None, st.just(b"")),
    Code.GET_UNIT_TOPIC_LIST: (None, st.just(b"")),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: (None, st.just(b"")),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (None, st.just(b"")),
    Code.GET_BROKER_MEMBER_GROUP: (H.GetBrokerMemberGroupHeader, st.just(b"")),
    Code.DELETE_TOPIC_IN_NAMESRV: (H.DeleteTopicInNamesrvHeader, st.just(b"")),
    Code.WIPE_WRITE_PERM_OF_BROKER: (H.WipeWritePermOfBrokerHeader, st.just(b"")),
    Code.ADD_WRITE_PERM_OF_BROKER: (H.AddWritePermOfBrokerHeader, st.just(b"")),
    Code.UPDATE_NAMESRV_CONFIG: (None, st.sampled_from([b"x=1", b"listenPort=1", b"\xff", b"x"])),
    Code.GET_NAMESRV_CONFIG: (None, st.just(b"")),
    Code.LIST_AUDITED: (H.ListAuditedHeader, st.just(b"")),
    Code.VIEW_HISTORY: (H.ViewHistoryHeader, st.just(b"")),
    Code.PROVE: (H.ProveHeader, st.just(b"")),
}


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame to a name server."""
    code = draw(st.sampled_from([Code.REGISTER_BROKER] * 8 + sorted(REQUESTS)))
    header, bodies = REQUESTS[code]
    command = Command(
        code,
        draw(exts(header)),
        draw(bodies),
        opaque=draw(st.integers(1, 1000)),
        flag=draw(st.sampled_from([0, 0, 0, 2])),
        encoding=draw(st.sampled_from(HeaderEncoding)),
    )
    frame = bytearray(encoded(command))
    for place in draw(st.lists(st.integers(4, len(frame) - 1), max_size=1)):
        if draw(seldom):
            frame[place] = draw(st.integers(0, 255))
    return bytes(frame)


async def try_packets(packets: list[bytes], nursery: trio.Nursery) -> None:
    """Send each; an honest client asks for all that a name server tells of everybody."""
    faults, quota, ids = Faults(), ConnectionQuota(), itertools.count(1)
    dispatcher = Dispatcher(
        CONFIG, KvStore(None), trio.current_time, CONFIG.door(lambda: bytes(NONCE_BYTES))
    )

    def connect() -> Stranger:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection = Connection(next(ids), ("127.0.0.1", 1), Link(theirs), quota, 64, faults)
        nursery.start_soon(connection.serve, dispatcher)
        strangers.append(Stranger(ours, connection))
        return strangers[-1]

    strangers: list[Stranger] = []
    honest = connect()
    try:
        for packet in packets:
            if strangers[-1] is honest or strangers[-1].connection.closed:
                connect()
            await strangers[-1].write(packet)
            dispatcher.expire()
            for code in (
                *(Code.GET_BROKER_CLUSTER_INFO, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
                *(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_NAMESRV_CONFIG),
            ):
                await honest.do(Command(code, encoding=HeaderEncoding.JSON))
            route = await honest.ask(Command(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Orders"}))
            assert route.code in {0, 17}, route.remark
            assert faults.count == 0, faults.last
    finally:
        for stranger in strangers:
            stranger.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(frames(), min_size=5, max_size=5))
def test_no_packet_ends_a_name_server(packets: list[bytes]) -> None:
    """A packet neither ends a name server nor keeps it from answering others."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await try_packets(packets, nursery)
            nursery.cancel_scope.cancel()

    with capture_logs():
        trio.run(main, clock=MockClock())


async def test_every_code_that_a_name_server_serves_is_tried(tmp_path: Path) -> None:
    """A code that is added must be added to the generator."""
    dispatcher = Dispatcher(
        CONFIG, KvStore(None), trio.current_time, CONFIG.door(lambda: bytes(NONCE_BYTES))
    )
    assert set(dispatcher.table) == set(REQUESTS)
