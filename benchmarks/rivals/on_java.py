"""The systems that run on Java: RocketMQ 4.9 and 5, and Kafka, three replicas of each.

A message is acknowledged when two of three brokers have it. With fsync, RocketMQ 5 has
`flushDiskType=SYNC_FLUSH`, and Kafka has `log.flush.interval.messages=1`. RocketMQ 4.9's DLedger
mode has no such choice: it syncs some 10 ms later. Heap and collector are those of Kafka's start
script. The page lists the settings.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

from mqchaos.attach.attached import leader_address
from mqchaos.cluster.processes import free_ports
from mqclient.connection.peers import PeerPool

from . import drivers
from .drivers import KAFKA, NODES, ROCKETMQ_5, Missing, arguments

PATIENCE_S = 60.0
JVM = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
OPENED = tuple(
    f"--add-{kind}=java.base/{package}=ALL-UNNAMED"
    for kind, package in (
        ("opens", "sun.nio.ch"),
        ("opens", "java.nio"),
        ("exports", "jdk.internal.ref"),
        ("opens", "jdk.internal.ref"),
    )
)
CONTROLLER_PORT_OFFSET = 1
"""RocketMQ's controller, within the name server."""


class Servers:
    """Java programs, each with a folder, a configuration file and a log."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder = folder
        self._jars = jars
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def configure(self, name: str, settings: Mapping[str, object]) -> Path:
        """The path of a program's settings, once written."""
        home = self._folder / name
        home.mkdir(exist_ok=True)
        path = home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def command(self, name: str, main: str, *words: str) -> list[str]:
        """The program as a command line."""
        home = self._folder / name
        places = (f"-D{key}={home}" for key in ("user.home", "rocketmq.home.dir", "java.io.tmpdir"))
        return [*JVM, *OPENED, *places, "-cp", f"{self._jars}/*", main, *words]

    def start(self, name: str, main: str, *words: str) -> None:
        """Start a program on the files that it has."""
        with (self._folder / name / "out.log").open("ab") as out:
            command = self.command(name, main, *words)
            self._running[name] = subprocess.Popen(command, stdout=out, stderr=out)

    def pid(self, name: str) -> int | None:
        """The process of a program that runs."""
        process = self._running.get(name)
        return None if process is None else process.pid

    def kill(self, name: str) -> None:
        """Send SIGKILL to a server, if it runs, and wait for its end."""
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        """SIGKILL to all that run."""
        for name in list(self._running):
            self.kill(name)


class RocketMq5:
    """A name server with a controller in it, and three brokers in controller mode."""

    BROKER = "broker-a"
    version = ROCKETMQ_5

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self._servers = Servers(folder, drivers.rocketmq_5_jars())
        self._folder = folder
        self._fsync = fsync
        namesrv = _port_with_room(range(0, 2))
        self.ports = {
            node: _port_with_room(range(-2, 2), namesrv + 100 * n)
            for n, node in enumerate(NODES, 1)
        }
        self._controller = f"127.0.0.1:{namesrv + CONTROLLER_PORT_OFFSET}"
        self.address = f"127.0.0.1:{namesrv}"

    def up(self) -> None:
        """Start all, and wait until they serve."""
        controller = {
            "listenPort": self.address.rpartition(":")[2],
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self._controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": self._folder / "namesrv" / "controller",
        }
        path = self._servers.configure("namesrv", controller)
        self._servers.start(
            "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(path)
        )
        wait_for_port(int(self._controller.rpartition(":")[2]))
        for node in NODES:
            self._start(node)
        for port in self.ports.values():
            wait_for_port(port)

    def _start(self, node: str) -> None:
        home = self._folder / node
        settings = {
            "brokerClusterName": "Peers",
            "brokerName": self.BROKER,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.ports[node],
            "haListenPort": self.ports[node] + 1,
            "namesrvAddr": self.address,
            "enableControllerMode": "true",
            "controllerAddr": self._controller,
            "totalReplicas": 3,
            "inSyncReplicas": 2,
            "minInSyncReplicas": 2,
            "flushDiskType": "SYNC_FLUSH" if self._fsync else "ASYNC_FLUSH",
            "useReentrantLockWhenPutMessage": "true",
            "sendMessageThreadPoolNums": 4,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            "storePathEpochFile": home / "store" / "epoch",
            "mappedFileSizeCommitLog": 256 << 20,
            "mappedFileSizeConsumeQueue": 300_000,
            "autoCreateTopicEnable": "true",
        }
        path = self._servers.configure(node, settings)
        self._servers.start(node, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(path))

    def pids(self) -> dict[str, int]:
        """The brokers' processes, by node."""
        found = {node: self._servers.pid(node) for node in NODES}
        return {node: pid for node, pid in found.items() if pid is not None}

    def prepare(self, topic: str) -> None:
        """Do nothing: the first send makes the topic."""

    def leader(self, topic: str) -> str:
        """The node that the name server calls the master."""
        port = _leader_port(self.address, self.BROKER)
        return next(node for node, each in self.ports.items() if each == port)

    def kill(self, node: str) -> None:
        """See `System.kill`."""
        self._servers.kill(node)

    def restart(self, node: str, topic: str) -> None:
        """Start a node again, and give it time to catch up."""
        self._start(node)
        wait_for_port(self.ports[node])
        time.sleep(5)

    def down(self) -> None:
        """End the name server and all brokers."""
        self._servers.kill_all()


@contextmanager
def rocketmq_5(*, fsync: bool) -> Iterator[RocketMq5]:
    """Run RocketMQ 5 on this machine until the block is left. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix="rocketmq5-benchmark-") as folder:
        system = RocketMq5(Path(folder), fsync=fsync)
        try:
            system.up()
            system.leader("")
            yield system
        finally:
            system.down()


class Kafka:
    """Three servers, each broker and controller (KRaft)."""

    CLUSTER = "AAAAAAAAQACAAAAAAAAAAA"

    def __init__(self, folder: Path, version: str, *, fsync: bool) -> None:
        self.version = version
        self._servers = Servers(folder, drivers.kafka_jars(version))
        self._folder = folder
        self._client = drivers.kafka_java()
        ports = free_ports(6)
        self._ports = dict(zip(NODES, ports, strict=False))
        self._controllers = dict(zip(NODES, ports[3:], strict=True))
        self._fsync = fsync
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def up(self) -> None:
        """Start all, and wait until they serve."""
        for node in NODES:
            home = self._folder / node
            path = self._servers.configure(node, self._settings(node))
            words = ("format", "-t", self.CLUSTER, "-c", str(path))
            command = self._servers.command(node, "kafka.tools.StorageTool", *words)
            subprocess.run(command, cwd=home, capture_output=True, check=True)
            self._start(node)
        for port in self._ports.values():
            wait_for_port(port)

    def _settings(self, node: str) -> dict[str, object]:
        voters = ",".join(
            f"{n}@127.0.0.1:{self._controllers[each]}" for n, each in enumerate(NODES)
        )
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": NODES.index(node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[node]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self._folder / node / "logs",
            "num.partitions": 8,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.num.partitions": 3,
        }
        return settings | ({"log.flush.interval.messages": 1} if self._fsync else {})

    def _start(self, node: str) -> None:
        self._servers.start(node, "kafka.Kafka", str(self._folder / node / "server.properties"))

    def pids(self) -> dict[str, int]:
        """The servers' processes, by node."""
        found = {node: self._servers.pid(node) for node in NODES}
        return {node: pid for node, pid in found.items() if pid is not None}

    def prepare(self, topic: str) -> None:
        """Make a topic with three replicas."""
        self._ask("make", topic)

    def leader(self, topic: str) -> str:
        """The node that leads the topic's first partition now."""
        return NODES[int(self._ask("state", topic)["leader"])]

    def kill(self, node: str) -> None:
        """See `System.kill`."""
        self._servers.kill(node)

    def restart(self, node: str, topic: str) -> None:
        """Start a server again, and wait until it is level."""
        self._start(node)
        end = time.monotonic() + PATIENCE_S
        while not self._ask("state", topic)["level"] and time.monotonic() < end:
            time.sleep(0.3)

    def down(self) -> None:
        """End all of its servers."""
        self._servers.kill_all()

    def _ask(self, work: str, topic: str) -> dict[str, float]:
        return drivers.run(self._client, arguments(self.address, topic, work))


@contextmanager
def kafka(*, fsync: bool, version: str = KAFKA) -> Iterator[Kafka]:
    """Run a cluster of three Kafka nodes until the block is left. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix="kafka-benchmark-") as folder:
        system = Kafka(Path(folder), version, fsync=fsync)
        try:
            system.up()
            yield system
        finally:
            system.down()


class RocketMq:
    """A name server, and three brokers in DLedger mode, as examples/attach starts them."""

    def __init__(self, folder: Path, port: int) -> None:
        import rocketmq  # noqa: PLC0415 - of the examples, once their folder is on the path

        self._example = rocketmq
        self._folder = folder
        self.address = f"127.0.0.1:{port}"
        self.version = rocketmq.VERSION
        self.ports = {rocketmq.broker_port(port, node): node for node in NODES}

    def pids(self) -> dict[str, int]:
        """The brokers' processes, by node."""
        files = {node: self._folder / node / "pid" for node in NODES}
        return {node: int(path.read_text()) for node, path in files.items() if path.exists()}

    def prepare(self, topic: str) -> None:
        """Do nothing: the first send makes the topic."""

    def leader(self, topic: str) -> str:
        """The node that the name server calls the leader."""

        return self.ports[_leader_port(self.address, self._example.GROUP)]

    def kill(self, node: str) -> None:
        """SIGKILL; the process was orphaned or is a child, and both are waited for."""
        pid = self.pids()[node]
        self._example.kill(self._folder, node)
        _gone(pid)

    def restart(self, node: str, topic: str) -> None:
        """Start a node again, and give it time to catch up."""
        self._example.start(self._folder, node)
        port = next(port for port, each in self.ports.items() if each == node)
        self._example.wait_for(port)
        time.sleep(5)


@contextmanager
def rocketmq(*, fsync: bool) -> Iterator[RocketMq]:
    """Run RocketMQ 4.9 in DLedger mode until the block is left. Raises Missing, always for
    `fsync`."""
    if fsync:
        raise Missing("RocketMQ's DLedger mode has no fsync before the acknowledgement")
    drivers.java()
    import rocketmq as example  # noqa: PLC0415 - of the examples, once their folder is on the path

    with tempfile.TemporaryDirectory(prefix="rocketmq-benchmark-") as folder:
        directory = Path(folder) / "cluster"
        port = _port_with_room(
            [
                0,
                *(1_000 + 10 * n + more for n in range(3) for more in (0, 1, -2)),
                *range(6_000, 6_030, 10),
            ]
        )
        try:
            example.up(directory, port, None)
            system = RocketMq(directory, port)
            system.leader("")
            yield system
        finally:
            for name in (*NODES, "namesrv"):
                example.kill(directory, name)


def _leader_port(namesrv: str, group: str) -> int:
    """The port of the broker that a name server calls the master of a group."""

    async def ask() -> str | None:
        async with PeerPool() as pool:
            return await leader_address(pool, namesrv, group)

    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            found = anyio.run(ask, backend="trio")
            if found is not None:
                return int(found.rpartition(":")[2])
        time.sleep(0.3)
    raise RuntimeError("RocketMQ's name server knows no master")


def _port_with_room(offsets: Iterable[int], first: int = 21_876) -> int:
    """A port with others at these distances from it that are free."""
    for port in range(first, 29_876, 100):
        if all(_free(port + offset) for offset in offsets):
            return port
    raise Missing("no free ports for RocketMQ")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_for_port(port: int) -> None:
    """Wait until a server listens on `port`."""
    end = time.monotonic() + PATIENCE_S
    while _free(port):
        if time.monotonic() > end:
            raise RuntimeError(f"no server listens on port {port}")
        time.sleep(0.1)


def _gone(pid: int) -> None:
    """Wait until a process has ended."""
    for _ in range(200):
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            if not Path(f"/proc/{pid}").exists():
                return
        time.sleep(0.02)
    raise RuntimeError(f"process {pid} does not end after {signal.SIGKILL!r}")
