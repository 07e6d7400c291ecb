"""Keeps a background task running: no exception of one ends the broker.

A task that meets what nobody foresaw begins again after a pause; the fault is logged with its
traceback, and counted (`mqadmin raftStatus`). A replica whose disk or log can't be trusted is
another matter: the ledger fences it, and the process ends for that alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from dledger.net import Faults
from mqbroker import limits


async def keep_running(name: str, task: Callable[[], Awaitable[None]], faults: Faults) -> None:
    """Run a task until it returns; begin it again when it fails."""
    while True:
        try:
            await task()
        except Exception as error:
            faults.note("task failed", error, task=name)
            await trio.sleep(limits.AFTER_FAULT_S)
        else:
            return
