"""Fixtures for tests of the client: event loops, a broker, and a topic for each test."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest
from clusters import serving_cluster

Run = Callable[[Callable[[], Awaitable[None]]], None]

_number = itertools.count()


@pytest.fixture(params=["trio", pytest.param("asyncio", marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test's coroutine under one of the event loops, for 30 s at most.

    Under asyncio only with `--all`. Tests of what the two do in their own ways, of tasks that wait,
    give way or are cancelled, name both themselves.
    """

    def runner(main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(30):
                await main()

        anyio.run(bounded, backend=request.param)

    return runner


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
