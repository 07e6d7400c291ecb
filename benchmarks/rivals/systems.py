"""Three replicas on loopback of each system: started on new files, killed, restarted, ended.

All take a message for stored when a majority has it. `fsync` is whether that means on its disk: our
`flushDiskType`, NATS's `sync_interval: always` (before 2.10, and by default, it syncs every two
minutes). Systems of other
run times are in `on_java` and `on_erlang`.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio

from dledger.tls.authority import Authority
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import Flush, plan, ports_needed
from mqchaos.cluster.probe import Probe, serving
from mqchaos.cluster.processes import free_ports
from mqclient.connection.peers import PeerPool

from . import drivers
from .drivers import NODES, Missing, arguments
from .on_erlang import rabbitmq
from .on_java import kafka, rocketmq, rocketmq_5

PATIENCE_S = 60.0


class System(Protocol):
    """A running cluster of three nodes, each of which can be killed and restarted."""

    address: str

    @property
    def version(self) -> str:
        """Version of the servers, as the page names it."""

    def pids(self) -> dict[str, int]:
        """The brokers' processes, by node."""

    def prepare(self, topic: str) -> None:
        """Make a topic on three replicas, if it is not made by the first send."""

    def leader(self, topic: str) -> str:
        """The node that leads now."""

    def kill(self, node: str) -> None:
        """Send SIGKILL to a node's process, and wait for its end."""

    def restart(self, node: str, topic: str) -> None:
        """Start a node again, and wait until it is level."""


class Start(Protocol):
    """Starts a cluster, for as long as a block lasts."""

    def __call__(self, *, fsync: bool) -> AbstractContextManager[System]:
        """Start a cluster that syncs each write, or none."""


class Ours:
    """A name server, and three brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._broker = cluster.layout.brokers[0]
        self.address = cluster.layout.namesrv_addr
        self.version = "this checkout"

    def pids(self) -> dict[str, int]:
        """The brokers' processes, by node."""
        found = {node: self._cluster.pid(f"{self._broker}-{node}") for node in NODES}
        return {node: pid for node, pid in found.items() if pid is not None}

    def prepare(self, topic: str) -> None:
        """Do nothing: the first send makes the topic."""

    def leader(self, topic: str) -> str:
        """The node that leads now."""

        async def ask() -> str:
            async with PeerPool() as pool:
                return (await Probe(self._cluster, pool).wait_for_leader(self._broker)).node.node

        return anyio.run(ask, backend="trio")

    def kill(self, node: str) -> None:
        """See `System.kill`."""
        self._cluster.kill(f"{self._broker}-{node}")

    def restart(self, node: str, topic: str) -> None:
        """Start a node again, and wait until it is level."""

        async def level() -> None:
            async with PeerPool() as pool:
                await Probe(self._cluster, pool).wait_until_level(self._broker)

        self._cluster.start([f"{self._broker}-{node}"])
        anyio.run(level, backend="trio")


@contextmanager
def ours(*, fsync: bool) -> Iterator[Ours]:
    """Run a group of three of our brokers until the block is left."""
    flush: Flush = "SYNC_FLUSH" if fsync else "ASYNC_FLUSH"
    with tempfile.TemporaryDirectory(prefix="dledger-benchmark-") as folder:
        layout = plan(free_ports(ports_needed(3, 1, 1)), 3, 1, 1, flush)
        with Cluster.create(Path(folder) / "cluster", layout).running() as cluster:
            anyio.run(serving, cluster, backend="trio")
            yield Ours(cluster)


class Nats:
    """Three servers of one cluster."""

    def __init__(
        self, folder: Path, program: str, *, fsync: bool, authority: Authority | None = None
    ) -> None:
        """Make the cluster; with an `authority` clients and servers use TLS."""
        self._folder = folder
        self._program = program
        #: The authority that clients trust; None for plain text.
        self.ca: Path | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._python = drivers.nats_py()
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.version = said.stdout.split()[-1]
        if fsync and not _at_least(self.version, (2, 10)):
            raise Missing(f"nats-server {self.version} can't sync each message: 2.10 can")
        ports = free_ports(6)
        scheme = "nats" if authority is None else "tls"
        self.address = ",".join(f"{scheme}://127.0.0.1:{port}" for port in ports[:3])
        routes = ",".join(f'"nats://127.0.0.1:{port}"' for port in ports[3:])
        tls = "" if authority is None else self._certified(authority)
        sync = ", sync_interval: always" if fsync else ""
        for node, port, peer_port in zip(NODES, ports, ports[3:], strict=False):
            (folder / f"{node}.conf").write_text(
                f"server_name: {node}\nlisten: 127.0.0.1:{port}\n"
                f'jetstream {{ store_dir: "{folder / node}"{sync} }}\n'
                f"cluster {{ name: peers, listen: 127.0.0.1:{peer_port}, routes: [{routes}]\n"
                f"{tls} }}\n{tls}\n"
            )

    def _certified(self, authority: Authority) -> str:
        """The words that name a certificate for loopback."""
        self.ca = self._folder / "ca.pem"
        self.ca.write_bytes(authority.pair.certificate)
        names = (self._folder / "tls.pem", self._folder / "tls.key")
        authority.sign("nats", ["127.0.0.1"]).write(*names)
        return f'tls {{ cert_file: "{names[0]}", key_file: "{names[1]}", ca_file: "{self.ca}" }}'

    def start(self, node: str) -> None:
        """Start a server on the files that it has."""
        with (self._folder / f"{node}.log").open("ab") as out:
            words = [self._program, "-c", str(self._folder / f"{node}.conf")]
            self._running[node] = subprocess.Popen(words, stdout=out, stderr=out)

    def pids(self) -> dict[str, int]:
        """The servers' processes, by node."""
        return {node: process.pid for node, process in self._running.items()}

    def prepare(self, topic: str) -> None:
        """Make a stream with three replicas."""
        self._ask("make", topic)

    def leader(self, topic: str) -> str:
        """The node that leads the stream now."""
        return str(self._ask("state", topic)["leader"])

    def kill(self, node: str) -> None:
        """See `System.kill`."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def restart(self, node: str, topic: str) -> None:
        """Start a server again, and wait until it is level."""
        self.start(node)
        end = time.monotonic() + PATIENCE_S
        while not self._ask("state", topic)["level"] and time.monotonic() < end:
            time.sleep(0.3)

    def _ask(self, work: str, topic: str) -> dict[str, object]:
        environment = {} if self.ca is None else {"NATS_CA": str(self.ca)}
        words = arguments(self.address, topic, work)
        return dict(drivers.run(self._python, words, environment=environment))


@contextmanager
def nats(*, fsync: bool) -> Iterator[Nats]:
    """Run three NATS servers with JetStream until the block is left."""
    with tempfile.TemporaryDirectory(prefix="nats-benchmark-") as folder:
        system = Nats(Path(folder), drivers.nats_server(), fsync=fsync)
        try:
            for node in NODES:
                system.start(node)
            yield system
        finally:
            for node in system.pids():
                system.kill(node)


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return tuple(numbers) >= wanted


class Bare:
    """Three processes that pass a message on, with nothing done on it; see `bare.py`."""

    version = "no logic"

    def __init__(self, loop: str, folder: Path, *, fsync: bool) -> None:
        ports = [str(port) for port in free_ports(len(NODES))]
        durability = "fsync" if fsync else "no-fsync"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for node, port, peers in zip(NODES, ports, ([], [], ports[:2]), strict=True):
            role = "leader" if peers else "follower"
            words = [*drivers.bare(loop), role, durability, port, str(folder / node), *peers]
            # Processes end as their client leaves; what they print about that is dropped.
            self._running[node] = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            _wait_for_port(int(port))
        self.address = f"127.0.0.1:{ports[-1]}"

    def pids(self) -> dict[str, int]:
        """Ids of the running processes, by node."""
        return {node: process.pid for node, process in self._running.items()}

    def prepare(self, topic: str) -> None:
        """Do nothing, as there are no topics."""

    def leader(self, topic: str) -> str:
        """The last one, for ever."""
        return NODES[-1]

    def kill(self, node: str) -> None:
        """See `System.kill`."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def restart(self, node: str, topic: str) -> None:
        """Do nothing: its node is not killed before the end."""


def _wait_for_port(port: int) -> None:
    """Wait until somebody listens on a port, without a connection that it would take for a
    peer's."""
    end = time.monotonic() + PATIENCE_S
    listening = f":{port:04X} 00000000:0000 0A"
    while listening not in Path("/proc/net/tcp").read_text():
        if time.monotonic() > end:
            raise RuntimeError(f"bare.py did not listen on port {port}")
        time.sleep(0.01)


@contextmanager
def _bare(loop: str, *, fsync: bool) -> Iterator[Bare]:
    with tempfile.TemporaryDirectory(prefix="bare-benchmark-") as folder:
        system = Bare(loop, Path(folder), fsync=fsync)
        try:
            yield system
        finally:
            for node in system.pids():
                system.kill(node)


SYSTEMS: dict[str, Start] = {
    "ours": ours,
    "nats": nats,
    "rocketmq": rocketmq,
    "rocketmq-5": rocketmq_5,
    "kafka": kafka,
    "rabbitmq": rabbitmq,
    "bare-epoll": partial(_bare, "epoll"),
    "bare-trio": partial(_bare, "trio"),
}


def resident_mb(pid: int) -> float:
    """A process's resident memory, files that it has mapped included."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0]) / 1024


def cpu_s(pids: dict[str, int]) -> dict[str, float]:
    """CPU time so far, by node."""
    ticks = os.sysconf("SC_CLK_TCK")
    spent = {}
    for node, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent[node] = (int(fields[11]) + int(fields[12])) / ticks
    return spent
