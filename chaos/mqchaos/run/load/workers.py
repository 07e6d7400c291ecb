"""The harness's side of its workers, each a row of processes: one after the other, or deployed."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio
from msgspec.structs import replace

from mqchaos.limits import DEPLOYED_AFTER_S, START_TIMEOUT_S
from mqchaos.run.load.process import Process
from mqchaos.run.load.workload import Consume, Produce, Progress, all_together


class Worker:
    """The processes of one client of a run, one after the other. `progress`: what its processes
    have said; `finished`: whether the last one ended in order.

    With `dies_s` a process is killed after so long, and another comes in its place, with a name of
    its own and a history of its own, until the worker is told to finish.
    """

    def __init__(
        self,
        task: Produce | Consume,
        log: Path,
        dies_s: float | None = None,
        through: Sequence[str] = (),
        started: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._task = task
        self._log = log
        self._dies_s = dies_s
        self._through = through
        self._started = started
        self._before = Progress()
        self._running: list[Process] = []
        self._told_to_finish = trio.Event()
        self.finished = trio.Event()

    @property
    def reader(self) -> str | None:
        """The reader that is given each message once, if this is a consumer."""
        return self._task.reader if isinstance(self._task, Consume) else None

    @property
    def progress(self) -> Progress:
        """Progress of all processes, ended and running."""
        return all_together([self._before, *(each.progress for each in self._running)])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the process and follow it to its end; cancelled, end it at once.

        Raises ClusterError, with the end of its log, if it fails.
        """
        for life in itertools.count(1):
            process = await self._start(life)
            if life == 1:
                task_status.started()
            async with trio.open_nursery() as nursery:
                if self._dies_s is not None:
                    nursery.start_soon(self._kill_later, process, self._dies_s)
                in_order = await self._follow(process)
                nursery.cancel_scope.cancel()
            if in_order:
                break
        self.finished.set()

    async def begun(self) -> None:
        """Wait for processes that were told to begin, and are starting: they can't leave before."""
        with trio.move_on_after(START_TIMEOUT_S):
            for process in [*self._running]:
                if not process.is_idle:
                    await process.begun.wait()

    async def finish(self) -> None:
        """Tell it to finish what it began and to leave, and wait until it has."""
        self._told_to_finish.set()
        await self.finished.wait()

    async def _start(self, life: int, *, waits: bool = False) -> Process:
        process = Process(self._task_of(life, waits=waits), self._log, self._through, self._started)
        await process.start()
        return process

    def _task_of(self, life: int, *, waits: bool) -> Produce | Consume:
        task = self._task
        if isinstance(task, Consume):
            task = replace(task, waits=waits)
        if life == 1:
            return task
        client, history = f"{task.client}-{life}", Path(task.history)
        return replace(task, client=client, history=str(history.with_name(f"{client}.jsonl")))

    async def _follow(self, process: Process) -> bool:
        """Follow a process until it ends; returns whether it ended in order. The end of its
        standard input is its word to finish."""
        self._running.append(process)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, process)
                in_order = await process.follow(may_be_killed=self._dies_s is not None)
                nursery.cancel_scope.cancel()
        finally:
            self._before = all_together([self._before, process.progress])
            self._running.remove(process)
        return in_order

    async def _pass_on(self, process: Process) -> None:
        await self._told_to_finish.wait()
        if process.is_idle:
            process.kill()  # it may need long for its start, only to end
        await process.close_input()

    async def _kill_later(self, process: Process, dies_s: float) -> None:
        """Kill it in the middle of whatever it does, unless it was told to finish before.

        Its time begins when it has done something: on a busy machine a process may need longer for
        its start than it is to live, and so would all that come for it.
        """
        await process.has_worked()
        with trio.move_on_after(dies_s):
            await self._told_to_finish.wait()
            return
        process.kill()


class Deployed(Worker):
    """A consumer that is deployed again and again, as a service is: `deployed` says how often.

    The next process is started while the one before it works, joins, and handles messages; then the
    old one is told to stop in order (SIGTERM). The readers of a file take turns instead: the old
    one has ended before the next one reads. Nobody else of these `turns` is stopped meanwhile.
    """

    def __init__(
        self,
        task: Consume,
        log: Path,
        turns: trio.Semaphore,
        through: Sequence[str] = (),
        started: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(task, log, None, through, started)
        self._turns = turns
        self._side_by_side = task.offsets is None
        self.deployed = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Worker.run`."""
        async with trio.open_nursery() as nursery:
            working = await self._start(1)
            nursery.start_soon(self._follow, working)
            task_status.started()
            await self._comes(working.has_worked)
            for life in itertools.count(2):
                if self._told_to_finish.is_set():
                    break
                waiting = await self._start(life, waits=True)
                nursery.start_soon(self._follow, waiting)
                with trio.move_on_after(DEPLOYED_AFTER_S):
                    await self._told_to_finish.wait()
                if await self._comes(self._turns.acquire):
                    try:
                        if not self._told_to_finish.is_set():
                            await self._replace(working, waiting)
                            working = waiting
                    finally:
                        self._turns.release()
        self.finished.set()

    async def _replace(self, old: Process, new: Process) -> None:
        """Wait until the new process works, in place of the old one. A process that is told to
        finish before it was told to begin does nothing."""
        if self._side_by_side:
            await new.go()
            await self._comes(new.has_worked)
        if self._told_to_finish.is_set():
            return  # it ends by itself, and would hardly hear a signal
        self.deployed += 1
        old.terminate()
        await old.ended.wait()
        if not self._side_by_side:
            await new.go()
            await self._comes(new.has_worked)

    async def _comes(self, wait: Callable[[], Awaitable[None]]) -> bool:
        """Wait for something, unless the worker is told to finish; whether it came. The member that
        has the turn may wait for messages of which no more are sent."""
        came = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_then_cancel, self._told_to_finish, nursery.cancel_scope)
            await wait()
            came = True
            nursery.cancel_scope.cancel()
        return came


async def _then_cancel(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
