"""A thread that does one piece of work after another, and tells its event loop of each end at once.

To hand a piece to the library's threads takes two turns of the loop and a dozen locks: 60 us, a
third of what a disk takes for a sync, where this takes 20. Here work is given by a call, and its
end is a byte in a pipe, for which one task of the loop waits.

A worker belongs to one loop. It does one piece of work at a time; there is no queue.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

import trio

#: A piece of work. What it raises is handed to who waits for its end.
Work = Callable[[], object]


class Worker(Protocol):
    """Does what may wait for a disk, while the loop goes on."""

    def begin(self, work: Work) -> None:
        """Begin a piece of work. The piece before must have ended, and been waited for."""

    async def ended(self) -> None:
        """Return when a piece has ended, be it begun already or later.

        Raises what it raised. Cancelling the wait does not stop the work.
        """

    async def close(self) -> None:
        """Wait for the piece that is under way, and end the thread. Nothing is begun after that.

        Raises what that piece raised, if nobody has waited for its end. A cancelled task may call
        it, and more than one.
        """


class ThreadWorker:
    """A worker with a thread, which begins with the first piece of work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._asked: SimpleQueue[Work | None] = SimpleQueue()
        self._errors: SimpleQueue[BaseException | None] = SimpleQueue()
        self._hears, self._says = os.pipe()
        self._busy = self._closed = False

    def begin(self, work: Work) -> None:
        """See `Worker`."""
        assert not self._busy, "the piece of work before has not ended"
        assert not self._closed, "the worker is closed"
        self._busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._asked.put(work)

    async def ended(self) -> None:
        """See `Worker`."""
        await trio.lowlevel.wait_readable(self._hears)
        os.read(self._hears, 1)
        self._busy = False
        error = self._errors.get_nowait()
        if error is not None:
            raise error

    async def close(self) -> None:
        """See `Worker`."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._busy:
                with trio.CancelScope(shield=True):
                    await self.ended()
        finally:
            if self._thread is not None:
                self._asked.put(None)
                self._thread.join()
            os.close(self._hears)
            os.close(self._says)

    def _work(self) -> None:
        while (work := self._asked.get()) is not None:
            try:
                work()
            except BaseException as error:
                self._errors.put(error)
            else:
                self._errors.put(None)
            os.write(self._says, b".")
            # The last piece, and all that it holds, would live until the next one.
            del work


class InstantWorker:
    """A worker without a thread, for a world whose time is not the machine's: the work is done
    when its end is waited for."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._begun = trio.Event()

    def begin(self, work: Work) -> None:
        """See `Worker`."""
        assert self._work is None, "the piece of work before has not ended"
        self._work = work
        self._begun.set()

    async def ended(self) -> None:
        """See `Worker`."""
        await self._begun.wait()
        self._begun = trio.Event()
        work, self._work = self._work, None
        assert work is not None
        work()

    async def close(self) -> None:
        """See `Worker`."""
        if self._work is not None:
            with trio.CancelScope(shield=True):
                await self.ended()
