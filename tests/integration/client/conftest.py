"""What tests of the client share: both event loops, and topics that no other test uses."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import anyio
import pytest

Run = Callable[[Callable[[], Awaitable[None]]], None]

_number = itertools.count()


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test's coroutine under one of the event loops, for 30 s at most."""

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
