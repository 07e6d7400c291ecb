"""Requests of one connection keep their order, though some take long."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial

import trio
import trio.testing

from dledger.net.lanes import Lanes


async def test_requests_of_a_connection_end_in_the_order_in_which_they_came() -> None:
    """A connection's requests end in their order, apart from other connections'.

    However long each takes, in whatever order their tasks begin; a request that fails delays none.
    """
    lanes, ended, go = Lanes(), list[str](), trio.Event()

    async def long(name: str) -> None:
        await go.wait()
        ended.append(name)

    async def fail() -> None:
        ended.append("failed")
        raise ValueError("no")

    async def suppressed(answer: Awaitable[None]) -> None:
        with suppress(ValueError):
            await answer

    answers = [
        lanes.follow(1, partial(long, "first")),
        lanes.follow(1, fail),
        lanes.follow(1, partial(ended.append, "third")),
        lanes.follow(2, partial(ended.append, "another's")),
    ]
    assert lanes.is_busy(1)
    assert not lanes.is_busy(3)
    async with trio.open_nursery() as nursery:
        for answer in reversed(answers):
            nursery.start_soon(suppressed, answer)
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["another's"]
        go.set()
    assert ended == ["another's", "first", "failed", "third"]
    assert not lanes.is_busy(1)
