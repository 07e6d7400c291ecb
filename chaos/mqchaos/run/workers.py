"""The harness's side of its worker processes: start, follow, tell to finish, end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import trio

from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.limits import WORKER_LINE_BYTES_MAX
from mqchaos.run.workload import Consume, Produce, Progress


class Worker:
    """One worker process. `progress` is what it said last; `finished` that it ended in order."""

    def __init__(self, task: Produce | Consume, log: Path) -> None:
        self._task = task
        self._log = log
        self._told_to_finish = trio.Event()
        self.progress = Progress()
        self.finished = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the process and follow it to its end; cancelled, end it at once.

        Raises ClusterError, with the end of its log, if it fails: a run without it proves nothing.
        """
        argv = [
            sys.executable,
            "-P",
            "-m",
            "mqchaos.run.work",
            msgspec.json.encode(self._task).decode(),
        ]
        with self._log.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal is the harness's business.
            process = await trio.lowlevel.open_process(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, process)
                await self._follow(process)
                nursery.cancel_scope.cancel()
            status = await process.wait()
        finally:
            if process.poll() is None:
                process.kill()
        if status:
            raise ClusterError(
                f"the worker {self._task.client} ended with status {status}.\n{log_tail(self._log)}"
            )
        self.finished.set()

    async def finish(self) -> None:
        """Tell it to finish what it began and to leave, and wait until it has."""
        self._told_to_finish.set()
        await self.finished.wait()

    async def _pass_on(self, process: trio.Process) -> None:
        """The end of its standard input is the word to finish."""
        await self._told_to_finish.wait()
        if process.stdin is not None:
            await process.stdin.aclose()

    async def _follow(self, process: trio.Process) -> None:
        """Keep `progress` up to date until the process closes its output."""
        decoder = msgspec.json.Decoder(Progress)
        buffered = bytearray()
        if process.stdout is None:
            return
        async with process.stdout as output:
            async for chunk in output:
                buffered += chunk
                *lines, rest = bytes(buffered).split(b"\n")
                buffered = bytearray(rest)
                if lines:
                    self.progress = decoder.decode(lines[-1])
                if len(buffered) > WORKER_LINE_BYTES_MAX:
                    raise ClusterError(f"{self._task.client} printed a line without an end")
