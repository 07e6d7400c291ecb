"""The fixtures of `mqlocal.plugin` for tests that pytest-asyncio runs: it runs only fixtures
declared to it.

`mqlocal.plugin` loads this module where pytest-asyncio is installed. Pytest-asyncio asks hooks
which event loop a test has, and treats all tests differently as soon as there is such a hook. So
there is a hook only while a test with `mq_virtual_time` is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from mqlocal.fixtures import ON_ASYNCIO, cluster_here

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


@pytest_asyncio.fixture(name=ON_ASYNCIO)
async def mq_cluster_on_asyncio(request: pytest.FixtureRequest) -> AsyncIterator[object]:
    """A cluster, by a function of its own: pytest-asyncio marks the function, and would run the
    other plugin's fixture, too."""
    async for cluster in cluster_here(request):
        yield cluster


class VirtualTime:
    """The hook: a loop whose time is virtual."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], AbstractEventLoop]]:
        """The loops for the test that is being made."""
        from mqlocal import VirtualLoop  # noqa: PLC0415 - pytest loads this module in every run

        return {"virtual": VirtualLoop}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Add the hook while pytest-asyncio makes a test that wants virtual time."""
    if "mq_virtual_time" not in metafunc.fixturenames:
        yield
        return
    plugins, virtual = metafunc.config.pluginmanager, VirtualTime()
    plugins.register(virtual)
    try:
        yield
    finally:
        plugins.unregister(virtual)
