"""Rebuilds damaged files that are derived from the log.

Consume queues and the key index check what is read from them (`mqbroker.state.derived.units`). A
request that finds damage is told to try again, and the repair is done here. All queues and the
index are rebuilt from the log's entries. Damage is rare, so this one way is enough, and a replica
that took over another's state uses it too. Meanwhile this replica does not serve; so it hands
leadership over first, if another can take it.
"""

from __future__ import annotations

from dledger.ledger.ledger import Ledger
from dledger.observe import get_logger
from dledger.program.pulse import look
from mqbroker.state.machine import Machine

_log = get_logger(__name__)


class Mending:
    """Rebuilds the files when readers have found damage."""

    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger

    async def run(self) -> None:
        """Rebuild damaged derived files as they are found, until cancelled."""
        while True:
            await look()
            reason = self._machine.damage.take()
            if reason is not None:
                await self._mend(reason)

    async def _mend(self, reason: str) -> None:
        machine, ledger = self._machine, self._ledger
        _log.error("files damaged", reason=reason, remedy="they are made again from the log")
        await ledger.resign()
        ledger.derive_again(machine.derive_again)
        machine.damage.take()
        await ledger.wait_applied(machine.state_index)
        _log.info("files made again", applied_index=machine.applied_index)
