"""A load that is a program: it prints a history, and has senders and readers in one process.

It prints events (docs/reference/chaos.md), one a line; lines that are none are passed over. It
stops sending at the first line on its standard input, says `{"kind":"sent"}` when all that was
begun has an outcome, and ends at the second. The harness keeps of it what it keeps of its own
workers: sums, and where each queue ends.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
import trio

from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.history.events import Ack, Deliver, End, Event, Fail, Send
from mqchaos.limits import WORKER_LINE_BYTES_MAX
from mqchaos.run.load.workload import Progress


class Sent(msgspec.Struct, tag_field="kind", tag="sent"):
    """All that was begun has an outcome. It is no event of a history."""


_decoder = msgspec.json.Decoder(Event | Sent)


class Client(Protocol):
    """A client that sends or reads in a run: a worker of ours, or one half of a program."""

    @property
    def progress(self) -> Progress:
        """The progress that the client reported last."""

    @property
    def finished(self) -> trio.Event:
        """Set when the client has ended in order."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start it and follow it to its end. Raises ClusterError if it fails."""

    async def begun(self) -> None:
        """Wait for what is just starting."""

    async def finish(self) -> None:
        """Tell it to finish what it began, and wait until it has."""


class Half:
    """The senders of a program, or its readers. The first one that runs runs all of it."""

    def __init__(self, program: Program, *, reads: bool) -> None:
        self._program = program
        self._reads = reads
        self.progress = Progress()
        self.finished = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Client`."""
        if self._reads:
            await self._program.run(task_status=task_status)
        else:
            task_status.started()
            await self.finished.wait()

    async def begun(self) -> None:
        """Nothing to wait for: its program ends at any time."""

    async def finish(self) -> None:
        """See `Client`."""
        await self._program.tell()
        await self.finished.wait()


class Program:
    """A client of other people's, as a process. `argv` may be a line for a shell, as its only
    word."""

    def __init__(self, argv: Sequence[str], history: Path, log: Path) -> None:
        self._argv, self._history, self._log = argv, history, log
        self._process: trio.Process | None = None
        self.sending = Half(self, reads=False)
        self.reading = Half(self, reads=True)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start it and follow it to its end; cancelled, end it. ClusterError if it fails."""
        with self._log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                list(self._argv),
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
            await _ended(self._process)
        if status:
            raise ClusterError(
                f"the workload ended with status {status}: {' '.join(self._argv)[:500]}\n"
                f"{log_tail(self._log)}"
            )
        self.sending.finished.set()
        self.reading.finished.set()

    async def tell(self) -> None:
        """The next word: to send no more, and then to end."""
        if self._process is not None and self._process.stdin is not None:
            try:
                await self._process.stdin.send_all(b"\n")
            except trio.BrokenResourceError:
                return

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
                    if len(buffered) > WORKER_LINE_BYTES_MAX:
                        raise ClusterError("the workload printed a line without an end")
                file.write(msgspec.json.encode(End(time.monotonic_ns())) + b"\n")

    def _take(self, line: bytes, file: BinaryIO) -> None:
        """Write down a line if it is an event that is known."""
        try:
            event = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return
        if isinstance(event, Sent):
            self.sending.finished.set()
            return
        file.write(line + b"\n")
        self._note(event)

    def _note(self, event: Event) -> None:
        sent, read = self.sending.progress, self.reading.progress
        if isinstance(event, Send):
            sent.sent += 1
        elif isinstance(event, Ack):
            sent.acked += 1
            sent.reach(f"{event.broker}/{event.queue_id}", event.offset + 1)
        elif isinstance(event, Fail):
            sent.failed += 1
            sent.error = event.error
        elif isinstance(event, Deliver):
            read.delivered += 1
            read.reach(f"{event.broker}/{event.queue_id}", event.offset + 1)


async def _ended(process: trio.Process) -> None:
    """Whatever it does: nothing of it is left."""
    with trio.CancelScope(shield=True):
        if process.poll() is None:
            process.kill()
        await process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                await pipe.aclose()
