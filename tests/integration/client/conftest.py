"""Fixtures for tests of the client: a broker, and a topic for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from clusters import serving_cluster

_number = itertools.count()


@pytest.fixture
def topic() -> str:
    """A topic, and a group, that no other test uses."""
    return f"T{next(_number)}"


@pytest.fixture(scope="session")
def namesrv_addr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and a group of one, real processes, that no test stops or sets otherwise."""
    folder = tmp_path_factory.mktemp("cluster")
    with serving_cluster(folder, nodes=1, flush="ASYNC_FLUSH") as cluster:
        yield cluster.layout.namesrv_addr
