"""What to do when files that are derived from the log turn out to be damaged: make them again.

Consume queues and the key index check what is read from them (`mqbroker.state.derived.units`). Who
comes upon damage is told to ask again; here it is seen to. All of queues and index is made again,
from the entries that the log holds: rare as that is, one way is enough, and it is the way in which
a replica that took over another's state makes them. Meanwhile this replica serves nobody; so it
hands leadership over first, if there is somebody to take it.
"""

from __future__ import annotations

from dledger.ledger.ledger import Ledger
from dledger.observe import get_logger
from dledger.program.pulse import beat
from mqbroker.state.machine import Machine

_log = get_logger(__name__)


class Mending:
    """Looks for what readers have found."""

    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await beat()
            reason = self._machine.damage.take()
            if reason is not None:
                await self._mend(reason)

    async def _mend(self, reason: str) -> None:
        machine, ledger = self._machine, self._ledger
        _log.error("files damaged", reason=reason, remedy="they are made again from the log")
        await ledger.step_aside()
        ledger.derive_again(machine.derive_again)
        machine.damage.take()
        await ledger.wait_applied(machine.state_index)
        _log.info("files made again", applied_index=machine.applied_index)
