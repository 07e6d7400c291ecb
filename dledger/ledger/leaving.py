"""How a node leaves leadership to another: at a wish, before it stops, or for want of room.

The engine decides when to ask the other, and gives up if it does not lead in time
(`dledger.raft.election.transfer`). Here callers wait for that.
"""

from __future__ import annotations

import trio

from dledger.errors import NotLeader, TransferFailed
from dledger.ledger.outcome import Outcome
from dledger.ledger.stepping import Stepper
from dledger.observe import get_logger
from dledger.raft.engine import RaftEngine
from dledger.raft.limits import TRANSFER_TIMEOUT_S

log = get_logger("dledger.ledger.leaving")


class Leaving:
    """The ways in which a node's leadership goes to other nodes."""

    def __init__(self, node_id: str, engine: RaftEngine, stepper: Stepper) -> None:
        self._node_id = node_id
        self._engine = engine
        self._stepper = stepper

    async def transfer(self, target: str | None = None) -> str:
        """Hand leadership over; returns to whom. Raises TransferFailed, NotLeader."""
        outcome: Outcome[str | None] = Outcome()
        chosen = self._engine.transfer(target, outcome.set)
        self._stepper.wake()
        log.info("leadership transfer", node=self._node_id, to=chosen)
        failed = await outcome.wait()
        if failed is not None:
            raise TransferFailed(f"{failed}; {self._node_id} still leads")
        return chosen

    async def resign(self) -> None:
        """Return when another leads, or none can, or after a second."""
        if self._engine.solo or not self._engine.standing.serving:
            return
        with trio.move_on_after(TRANSFER_TIMEOUT_S):
            await self._to_any()
            while self._engine.standing.leader is None:
                await self._stepper.more_applied()

    async def _to_any(self) -> None:
        """Ask one voter after the other, until one leads or all have declined."""
        for _ in self._engine.members.current.voters:
            try:
                await self.transfer()
            except TransferFailed as reason:
                log.warning("leadership not handed over", reason=str(reason))
            except NotLeader:
                return
            else:
                return

    def refuses_messages(self, reason: str | None) -> None:
        """Why this node takes no messages, if its log does not know; None if it takes them."""
        if reason != self._engine.refusal:
            self._engine.refusal = reason
            self._stepper.wake()
