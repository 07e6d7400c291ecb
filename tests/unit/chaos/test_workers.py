"""Workers that are killed during their work, however slowly they start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import trio
import trio.testing

from mqchaos.run.load.workers import Deployed, Worker
from mqchaos.run.load.workload import Consume

DIES_S = 0.05
SLOW_START = """
import sys, time
time.sleep(0.3)  # longer than it is to live
print('{"acked": 1}', flush=True)
sys.stdin.read()
"""


async def test_a_worker_lives_from_when_it_has_done_something(tmp_path: Path) -> None:
    """A worker's life is counted from its first work, as a busy machine may start it late."""
    task = Consume("c", "nobody", "T", str(tmp_path / "c.jsonl"), "G")
    started: list[str] = []
    through = [sys.executable, "-c", SLOW_START]
    worker = Worker(task, tmp_path / "log", DIES_S, through, started.append)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            while worker.progress.acked < 3:  # noqa: ASYNC110 - progress comes as lines
                await trio.sleep(0.02)
            await worker.finish()
    assert started[:3] == ["c", "c-2", "c-3"]


HANDLES = """
import json, signal, sys
task, told = json.loads(sys.argv[-1]), open(TOLD, 'a')
def tell(what):
    print(what, task['client'], file=told, flush=True)
def stop(*_):
    tell('stops')
    sys.exit()
signal.signal(signal.SIGTERM, stop)
if not task['waits'] or sys.stdin.read(1):
    tell('works')
    print('{"delivered": 1}', flush=True)
    sys.stdin.read()
"""


async def deployments(folder: Path, offsets: str | None) -> Sequence[str]:
    """Acts of a worker's processes, in order, over three deployments."""
    task = Consume("c", "nobody", "T", str(folder / "c.jsonl"), "G", offsets=offsets)
    told = folder / "told"
    through = [sys.executable, "-c", f"TOLD = {str(told)!r}\n{HANDLES}"]
    worker = Deployed(task, folder / "log", trio.Semaphore(1), through)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            while worker.progress.delivered < 4:  # noqa: ASYNC110 - progress comes as lines
                await trio.sleep(0.02)
            await worker.finish()
    # The last one that worked may have been told to finish before it replaced the one before it.
    assert worker.progress.delivered - worker.deployed in (1, 2)
    return told.read_text().splitlines()[:6]


async def test_a_consumer_is_replaced_by_one_that_works_already(tmp_path: Path) -> None:
    """A consumer's successor works before the old process is told to stop, as in services."""
    assert await deployments(tmp_path, None) == [
        *("works c", "works c-2", "stops c", "works c-3", "stops c-2", "works c-4")
    ]


async def test_a_file_is_read_by_one_process_at_a_time(tmp_path: Path) -> None:
    """A file has one reader: the next process starts, and begins when the one before has ended."""
    assert await deployments(tmp_path, str(tmp_path / "offsets")) == [
        *("works c", "stops c", "works c-2", "stops c-2", "works c-3", "stops c-3")
    ]


STARTS_FOR_EVER = """
import json, sys, time
if json.loads(sys.argv[-1])['waits']:
    time.sleep(600)
print('{"delivered": 1}', flush=True)
sys.stdin.read()
"""


async def test_a_process_that_has_not_begun_is_not_waited_for_at_the_end(tmp_path: Path) -> None:
    """A process that has not begun at the end is not waited for: it has nothing to leave."""
    task = Consume("c", "nobody", "T", str(tmp_path / "c.jsonl"), "G")
    turns = trio.Semaphore(1)
    through = [sys.executable, "-c", STARTS_FOR_EVER]
    worker = Deployed(task, tmp_path / "log", turns, through)
    with trio.fail_after(60):
        # The process is not told to begin; nor does the turn end before the worker, if its member
        # waits for messages of which no more are sent.
        async with turns, trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            while not turns.statistics().tasks_waiting:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.02)
            await worker.begun()
            nursery.start_soon(worker.finish)
            await trio.testing.wait_all_tasks_blocked()
    assert worker.progress.delivered == 1
