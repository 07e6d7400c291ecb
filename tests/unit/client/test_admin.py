"""Admin without brokers: the answers that it reads, and its errors if no server is there.

A real name server answers; `tests/integration/client/test_mqadmin_commands.py` has the brokers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from answers import group_info

from dledger.errors import BadInput, ConnectFailed
from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    BrokerData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    encode_body,
)
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import RegisterBrokerHeader, encode_header
from dledger.remoting.names import topic_kind
from mqclient.admin import Admin, UnknownTarget
from mqclient.admin.brokers import state_of
from mqclient.admin.results import BrokerState, TopicInfo
from mqclient.admin.session import run_for_each
from mqclient.errors import NoLeader, NoRoute
from mqnamesrv.app import serve
from mqnamesrv.config import NamesrvConfig

GROUP = BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911"})
#: Nobody listens on port 1.
DEAD = "127.0.0.1:1"


@asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, NamesrvConfig(listen_port=0))
        yield f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def register(peer: Peer, broker_name: str, cluster: str, address: str) -> None:
    """Register a leader that nobody can connect to, with one topic."""
    header = RegisterBrokerHeader(
        broker_name=broker_name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address,
        broker_id=0,
        term=1,
    )
    topics = TopicConfigWrapper({f"Topic-{broker_name}": TopicConfig("Topic", 2, 3)})
    body = encode_body(RegisterBrokerBody(topics))
    command = Command(RequestCode.REGISTER_BROKER, encode_header(header), body)
    assert (await peer.request(command, 2.0)).code == 0


@asynccontextmanager
async def two_clusters() -> AsyncIterator[Admin]:
    """An administration of broker-a in cluster X and broker-b in cluster Y, both unreachable."""
    async with name_server() as address:
        host, _, port = address.partition(":")
        async with connect_peer(host, int(port)) as peer, Admin(address, timeout_s=1.0) as admin:
            await register(peer, "broker-a", "X", DEAD)
            await register(peer, "broker-b", "Y", "127.0.0.1:2")
            yield admin


async def test_without_brokers_every_call_says_what_to_start() -> None:
    """The name server answers, but knows nobody."""
    async with name_server() as address, Admin(address) as admin:
        assert await admin.topics.list() == ()
        with pytest.raises(UnknownTarget, match="start one .mqbroker"):
            await admin.brokers.list()
        with pytest.raises(NoRoute, match="mqadmin updateTopic -t T"):
            await admin.topics.route("T")


async def test_without_name_servers_every_call_says_which_were_asked() -> None:
    """An unreachable name server is passed over; if all are, the error names each."""
    async with name_server() as address, Admin(f"{DEAD};{address}") as admin:
        assert await admin.topics.list() == ()
    async with Admin(f"{DEAD};127.0.0.1:2") as admin:
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1 .*127\.0\.0\.1:2 .*mqnamesrv"):
            await admin.topics.list()


def test_addresses_are_checked_before_anything_is_sent() -> None:
    """An address is host:port, and is checked before anything is sent."""
    with pytest.raises(BadInput, match="host:port"):
        Admin("localhost")


async def test_routes_and_lists_come_from_the_name_server() -> None:
    """Lists have brokers that can't be reached; the cluster list shows them as unreachable."""
    async with two_clusters() as admin:
        (group,) = (await admin.topics.route("Topic-broker-a")).groups
        assert (group.cluster, group.read_queues, group.write_queues) == ("X", 2, 3)
        assert await admin.topics.list("Y") == (TopicInfo("Topic-broker-b", "user"),)
        assert await admin.brokers.list("X") == (
            BrokerState("X", "broker-a", 0, DEAD, "unreachable"),
        )


async def test_a_change_needs_one_cluster_and_says_which_there_are() -> None:
    """A topic is not created in a cluster that nobody chose."""
    async with two_clusters() as admin:
        with pytest.raises(UnknownTarget, match="clusters X, Y with -c"):
            await admin.topics.update("T")
        with pytest.raises(UnknownTarget, match="there are X/broker-a, Y/broker-b"):
            await admin.topics.update("T", cluster="Z")


async def test_a_group_without_a_leader_is_named_at_the_deadline() -> None:
    """A group without a leader is an error at the deadline that tells whom it asked."""
    async with two_clusters() as admin:
        for broker in ("broker-a", DEAD):
            with pytest.raises(NoLeader, match=rf"'broker-a' showed no leader .* asked {DEAD}"):
                await admin.topics.update("T", broker=broker)


async def test_one_failed_call_of_several_is_raised_as_it_is() -> None:
    """Results come in the order of the values, whichever call ends first; no ExceptionGroup."""

    async def slower_first(value: int) -> int:
        await trio.sleep(0.001 * (3 - value))
        if value < 0:
            raise ValueError(value)
        return 10 * value

    assert await run_for_each(slower_first, [0, 1, 2]) == (0, 10, 20)
    with pytest.raises(ValueError, match="-1"):
        await run_for_each(slower_first, [0, -1, 2])


def test_a_brokers_own_word_about_its_role_counts() -> None:
    """A stock broker has no such word: id 0 leads."""
    info = group_info(10, role="candidate", term=4, commit_index=9, applied_index=8)
    figures = {"brokerVersionDesc": "V4_9_8", "putTps": "1.5 2.5 3.5", "getTransferredTps": ""}
    state = state_of((GROUP, 0, "127.0.0.1:10911"), info, figures)
    assert (state.role, state.term, state.behind_entries) == ("candidate", 4, 2)
    assert (state.version, state.in_per_s, state.out_per_s) == ("V4_9_8", 1.5, None)
    assert state_of((GROUP, 0, DEAD), None, {}).role == "leader"
    assert state_of((GROUP, 1, DEAD), None, {}).role == "follower"


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", "user"),
        ("%RETRY%G", "retry"),
        ("%DLQ%G", "dead-letter"),
        ("TBW102", "system"),
        ("RMQ_SYS_TRACE_TOPIC", "system"),
        ("rmq_sys_wheel_timer", "system"),
        ("c_REPLY_TOPIC", "system"),
        ("broker-a", "system"),
        ("broker-ab", "user"),
        ("%RETRY%TOOLS_CONSUMER", "system"),
    ],
)
def test_topics_are_told_apart_by_their_names(topic: str, kind: str) -> None:
    """RocketMQ's own names and prefixes, and the names of clusters and broker groups."""
    assert topic_kind(topic, {"c", "broker-a"}) == kind
