"""The parts that the plugins for pytest share: the cluster for the event loop of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mqlocal.cluster import LocalCluster
    from mqlocal.on_asyncio import AsyncioCluster

ON_ASYNCIO = "_mq_cluster_on_asyncio"


def wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the marker `mq_cluster`."""
    marker = request.node.get_closest_marker("mq_cluster")
    return {} if marker is None else dict(marker.kwargs)


async def cluster_here(
    request: pytest.FixtureRequest,
) -> AsyncIterator[LocalCluster | AsyncioCluster]:
    """A cluster for the event loop of the test."""
    import trio  # noqa: PLC0415 - pytest loads this module in every run

    if trio.lowlevel.in_trio_task():
        from mqlocal import local_cluster  # noqa: PLC0415 - as above

        async with local_cluster(**wanted(request)) as on_trio:
            yield on_trio
        return
    from mqlocal import local_cluster_on_asyncio  # noqa: PLC0415 - as above

    _check_loop(request)
    async with local_cluster_on_asyncio(**wanted(request)) as cluster:
        yield cluster


def _check_loop(request: pytest.FixtureRequest) -> None:
    """Raise ConfigError if the test wants virtual time, and its loop has none."""
    import asyncio  # noqa: PLC0415 - as above

    from dledger.errors import ConfigError  # noqa: PLC0415 - as above
    from mqlocal import VirtualLoop  # noqa: PLC0415 - as above

    loop = asyncio.get_running_loop()
    if "mq_virtual_time" in request.fixturenames and not isinstance(loop, VirtualLoop):
        raise ConfigError(
            f"mq_virtual_time: the test's loop is a {type(loop).__name__}. pytest-asyncio 1.4 and "
            "newer makes a VirtualLoop for it; for anyio's plugin let the fixture anyio_backend "
            "return ('asyncio', {'loop_factory': mqlocal.VirtualLoop})"
        )
