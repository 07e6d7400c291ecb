"""RabbitMQ, on Erlang: three nodes of one cluster, and quorum queues.

A publish is confirmed when two of three nodes have it. With fsync that means on their disks, as
RabbitMQ does by default; without, its write-ahead log has `wal_sync_method` none. Debian has the
server; it is started without Debian's user and folders. Erlang's port mapper is the cluster's own,
and everything listens on loopback alone.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqchaos.cluster.processes import free_ports

from . import drivers
from .drivers import NODES, Missing, arguments
from .on_java import PATIENCE_S, wait_for_port

SCRIPTS = Path("/usr/lib/rabbitmq/bin")
SETTINGS = """\
listeners.tcp.default = 127.0.0.1:{port}
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = n0@localhost
cluster_formation.classic_config.nodes.2 = n1@localhost
cluster_formation.classic_config.nodes.3 = n2@localhost
"""
UNSYNCED = "[{ra, [{wal_sync_method, none}]}].\n"


class RabbitMq:
    """Three nodes, and the port mapper by which they find each other."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self._folder = folder
        self._fsync = fsync
        self._client = drivers.rabbitmq_java()
        self._mapper_port, *ports = free_ports(1 + 2 * len(NODES))
        self._ports = dict(zip(NODES, ports, strict=False))
        self._peer_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._mapper: subprocess.Popen[bytes] | None = None
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self.version = ""

    def up(self) -> None:
        """Start all, and wait until they are one cluster."""
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        words = [drivers.tool("epmd", "erlang-base"), "-address", "127.0.0.1"]
        with (self._folder / "epmd.log").open("ab") as out:
            words += ["-port", str(self._mapper_port)]
            self._mapper = subprocess.Popen(words, stdout=out, stderr=out)
        wait_for_port(self._mapper_port)
        for node in NODES:
            self._start(node)
        for node in NODES:
            wait_for_port(self._ports[node])
            self._control("n0", "await_online_nodes", str(len(NODES)))
        self.version = self._control("n0", "version").strip()

    def _start(self, node: str) -> None:
        home = self._folder / node
        home.mkdir(exist_ok=True)
        (home / "rabbitmq.conf").write_text(SETTINGS.format(port=self._ports[node]))
        (home / "advanced.config").write_text("[].\n" if self._fsync else UNSYNCED)
        environment = self._environment(node)
        with (home / "out.log").open("ab") as out:
            words = [str(SCRIPTS / "rabbitmq-server")]
            # A session of its own: the server's script is a shell whose child is the server.
            self._running[node] = subprocess.Popen(
                words, env=environment, cwd=home, stdout=out, stderr=out, start_new_session=True
            )

    def _environment(self, node: str) -> dict[str, str]:
        home = self._folder / node
        return os.environ | {
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"{node}@localhost",
            "RABBITMQ_DIST_PORT": str(self._peer_ports[node]),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }

    def _control(self, node: str, *words: str) -> str:
        """The output of `rabbitmqctl` about a node."""
        return subprocess.run(
            [str(SCRIPTS / "rabbitmqctl"), "-q", "-n", f"{node}@localhost", *words],
            env=self._environment(node),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout

    def pids(self) -> dict[str, int]:
        """The servers' processes, by node."""
        files = {node: self._folder / node / "pid" for node in self._running}
        return {node: int(path.read_text()) for node, path in files.items() if path.exists()}

    def prepare(self, topic: str) -> None:
        """Make a quorum queue of this name."""
        drivers.run(self._client, arguments(self.address, topic, "make"))

    def leader(self, topic: str) -> str:
        """The node that leads the queue now."""
        node = next(iter(self._running))
        lines = self._control(node, "list_queues", "name", "leader").splitlines()
        found = dict(line.split("\t") for line in lines if "\t" in line)
        return found[topic].partition("@")[0]

    def kill(self, node: str) -> None:
        """SIGKILL to the node's session, whose first process is the server's script."""
        process = self._running.pop(node)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self, node: str, topic: str) -> None:
        """Start a node again, and give it time to catch up."""
        self._start(node)
        wait_for_port(self._ports[node])
        self._control(node, "await_startup")
        time.sleep(5)

    def down(self) -> None:
        """End all nodes, and Erlang's port mapper."""
        for node in list(self._running):
            self.kill(node)
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()


@contextmanager
def rabbitmq(*, fsync: bool) -> Iterator[RabbitMq]:
    """Run a cluster of three nodes of RabbitMQ until the block is left. Raises Missing."""
    if not (SCRIPTS / "rabbitmq-server").exists():
        raise Missing("rabbitmq-server is not installed (Debian: rabbitmq-server)")
    with tempfile.TemporaryDirectory(prefix="rabbitmq-benchmark-") as folder:
        system = RabbitMq(Path(folder), fsync=fsync)
        try:
            system.up()
            yield system
        finally:
            system.down()
