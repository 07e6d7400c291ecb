"""`local_cluster`: the real servers, each a task of the test's own event loop.

On a clock of trio's tests (`MockClock`, pytest-trio's `autojump_clock`) the cluster lives in memory
and on that clock: delays, retries and failovers take the time that computing them takes. On any
other clock it is on loopback, where every client reaches it, stock ones too.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial

import trio
from anyio.abc import TaskGroup
from trio.testing import MockClock

from dledger.errors import ConfigError, RemotingError
from dledger.net import connect_peer
from dledger.net.quota import ConnectionQuota
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import GroupInfoResponseHeader, decode_header
from dledger.testing.virtual import virtual_world
from dledger.world import in_world, unix_ms
from mqbroker.app import run_replica
from mqbroker.config import BrokerConfig
from mqclient import Admin, Consumer, Producer
from mqclient.admin import UnknownTarget
from mqclient.connection.lifetime import together
from mqlocal import limits
from mqlocal.clients import with_address
from mqlocal.layout import NAMESRV, Layout, addresses_needed, plan
from mqlocal.places import folder, reserved_addresses
from mqlocal.server import Serve, Server, Stop
from mqnamesrv.app import serve as serve_names


class LocalCluster:
    """A cluster that runs under trio, made by :func:`local_cluster`.

    `producer`, `consumer` and `admin` make clients of the cluster: `Producer`, `Consumer` and
    `Admin` with its address; all other arguments are passed on to them.
    """

    producer = with_address(Producer)
    consumer = with_address(Consumer)
    admin = with_address(Admin)

    def __init__(self, layout: Layout, tasks: TaskGroup) -> None:
        self._layout = layout
        self._tasks = tasks
        self._servers = {NAMESRV: Server(NAMESRV, partial(_serve_names, layout))} | {
            name: Server(name, _broker(config)) for name, config in layout.brokers.items()
        }

    @property
    def namesrv_addr(self) -> str:
        """The name server's address, for any client."""
        return self._layout.namesrv_addr

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the broker groups: "broker-a", "broker-b", ..."""
        return self._layout.groups

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of all servers: "namesrv-0", "broker-a-n0", "broker-a-n1", ..."""
        return tuple(self._servers)

    def address(self, name: str) -> str:
        """The address of a server's port for clients."""
        if name == NAMESRV:
            return self.namesrv_addr
        config = self._layout.brokers[self._named(name).name]
        return f"{config.broker_ip1}:{config.listen_port}"

    def runs(self, name: str) -> bool:
        """Whether a server runs: it was not killed or stopped, or was restarted after that."""
        return self._named(name).runs

    def now(self) -> datetime:
        """The time by the cluster's clocks; use it for `deliver_at`."""
        return datetime.fromtimestamp(unix_ms() / 1000, UTC)

    async def leader(self, group: str | None = None) -> str:
        """The name of a group's leader, by default of the first group; waits until there is one."""
        group = self.groups[0] if group is None else group
        if group not in self.groups:
            raise ConfigError(f"there is no group {group!r}: {', '.join(self.groups)}")
        with passing_time(), trio.move_on_after(limits.PATIENCE_S):
            while True:
                for name, config in self._layout.group(group):
                    if self.runs(name) and await _role(config) == "leader":
                        return name
                await trio.sleep(limits.LOOK_S)
        down = [name for name, _ in self._layout.group(group) if not self.runs(name)]
        raise TimeoutError(
            f"{group} has had no leader for {limits.PATIENCE_S:g} s; not running: "
            f"{', '.join(down) or 'none'}"
        )

    async def kill(self, name: str = "leader") -> str:
        """Kill a server, by default the first group's leader. Returns its name."""
        name = await self.leader() if name == "leader" else name
        await self._named(name).kill()
        return name

    async def stop(self, name: str = "leader") -> str:
        """Stop a server in order: a leader hands over to another node. Returns its name."""
        name = await self.leader() if name == "leader" else name
        with passing_time():
            await self._named(name).stop()
        return name

    async def restart(self, name: str) -> None:
        """Start a server that was killed or stopped, with the files that it left.

        Returns when the broker answers, or when the name server has heard of all running brokers.
        """
        server = self._named(name)
        if server.runs:
            raise ConfigError(f"{name} runs: kill or stop it first")
        server.start(self._tasks)
        with passing_time(), trio.fail_after(limits.PATIENCE_S):
            if name == NAMESRV:
                await self._registered()
                return
            config = self._layout.brokers[name]
            while True:
                if await _role(config) is not None:
                    return
                await trio.sleep(limits.LOOK_S)

    async def start(self) -> None:
        """Start all servers, and return when clients find every group's leader."""
        for server in self._servers.values():
            server.start(self._tasks)
        with passing_time(), trio.fail_after(limits.PATIENCE_S):
            await self._registered(*self.groups)

    async def _registered(self, *led: str) -> None:
        """Wait until the name server has heard of all running brokers, and of a leader of each of
        these groups: a leader serves a moment before that."""
        running = {self.address(name) for name in self._layout.brokers if self.runs(name)}
        async with self.admin() as admin:
            while True:
                with suppress(RemotingError, UnknownTarget):
                    known = await admin.brokers.list()
                    leading = {each.broker_name for each in known if each.broker_id == 0}
                    if running <= {each.address for each in known} and leading >= {*led}:
                        return
                await trio.sleep(limits.LOOK_S)

    def _named(self, name: str) -> Server:
        if name not in self._servers:
            raise ConfigError(f"there is no server {name!r}: {', '.join(self._servers)}")
        return self._servers[name]


@asynccontextmanager
async def local_cluster(
    *,
    replicas: int = limits.REPLICAS,
    groups: int = 1,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[LocalCluster]:
    """Run a cluster until the block ends; then its servers and files are removed.

    Each of the `groups` broker groups has `replicas` nodes. `settings` are keys of the brokers'
    config file, as docs/reference/broker.md has them. Runs under trio. Raises ConfigError for
    values that are not possible.
    """
    if not trio.lowlevel.in_trio_task():
        raise ConfigError(
            "local_cluster runs under trio: use local_cluster_on_asyncio under asyncio"
        )
    count, virtual = addresses_needed(replicas, groups), virtual_world()
    with (
        nullcontext() if virtual is None else in_world(virtual),
        folder() as directory,
        reserved_addresses(count) as addresses,
    ):
        layout = plan(addresses, replicas, groups, directory, settings or {})
        async with together() as tasks:
            cluster = LocalCluster(layout, tasks)
            await cluster.start()
            yield cluster
            tasks.cancel_scope.cancel()


@contextmanager
def passing_time() -> Iterator[None]:
    """Pass time within the block, if the test's clock stands still until the test moves it."""
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock) or clock.rate or clock.autojump_threshold < math.inf:
        yield
        return
    clock.autojump_threshold = 0
    try:
        yield
    finally:
        clock.autojump_threshold = math.inf


async def _role(config: BrokerConfig) -> str | None:
    """The role that a broker says it has; None if it does not answer."""
    try:
        async with connect_peer(config.client_host, config.listen_port) as peer:
            answer = await peer.request(Command(RequestCode.GROUP_INFO), limits.PATIENCE_S)
    except RemotingError:
        return None
    return decode_header(GroupInfoResponseHeader, answer).role


def _quota() -> ConnectionQuota:
    return ConnectionQuota(bytes_max=limits.CLIENT_MEMORY_BYTES_MAX)


async def _serve_names(layout: Layout, stop: Stop) -> None:
    async with trio.open_nursery() as nursery:
        serve = partial(serve_names, layout.namesrv, _quota(), groups=layout.groups)
        await nursery.start(serve)
        await stop()
        nursery.cancel_scope.cancel()


def _broker(config: BrokerConfig) -> Serve:
    async def serve(stop: Stop) -> None:
        await run_replica(config, _quota(), stop)

    return serve
