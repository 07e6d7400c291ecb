"""Programs that fork: the harness's own, and findings about children with one identity."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from mqchaos.history.events import HistoryWriter
from mqchaos.history.reading import read_history
from mqchaos.run.load.producing import EqualWork, producer_of
from mqchaos.run.load.workload import Produce, clients_of
from mqchaos.run.ordinary.given import against_sharing, shared
from mqclient.connection import identity
from mqlocal import local_cluster

CHILDREN = 2
MESSAGES = 300

PROGRAM = """
import msgspec, sys
from pathlib import Path
from mqchaos.run.load.forking import forked
from mqchaos.run.load.workload import Produce, Progress

task = forked(msgspec.json.decode(sys.argv[1], type=Produce))
print(msgspec.json.encode(Progress(sent=1, ends={task.client: 1})).decode(), flush=True)
sys.stdin.read()
Path(task.history).write_text(str(task.forks))
sys.exit(task.client in sys.argv[2:])
"""


def task_of(folder: Path, namesrv_addr: str, client: str = "p") -> Produce:
    """The task of a program with children."""
    lines = folder / "lines"
    lines.write_text("equal")
    where = (client, namesrv_addr, "T", str(folder / f"{client}.jsonl"))
    return Produce(*where, str(lines), 0, 1, MESSAGES, 500.0, "run", sends="equal", forks=CHILDREN)


@pytest.mark.parametrize("fails", [False, True])
def test_children_work_under_names_of_their_own_and_are_told_as_one(
    tmp_path: Path, *, fails: bool
) -> None:
    """Each ends at the end of its parent's standard input; one that fails makes the program fail.

    Nothing is told before each child has said something.
    """
    task = task_of(tmp_path, "nobody")
    clients = clients_of(task)
    words = [msgspec.json.encode(task).decode(), *clients[:1]][: 1 + fails]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == fails, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told
    assert all((each["sent"], set(each["ends"])) == (CHILDREN, {*clients}) for each in told)
    assert [(tmp_path / f"{each}.jsonl").read_text() for each in clients] == ["0"] * CHILDREN


@pytest.mark.parametrize("before", [False, True])
async def test_an_identity_that_is_made_before_the_fork_is_found(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, before: bool
) -> None:
    """Two children send equal messages at equal times; with equal keys brokers store one of two."""
    if before:
        monkeypatch.setattr(identity.secrets, "token_bytes", bytes)
    async with local_cluster(replicas=1) as cluster, trio.open_nursery() as nursery:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=1, write_queues=1)

        async def child(client: str) -> None:
            task = task_of(tmp_path, cluster.namesrv_addr, client)
            with HistoryWriter(Path(task.history)) as history:
                await EqualWork(task, history, producer_of(task)).run(trio.Event())

        for number in range(CHILDREN):
            nursery.start_soon(child, f"p{number}")
    found = shared(read_history(tmp_path), "G")
    assert (found.acknowledged == CHILDREN * MESSAGES) != before
    assert bool(against_sharing(found, 0.0)) == before
