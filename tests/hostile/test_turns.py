"""Turns of a broker's loop: every code, at the largest state and with the dearest requests.

Each request is handled by the real connection code, in a broker whose tables are as full as they
may be. No turn of the loop may be longer than 100 ms, beside what this machine needs for a fixed
piece of work. A code that is added must be added to `dearest`.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import structlog.testing
import trio
from dearest import REQUESTS, dear_headers
from largest import NOW_MS, Largest, largest
from metering import Asker, machine_pace

import dledger.net.turns as turns_module
from dledger.checksum import crc32
from dledger.errors import shown
from dledger.limits import LOOP_SLICE_S, LOOP_STALL_S
from dledger.net import Connection, Faults, Handler
from dledger.net.turns import Turns, in_turns
from dledger.program.logs import _cut_long_texts
from dledger.program.settings import unknown_key
from dledger.remoting.command import Command
from dledger.slices import drained
from dledger.testing.logs import capture_logs
from mqbroker import limits
from mqbroker.state.machine import Machine
from mqbroker.state.saved.snapshot import read_snapshot
from mqbroker.state.topics import Birth

T = TypeVar("T")

TRIES = 3
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


class Clock:
    """A clock that stands still but for what a test says."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def asker() -> AsyncIterator[tuple[Largest, Asker]]:
    """A client of the largest broker."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, capture_logs():
        async with largest(Path(directory)) as big, trio.open_nursery() as nursery:
            gc.collect()
            gc.freeze()
            client = Asker(big.broker.handler, big.core.faults, nursery)
            yield big, client
            client.close()
            nursery.cancel_scope.cancel()


def test_errors_quote_no_more_of_a_request_than_its_beginning() -> None:
    """Errors for the client, and log lines, quote the beginning of a request alone."""
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
    """Long tasks of many clients are sliced, and turns stay as short as with one."""
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


def fill_the_rest(machine: Machine) -> None:
    """Fill the tables that requests don't need: keys, locks, half messages, popped messages."""
    queues = range(limits.QUEUES_PER_TOPIC_MAX)
    keys = (b"Wide0\0%036d" % number for number in range(limits.DEDUP_ENTRIES_MAX))
    machine.dedup.add_all((key, (number, 1)) for number, key in enumerate(keys))
    rows = [
        (f"G{number}", "Wide0", queue_id, "c1", NOW_MS)
        for number in range(limits.LOCKS_MAX // len(queues))
        for queue_id in queues
    ]
    machine.locks.restore(rows, [*range(len(rows))], NOW_MS)
    births = {topic.topic_name: [Birth(0, 1, 1, 1)] for topic in machine.topics}
    machine.topics.restore([*machine.topics], machine.topics.version, births)
    for number in range(limits.TRANSACTIONS_MAX // 4):
        machine.halves.add(number, NOW_MS, (f"Topic-{number % 20_000}", f"P{number}"))
    flying = [(base, b"\1", base, NOW_MS, 1, "") for base in range(8192)]
    machine.popped.restore(("G0", "Wide0", queue_id, 9000, 1, flying) for queue_id in range(8))


async def test_no_slice_of_a_state_that_is_read_or_taken_over_is_long(tmp_path: Path) -> None:
    """Reading and taking over a whole state has short slices, between which clients are served."""
    pace = machine_pace()

    def longest_of(slices: Generator[object, None, T]) -> tuple[list[float], T]:
        took_s = list[float]()
        while True:
            began_s = time.thread_time()
            try:
                next(slices)
            except StopIteration as end:
                return took_s, end.value
            finally:
                took_s.append((time.thread_time() - began_s) / pace)

    async with asker() as (big, _):
        machine = big.machine
        fill_the_rest(machine)
        saving, pending = longest_of(machine.begin_snapshot())
        assert max(saving) < LOOP_STALL_S
        assert sum(saving) < 1.5
        giving, (index, payload) = longest_of(machine.capture())
        assert max(giving) < LOOP_STALL_S
        pending.write()
        assert read_snapshot(machine._snapshot_path) == payload
        for number in range(TRIES):
            given = Machine(tmp_path / f"{number}")
            taking, _ = longest_of(given.install(index, payload, 1))
            if max(taking) < LOOP_STALL_S:
                break
            given.close()
        assert max(taking) < LOOP_STALL_S
        for table in ("popped", "producers"):
            pictures = [drained(getattr(each, table).picture()) for each in (machine, given)]
            ours, theirs = (crc32(b"".join(picture.pieces())) for picture in pictures)
            assert ours == theirs, table
        given.close()


async def test_no_header_makes_a_turn_of_the_loop_long() -> None:
    """A header with as many fields, lists and digits as fit costs no more than a request may."""
    pace, slow = machine_pace(), list[str]()
    faults = Faults()
    with structlog.testing.capture_logs():
        async with trio.open_nursery() as nursery:
            client = Asker(_Echo(), faults, nursery)
            for number, frame in enumerate(dear_headers()):
                taken_s = await client.longest_turn_of_frame_s(frame, pace)
                if taken_s > LOOP_STALL_S:
                    slow.append(f"{number}: {taken_s:.3f} s, {frame[:60]!r}")
            client.close()
            nursery.cancel_scope.cancel()
    assert faults.count == 0, faults.last
    assert not slow, "\n".join(slow)


class _Echo(Handler):
    """A handler that answers every request."""

    def __call__(self, request: Command, _: Connection) -> Command:
        return request.reply()


async def test_no_code_makes_a_turn_of_the_loop_long() -> None:
    """A request of any code at the largest state delays others by 100 ms at most."""
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
