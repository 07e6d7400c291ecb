"""No question stops the loop: every code, at the largest state and with the dearest requests.

Each request is handled by the real connection code, in a broker whose tables are as full as they
may be. No turn of the loop may be longer than 100 ms, beside what this machine needs for a fixed
piece of work. A code that is added must be added to `dearest`.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from dearest import REQUESTS
from largest import Largest, largest
from metering import Asker, machine_pace

import dledger.net.turns as turns_module
from dledger.errors import shown
from dledger.limits import LOOP_SLICE_S, LOOP_STALL_S
from dledger.net.turns import Turns, in_turns
from dledger.program.logs import _cut_long_texts
from dledger.program.settings import unknown_key
from dledger.remoting.command import Command
from dledger.testing.logs import capture_logs

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


class Clock:
    """A clock that stands still but for what a test says."""

    now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@asynccontextmanager
async def asker() -> AsyncIterator[tuple[Largest, Asker]]:
    """The largest broker, and a client of it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, capture_logs():
        async with largest(Path(directory)) as big, trio.open_nursery() as nursery:
            gc.collect()
            gc.freeze()
            client = Asker(big.broker.handler, big.core.faults, nursery)
            yield big, client
            client.close()
            nursery.cancel_scope.cancel()


def test_errors_quote_no_more_of_a_request_than_its_beginning() -> None:
    """Neither to the client nor in the log, which one request would fill with megabytes."""
    long = "x" * 10**6
    assert len(shown(long)) < 300
    assert len(unknown_key(long, ["key"])) < 300
    answer = Command(1).reply(1, remark=f"no such {long} thing")
    assert answer.remark is not None
    assert len(answer.remark) < 4200
    assert "1000014 characters" in answer.remark
    line = _cut_long_texts(None, "info", {"event": "e", "reason": long + " the end"})
    assert len(line["reason"]) < 17_000
    assert line["reason"].endswith("the end")


async def test_long_tasks_of_many_clients_share_the_loop() -> None:
    """Each is split into slices, and the turns of the loop stay as short as with one."""
    clock = Clock()
    turns_module._turns.set(turns := Turns(clock))
    trio.lowlevel.add_instrument(turns)
    longest_s, began_s, others = 0.0, 0.0, True

    def steps() -> Iterator[None]:
        for _ in range(20):
            clock.now_s += LOOP_SLICE_S / 2
            yield

    async def watch() -> None:
        nonlocal longest_s, began_s
        while others:
            await trio.lowlevel.checkpoint()
            longest_s, began_s = max(longest_s, clock.now_s - began_s), clock.now_s

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        async with trio.open_nursery() as tasks:
            for _ in range(100):
                tasks.start_soon(in_turns, steps())
        others = False
    assert clock.now_s == pytest.approx(100 * 20 * LOOP_SLICE_S / 2)
    assert longest_s < LOOP_STALL_S / 2


async def test_no_code_makes_a_turn_of_the_loop_long() -> None:
    """Whatever is asked of the largest state, others are served within 100 ms."""
    pace, slow = machine_pace(), list[str]()
    async with asker() as (big, client):
        assert set(REQUESTS) == set(big.broker.handler.table)
        for code, requests in REQUESTS.items():
            async for number, request, taken_s in client.longest_turns_s(requests, pace):
                if taken_s > LOOP_STALL_S:
                    told = f"{str(request.ext)[:80]} {bytes(request.payload[:40])!r}"
                    slow.append(f"{code!r} {number}: {taken_s:.3f} s, {told}")
        assert big.core.faults.count == 0, big.core.faults.last
    assert not slow, "\n".join(slow)
