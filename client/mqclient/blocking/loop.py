"""A thread with an event loop, in which blocking clients run theirs.

The thread is a daemon: a program that forgets to close a client can end all the same. It ends with
`stop`, or with the process. In a fork there is no such thread, and nothing here waits for it.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from threading import Thread

import anyio
import trio
from anyio.from_thread import BlockingPortal

from dledger.errors import BadInput


def check_thread(what: str, instead: str) -> None:
    """Raise BadInput in a task of trio: trio refuses a wait for another event loop there, even the
    wait for the end of that loop."""
    if trio.lowlevel.in_trio_task():
        raise BadInput(
            f"{what} can't be used in a task of trio, whose other tasks would stand still: use "
            f"{instead}, or call it in a thread, by `trio.to_thread.run_sync`"
        )


class Loop:
    """A thread that runs from the moment this is made; `portal` leads into its event loop."""

    def __init__(self, name: str) -> None:
        started: Future[BlockingPortal] = Future()
        self._thread = Thread(target=_run, args=(started,), name=name, daemon=True)
        self._thread.start()
        self.portal = started.result()

    def stop(self, *, cancel: bool) -> None:
        """End the event loop and the thread, when its tasks end, or at once with `cancel`."""
        with suppress(RuntimeError):  # it has ended already
            self.portal.call(self.portal.stop, cancel)
        self._thread.join()


def _run(started: Future[BlockingPortal]) -> None:
    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve, backend="trio")
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
