"""The layout of a local cluster: names, ports, directories, config files. Pure.

::

    D/cluster.json                       this layout and the processes' pids
    D/cluster.secret                     what its servers prove to each other that they know
    D/tls/                               with TLS: the authority, and a certificate for clients
    D/namesrv-0/namesrv.toml, log.jsonl
    D/broker-a-n0/broker.toml, log.jsonl, store/, failpoints/

A broker group is named broker-a, broker-b, ...; its nodes n0, n1, ...; a server of the cluster is
named by both, "broker-a-n0", or "namesrv-0".

With `network` every link passes a proxy (`mqchaos.network`): each server listens on 127.0.0.1, and
whoever connects to it was given an address of loopback that is for this dialler and this server
alone, 127.77.x.y, with the server's own port. There the proxy listens. With `namespaces` each
server has a network namespace and an address of its own, 10.77.0.x, which all are given.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from dledger.errors import ConfigError
from mqchaos.limits import GROUPS_MAX, NAMESRVS_MAX, NODES_MAX, SEGMENT_BYTES

Flush: TypeAlias = Literal["SYNC_FLUSH", "ASYNC_FLUSH"]
CLUSTER_NAME = "DefaultCluster"
CLIENTS = "clients"
"""All clients together, where a link has a name for each end."""
NETWORK = "network"
"""The proxy, where a cluster has one."""
HOST = "127.0.0.1"
CERTIFICATE, KEY = "tls.pem", "tls.key"
"""Files of a server in its folder, and of clients in that of TLS."""
AUDIT_FOLDER = "audit"
"""Folder of a name server's audit log in its folder, of a broker's in its store."""
TLS_FOLDER = "tls"
AUTHORITY = f"{TLS_FOLDER}/ca.pem"
AUTHORITY_KEY = f"{TLS_FOLDER}/ca.key"
_CLIENTS_NUMBER = 254
_HARNESS_NUMBER = 253


class NameServerLayout(msgspec.Struct, frozen=True):
    """A name server of the layout. `port`: where clients and brokers reach it, at `host`."""

    name: str
    port: int
    host: str = HOST

    @property
    def address(self) -> str:
        """Address for clients and brokers, as host:port."""
        return f"{self.host}:{self.port}"


class NodeLayout(msgspec.Struct, frozen=True):
    """A node of a broker group. `port` is for clients, `raft_port` for the other nodes."""

    broker: str
    node: str
    port: int
    raft_port: int
    host: str = HOST

    @property
    def name(self) -> str:
        """The server's name in this cluster, also its directory's."""
        return f"{self.broker}-{self.node}"

    @property
    def address(self) -> str:
        """host:port for clients, past any proxy."""
        return f"{self.host}:{self.port}"


class Layout(msgspec.Struct, frozen=True):
    """A whole cluster on one machine: on its loopback, or in namespaces of the harness."""

    namesrvs: tuple[NameServerLayout, ...]
    nodes: tuple[NodeLayout, ...]
    flush: Flush = "SYNC_FLUSH"
    segment_bytes: int = SEGMENT_BYTES
    network: bool = False
    namespaces: bool = False
    clocks: bool = False
    """Whether brokers have clocks that move for all that is in their processes."""
    failpoints: bool = False
    """Whether brokers take orders from the harness (`dledger.program.arming`)."""
    tls: bool = False
    """Whether all ports take TLS alone, with certificates of the cluster's own authority."""
    users: bool = False
    """Whether rights are enforced, and clients are a user."""
    retain_bytes: int = 0
    """Size to which each log is kept; 0 keeps all of it."""

    @property
    def servers(self) -> list[NameServerLayout | NodeLayout]:
        """Name servers, and then nodes."""
        return [*self.namesrvs, *self.nodes]

    @property
    def breakable(self) -> bool:
        """Whether faults of the network can be had."""
        return self.network or self.namespaces

    @property
    def namesrv_addr(self) -> str:
        """All name servers, separated by semicolons, past any proxy."""
        return ";".join(server.address for server in self.namesrvs)

    def namesrv_addr_for(self, source: str) -> str:
        """All name servers, separated by semicolons, as clients or a server are given them."""
        return ";".join(
            f"{self.host(source, server.name)}:{server.port}" for server in self.namesrvs
        )

    def client_address(self, node: NodeLayout) -> str:
        """The address of a node that clients are given."""
        return f"{self.host(CLIENTS, node.name)}:{node.port}"

    def host(self, source: str, target: str) -> str:
        """Where `source` connects to reach the server `target`."""
        if not self.network or source == target:
            return next(each.host for each in self.servers if each.name == target)
        return f"127.77.{self.number(source)}.{self.number(target)}"

    def hosts(self, name: str) -> list[str]:
        """All by which a server is reached: what its certificate names."""
        sources = [CLIENTS, *(server.name for server in self.servers)]
        return [*dict.fromkeys([*(self.host(source, name) for source in sources), "localhost"])]

    def number(self, name: str) -> int:
        """The number of a server, or of all clients, among those that a network has addresses
        for."""
        if name == CLIENTS:
            return _CLIENTS_NUMBER
        return [server.name for server in self.servers].index(name) + 1

    def group(self, broker: str) -> tuple[NodeLayout, ...]:
        """The nodes of one broker group."""
        return tuple(node for node in self.nodes if node.broker == broker)

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the broker groups, in order."""
        return tuple(dict.fromkeys(node.broker for node in self.nodes))


def ports_needed(nodes: int, groups: int, namesrvs: int) -> int:
    """How many free ports `plan` wants; refuses sizes out of bounds."""
    for name, value, most in [
        ("nodes", nodes, NODES_MAX),
        ("groups", groups, GROUPS_MAX),
        ("namesrvs", namesrvs, NAMESRVS_MAX),
    ]:
        if not 1 <= value <= most:
            raise ConfigError(f"--{name} is {value}; it must be from 1 to {most}")
    return namesrvs + 2 * nodes * groups


def plan(
    ports: Sequence[int],
    nodes: int = 3,
    groups: int = 1,
    namesrvs: int = 1,
    flush: Flush = "SYNC_FLUSH",
    network: bool = False,
    namespaces: bool = False,
    tls: bool = False,
) -> Layout:
    """Give every server its name and ports, taken from `ports` in order."""
    if len(ports) < ports_needed(nodes, groups, namesrvs):
        raise ConfigError(f"{len(ports)} ports are too few for this cluster")
    free, numbers = iter(ports), count(1)

    def host() -> str:
        return host_in_namespace(next(numbers)) if namespaces else HOST

    return Layout(
        namesrvs=tuple(
            NameServerLayout(f"namesrv-{k}", next(free), host()) for k in range(namesrvs)
        ),
        nodes=tuple(
            NodeLayout(
                f"broker-{string.ascii_lowercase[g]}", f"n{k}", next(free), next(free), host()
            )
            for g in range(groups)
            for k in range(nodes)
        ),
        flush=flush,
        network=network,
        namespaces=namespaces,
        tls=tls,
    )


def host_in_namespace(number: int = _HARNESS_NUMBER) -> str:
    """The address of a server, or of all clients, by its number; by default of the harness."""
    return f"10.77.0.{number}"


def namesrv_toml(
    layout: Layout, server: NameServerLayout, directory: Path, secret_file: Path | None = None
) -> str:
    """The config file of a name server whose directory this is."""
    return _toml(
        listenPort=server.port,
        bindAddress=server.host,
        kvConfigPath=str(directory / "kv.json"),
        **_admins(server.host),
        **_rights(layout, directory),
        logFormat="json",
        **_encryption(layout, directory),
        **_secret(secret_file),
    )


def broker_toml(
    layout: Layout, node: NodeLayout, directory: Path, secret_file: Path | None = None
) -> str:
    """The config file of a broker node whose directory this is."""
    group = layout.group(node.broker)
    peers = [(each, layout.host(node.name, each.name)) for each in group]
    # The proxy has the address that others are given; the broker must not take it.
    bind = {"bindAddress": HOST} if layout.network else {}
    return _toml(
        brokerClusterName=CLUSTER_NAME,
        brokerName=node.broker,
        brokerIP1=layout.host(CLIENTS, node.name),
        listenPort=node.port,
        **bind,
        namesrvAddr=layout.namesrv_addr_for(node.name),
        storePathRootDir=str(directory / "store"),
        exportDir=str(directory / "exports"),
        **_admins(node.host),
        flushDiskType=layout.flush,
        mappedFileSizeCommitLog=layout.segment_bytes,
        **_retention(layout.retain_bytes),
        dLegerGroup=node.broker,
        dLegerSelfId=node.node,
        dLegerPeers=";".join(f"{each.node}-{host}:{each.raft_port}" for each, host in peers),
        groupClientAddrs=";".join(f"{each.node}-{layout.client_address(each)}" for each in group),
        logFormat="json",
        **_encryption(layout, directory),
        **_secret(secret_file),
    )


def _retention(retain_bytes: int) -> dict[str, int]:
    """The keys for a log that is kept short; none for one that keeps all."""
    return {"commitLogSizeMax": retain_bytes, "cleanResourceInterval": 500} if retain_bytes else {}


def _admins(host: str) -> dict[str, str]:
    """The key that lets the harness administrate a server in a namespace; tools are on loopback
    otherwise, which is the default."""
    inside = host.startswith(host_in_namespace(0)[:-1])
    return {"adminAddresses": f"loopback, {host_in_namespace()}"} if inside else {}


def _secret(path: Path | None) -> dict[str, str]:
    """The key that names the secret's file; none for a cluster that was made without."""
    return {} if path is None else {"secretFile": str(path)}


def _rights(layout: Layout, directory: Path) -> dict[str, str]:
    """The keys of a name server that enforces rights; brokers do so once there are users."""
    if not layout.users:
        return {}
    return {"authorizationMode": "enforce", "auditLogDir": str(directory / AUDIT_FOLDER)}


def _encryption(layout: Layout, directory: Path) -> dict[str, str | bool]:
    """The keys of a server that takes TLS alone, and dials so; none without."""
    if not layout.tls:
        return {}
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(directory / CERTIFICATE),
        "tls.server.keyPath": str(directory / KEY),
        "tls.server.trustCertPath": str(directory.parent / AUTHORITY),
        "tls.enable": True,
    }


def _toml(**values: str | int) -> str:
    """TOML of flat keys; JSON's string escapes are TOML's too."""
    return "".join(
        f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in values.items()
    )
