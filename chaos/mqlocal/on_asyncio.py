"""`local_cluster_on_asyncio`: a cluster for tests that run on asyncio.

On a `VirtualLoop` the cluster is in memory and on that loop's time, its servers a guest run of trio
in the same thread. On any other loop it has a thread of its own, and is on loopback in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, TypeVarTuple

import trio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dledger.errors import ConfigError
from dledger.world import unix_ms
from mqclient import Admin, Consumer, Producer
from mqlocal import limits
from mqlocal.clients import with_address
from mqlocal.cluster import LocalCluster, local_cluster
from mqlocal.view import ClusterView
from mqlocal.virtual_loop import Guest, VirtualLoop

ArgumentsT = TypeVarTuple("ArgumentsT")
R = TypeVar("R")


class Way(Protocol):
    """The way for a task of asyncio to call a cluster that runs on trio."""

    async def call(self, function: Callable[[*ArgumentsT], Awaitable[R]], *args: *ArgumentsT) -> R:
        """Call a function of the cluster there, and wait for its result."""
        ...


class AsyncioCluster(ClusterView):
    """A cluster for tasks of asyncio, made by :func:`local_cluster_on_asyncio`.

    It has the methods of a LocalCluster: `producer`, `consumer` and `admin` make clients of it.
    """

    producer = with_address(Producer)
    consumer = with_address(Consumer)
    admin = with_address(Admin)

    def __init__(self, cluster: LocalCluster, way: Way) -> None:
        super().__init__(cluster)
        self._way = way

    def now(self) -> datetime:
        """The time by the cluster's clocks; use it for `deliver_at`."""
        return datetime.fromtimestamp(unix_ms() / 1000, UTC)

    async def leader(self, group: str | None = None) -> str:
        """The name of a group's leader, by default of the first group; waits until there is one."""
        return await self._way.call(self._cluster.leader, group)

    async def kill(self, name: str = "leader") -> str:
        """Kill a server, by default the first group's leader. Returns its name."""
        return await self._way.call(self._cluster.kill, name)

    async def stop(self, name: str = "leader") -> str:
        """Stop a server in order: a leader hands over to another node. Returns its name."""
        return await self._way.call(self._cluster.stop, name)

    async def restart(self, name: str) -> None:
        """Start a server that was killed or stopped, with the files that it left."""
        await self._way.call(self._cluster.restart, name)


@asynccontextmanager
async def local_cluster_on_asyncio(
    *,
    replicas: int = limits.REPLICAS,
    groups: int = 1,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[AsyncioCluster]:
    """Run a cluster until the block ends: see :func:`~mqlocal.cluster.local_cluster`.

    One task may enter the block and another may leave it, as happens with fixtures.
    """
    if trio.lowlevel.in_trio_task():
        raise ConfigError("local_cluster_on_asyncio runs under asyncio: use local_cluster here")
    block = local_cluster(replicas=replicas, groups=groups, settings=settings)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        if isinstance(loop, VirtualLoop):
            inside = _Inside(loop, block)
            stack.push_async_callback(inside.end)
            yield AsyncioCluster(await inside.begin(), inside)
        else:
            portal = stack.enter_context(start_blocking_portal("trio"))
            cluster = stack.enter_context(portal.wrap_async_context_manager(block))
            yield AsyncioCluster(cluster, _Beside(portal))


class _Beside(Way):
    """The cluster is in another thread."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    async def call(self, function: Callable[[*ArgumentsT], Awaitable[R]], *args: *ArgumentsT) -> R:
        return await asyncio.wrap_future(self._portal.start_task_soon(function, *args))


class _Inside(Way):
    """The cluster is a guest of the loop."""

    def __init__(self, loop: VirtualLoop, block: AbstractAsyncContextManager[LocalCluster]) -> None:
        if loop.guest is not None:
            raise ConfigError("a VirtualLoop has one cluster at a time: use its `groups`")
        self._loop = loop
        self._block = block
        self._stop = trio.Event()
        self._ready: asyncio.Future[LocalCluster] = loop.create_future()
        self._guest = loop.guest = Guest(loop, self._main)

    async def _main(self) -> None:
        async with self._block as cluster, trio.open_nursery() as self._calls:
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set_result(cluster)
            await self._stop.wait()
            self._calls.cancel_scope.cancel()

    async def begin(self) -> LocalCluster:
        """Wait until the cluster serves. Raises the error that kept it from that."""
        ended = self._guest.ended
        await _first(self._ready, ended)
        return await self._ready

    async def end(self) -> None:
        """End the cluster and wait for its end. Raises its error if it has failed already."""
        if not self._guest.ended.done():
            self._token.run_sync_soon(self._stop.set)
        await self._guest.ended

    async def call(self, function: Callable[[*ArgumentsT], Awaitable[R]], *args: *ArgumentsT) -> R:
        done: asyncio.Future[R] = self._loop.create_future()

        async def call() -> None:
            try:
                result = await function(*args)
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self._token.run_sync_soon(self._calls.start_soon, call)
        await _first(done, self._guest.ended)
        return await done


async def _first(done: asyncio.Future[R], ended: asyncio.Future[None]) -> None:
    """Wait for the first future. Raises the error that has ended the cluster before that."""
    both: list[asyncio.Future[Any]] = [done, ended]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        await ended
