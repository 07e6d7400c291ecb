"""Waiting for a change of the replicated state, where a handler may take its time."""

from __future__ import annotations

import dledger.outcome
from broker.leader.definitions import Definitions
from broker.state.control import Control
from dledger.raft.engine import Appended


class Outcome:
    """The outcome of one append: pass `set` as its `on_done`, then `await wait()`."""

    def __init__(self) -> None:
        self._appended: dledger.outcome.Outcome[Appended] = dledger.outcome.Outcome()
        self.set = self._appended.set

    async def wait(self) -> object:
        """What applying the entry returned. Raises AppendError."""
        return (await self._appended.wait()).result


async def changed(definitions: Definitions, control: Control) -> object:
    """Make a change and wait until it is applied. Raises AppendError or Refused."""
    outcome = Outcome()
    definitions.change(control, outcome.set)
    return await outcome.wait()
