"""A server in the test's process: a task that can be killed, as a process can, and started again.

A kill is a cancellation. It closes the server's sockets, which other servers see at once, and
leaves its files as they are: acknowledged messages are there, as after the kill of a process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from anyio.abc import TaskGroup

from dledger.observe import labelled

Stop = Callable[[], Awaitable[None]]
Serve = Callable[[Stop], Awaitable[None]]
"""Serves until its argument returns."""


class Server:
    """A server with a name, which its log lines have."""

    def __init__(self, name: str, serve: Serve) -> None:
        self.name = name
        self._serve = serve
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._ended: trio.Event | None = None

    @property
    def runs(self) -> bool:
        """Whether the server was started, and has not ended."""
        return self._ended is not None and not self._ended.is_set()

    def start(self, tasks: TaskGroup) -> None:
        """Run the server, from the files that it has."""
        self._scope, self._stop, self._ended = trio.CancelScope(), trio.Event(), trio.Event()
        tasks.start_soon(self._run, self._ended, name=self.name)

    async def kill(self) -> None:
        """End the server at once."""
        self._scope.cancel()
        await self._end()

    async def stop(self) -> None:
        """End the server as SIGTERM does: a leader hands over first."""
        self._stop.set()
        await self._end()

    async def _end(self) -> None:
        if self._ended is not None:
            await self._ended.wait()

    async def _run(self, ended: trio.Event) -> None:
        try:
            with labelled(server=self.name), self._scope:
                await self._serve(self._stop.wait)
        finally:
            ended.set()
