"""The load of a run against an attached cluster: our client, or any program that writes a history.

Such a program prints events (docs/chaos.md), one a line; lines that are none are passed over. It
stops sending at the first line on its standard input, and ends at the second.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.limits import STOP_TIMEOUT_S
from mqchaos.run.history import Event
from mqchaos.run.load.workers import Worker
from mqchaos.run.load.workload import Consume, Produce, Progress, caught_up

_decoder = msgspec.json.Decoder(Event)


class Clients(Protocol):
    """Those who send and read. Their histories are in files by the run's end."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start them, and follow them to their end."""

    @property
    def acked(self) -> int:
        """How many sends were acknowledged so far."""

    async def stop_sending(self) -> None:
        """Return when all that was begun has an outcome."""

    def drained(self) -> bool:
        """Whether all that was acknowledged has been delivered, as far as they can say."""

    async def leave(self) -> None:
        """End them."""


class OurClients:
    """Two producers and two members of a consumer group, as in other runs."""

    def __init__(self, producers: list[Produce], consumers: list[Consume], folder: Path) -> None:
        def worker(task: Produce | Consume) -> Worker:
            return Worker(task, folder / f"{task.client}.log")

        self._producers = list(map(worker, producers))
        self._consumers = list(map(worker, consumers))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Clients`."""
        async with trio.open_nursery() as nursery:
            for worker in [*self._consumers, *self._producers]:
                await nursery.start(worker.run)
            task_status.started()

    @property
    def acked(self) -> int:
        """See `Clients`."""
        return sum(self._progress(worker).acked for worker in self._producers)

    async def stop_sending(self) -> None:
        """See `Clients`."""
        for worker in self._producers:
            await worker.finish()

    def drained(self) -> bool:
        """See `Clients`."""
        return caught_up(
            [self._progress(worker) for worker in self._producers],
            [self._progress(worker) for worker in self._consumers],
        )

    async def leave(self) -> None:
        """See `Clients`."""
        for worker in self._consumers:
            with trio.move_on_after(STOP_TIMEOUT_S):
                await worker.finish()

    def _progress(self, worker: Worker) -> Progress:
        return worker.progress


class ProgramClients:
    """A program of the operator's."""

    def __init__(self, command: str, history: Path, log: Path) -> None:
        self._command, self._history, self._log = command, history, log
        self._process: trio.Process | None = None
        self._sent = trio.Event()
        self._unread: set[str] = set()
        self._read: set[str] = set()
        self.acked = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Clients`. Raises ClusterError if it ends with an error."""
        with self._log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                ["/bin/sh", "-c", f"exec {self._command}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        task_status.started()
        try:
            await self._follow(self._process)
            status = await self._process.wait()
        finally:
            if self._process.poll() is None:
                self._process.kill()
        self._sent.set()
        if status:
            raise ClusterError(
                f"the workload ended with status {status}: {self._command}\n{log_tail(self._log)}"
            )

    async def _follow(self, process: trio.Process) -> None:
        buffered = bytearray()
        assert process.stdout is not None
        async with process.stdout as output:
            with self._history.open("xb") as file:
                async for chunk in output:
                    *lines, rest = bytes(buffered + chunk).split(b"\n")
                    buffered = bytearray(rest)
                    for line in lines:
                        self._take(line, file)

    def _take(self, line: bytes, file: object) -> None:
        """Write down a line if it is an event that is known."""
        if line.startswith(b'{"kind":"sent"'):
            self._sent.set()
            return
        try:
            event = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return
        file.write(line + b"\n")  # type: ignore[attr-defined]
        kind, name = type(event).__name__, getattr(event, "id", "")
        if kind == "Ack":
            self.acked += 1
            if name not in self._read:
                self._unread.add(name)
        elif kind == "Deliver":
            self._unread.discard(name)
            self._read.add(name)

    async def _tell(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                await self._process.stdin.send_all(b"\n")
            except trio.BrokenResourceError:
                return

    async def stop_sending(self) -> None:
        """See `Clients`."""
        await self._tell()
        await self._sent.wait()

    def drained(self) -> bool:
        """See `Clients`."""
        return not self._unread

    async def leave(self) -> None:
        """See `Clients`."""
        await self._tell()
        with trio.move_on_after(STOP_TIMEOUT_S):
            assert self._process is not None
            await self._process.wait()
