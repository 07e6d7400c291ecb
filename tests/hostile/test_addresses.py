"""Addresses and ids of any content, wherever one comes in; names that resolve slowly.

A wrong address is refused where it comes in. If a log holds one all the same, since an earlier
version took it, every replica starts and serves, says so, and the member can be removed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from replicas import Group
from test_peer_port import Owner, port_of, running, start
from trio.testing import MockClock

from dledger import Ledger, LedgerConfig, open_ledger
from dledger.addresses import check_host, check_reachable, join_address, parse_address
from dledger.errors import BadInput, ConnectFailed, Fenced, FrameError
from dledger.net import Faults, connect_peer
from dledger.raft.engine import RaftEngine
from dledger.raft.membership import configuration
from dledger.raft.membership.configuration import (
    Configuration,
    Member,
    check_node_id,
    decode_members,
    encode_members,
    initial,
)
from dledger.raft.messages import Denied, encode_message
from dledger.raft.network import links
from dledger.raft.network.dialling import Dialling
from dledger.raft.network.handshake import Handshaker
from dledger.raft.network.links import PeerNetwork, listen
from dledger.remoting.bodies import BrokerData, TopicRouteData
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.testing.local import KeepsNothing
from dledger.testing.logs import capture_logs
from dledger.trust.proof import NONCE_BYTES, check_hello
from dledger.world import Found, World
from mqbroker.config import BrokerConfig
from mqbroker.upkeep.keeping import keep_running
from mqchaos.cluster.processes import free_ports
from mqclient.connection.routing import RouteTable

PATIENCE_S = 30.0
NO_HOSTS = (
    *("", " ", "a\0b", "\0", "a b", "a\nb", "\x1b[31m", "a..b", ".a", "-a", "a-", "a;b", "a/b"),
    *("256.0.0.1", "1.2.3", "127.1", "2130706433", "0x7f.1", "0x7f000001", "1.2.3.4.5"),
    *("01.2.3.4", "\uff11.1.1.1"),
    *("::g", ":::", "1::2::3", "fe80::1%", "fe80::1%a\0", "fe80::1%" + "x" * 40, "::1]", "[::1"),
    *(
        "é",
        "xn--é",
        "\ud800",
        "\u202e",
        "x" * 64,
        "a." * 200,
        "a@b",
        "http://a",
        "%",
        "\uff11.1.1.1",
    ),
)
HOSTS = (
    *("127.0.0.1", "10.0.0.4", "::1", "fe80::1%eth0", "::ffff:1.2.3.4", "localhost", "broker_1"),
    *("a", "A.b-c.example", "a.example.", "1a.example", "x" * 63, "xn--nxasmq6b"),
)
hosts = st.sampled_from([*NO_HOSTS, *HOSTS]) | st.text(max_size=12)
ports = st.sampled_from(
    ["", "0", "-1", "65536", "9" * 40, "\uff11", " 1", "1 ", "0x1", "+1", "1.0"]
)
ports |= st.integers(1, 65_535).map(str)


def test_what_is_a_host_and_what_is_not() -> None:
    """A resolver is asked for names only: no text that it would read in its own way, or not at
    all."""
    for host in HOSTS:
        check_host(host)
    for host in NO_HOSTS:
        with pytest.raises(BadInput, match="is not a valid host"):
            check_host(host)
    for host in ("0.0.0.0", "::", "224.0.0.1", "ff02::1"):
        check_host(host)
        with pytest.raises(BadInput, match="others can connect to"):
            check_reachable(host)


@given(hosts, ports)
def test_an_address_is_read_or_refused(host: str, port: str) -> None:
    """An address that is taken reads back the same, and a resolver accepts it."""
    try:
        found = parse_address(f"{host}:{port}")
    except BadInput:
        return
    assert parse_address(join_address(*found)) == found
    assert found[0].encode("idna")
    check_host(found[0])


@given(
    hosts, st.sampled_from(["127.0.0.1:1", "", "a\0b:1", "h:0"]) | hosts, st.integers(-1, 70_000)
)
def test_a_member_that_is_added_can_be_dialled(host: str, service: str, port: int) -> None:
    """A member that is taken can be dialled, and its configuration is decoded as it was."""
    members = initial({"a": ("h", 1)})
    try:
        grown = Configuration(members).with_learner("x", Member(host, port, service=service))
    except BadInput:
        return
    check_host(grown["x"].host)
    assert not service or parse_address(service)
    assert decode_members(encode_members(grown)) == grown


@given(st.text(max_size=140), st.binary(max_size=40) | st.just(bytes(NONCE_BYTES)))
def test_an_id_is_read_or_refused(node_id: str, nonce: bytes) -> None:
    """A node id is taken if it is printable text, in a handshake and in a configuration."""
    for check, kind in ((check_node_id, BadInput), (lambda it: check_hello(it, nonce), FrameError)):
        with suppress(kind):
            check(node_id)
            assert node_id.encode().decode().isprintable()


@given(hosts, hosts, ports)
def test_a_config_with_such_an_address_is_refused(one: str, other: str, port: str) -> None:
    """A config with any text as an address is refused with the key, or has a valid one."""
    for config in (
        BrokerConfig(d_leger_peers=f"n0-{one}:{port}", group_client_addrs=f"n0-{other}:1"),
        BrokerConfig(broker_ip1=one),
        BrokerConfig(bind_address=one),
        BrokerConfig(namesrv_addr=f"{one}:{port}"),
    ):
        try:
            config.check()
        except BadInput:
            continue
        for host, _ in [*config.peers().values(), *config.name_servers()]:
            check_host(host)


@given(hosts, ports)
def test_a_client_learns_no_such_address(host: str, port: str) -> None:
    """Clients keep addresses alone, of all that members and name servers name."""
    routes = RouteTable()
    routes.learn_members(TopicRouteData([BrokerData("c", "b", {0: f"{host}:{port}"})]))
    for address in routes.members("b"):
        parse_address(address)


@pytest.mark.parametrize("host", NO_HOSTS)
async def test_a_host_that_is_none_is_not_connected_to(host: str) -> None:
    """The resolver is not asked, and nothing but ConnectFailed is raised."""
    with pytest.raises(ConnectFailed, match="is not a valid host"):
        async with connect_peer(host, 1):
            pass


async def test_requests_that_name_such_a_member_change_nothing(found: Group) -> None:
    """ADD_MEMBER with a wrong address is answered with the reason, and the group serves on."""
    good = {"nodeId": "n9", "host": "10.0.0.9", "port": 40911, "clientAddr": "10.0.0.9:10911"}
    for wrong in (
        *({"host": host} for host in (*NO_HOSTS, "0.0.0.0")),
        *({"port": port} for port in (0, -1, 65_536, 1 << 60, "x")),
        *({"nodeId": node_id} for node_id in ("", "a\0", "n-1", "a b", "a;b", "x" * 129)),
        *({"clientAddr": text} for text in ("", "x", "a\0b:1", "0.0.0.0:1", "h:0", "h:1;i:2")),
    ):
        if "\ud800" in wrong.values():
            continue  # no header can carry it
        answer = await found.connect().ask(Command(RequestCode.ADD_MEMBER, good | wrong))
        assert answer.code == 1, wrong
        assert answer.remark
        assert "log in memory" not in answer.remark  # which refuses what is right, too
    assert not found.core.faults.count
    await found.serves()
    found.agree()


# -- a log that holds one ----------------------------------------------------------------------


@asynccontextmanager
async def three_nodes(folder: Path, ports: list[int]) -> AsyncIterator[list[Ledger]]:
    """A group over real sockets and files."""
    peers = {f"n{at}": ("127.0.0.1", port) for at, port in enumerate(ports)}
    async with AsyncExitStack() as stack:
        ledgers = []
        for node_id in peers:
            config = LedgerConfig("g", node_id, peers, folder / node_id, flush="async")
            ledgers.append(await stack.enter_async_context(open_ledger(config, KeepsNothing())))
        yield ledgers


async def until(holds: Callable[[], object]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is waited for is polled here
            await trio.sleep(0.01)


async def leader_of(ledgers: list[Ledger]) -> Ledger:
    await until(lambda: any(ledger.status.role == "leader" for ledger in ledgers))
    return next(ledger for ledger in ledgers if ledger.status.role == "leader")


async def test_a_group_lives_with_a_member_that_can_not_be_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version has committed it: replicas start, serve, show why, and remove it."""
    ports = free_ports(3)
    async with three_nodes(tmp_path, ports) as ledgers:
        leader = await leader_of(ledgers)
        with monkeypatch.context() as older:
            older.setattr(configuration, "check_member", configuration._check_readable)
            await leader.add_member("n8", "a\0b", 1, "no\0where")
        await leader.append(b"served")
    async with three_nodes(tmp_path, ports) as ledgers:
        leader = await leader_of(ledgers)
        await leader.append(b"served again")

        def problem() -> str:
            return str({m.node_id: m.problem for m in leader.status.members}["n8"])

        await until(lambda: "is not a valid host" in problem())
        await leader.remove_member("n8")
        assert "n8" not in {member.node_id for member in leader.status.members}
        await until(lambda: all(len(ledger.status.members) == 3 for ledger in ledgers))
        assert not any(ledger.status.fenced for ledger in ledgers)


# -- names -------------------------------------------------------------------------------------


async def test_a_slow_resolver_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver runs in a thread, once for a name at a time, beside its last answer."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def slow(host: str, *arguments: object, **options: object) -> object:
        if options.get("flags"):
            return real(host, *arguments, **options)  # type: ignore[arg-type]
        asked.append(host)
        time.sleep(0.3)
        return real("127.0.0.1", *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    turns: list[float] = []

    async def watch() -> None:
        while True:
            began = trio.current_time()
            await trio.sleep(0.01)
            turns.append(trio.current_time() - began)

    with listen("127.0.0.1", 0) as one, listen("127.0.0.1", 0) as other:
        owners = Owner(), Owner()
        peers = {"a": ("name-a", port_of(one)), "b": ("name-b", port_of(other))}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            for node_id, listener, owner in zip("ab", (one, other), owners, strict=True):
                network = PeerNetwork(node_id, Handshaker("g", node_id, 1 << 20, b""), owner)
                nursery.start_soon(network.run, listener, Configuration(initial(peers)))
            await until(lambda: owners[1].links)
            count = len(asked)
            owners[1].links["a"].close("to see it come back")
            await until(lambda: owners[1].ended and owners[1].links)
            assert len(asked) == count
            nursery.cancel_scope.cancel()
    # A turn that waits for a resolver takes 0.3 s; a busy machine may stop one of them, not most.
    assert sorted(turns)[len(turns) // 2] < 0.2


async def test_a_peer_that_is_down_is_looked_up_seldom(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A peer that is down is dialled ten times a second, and its name looked up once."""
    looked_up, dialled = Mock(), Mock(side_effect=OSError("refused"))

    async def lookup(self: World, host: str, port: int) -> list[Found]:
        looked_up()
        return [(socket.AF_INET, ("127.0.0.1", port))]

    monkeypatch.setattr(World, "lookup", lookup)
    monkeypatch.setattr(Dialling, "_connect", dialled)
    dialling = Dialling(Handshaker("g", "a", 1 << 20, b""), "b", "name-b", 1)
    for _ in range(50):
        with pytest.raises(OSError, match="refused"):
            await dialling.connect()
        await trio.sleep(0.1)
    assert dialled.call_count >= 50
    assert looked_up.call_count <= 6


async def test_a_name_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved in one thread, however often it is asked for and given up."""
    running, most = 0, 0

    def stuck(host: str, *_: object, flags: int = 0, **__: object) -> object:
        nonlocal running, most
        if flags:
            raise socket.gaierror
        running += 1
        most = max(most, running)
        time.sleep(0.2)
        running -= 1
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    for _ in range(20):
        with pytest.raises(ConnectFailed):
            async with connect_peer("stuck.example", 1, 0.01):
                pass
    assert most == 1


# -- tasks -------------------------------------------------------------------------------------


async def test_an_unforeseen_fault_of_the_engine_fences_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose step raised is fenced, as nobody knows how far the step got.

    Its owner goes on.
    """
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)
    machine = KeepsNothing()
    with capture_logs() as logs:
        async with open_ledger(config, machine) as ledger:
            await machine.led.wait()
            monkeypatch.setattr(RaftEngine, "step", Mock(side_effect=TypeError("planted")))
            with trio.fail_after(PATIENCE_S):
                with pytest.raises(Exception, match=r".*"):
                    await ledger.append(b"x")
                reason = await ledger.wait_fenced()
            assert isinstance(reason, Fenced)
            assert "planted" in str(ledger.status.fenced)
    assert "unforeseen fault" in {line["event"] for line in logs}


@pytest.mark.parametrize("broken", ["decode_message", "tune"])
async def test_an_unforeseen_fault_of_one_connection_ends_no_other(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that fails on reading or accepting is logged, and the peer comes back."""
    async with running() as nursery:
        one = start(nursery, "a", {"b": 1})
        other = start(nursery, "b", {"a": one.port})
        await until(lambda: other.owner.links and one.owner.links)
        with capture_logs() as logs, monkeypatch.context() as patched:
            patched.setattr(links, broken, Mock(side_effect=TypeError("planted")))
            other.owner.links["a"].send(encode_message(Denied(1)))
            if broken == "tune":
                other.owner.links["a"].close("to be made again")
            await until(lambda: {"link failed", "handshake failed"} & {x["event"] for x in logs})
        await until(lambda: other.owner.links and one.owner.links)
        other.owner.links["a"].send(encode_message(Denied(7)))
        await until(lambda: 7 in one.owner.terms)


@pytest.mark.parametrize("kind", [TypeError, OSError, BadInput, RuntimeError])
async def test_a_background_task_that_fails_begins_again(
    kind: type[Exception], autojump_clock: MockClock
) -> None:
    """A background task that raises is counted, logged and started again, beside the others."""
    faults, outcomes = Faults(), iter([kind("planted"), kind("planted"), None])

    async def task() -> None:
        if (error := next(outcomes)) is not None:
            raise error

    with capture_logs() as logs:
        await keep_running("task", task, faults)
    assert faults.count == 2
    assert logs[0]["task"] == "task"
