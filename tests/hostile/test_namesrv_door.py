"""Strangers, brokers and tools at a name server, over real sockets.

A stranger takes no route, keeps none, and changes nothing; brokers that prove are believed.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.errors import ConfigError, ConnectFailed, ConnectionLost, DledgerError, RemotingError
from dledger.limits import NUMBER_MAX, TERM_JUMP_MAX
from dledger.net import Peer, connect_peer
from dledger.net.proving import Prover
from dledger.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicRouteData,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.testing.planted.catalogue import plant
from dledger.trust.admin import AdminAddresses
from dledger.trust.proof import NONCE_BYTES
from dledger.trust.signing import NAME_SERVER_ID, TAG_FIELD, Signing, name_server_door
from mqbroker.config import BrokerConfig
from mqnamesrv.app import serve
from mqnamesrv.config import NamesrvConfig

WORD = "-".join(("the", "word", "of", "this", "cluster"))
OTHER = "-".join(("the", "word", "of", "another", "one"))
N0, N1, STRANGER = "127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.1:666"
REFUSED = ResponseCode.NO_PERMISSION
BROKER_REQUESTS = (
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.BROKER_HEARTBEAT,
)


@asynccontextmanager
async def name_server(
    tmp_path: Path, word: str | None = WORD, **settings: object
) -> AsyncIterator[int]:
    """A name server on loopback, with a secret unless told otherwise; its port."""
    if word is not None:
        path = tmp_path / "cluster.secret"
        path.write_text(word)
        path.chmod(0o600)
        settings["secret_file"] = str(path)
    config = NamesrvConfig(listen_port=0, **settings)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve, config)
        nursery.cancel_scope.cancel()


class Broker:
    """Says what brokers say, signed if it has proven."""

    def __init__(self, peer: Peer, signing: Signing | None = None) -> None:
        self._peer = peer
        self._signing = signing

    async def ask(self, code: int, body: bytes = b"", **ext: ExtValue) -> Command:
        header: dict[str, ExtValue] = {
            "brokerName": "broker-a",
            "brokerAddr": N0,
            "clusterName": "DefaultCluster",
            "haServerAddr": N0,
            "brokerId": 0,
        }
        command = Command(code, {**header, **ext}, body)
        if self._signing is not None:
            command = self._signing.sign(command)
        return await self._peer.request(command, 5.0)

    async def register(self, address: str = N0, topic: str = "T", **ext: ExtValue) -> Command:
        topics = {
            name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4)
            for name in (topic, "TBW102")
        }
        wrapper = TopicConfigWrapper(topic_config_table=topics, data_version=DataVersion(counter=1))
        body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
        return await self.ask(
            RequestCode.REGISTER_BROKER, body, brokerAddr=address, **{"term": 1, **ext}
        )


@asynccontextmanager
async def member(port: int, word: str = WORD, **settings: object) -> AsyncIterator[Broker]:
    """A broker that has proven that it knows a word."""
    config = BrokerConfig(d_leger_secret=word, **settings)  # type: ignore[arg-type]
    async with connect_peer("127.0.0.1", port) as peer:
        own = config.broker_cluster_name, config.broker_name
        prover = Prover(config.d_leger_secret.encode(), *own, config.node_id)
        signing = await prover.prove(peer, name_server_door(*own), NAME_SERVER_ID, 5.0)
        yield Broker(peer, signing)


@asynccontextmanager
async def stranger(port: int) -> AsyncIterator[Broker]:
    async with connect_peer("127.0.0.1", port) as peer:
        yield Broker(peer)


async def leaders(port: int, topic: str = "T") -> list[str]:
    """Where clients are sent for a topic."""
    async with connect_peer("127.0.0.1", port) as peer:
        request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        answer = await peer.request(request, 5.0)
    if answer.code != ResponseCode.SUCCESS:
        return []
    route = decode_body(TopicRouteData, answer.payload)
    return [broker.broker_addrs[0] for broker in route.broker_datas if 0 in broker.broker_addrs]


# -- strangers and brokers ---------------------------------------------------------------------


@pytest.mark.parametrize("encoding", HeaderEncoding, ids=lambda encoding: encoding.name)
async def test_a_broker_that_has_proven_is_believed(
    tmp_path: Path, encoding: HeaderEncoding
) -> None:
    """A proven broker registers, beats, compares versions and leaves, with headers of any kind."""
    async with name_server(tmp_path) as port, member(port) as broker:
        original = Command.__init__

        def encoded(self: Command, *args: object, **named: object) -> None:
            original(self, *args, **{"encoding": encoding, **named})  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Command, "__init__", encoded)
            assert (await broker.register(compressed=False)).code == ResponseCode.SUCCESS
            assert await leaders(port) == [N0]
            for code in (RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION):
                version = encode_body(DataVersion(counter=1))
                assert (await broker.ask(code, version)).code == ResponseCode.SUCCESS
            assert (await broker.ask(RequestCode.UNREGISTER_BROKER)).code == ResponseCode.SUCCESS
            assert await leaders(port) == []


@pytest.mark.parametrize("term", [1, 2, 1 << 62, None])
async def test_a_strangers_registration_takes_no_route(tmp_path: Path, term: int | None) -> None:
    """A stranger's registration of term 2^62 is refused; once it kept the route for good."""
    async with name_server(tmp_path) as port, member(port) as broker:
        await broker.register(term=7)
        async with stranger(port) as other:
            answer = await other.register(STRANGER, **({} if term is None else {"term": term}))
            assert answer.code == REFUSED
            assert "secretFile" in str(answer.remark)
            assert await leaders(port) == [N0]
        assert (await broker.register(term=7)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", BROKER_REQUESTS, ids=lambda code: code.name)
async def test_nothing_that_brokers_say_is_done_for_a_stranger(
    tmp_path: Path, code: RequestCode
) -> None:
    """A broker's codes are refused to a stranger, with a false tag or without one."""
    async with name_server(tmp_path) as port, member(port) as broker:
        await broker.register()
        for ext in ({}, {TAG_FIELD: "00" * 16}, {TAG_FIELD: 7}, {TAG_FIELD: "no hex"}):
            async with stranger(port) as other:
                assert (await other.ask(code, **ext)).code == REFUSED  # type: ignore[arg-type]
        assert await leaders(port) == [N0]


async def test_a_broker_with_another_secret_is_told_so(tmp_path: Path) -> None:
    """A broker with a wrong secret is refused, and does not register unsigned instead."""
    async with name_server(tmp_path) as port:
        with pytest.raises(ConnectFailed, match="the name server refused this end's proof"):
            async with member(port, OTHER):
                pass


async def test_a_server_that_does_not_know_the_secret_is_no_name_server_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes any proof can't make its own."""
    async with name_server(tmp_path, OTHER) as port:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("dledger.trust.proof._right_ones", _only_the_brokers)
            with pytest.raises(ConnectFailed, match="does not know the cluster's secret"):
                async with member(port):
                    pass


def _only_the_brokers(proof: object, right: Iterable[bytes], node_id: str) -> list[bytes]:
    """A name server that lets everybody in; the broker's own check is as it was."""
    from dledger.errors import FrameError  # noqa: PLC0415 - next to what it stands for

    known = list(right)
    if node_id == "name server" and proof != b"".join(known):
        raise FrameError("it does not know the secret")
    return known


async def test_a_broker_with_a_secret_registers_where_there_is_none(tmp_path: Path) -> None:
    """A broker signs nothing where the name server knows no proofs, as RocketMQ's don't."""
    async with name_server(tmp_path, None) as port, member(port) as broker:
        assert (await broker.register()).code == ResponseCode.SUCCESS
        assert await leaders(port) == [N0]


async def test_a_signed_request_counts_once_and_in_its_place(tmp_path: Path) -> None:
    """A signed request that is repeated ends its connection, the same one or another.

    With the bug a wire could register a broker again that has said goodbye.
    """

    async def is_taken_twice(where: str) -> bool:
        async with name_server(tmp_path) as port, member(port) as broker:
            peer, signing = broker._peer, broker._signing
            assert signing is not None
            wish = {
                "brokerName": "broker-a",
                "brokerAddr": N0,
                "clusterName": "DefaultCluster",
                "brokerId": 0,
            }
            request = signing.sign(Command(RequestCode.UNREGISTER_BROKER, wish))
            assert (await peer.request(request, 5.0)).code == ResponseCode.SUCCESS
            try:
                if where == "here":
                    return (await peer.request(request, 5.0)).code == ResponseCode.SUCCESS
                async with member(port) as other:
                    return (await other._peer.request(request, 5.0)).code == ResponseCode.SUCCESS
            except ConnectionLost:
                return False

    assert not await is_taken_twice("here")
    assert not await is_taken_twice("elsewhere")
    with plant("count no frames"):
        assert await is_taken_twice("here")
        assert not await is_taken_twice("elsewhere")


@pytest.mark.parametrize(
    "change", [{"brokerAddr": STRANGER}, {"term": 99}, {"brokerId": "1"}, {"extra": "x"}], ids=str
)
async def test_a_signed_request_that_was_changed_is_not_taken(
    tmp_path: Path, change: dict[str, ExtValue]
) -> None:
    """A signed request with a field more, or another value, ends its connection."""
    async with name_server(tmp_path) as port, member(port) as broker:
        assert broker._signing is not None
        header: dict[str, ExtValue] = {
            "brokerName": "broker-a",
            "brokerAddr": N0,
            "clusterName": "DefaultCluster",
            "brokerId": 0,
        }
        request = broker._signing.sign(Command(RequestCode.BROKER_HEARTBEAT, header))
        request.ext = {**request.ext, **change}
        try:
            answer = await broker._peer.request(request, 5.0)
        except ConnectionLost:
            return
        assert answer.code == REFUSED
        await broker._peer.wait_closed()


async def test_a_connection_speaks_for_the_broker_name_that_it_has_proven(tmp_path: Path) -> None:
    """A proven connection may register no other group and no other cluster."""
    async with name_server(tmp_path) as port, member(port, broker_name="broker-b") as broker:
        assert (await broker.register()).code == REFUSED
        assert (await broker.register(brokerName="broker-b")).code == ResponseCode.SUCCESS
    async with (
        name_server(tmp_path) as port,
        member(port, broker_cluster_name="Other") as broker,
    ):
        assert (await broker.register()).code == REFUSED


# -- brokers that don't sign -------------------------------------------------------------------


async def test_unsigned_brokers_come_in_by_a_setting_and_show_no_term(tmp_path: Path) -> None:
    """The last of two unsigned brokers leads, as in RocketMQ, whatever terms they send."""
    async with (
        name_server(tmp_path, allow_unsigned_brokers=True) as port,
        stranger(port) as first,
        stranger(port) as second,
    ):
        assert (await first.register(N0, term=1 << 62)).code == ResponseCode.SUCCESS
        assert (await second.register(N1, term=1)).code == ResponseCode.SUCCESS
        assert await leaders(port) == [N1]
        version = encode_body(DataVersion(counter=1))
        for code in (
            RequestCode.BROKER_HEARTBEAT,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.UNREGISTER_BROKER,
        ):
            answer = await second.ask(code, version, brokerAddr=N1)
            assert answer.code == ResponseCode.SUCCESS
        assert await leaders(port) == []


async def test_an_unsigned_broker_does_not_touch_a_group_that_signs(tmp_path: Path) -> None:
    """An unsigned broker can't take, leave or refresh a place in a group that signs."""
    async with (
        name_server(tmp_path, allow_unsigned_brokers=True) as port,
        member(port) as broker,
        stranger(port) as other,
    ):
        await broker.register()
        for ext in ({"term": 1 << 62}, {"brokerId": 1}, {"clusterName": "Other"}):
            answer = await other.register(STRANGER, **ext)  # type: ignore[arg-type]
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "have proven" in str(answer.remark)
        for code in (RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT):
            assert (await other.ask(code)).code == ResponseCode.SYSTEM_ERROR
        assert await leaders(port) == [N0]


async def test_the_first_broker_that_signs_ends_what_others_made_of_its_name(
    tmp_path: Path,
) -> None:
    """A stranger's topics under a broker name end when the first broker signs for it."""
    async with (
        name_server(tmp_path, allow_unsigned_brokers=True) as port,
        stranger(port) as other,
        member(port) as broker,
    ):
        await other.register(STRANGER, topic="Trap", clusterName="Other", term=1 << 62)
        assert await leaders(port, "Trap") == [STRANGER]
        assert (await broker.register()).code == ResponseCode.SUCCESS
        assert await leaders(port) == [N0]
        assert await leaders(port, "Trap") == []


# -- without a secret --------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
async def test_a_name_server_that_others_reach_does_not_start_without_a_secret(host: str) -> None:
    """A name server beyond loopback needs a secret, or the setting for unsigned brokers."""
    with pytest.raises(ConfigError, match="there is no secret: .*secretFile"):
        NamesrvConfig(bind_address=host).door(lambda: bytes(NONCE_BYTES))
    NamesrvConfig(bind_address=host, allow_unsigned_brokers=True).door(lambda: bytes(NONCE_BYTES))


@pytest.mark.parametrize("term", [-1, 7 + TERM_JUMP_MAX + 1, 1 << 62, NUMBER_MAX + 1, 1 << 70])
async def test_terms_are_bounded_without_a_secret_too(tmp_path: Path, term: int) -> None:
    """A term that no elections explain is refused, also on loopback without a secret."""
    async with name_server(tmp_path, None) as port, stranger(port) as broker:
        await broker.register(term=7)
        async with stranger(port) as other:
            answer = await other.register(STRANGER, term=str(term))
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await leaders(port) == [N0]


# -- tools -------------------------------------------------------------------------------------

CHANGES: dict[RequestCode, dict[str, ExtValue]] = {
    RequestCode.PUT_KV_CONFIG: {"namespace": "n", "key": "k", "value": "v"},
    RequestCode.DELETE_KV_CONFIG: {"namespace": "n", "key": "k"},
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: {"brokerName": "broker-a"},
    RequestCode.ADD_WRITE_PERM_OF_BROKER: {"brokerName": "broker-a"},
    RequestCode.DELETE_TOPIC_IN_NAMESRV: {"topic": "T"},
    RequestCode.UPDATE_NAMESRV_CONFIG: {},
}
READS: dict[RequestCode, dict[str, ExtValue]] = {
    RequestCode.GET_BROKER_CLUSTER_INFO: {},
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "T"},
    RequestCode.GET_NAMESRV_CONFIG: {},
    RequestCode.VIEW_HISTORY: {},
}


@pytest.mark.parametrize("code", CHANGES, ids=lambda code: code.name)
@pytest.mark.parametrize(
    ("addresses", "expected"),
    [("loopback", ResponseCode.SUCCESS), ("10.0.0.0/8", REFUSED), ("", REFUSED)],
    ids=["loopback", "elsewhere", "none"],
)
async def test_tools_change_something_only_where_the_setting_lets_them(
    tmp_path: Path, code: RequestCode, addresses: str, expected: ResponseCode
) -> None:
    """Changes need an address of `adminAddresses`; reads are answered in any case."""
    async with (
        name_server(tmp_path, admin_addresses=addresses) as port,
        member(port) as broker,
        stranger(port) as tool,
    ):
        await broker.register()
        answer = await tool._peer.request(Command(code, CHANGES[code]), 5.0)
        assert answer.code == expected
        if expected == REFUSED:
            assert "adminAddresses" in str(answer.remark)
            assert await leaders(port) == [N0]
            for read, ext in READS.items():
                answer = await tool._peer.request(Command(read, ext), 5.0)
                assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("setting", "host", "is_in"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "::ffff:127.0.0.1", True),
        ("loopback", "10.0.0.1", False),
        ("*", "203.0.113.9", True),
        ("10.0.0.4, 192.168.0.0/16", "10.0.0.4", True),
        ("10.0.0.4, 192.168.0.0/16", "192.168.7.7", True),
        ("10.0.0.4, 192.168.0.0/16", "127.0.0.1", False),
        ("10.0.0.4", "::ffff:10.0.0.4", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("", "127.0.0.1", False),
        ("loopback", "not an address", False),
    ],
)
def test_addresses_count_as_they_are_written(setting: str, host: str, is_in: bool) -> None:
    """Addresses may be single ones or networks, of both kinds, and IPv4 written as IPv6."""
    assert (host in AdminAddresses(setting)) is is_in


@pytest.mark.parametrize("setting", ["everywhere", "10.0.0.0/33", "10.0.0", "127.0.0.1;10.0.0.1"])
def test_a_setting_that_names_no_address_is_refused(setting: str) -> None:
    """A wrong setting is refused at the start, with what can be written."""
    with pytest.raises(ConfigError, match="adminAddresses has"):
        NamesrvConfig(admin_addresses=setting)


# -- raving ------------------------------------------------------------------------------------

RAVINGS = int(os.environ.get("RAVINGS", "600"))


async def test_hundreds_of_broken_proofs_let_nobody_in_and_end_nothing(tmp_path: Path) -> None:
    """Hellos and proofs in wrong order, kind and size let nobody in, and end nothing."""
    rng = random.Random(11)
    print("seed 11")
    values: list[ExtValue] = [
        *(None, "", "zz", "00" * 31, "00" * 32, "00" * 33, 0, -1, 1 << 63, True, 1.5),
        *("x" * 129, "\u00e9" * 70, "00" * 5000, ["00"], b"\x00" * 32),
    ]
    async with name_server(tmp_path) as port, member(port) as broker:
        await broker.register()
        done = 0
        while done < RAVINGS:
            try:
                async with stranger(port) as other:
                    for _ in range(rng.randint(1, 40)):
                        done += 1
                        names = ("clusterName", "brokerName", "nodeId", "nonce", "proof")
                        ext = {
                            name: rng.choice(values) if rng.random() < 0.3 else "00" * 32
                            for name in names
                            if rng.random() < 0.8
                        }
                        request = Command(RequestCode.PROVE, ext)
                        answer = await other._peer.request(request, 5.0)
                        assert "proof" not in answer.ext
                        assert (await other.register(STRANGER)).code == REFUSED
            except (ConnectionLost, RemotingError, DledgerError):
                continue
        assert await leaders(port) == [N0]
        assert (await broker.register()).code == ResponseCode.SUCCESS
