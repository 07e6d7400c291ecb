"""The fixtures for pytest. Installed with dledger, pytest finds them by itself.

`mq_cluster` is a cluster of three replicas for an asynchronous test under trio (pytest-trio, or
anyio's plugin). It is on virtual time if the test has pytest-trio's `autojump_clock`.
`mq_cluster_in_thread` is one on loopback for any other test. The marker
`@pytest.mark.mq_cluster(replicas=1, groups=2, settings={...})` says what it shall be.

What the cluster's servers warn of is logged, which pytest shows with a test that fails; each line
names the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mqlocal.cluster import LocalCluster
    from mqlocal.threaded import ThreadedCluster


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line(
        "markers",
        "mq_cluster(replicas=3, groups=1, settings={}): what the fixture mq_cluster shall be",
    )


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("mq_cluster")
    return {} if marker is None else dict(marker.kwargs)


@pytest.fixture
async def mq_cluster(request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """A cluster in the test's own event loop."""
    from mqlocal import local_cluster  # noqa: PLC0415 - pytest loads this in every run

    async with local_cluster(**_wanted(request)) as cluster:
        yield cluster


@pytest.fixture
def mq_cluster_in_thread(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    """A cluster in a thread of its own, on loopback."""
    from mqlocal import local_cluster_in_thread  # noqa: PLC0415 - likewise

    with local_cluster_in_thread(**_wanted(request)) as cluster:
        yield cluster
