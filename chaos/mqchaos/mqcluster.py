"""The `mqcluster` command: a whole cluster on this machine, started and ended in one word.

A cluster is a directory. Its servers go on after the command has ended, and later commands find
them by the directory. `up` on a cluster that runs, or of which a part runs, starts what is missing;
the messages of a cluster that went down are there again when it is up.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import cyclopts
import msgspec
import trio
from rich.console import Console
from rich.table import Table

from dledger.errors import ConfigError
from dledger.program.console import let_reader_leave
from dledger.program.helping import FlowingHelp
from dledger.program.whole import Whole
from mqchaos.cluster import layout, resizing
from mqchaos.cluster.cluster import STATE_FILE, Cluster
from mqchaos.cluster.probe import Probe, leader_of
from mqchaos.cluster.processes import ClusterError, free_ports, port_is_free
from mqchaos.command_line import run_app, run_command

Directory: TypeAlias = Annotated[Path, cyclopts.Parameter(name="--dir")]
Output: TypeAlias = Annotated[Literal["table", "json"], cyclopts.Parameter(name=["--output", "-o"])]

DEFAULT_SIZES = (3, 1, 1)
"""Nodes in each broker group, broker groups, name servers."""
NAMESRV_PORT = 9876
"""RocketMQ's default: the first name server's port, if it is free."""

app = cyclopts.App(
    name="mqcluster",
    help=(
        "Run a cluster of real processes on this machine.\n\n"
        "For example:\n\n"
        "    mqcluster up --dir cluster\n"
        "    mqcluster kill --dir cluster leader\n"
        "    mqcluster down --dir cluster"
    ),
    help_format="plaintext",
    help_formatter=FlowingHelp(),
)


class ServerStatus(msgspec.Struct, frozen=True):
    """A server, as `status -o json` shows it. Fields that only brokers have may be null."""

    name: str
    address: str
    pid: int | None
    role: str
    term: int | None = None
    last_index: int | None = None
    commit_index: int | None = None
    applied_index: int | None = None
    end_position: int | None = None


class ClusterStatus(msgspec.Struct, frozen=True):
    """The output of `-o json`, version 1."""

    version: int
    directory: str
    namesrv_addr: str
    servers: list[ServerStatus]


@app.command
def up(
    *,
    directory: Directory,
    nodes: Whole | None = None,
    groups: Whole | None = None,
    namesrvs: Whole | None = None,
    tls: bool = False,
    output: Output = "table",
) -> int:
    """Start a cluster, or its missing servers, and wait until it serves.

    For example:

        mqcluster up --dir /tmp/mq
        mqcluster up --dir /tmp/mq --groups 2 --namesrvs 2

    Parameters
    ----------
    directory
        The cluster's directory; it is made if it does not exist.
    nodes
        Nodes in each broker group of a new cluster: 3 by default, which survive the loss of one.
    groups
        Broker groups, over which a topic's queues are spread: 1 by default.
    namesrvs
        Name servers, independent of each other: 1 by default.
    tls
        A new cluster with an authority and certificates of its own, whose ports take TLS alone.
    output
        A table for people or JSON for programs.
    """
    return run_command(partial(_up, directory, nodes, groups, namesrvs, tls, output))


@app.command
def status(*, directory: Directory, output: Output = "table") -> int:
    """Show every server's role, term, log ends and process id; exit status 1 if one is down.

    For example:

        mqcluster status --dir /tmp/mq
    """
    return run_command(partial(_status, directory, output))


@app.command
def kill(node: str, /, *, directory: Directory) -> int:
    """End one server with SIGKILL: a name from `status`, or "leader".

    For example:

        mqcluster kill --dir /tmp/mq leader
    """
    return run_command(partial(_kill, directory, node))


@app.command
def restart(node: str, /, *, directory: Directory) -> int:
    """Start a server; if it runs, end it with SIGTERM first.

    For example:

        mqcluster restart --dir /tmp/mq broker-a-n0
    """
    return run_command(partial(_restart, directory, node))


@app.command
def add_node(*, directory: Directory, group: str = "broker-a") -> int:
    """Add a node to a broker group that serves, and wait until the node has the log and votes.

    For example:

        mqcluster add-node --dir /tmp/mq --group broker-a
    """
    return run_command(partial(_add_node, directory, group))


@app.command
def remove_node(node: str, /, *, directory: Directory) -> int:
    """Remove a node from its broker group and end it: a name from `status`. Its files stay.

    For example:

        mqcluster remove-node --dir /tmp/mq broker-a-n3
    """
    return run_command(partial(_remove_node, directory, node))


@app.command
def down(*, directory: Directory, remove: bool = False) -> int:
    """End all servers of a cluster. Their data stays for the next `up`, unless --remove is given.

    For example:

        mqcluster down --dir /tmp/mq --remove
    """
    return run_command(partial(_down, directory, remove))


async def _up(
    directory: Path,
    nodes: int | None,
    groups: int | None,
    namesrvs: int | None,
    tls: bool,
    output: str,
) -> int:
    cluster = _open(directory, nodes, groups, namesrvs, tls=tls)
    fresh = cluster.start()
    try:
        async with cluster.pool() as pool:
            probe = Probe(cluster, pool)
            await probe.wait_until_serving()
            await probe.wait_until_answering()
    except BaseException:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(cluster.stop, fresh)
        raise
    await _status(directory, output)
    if output == "table":
        address, encrypted = cluster.layout.namesrv_addr, ""
        if cluster.tls is not None:
            encrypted = f" --tls {cluster.tls.ca}"
        print(
            f"\nSend the first message, and read it:\n"
            f"  mqadmin sendMessage -n '{address}' -t Hello -p 'Hello, world'{encrypted}\n"
            f"  mqadmin consumeMessage -n '{address}' -t Hello{encrypted}\n"
            f"End it: mqcluster down --dir {directory}"
        )
    return 0


def _open(
    directory: Path,
    nodes: int | None,
    groups: int | None,
    namesrvs: int | None,
    *,
    tls: bool,
) -> Cluster:
    """The cluster of the directory, which must then have the sizes that are given, or a new one."""
    if not (directory / STATE_FILE).exists():
        wanted = zip((nodes, groups, namesrvs), DEFAULT_SIZES, strict=True)
        nodes, groups, namesrvs = (usual if size is None else size for size, usual in wanted)
        ports = free_ports(layout.ports_needed(nodes, groups, namesrvs))
        if port_is_free(NAMESRV_PORT):
            ports[0] = NAMESRV_PORT
        return Cluster.create(directory, layout.plan(ports, nodes, groups, namesrvs, tls=tls))
    cluster = Cluster.load(directory)
    if tls and not cluster.layout.tls:
        raise ConfigError(f"{directory} holds a cluster without TLS: --tls is for a new one")
    brokers = cluster.layout.brokers
    of_each = sorted({len(cluster.layout.group(broker)) for broker in brokers})
    same = (
        nodes in (None, *of_each)
        and groups in (None, len(brokers))
        and namesrvs in (None, len(cluster.layout.namesrvs))
    )
    if not same:
        raise ConfigError(
            f"{directory} holds a cluster of --nodes {' or '.join(map(str, of_each))} "
            f"--groups {len(brokers)} --namesrvs {len(cluster.layout.namesrvs)}: leave the sizes "
            "out, or choose another directory"
        )
    return cluster


async def _status(directory: Path, output: str) -> int:
    cluster = Cluster.load(directory)
    async with cluster.pool() as pool:
        servers = await _servers(cluster, Probe(cluster, pool))
    if output == "json":
        found = ClusterStatus(1, str(cluster.directory), cluster.layout.namesrv_addr, servers)
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        Console().print(_table(servers))
    return 0 if all(server.pid for server in servers) else 1


async def _servers(cluster: Cluster, probe: Probe) -> list[ServerStatus]:
    found = [
        ServerStatus(server.name, server.address, pid, "name server" if pid else "down")
        for server in cluster.layout.namesrvs
        for pid in [cluster.pid(server.name)]
    ]
    for broker in cluster.layout.brokers:
        for state in await probe.group(broker):
            silent = "no answer" if state.pid else "down"
            info = state.info
            common = ServerStatus(state.node.name, state.node.address, state.pid, silent)
            found.append(
                common
                if info is None
                else msgspec.structs.replace(
                    common,
                    role=info.role,
                    term=info.term,
                    last_index=info.last_index,
                    commit_index=info.commit_index,
                    applied_index=info.applied_index,
                    end_position=info.end_position,
                )
            )
    return found


def _table(servers: list[ServerStatus]) -> Table:
    """A line for each server; fits a terminal of 80 columns."""
    table = Table("server", "address", "role", box=None, pad_edge=False)
    for name in ("term", "last", "applied", "end", "pid"):
        table.add_column(name, justify="right", no_wrap=True)
    for server in servers:
        numbers = (
            server.term,
            server.last_index,
            server.applied_index,
            server.end_position,
            server.pid,
        )
        style = {"leader": "bold", "down": "red", "no answer": "yellow"}.get(server.role)
        texts = ["" if number is None else str(number) for number in numbers]
        table.add_row(server.name, server.address, server.role, *texts, style=style)
    return table


async def _kill(directory: Path, name: str) -> int:
    cluster = Cluster.load(directory)
    if name == "leader":
        name = await _leader(cluster)
    pid = _pid_of(cluster, name)
    cluster.kill(name)
    print(f"{name} (process {pid}) is killed" if pid else f"{name} was not running")
    return 0


async def _leader(cluster: Cluster) -> str:
    """Name of the first group's leader. Raises ClusterError if the group can't elect one."""
    broker = cluster.layout.brokers[0]
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        states = await probe.group(broker)
        if any(map(cluster.pid, cluster.names)):
            # Servers that are down by now have been killed by an earlier command, most likely.
            probe.away = {name for name in cluster.names if cluster.pid(name) is None}
        down = [state.node.name for state in states if state.pid is None]
        if probe.away and leader_of(states) is None and 2 * len(down) >= len(states):
            raise ClusterError(
                f"{broker} has no leader, and can't elect one: {' and '.join(down)} of its "
                f"{len(states)} nodes don't run. Start them (mqcluster up --dir "
                f"{cluster.directory}), or name the server to kill"
            )
        return (await probe.wait_for_leader(broker)).node.name


async def _restart(directory: Path, name: str) -> int:
    cluster = Cluster.load(directory)
    _pid_of(cluster, name)
    await trio.to_thread.run_sync(cluster.stop, [name])
    cluster.start([name])
    print(f"{name} is started: process {cluster.pid(name)}")
    return 0


async def _add_node(directory: Path, broker: str) -> int:
    node, change = await resizing.add_node(Cluster.load(directory), broker)
    print(f"{node.name} is added; {broker} has the members {', '.join(change.members)}")
    return 0


async def _remove_node(directory: Path, name: str) -> int:
    cluster = Cluster.load(directory)
    node = next((node for node in cluster.layout.nodes if node.name == name), None)
    if node is None:
        names = ", ".join(node.name for node in cluster.layout.nodes)
        raise ConfigError(f"there is no node {name!r} in {cluster.directory}; there are {names}")
    change = await resizing.remove_node(cluster, node)
    print(
        f"{name} is removed; {node.broker} has the members {', '.join(change.members)}. Its files "
        f"are still in {cluster.folder(name)}"
    )
    return 0


async def _down(directory: Path, remove: bool) -> int:
    cluster = Cluster.load(directory)
    stubborn = await trio.to_thread.run_sync(cluster.stop)
    if stubborn:
        print(f"{', '.join(stubborn)} did not end in time and was killed")
    if remove:
        await trio.to_thread.run_sync(shutil.rmtree, cluster.directory)
    print(f"the cluster of {directory} is down{', and its files are removed' * remove}")
    return 0


def _pid_of(cluster: Cluster, name: str) -> int | None:
    """The process of a server that must exist, running or not."""
    if name not in cluster.names:
        raise ConfigError(
            f"there is no server {name!r} in {cluster.directory}; there are "
            f"{', '.join(cluster.names)}"
        )
    return cluster.pid(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` None means those of the process."""
    let_reader_leave()
    sys.exit(run_app(app, arguments))


if __name__ == "__main__":
    main()
