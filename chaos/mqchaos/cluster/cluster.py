"""A local cluster of real processes: name servers and broker groups, each server by itself.

The cluster is its directory: `cluster.json` names every server, its ports and its process, so that
a later command finds the running cluster again, and kills, restarts or ends any part of it by pid.
Starting only starts; whether a server serves is asked over the wire by `mqchaos.cluster.probe`.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dledger.errors import ConfigError
from dledger.failpoints import VARIABLE
from dledger.files import replace as put
from dledger.limits import FOLDER_MODE
from dledger.program.audit_log import AuditLog
from dledger.tls.options import Tls
from dledger.trust.rolling import Secrets
from dledger.trust.secret import read_secrets
from mqchaos.cluster import access, certificates, faked_clock, processes
from mqchaos.cluster.access import Access, Identity
from mqchaos.cluster.layout import (
    AUDIT_FOLDER,
    NETWORK,
    Layout,
    NameServerLayout,
    NodeLayout,
    broker_toml,
    namesrv_toml,
)
from mqchaos.cluster.links import write_links
from mqchaos.cluster.own_disk import OwnDisk
from mqchaos.cluster.processes import ClusterError, Process
from mqchaos.limits import PROVOKED_S
from mqclient import Admin
from mqclient.connection.credentials import Credentials
from mqclient.connection.peers import PeerPool

if TYPE_CHECKING:
    from mqchaos.network.switch import Switch

STATE_FILE = "cluster.json"
SECRET_FILE = "cluster.secret"  # noqa: S105 - a name
LOG_FILE = "log.jsonl"


class _State(msgspec.Struct):
    """The content of cluster.json. `processes`: by server name; one that was killed stays in it."""

    layout: Layout
    processes: dict[str, Process]


class Cluster:
    """The servers of one directory, running or not."""

    def __init__(self, directory: Path, state: _State) -> None:
        self.directory = directory
        self._state = state
        self.nodes_at_first = frozenset(node.name for node in state.layout.nodes)
        self.cut_off: set[str] = set()
        """Servers that run and can't take part, for a fault of the network, or held at a place."""
        self.provoked_s = PROVOKED_S
        """How long a fault may try to show that needs something to be written, say."""
        self.disks: dict[str, OwnDisk] = {}
        """How long a fault may try to show that needs something else first, for example a write."""
        self.switch: Switch | None = None
        """The switch that connects the namespaces of a layout; it ends with the process that made
        it."""

    @property
    def layout(self) -> Layout:
        """The layout of the cluster."""
        return self._state.layout

    @classmethod
    def create(cls, directory: Path, layout: Layout) -> Cluster:
        """Write the config files of a new cluster. Nothing is started.

        Raises ConfigError for a directory that can't take them.
        """
        directory = directory.resolve()
        if (directory / STATE_FILE).exists():
            raise ClusterError(f"{directory} holds a cluster already; choose another directory")
        cluster = cls(directory, _State(layout, {}))
        try:
            cluster._write_configs()
        except OSError as error:
            raise ConfigError(
                f"{error.filename}: {error.strerror}; name a directory that holds no cluster and "
                "that you can write to"
            ) from error
        return cluster

    @property
    def secret_file(self) -> Path | None:
        """The file with the cluster's secret; None for a cluster that was made without."""
        path = self.directory / SECRET_FILE
        return path if path.exists() else None

    @property
    def tls(self) -> Tls | None:
        """How clients reach the servers by TLS; None for plain text."""
        return certificates.of_clients(self.directory) if self.layout.tls else None

    @property
    def identity(self) -> Identity:
        """Credentials of the cluster's clients: a certificate, a user, both or neither."""
        layout = self.layout
        return access.of_clients(self.directory, tls=layout.tls, users=layout.users)

    @property
    def access(self) -> Access:
        """The credentials of clients, read from their files."""
        return self.identity.access()

    def pool(self) -> PeerPool:
        """Connections to the servers, as the layout has them; with users, by the secret."""
        credentials, file = None, self.secret_file
        if self.layout.users and file is not None:
            credentials = Credentials.of_file(file, Secrets(*read_secrets(file)))
        return PeerPool(credentials=credentials, tls=self.tls)

    def admin(self, namesrv_addr: str = "") -> Admin:
        """The cluster's administrator, by its name servers; with users, by the secret."""
        secret = self.secret_file if self.layout.users else None
        return Admin(namesrv_addr or self.layout.namesrv_addr, secret_file=secret, tls=self.tls)

    def _write_configs(self) -> None:
        for server in self.layout.namesrvs:
            self.folder(server.name).mkdir(FOLDER_MODE, parents=True)
        _write_secret(self.directory / SECRET_FILE)
        if self.layout.users:
            access.make_passwords(self.directory)
        if self.layout.tls:
            certificates.make(self.directory, "the authority of this cluster")
        for server in self.layout.namesrvs:
            self._write_namesrv_config(server, self.secret_file)
        for node in self.layout.nodes:
            self._write_broker_config(node)
        if self.layout.network:
            self.folder(NETWORK).mkdir()
            write_links(self.folder(NETWORK), self.layout)
        self._save()

    def _write_namesrv_config(self, server: NameServerLayout, secret: Path | None) -> None:
        folder = self.folder(server.name)
        if self.layout.tls:
            certificates.sign(self.directory, self.layout, server.name)
        (folder / "namesrv.toml").write_text(namesrv_toml(self.layout, server, folder, secret))

    def _write_broker_config(self, node: NodeLayout) -> None:
        folder = self.folder(node.name)
        folder.mkdir(FOLDER_MODE, parents=True)
        if self.layout.failpoints:
            self.orders(node.name).mkdir()
        if self.layout.clocks:
            faked_clock.put_ahead(folder, 0.0)
        if self.layout.tls:
            certificates.sign(self.directory, self.layout, node.name)
        (folder / "broker.toml").write_text(
            broker_toml(self.layout, node, folder, self.secret_file)
        )

    def add(self, node: NodeLayout) -> None:
        """Add a broker node with its config file. It is not started, and not yet a member."""
        self._state.layout = replace(self.layout, nodes=(*self.layout.nodes, node))
        self._write_broker_config(node)
        if (
            self.layout.network and self.layout.tls
        ):  # the others have new addresses: this node's own
            for other in self.layout.servers:
                certificates.sign(self.directory, self.layout, other.name)
        self._save()

    def forget(self, node: NodeLayout) -> None:
        """Remove a broker node, which must not run. Its folder stays."""
        nodes = tuple(each for each in self.layout.nodes if each != node)
        self._state.layout = replace(self.layout, nodes=nodes)
        self._state.processes.pop(node.name, None)
        self._save()

    def estrange(self, name: str, *, strange: bool) -> None:
        """Give a name server that does not run another secret than all others have, or theirs."""
        folder, secret = self.folder(name), self.secret_file
        if strange:
            secret = folder / SECRET_FILE
            _write_secret(secret)
        server = next(server for server in self.layout.namesrvs if server.name == name)
        self._write_namesrv_config(server, secret)

    @classmethod
    def load(cls, directory: Path) -> Cluster:
        """The cluster of a directory that `create` made."""
        try:
            directory = Path(os.path.realpath(directory))
            state = msgspec.json.decode((directory / STATE_FILE).read_bytes(), type=_State)
        except FileNotFoundError:
            raise ConfigError(f"{directory} holds no cluster: `mqcluster up` makes one") from None
        except OSError as error:
            raise ConfigError(f"{directory / STATE_FILE}: {error.strerror}") from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{directory / STATE_FILE} is damaged: {error}") from error
        return cls(directory, state)

    @property
    def names(self) -> list[str]:
        """All servers, name servers first: the order to start them in. Before them, the proxy."""
        layout = self.layout
        return (
            [NETWORK] * layout.network
            + [server.name for server in layout.namesrvs]
            + [node.name for node in layout.nodes]
        )

    def folder(self, name: str) -> Path:
        """Directory of one server, for its config, log and data."""
        return self.directory / name

    def log(self, name: str) -> Path:
        """The file with all that a server printed, over all its starts."""
        return self.folder(name) / LOG_FILE

    def orders(self, name: str) -> Path:
        """The folder by which a broker node takes orders, in a layout with failpoints."""
        return self.folder(name) / "failpoints"

    def store(self, node: NodeLayout) -> Path:
        """A broker node's replica directory."""
        return self.folder(node.name) / "store"

    def stores(self) -> dict[str, dict[str, str]]:
        """Broker name -> node id -> replica directory, as a history's meta event has it."""
        return {
            broker: {node.node: str(self.store(node)) for node in self.layout.group(broker)}
            for broker in self.layout.brokers
        }

    def refusals(self) -> list[str]:
        """Requests that servers have refused, by their audit logs."""
        layout = self.layout
        folders = [self.folder(server.name) for server in layout.namesrvs]
        folders += [self.store(node) for node in layout.nodes]
        lines = [line for each in folders for line in AuditLog(each / AUDIT_FOLDER).read(0)]
        return [
            f"{line.server} refused {line.name} to {line.user or 'somebody'}: {line.reason}"
            for line in lines
            if line.verdict == "refused"
        ]

    def pid(self, name: str) -> int | None:
        """The process id of a server if it runs."""
        process = self._state.processes.get(name)
        return process.pid if process is not None and process.alive else None

    def start(self, names: Iterable[str] | None = None) -> list[str]:
        """Start those that don't run (all by default); returns their names."""
        started = [name for name in names or self.names if self.pid(name) is None]
        for name in started:
            self._start(name)
        return started

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Start all servers; at the block's end, whichever it is, all are killed."""
        try:
            self.start()
            yield self
        finally:
            self.kill_all()

    def kill(self, name: str) -> None:
        """SIGKILL one server and wait until it is gone. No error if it does not run."""
        processes.kill(self._processes([name]))

    def kill_together(self, names: Iterable[str]) -> None:
        """SIGKILL several servers at one moment, and wait until all are gone."""
        processes.kill(self._processes(names))

    def stop(self, names: Iterable[str] | None = None) -> list[str]:
        """End servers (all by default), brokers first; returns those that had to be killed."""
        chosen = list(names or self.names)
        brokers = [name for name in chosen if name.startswith("broker-")]
        stubborn = processes.stop(self._processes(brokers))
        stubborn += processes.stop(self._processes(set(chosen) - set(brokers)))
        return [name for name in chosen if self._state.processes.get(name) in stubborn]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send one server a signal. No error if it does not run."""
        for process in self._processes([name]):
            process.signal(number)

    def stopped(self, name: str) -> bool:
        """Whether a server runs and stands still, by a SIGSTOP."""
        return any(process.stopped for process in self._processes([name]))

    def serves(self, name: str) -> bool:
        """Whether a server runs, does not stand still, and is not cut off."""
        running = self.pid(name) is not None and not self.stopped(name)
        return running and name not in self.cut_off

    def kill_all(self) -> None:
        """SIGKILL everything: for exits that can't wait."""
        processes.kill(self._processes(self.names))

    def _processes(self, names: Iterable[str]) -> list[Process]:
        known = self._state.processes
        return [known[name] for name in names if name in known]

    def _start(self, name: str) -> None:
        self._refuse_taken_ports(name)
        if self.layout.namespaces and self.switch is None:
            raise ClusterError(f"the network of {self.directory} went with the run that made it")
        through = self.switch.to_live_inside(name) if self.switch is not None else ()
        if name == NETWORK:
            arguments = [str(self.folder(name))]
            process = processes.start("mqchaos.network.proxy", arguments, self.log(name))
        elif name.startswith("namesrv-"):
            arguments = ["-c", str(self.folder(name) / "namesrv.toml")]
            process = processes.start("mqnamesrv", arguments, self.log(name), through=through)
        else:
            arguments = ["-c", str(self.folder(name) / "broker.toml")]
            process = processes.start(
                "mqbroker", arguments, self.log(name), self._environment(name), through
            )
        self._state.processes[name] = process
        self._save()

    def _environment(self, name: str) -> dict[str, str]:
        """Environment of a broker, besides ours."""
        layout, folder = self.layout, self.folder(name)
        orders = {VARIABLE: str(self.orders(name))} if layout.failpoints else {}
        return orders | (faked_clock.environment(folder) if layout.clocks else {})

    def _refuse_taken_ports(self, name: str) -> None:
        """Say so before the server does, in a log that nobody looks at."""
        ports = [server.port for server in self.layout.namesrvs if server.name == name]
        for node in self.layout.nodes:
            ports += [node.port, node.raft_port] if node.name == name else []
        for port in ports:
            if not processes.port_is_free(port):
                raise ClusterError(
                    f"port {port} of {name} is taken by another program. Stop that one, or make "
                    f"a new cluster in another directory than {self.directory}."
                )

    def _save(self) -> None:
        temporary = self.directory / f".{STATE_FILE}"
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._state), indent=2))
        temporary.replace(self.directory / STATE_FILE)


def _write_secret(path: Path) -> None:
    """A new secret, in a new file that only this user may read."""
    put(path, new_secret() + b"\n")


def new_secret() -> bytes:
    """A secret that nobody can guess."""
    return secrets.token_urlsafe(32).encode()
