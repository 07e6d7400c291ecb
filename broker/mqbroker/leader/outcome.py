"""Lets a handler wait until a change of the replicated state is applied."""

from __future__ import annotations

import dledger.ledger.outcome
from dledger.raft.appends import Appended
from mqbroker.leader.definitions import Definitions
from mqbroker.state.control import Control


class Outcome:
    """The outcome of one append: pass `set` as its `on_done`, then `await wait()`."""

    def __init__(self) -> None:
        self._appended: dledger.ledger.outcome.Outcome[Appended] = dledger.ledger.outcome.Outcome()
        self.set = self._appended.set

    async def wait(self) -> object:
        """What applying the entry returned. Raises AppendError."""
        return (await self._appended.wait()).result


async def changed(definitions: Definitions, control: Control) -> object:
    """Make a change and wait until it is applied. Raises AppendError or Refused."""
    outcome = Outcome()
    definitions.change(control, outcome.set)
    return await outcome.wait()
