"""A process of a worker, seen from the harness: start, follow, tell, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import trio

from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.limits import PROGRESS_INTERVAL_S, WORKER_LINE_BYTES_MAX
from mqchaos.run.load.workload import Consume, Produce, Progress, clients_of


class Process:
    """A process of a worker. `progress`: what it said last. `begun`: whether it has said something.
    `ended`: whether it is gone, and nobody has to wait for it.

    `through` is a command that becomes the one behind it. `started` gets the name of each
    client whose history has begun.
    """

    def __init__(
        self,
        task: Produce | Consume,
        log: Path,
        through: Sequence[str] = (),
        started: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.task = task
        self.progress = Progress()
        self.begun, self.ended = trio.Event(), trio.Event()
        #: Whether the process waits for the word to begin, and has done nothing.
        self.is_idle = isinstance(task, Consume) and task.waits
        self._log = log
        self._through = through
        self._started = started
        self._process: trio.Process

    async def start(self) -> None:
        """Start it; follow it then."""
        argv = [
            *self._through,
            sys.executable,
            "-P",
            "-m",
            "mqchaos.run.load.work",
            msgspec.json.encode(self.task).decode(),
        ]
        with self._log.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal is the harness's business.
            self._process = await trio.lowlevel.open_process(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    async def follow(self, *, may_be_killed: bool = False) -> bool:
        """Keep `progress` up to date until it ends; cancelled, end it at once.

        Returns whether it ended in order. Raises ClusterError, with the end of its log, if it
        failed: a run without it proves nothing.
        """
        try:
            await self._follow()
            status = await self._process.wait()
        finally:
            self.kill()
            self.begun.set()
            self.ended.set()
        if status == -signal.SIGKILL and (may_be_killed or self.is_idle):
            return False
        if status:
            raise ClusterError(
                f"the worker {self.task.client} ended with status {status}.\n{log_tail(self._log)}"
            )
        return True

    async def go(self) -> None:
        """Tell it to begin, if its task says that it waits for that."""
        self.is_idle = False
        if self._process.stdin is not None:
            try:
                await self._process.stdin.send_all(b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # it has ended, and whoever follows it says why; or is told to

    async def close_input(self) -> None:
        """Tell it to finish what it has begun, and to leave."""
        if self._process.stdin is not None:
            await self._process.stdin.aclose()

    def terminate(self) -> None:
        """Tell it to stop in order, as a service manager does."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once, and what it has forked: its session is its own."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    async def has_worked(self) -> None:
        """Wait until something was acknowledged or handled."""
        while not (self.progress.acked or self.progress.delivered):  # noqa: ASYNC110 - it comes as lines
            await trio.sleep(PROGRESS_INTERVAL_S)

    async def _follow(self) -> None:
        decoder, is_new = msgspec.json.Decoder(Progress), True
        buffered = bytearray()
        if self._process.stdout is None:
            return
        async with self._process.stdout as output:
            async for chunk in output:
                buffered += chunk
                *lines, rest = bytes(buffered).split(b"\n")
                buffered = bytearray(rest)
                if lines:
                    self.progress = decoder.decode(lines[-1])
                    self.begun.set()
                    if is_new:
                        for each in clients_of(self.task):
                            self._started(each)
                        is_new = False
                if len(buffered) > WORKER_LINE_BYTES_MAX:
                    raise ClusterError(f"{self.task.client} printed a line without an end")
