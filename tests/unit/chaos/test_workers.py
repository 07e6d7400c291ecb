"""Workers that are killed in the middle of what they do, however slowly they start."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from mqchaos.run.load.workers import Worker
from mqchaos.run.load.workload import Consume

DIES_S = 0.05
SLOW_START = """
import sys, time
time.sleep(0.3)  # longer than it is to live
print('{"acked": 1}', flush=True)
sys.stdin.read()
"""


async def test_a_worker_lives_from_when_it_has_done_something(tmp_path: Path) -> None:
    """Else a busy machine kills each that comes before it has begun, and nobody ever sends."""
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
