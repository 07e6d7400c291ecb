"""Waiting for a change of the replicated state, where a handler may take its time."""

from __future__ import annotations

import trio

from broker.leader.definitions import Definitions
from broker.state.control import Control
from dledger.errors import AppendError
from dledger.raft.engine import Appended


class Outcome:
    """The outcome of one append: pass `set` as its `on_done`, then `await wait()`."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._outcome: Appended | AppendError | None = None

    def set(self, outcome: Appended | AppendError) -> None:
        """Called when the entry is applied, or will not be."""
        self._outcome = outcome
        self._event.set()

    async def wait(self) -> object:
        """What applying the entry returned. Raises AppendError."""
        await self._event.wait()
        if isinstance(self._outcome, Appended):
            return self._outcome.result
        assert self._outcome is not None
        raise self._outcome


async def changed(definitions: Definitions, control: Control) -> object:
    """Make a change and wait until it is applied. Raises AppendError or Refused."""
    outcome = Outcome()
    definitions.change(control, outcome.set)
    return await outcome.wait()
