"""The harness's side of its worker processes: start, follow, tell to finish, end."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import trio
from msgspec.structs import replace

from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.limits import DEPLOYED_AFTER_S, PROGRESS_INTERVAL_S, WORKER_LINE_BYTES_MAX
from mqchaos.run.load.workload import Consume, Produce, Progress, clients_of, together


class Worker:
    """One worker process. `progress` is what it said last; `finished` that it ended in order.

    With `dies_s` it is killed after so long, and another comes in its place, with a name of its own
    and a history of its own, until it is told to finish. With `turns` it is told to stop in order
    (SIGTERM) once it has worked for a while; nobody else of these `turns` is meanwhile, until the
    one that comes in its place works. `through` is a command that becomes the
    one behind it. `started` is told the name of each whose history has begun.
    """

    def __init__(
        self,
        task: Produce | Consume,
        log: Path,
        dies_s: float | None = None,
        through: Sequence[str] = (),
        started: Callable[[str], None] = lambda _: None,
        turns: trio.Semaphore | None = None,
    ) -> None:
        self._task = task
        self._started = started
        self._through = through
        self._log = log
        self._dies_s = math.inf if dies_s is None else dies_s
        self._turns = turns
        self._has_turn = False
        self.deployed = 0
        self._before = Progress()
        self._now = Progress()
        self._told_to_finish = trio.Event()
        self.finished = trio.Event()

    @property
    def reader(self) -> str | None:
        """Who is given each message once, if it is a consumer."""
        return self._task.reader if isinstance(self._task, Consume) else None

    @property
    def progress(self) -> Progress:
        """Of all that were killed, and of the one that runs."""
        return together(self._before, self._now)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the process and follow it to its end; cancelled, end it at once.

        Raises ClusterError, with the end of its log, if it fails: a run without it proves nothing.
        """
        for life in itertools.count(1):
            task = self._task if life == 1 else self._again(life)
            process = await self._start(task)
            if life == 1:
                task_status.started()
            if await self._live(process, task):
                break
            self._before, self._now = self.progress, Progress()
        self.finished.set()

    def _again(self, life: int) -> Produce | Consume:
        client, history = f"{self._task.client}-{life}", Path(self._task.history)
        return replace(self._task, client=client, history=str(history.with_name(f"{client}.jsonl")))

    async def _start(self, task: Produce | Consume) -> trio.Process:
        argv = [
            *self._through,
            sys.executable,
            "-P",
            "-m",
            "mqchaos.run.load.work",
            msgspec.json.encode(task).decode(),
        ]
        with self._log.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal is the harness's business.
            return await trio.lowlevel.open_process(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    async def _live(self, process: trio.Process, task: Produce | Consume) -> bool:
        """Follow one process; returns whether it ended in order, and nobody comes for it."""
        killed, deployed = False, self.deployed
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, process)
                if math.isfinite(self._dies_s):
                    nursery.start_soon(self._kill_later, process)
                if self._turns is not None:
                    nursery.start_soon(self._deploy, process, self._turns)
                await self._follow(process, task)
                nursery.cancel_scope.cancel()
            status = await process.wait()
            killed = status == -signal.SIGKILL and math.isfinite(self._dies_s)
        finally:
            _kill(process)
        if status and not killed:
            raise ClusterError(
                f"the worker {self._task.client} ended with status {status}.\n{log_tail(self._log)}"
            )
        return not killed and (self.deployed == deployed or self._told_to_finish.is_set())

    async def _deploy(self, process: trio.Process, turns: trio.Semaphore) -> None:
        """Tell it to stop once it has worked for a while, unless it was told to finish before.

        Until the one in its place works, nobody else is told to.
        """
        while not self._now.delivered:  # noqa: ASYNC110 - progress comes as lines
            await trio.sleep(PROGRESS_INTERVAL_S)
        if self._has_turn:
            self._has_turn = False
            turns.release()
        await trio.sleep(DEPLOYED_AFTER_S)
        await turns.acquire()
        self._has_turn = True
        if not self._told_to_finish.is_set():
            self.deployed += 1
            process.terminate()

    async def _kill_later(self, process: trio.Process) -> None:
        """Kill it in the middle of whatever it does, unless it was told to finish before.

        Its time begins when it has done something: on a busy machine a process may need longer for
        its start than it is to live, and so would all that come for it.
        """
        while not (self._now.acked or self._now.delivered):  # noqa: ASYNC110 - it comes as lines
            await trio.sleep(PROGRESS_INTERVAL_S)
        with trio.move_on_after(self._dies_s):
            await self._told_to_finish.wait()
            return
        _kill(process)

    async def finish(self) -> None:
        """Tell it to finish what it began and to leave, and wait until it has."""
        self._told_to_finish.set()
        await self.finished.wait()

    async def _pass_on(self, process: trio.Process) -> None:
        """The end of its standard input is the word to finish."""
        await self._told_to_finish.wait()
        if process.stdin is not None:
            await process.stdin.aclose()

    async def _follow(self, process: trio.Process, task: Produce | Consume) -> None:
        """Keep `progress` up to date until the process closes its output."""
        decoder, is_new = msgspec.json.Decoder(Progress), True
        buffered = bytearray()
        if process.stdout is None:
            return
        async with process.stdout as output:
            async for chunk in output:
                buffered += chunk
                *lines, rest = bytes(buffered).split(b"\n")
                buffered = bytearray(rest)
                if lines:
                    self._now = decoder.decode(lines[-1])
                    if is_new:
                        for each in clients_of(task):
                            self._started(each)
                        is_new = False
                if len(buffered) > WORKER_LINE_BYTES_MAX:
                    raise ClusterError(f"{self._task.client} printed a line without an end")


def _kill(process: trio.Process) -> None:
    """End it at once, and what it has forked: its session is its own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
