"""The load of a run against an attached cluster: our client, or a program that writes a history."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import trio

from mqchaos.limits import STOP_TIMEOUT_S
from mqchaos.run.load.workers import Worker
from mqchaos.run.load.workload import Consume, Produce, caught_up
from mqchaos.run.others.programs import Program


class Clients(Protocol):
    """The clients that send and read. Their histories are in files by the run's end."""

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
        """End the clients that still run."""


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
        return sum(worker.progress.acked for worker in self._producers)

    async def stop_sending(self) -> None:
        """See `Clients`."""
        for worker in self._producers:
            await worker.finish()

    def drained(self) -> bool:
        """See `Clients`."""
        return caught_up(
            [worker.progress for worker in self._producers],
            [worker.progress for worker in self._consumers],
        )

    async def leave(self) -> None:
        """See `Clients`."""
        for worker in self._consumers:
            with trio.move_on_after(STOP_TIMEOUT_S):
                await worker.finish()


class ProgramClients:
    """A program of the operator's."""

    def __init__(self, command: str, history: Path, log: Path) -> None:
        self._program = Program(["/bin/sh", "-c", f"exec {command}"], history, log)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Clients`. Raises ClusterError if it ends with an error."""
        await self._program.run(task_status=task_status)

    @property
    def acked(self) -> int:
        """See `Clients`."""
        return self._program.sending.progress.acked

    async def stop_sending(self) -> None:
        """See `Clients`."""
        await self._program.sending.finish()

    def drained(self) -> bool:
        """See `Clients`."""
        return caught_up([self._program.sending.progress], [self._program.reading.progress])

    async def leave(self) -> None:
        """See `Clients`."""
        with trio.move_on_after(STOP_TIMEOUT_S):
            await self._program.reading.finish()
