"""Faults of the harness's own network show in the kernel's counters."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio._core import _thread_cache

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import CLIENTS, plan, ports_needed
from mqchaos.cluster.processes import free_ports
from mqchaos.faults.fault import FAULTS
from mqchaos.faults.kinds import DOUBLED, JOIN, KILL, PARTITION, RESET
from mqchaos.faults.targets import Target
from mqchaos.network import needs
from mqchaos.network.control import Request
from mqchaos.network.rules import CUT, Rule
from mqchaos.network.switch import Switch

from .levels import level, replaced

BROKER = "broker-a"
ONE, OTHER = "broker-a-n0", "broker-a-n1"
BOTH = [(ONE, OTHER), (OTHER, ONE)]
PORT = 7000
TRANSFER_BYTES = 2_000_000
SERVER = f"""
import hashlib, socket, sys
listener = socket.create_server((sys.argv[1], {PORT}))
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    seen = hashlib.sha256()
    while chunk := connection.recv(65536):
        seen.update(chunk)
    connection.sendall(seen.digest())
    connection.close()
"""
CLIENT = f"""
import hashlib, socket, sys, time
began, sent = time.monotonic(), hashlib.sha256()
connection = socket.create_connection((sys.argv[1], {PORT}), timeout=float(sys.argv[2]))
connected_s = time.monotonic() - began
for number in range({TRANSFER_BYTES} // 1000):
    chunk = b"%08d" % number * 125
    sent.update(chunk)
    connection.sendall(chunk)
connection.shutdown(socket.SHUT_WR)
told = b""
while chunk := connection.recv(64):
    told += chunk
print(told == sent.digest(), time.monotonic() - began, connected_s)
"""


@pytest.fixture(autouse=True)
def _threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is started from within the switch's namespace stays there. Trio keeps idle ones
    for who wants the next: no other test may get one, and start its servers from it."""
    monkeypatch.setattr(_thread_cache, "THREAD_CACHE", _thread_cache.ThreadCache())


@pytest.fixture
def switch() -> Iterator[Switch]:
    """A network for a name server and three nodes, two of which have programs."""
    lacks = needs.no_namespaces()
    if lacks is not None:
        pytest.skip(lacks)
    layout = plan(range(12_000, 12_007), namespaces=True)
    with Switch(layout).plugged_in() as switch:
        argv = [*switch.inside(OTHER), sys.executable, "-c", SERVER, layout.nodes[1].host]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listens\n"
            yield switch
            server.kill()


def transfer(switch: Switch, timeout_s: float = 20.0) -> tuple[float, float]:
    """Send two megabytes that must arrive as they are; the seconds of all, and of connecting."""
    argv = [*switch.inside(ONE), sys.executable, "-c", CLIENT, "10.77.0.3", str(timeout_s)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    same, seconds, connected_s = done.stdout.split()
    assert same == "True"
    return float(seconds), float(connected_s)


def kernel_counts(switch: Switch, name: str) -> dict[str, int]:
    """The kernel's counters of TCP in a server's namespace."""
    files = ["/proc/net/snmp", "/proc/net/netstat"]
    told = subprocess.check_output([*switch.inside(name), "cat", *files], text=True).splitlines()
    counts = {}
    for names, values in zip(told[::2], told[1::2], strict=True):
        if names.startswith(("Tcp:", "TcpExt:")):
            counts |= dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    return counts


def broken(switch: Switch, rule: Rule) -> None:
    if needs.kernel_lacks(rule) is not None:
        pytest.skip(str(needs.kernel_lacks(rule)))
    assert switch.take(Request("it", BOTH, rule)).touched == {"it": 0}


@pytest.mark.parametrize(
    ("rule", "whose", "counted"),
    [
        (Rule(loss=0.02), ONE, "RetransSegs"),
        (Rule(garbled=0.02), OTHER, "InCsumErrors"),
        (Rule(doubled=0.1), OTHER, "TCPDSACKOldSent"),
        (Rule(delay_s=0.005, hasty=0.3), OTHER, "TCPOFOQueue"),
    ],
    ids=["loss", "garbled", "doubled", "disordered"],
)
def test_packets_suffer_and_bytes_do_not(
    switch: Switch, rule: Rule, whose: str, counted: str
) -> None:
    """A fault of packets is counted by one kernel, and TCP mends it."""
    broken(switch, rule)
    before = kernel_counts(switch, whose)[counted]

    transfer(switch)

    assert kernel_counts(switch, whose)[counted] > before
    assert switch.take(Request()).touched["it"] > 0
    assert switch.take(Request("it", healed=True)).touched == {}


def test_a_narrow_link_takes_its_time_and_others_do_not(switch: Switch) -> None:
    """A link of two megabytes a second needs a second for them, and none once it is wide."""
    broken(switch, Rule(bytes_per_s=2e6))
    assert transfer(switch)[0] > 0.9
    switch.take(Request("it", healed=True))
    assert transfer(switch)[0] < 0.9


def test_a_late_link_is_late(switch: Switch) -> None:
    """A late link's round trip takes two delays."""
    broken(switch, Rule(delay_s=0.1, jitter_s=0.02))
    assert 0.2 <= transfer(switch)[1] < 1.0


def test_nothing_comes_over_a_cut(switch: Switch) -> None:
    """A cut drops one direction's packets without a word, and ends without a trace."""
    broken(switch, CUT)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        transfer(switch, timeout_s=0.5)
    assert "TimeoutError" in failed.value.stderr
    assert switch.take(Request()).touched["it"] > 0
    switch.take(Request("it", healed=True))
    transfer(switch)


def test_faults_come_and_go_without_each_other(switch: Switch) -> None:
    """Faults have their own counters and ends; mending one twice, or without it, is no error."""
    forth = [(ONE, OTHER)]
    switch.take(Request("narrow", forth, Rule(bytes_per_s=1e7)))
    switch.take(Request("narrower", BOTH, Rule(bytes_per_s=4e6, loss=0.001)))
    transfer(switch)
    assert switch.take(Request("narrow", healed=True)).touched.keys() == {"narrower"}
    switch.take(Request("narrow", healed=True))
    assert transfer(switch)[0] > 0.4
    assert switch.take(Request("narrower", healed=True)).touched == {}
    assert transfer(switch)[0] < 0.4


def test_connections_are_reset_once(switch: Switch) -> None:
    """A reset reaches both ends of a connection, and no later connection."""
    argv = [*switch.inside(ONE), sys.executable, "-c"]
    code = (
        f"import socket; s = socket.create_connection(('10.77.0.3', {PORT})); print(1, flush=True)"
    )
    with subprocess.Popen(
        [*argv, f"{code}; s.recv(1)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        client.stdout.readline()
        assert switch.take(Request("it", BOTH, reset=True)).touched["it"] > 0
        _, told = client.communicate(timeout=10)
    assert b"Connection" in told
    assert b"abort" in told or b"reset" in told


def test_nothing_leads_out_and_the_thread_comes_back() -> None:
    """A namespace has the switch and its ports, no other link and no way out."""
    lacks = needs.no_namespaces()
    if lacks is not None:
        pytest.skip(lacks)
    at_home = here()
    with Switch(plan(range(12_000, 12_007), namespaces=True)).plugged_in():
        assert here() != at_home
        links = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
        names = {line.split(":")[0].strip() for line in links}
        assert {name for name in names if not name.startswith("port-")} == {"lo", "hub"}
        routes = Path("/proc/thread-self/net/route").read_text().splitlines()[1:]
        assert [line.split()[0] for line in routes] == ["hub"]
    assert here() == at_home


KILLED = """
import subprocess, sys, time
from mqchaos.cluster.layout import plan
from mqchaos.network.switch import Switch
with Switch(plan(range(12_000, 12_007), namespaces=True)).plugged_in() as switch:
    servers = [subprocess.Popen([*switch.to_live_inside(name), "sleep", "60"])
               for name in ("broker-a-n0", "broker-a-n1")]
    time.sleep(0.3)
    print(*(server.pid for server in servers), flush=True)
    time.sleep(60)
"""


def test_a_harness_that_is_killed_leaves_nothing() -> None:
    """A harness killed by SIGKILL leaves neither servers nor namespaces."""
    lacks = needs.no_namespaces()
    if lacks is not None:
        pytest.skip(lacks)
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        servers = [int(word) for word in harness.stdout.readline().split()]
        namespaces = {namespace_of(Path(f"/proc/{pid}")) for pid in servers}
        assert len(namespaces) == 2
        harness.send_signal(signal.SIGKILL)
    give_up_at = time.monotonic() + 10
    while [pid for pid in servers if alive(pid)]:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    assert not namespaces & {namespace_of(entry) for entry in Path("/proc").glob("[0-9]*")}


def here() -> str:
    """Namespace of the calling thread."""
    return namespace_of(Path("/proc/thread-self"))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def namespace_of(entry: Path) -> str:
    try:
        return str((entry / "ns" / "net").readlink())
    except OSError:
        return ""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and three replicas, each in a namespace."""
    lacks = needs.no_namespaces()
    if lacks is not None:
        pytest.skip(lacks)
    ports = free_ports(ports_needed(3, 1, 1))
    layout = plan(ports, 3, 1, 1, "ASYNC_FLUSH", namespaces=True)
    cluster = Cluster.create(tmp_path_factory.mktemp("chaos") / "c", layout)
    cluster.switch = Switch(layout)
    with cluster.switch.plugged_in(), cluster.running():
        yield cluster


@pytest.mark.parametrize("kind", [PARTITION, RESET, DOUBLED], ids=lambda kind: kind.name)
def test_the_same_faults_are_the_kernels_here(cluster: Cluster, kind: object) -> None:
    """Faults take effect and are healed in the kernel, and a leader that is cut off is replaced."""
    fault = FAULTS[kind.name]  # type: ignore[attr-defined]

    async def strike() -> None:
        hurt = await level(cluster, Target.ALL if fault.kind is DOUBLED else Target.LEADER)
        assert fault.why_not(cluster, hurt) is None
        await fault.inject(cluster, hurt)
        assert await fault.took_effect(cluster, hurt)
        if fault.kind is PARTITION:
            other = next(node for node in cluster.layout.nodes if node not in hurt)
            assert (
                FAULTS[KILL.name].why_not(cluster, (other,)) == "broker-a would lose its majority"
            )
            await replaced(cluster, hurt)
        await fault.heal(cluster, hurt)
        await level(cluster)

    trio.run(strike)


def test_a_network_of_namespaces_has_no_port_for_one_more(cluster: Cluster) -> None:
    """A node can't join a network of namespaces, which has no port for it."""
    why = FAULTS[JOIN.name].why_not(cluster, cluster.layout.nodes[:1])
    assert why == "the network of this cluster has no new links"


def test_clients_have_a_place_of_their_own(cluster: Cluster) -> None:
    """Clients have their own namespace, so a node can be cut off from them alone."""
    assert cluster.switch is not None
    argv = [*cluster.switch.inside(CLIENTS), "cat", "/proc/thread-self/net/fib_trie"]
    assert "10.77.0.254" in subprocess.check_output(argv, text=True)
