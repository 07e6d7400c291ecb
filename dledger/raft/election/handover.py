"""A leader's part in handing leadership over: to which node, when to ask it, when to give up.

`transfer` decides. This module says how far a follower is, and sends the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dledger.errors import TransferFailed
from dledger.failpoints import failpoint
from dledger.raft.election.transfer import (
    Follower,
    Next,
    Preference,
    Relief,
    Transfer,
    why_declined,
)
from dledger.raft.limits import TRANSFER_TIMEOUT_S
from dledger.raft.messages import Consult, Declined, TakeOver, Willing
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.raft.membership.changes import Changes
    from dledger.raft.parts import Consensus, Replica


class HandOver:
    """The transfer under way, and the node that is preferred. Called while this node leads."""

    def __init__(
        self,
        consensus: Consensus,
        replica: Replica,
        changes: Changes,
        preference: Preference | None,
        lacks_room: Callable[[], bool],
    ) -> None:
        """`lacks_room`: whether this node can take no messages."""
        self._core = consensus.core
        self._peers = peers = consensus.peers
        self._members = replica.members
        self._changes = changes
        preferred = preference is not None and preference.node_id != peers.node_id
        self._preference = preference if preferred else None
        self._lacks_room = lacks_room
        self._relief = Relief()
        self._declined: set[str] = set()
        self._transfer: Transfer | None = None

    @property
    def target(self) -> str | None:
        """The node that shall lead next, while a transfer is under way."""
        return None if self._transfer is None else self._transfer.target

    def begin(self, target: str | None, now: float, on_done: Callable[[str | None], None]) -> str:
        """Begin a transfer, by default to the voter that holds most, of those that have not
        declined if there are such. Returns its id.

        `on_done` is called once: with None when this node leads no longer, or with the reason why
        it still leads. Raises TransferFailed at once.
        """
        if self._transfer is not None:
            raise TransferFailed(f"leadership goes to {self._transfer.target} already")
        voters = self._voters()
        if target is None:
            own = self._peers.node_id
            target = min(
                voters,
                key=lambda peer_id: (peer_id in self._declined, voters[peer_id].lag),
                default=own,
            )
        if target not in voters:
            others = ", ".join(voters) or "this group has no other members"
            raise TransferFailed(f"{target} can't take over; choose one of the others: {others}")
        self._transfer = Transfer(target, now + TRANSFER_TIMEOUT_S, on_done)
        failpoint("transfer.begin")
        return target

    def step(self, now: float, uncommitted: int) -> None:
        """Go on with a transfer, or begin one to the preferred node, or to one that has room."""
        if self._transfer is None and self._preference is not None:
            self._prefer(now, self._preference)
        if self._transfer is None:
            self._seek_relief(now)
        transfer = self._transfer
        if transfer is None:
            return
        target = self._follower(transfer.target)
        match transfer.next(now, target, uncommitted):
            case Next.ASK:
                failpoint("transfer.ask")
                transfer.asked = True
                peer = self._peers.known[transfer.target]
                self._peers.post(peer, TakeOver(self._core.term))
            case Next.GIVE_UP:
                self._end(transfer.reason(target, uncommitted))

    def _prefer(self, now: float, preference: Preference) -> None:
        if preference.due(now, self._follower(preference.node_id)):
            self.begin(preference.node_id, now, partial(preference.ended, now))

    def _seek_relief(self, now: float) -> None:
        if not self._lacks_room():
            self._relief.reset()
            return
        if self._relief.asks(now):
            self._peers.broadcast(Consult(self._core.term))
        chosen = self._relief.successor(self._voters(), self._members.is_majority)
        if chosen is not None:
            self.begin(chosen, now, lambda failed: None)

    def deliver(self, node_id: str, message: Willing | Declined) -> None:
        """Whether a node that was consulted, or asked to take over, could lead."""
        if message.term != self._core.term or self._core.role is not Role.LEADER:
            return
        if isinstance(message, Willing):
            self._declined.discard(node_id)
            self._relief.heard(node_id)
            return
        self._declined.add(node_id)
        transfer = self._transfer
        if transfer is not None and transfer.asked and transfer.target == node_id:
            self._end(f"{node_id} declined: {why_declined(message.reason)}")

    @property
    def next_at(self) -> float:
        """When the next step is due for a transfer, even if no message arrives."""
        if self._transfer is not None:
            return self._transfer.deadline
        preferred_at = math.inf if self._preference is None else self._preference.next_at
        return min(preferred_at, self._relief.next_at) if self._lacks_room() else preferred_at

    def link_down(self, node_id: str) -> None:
        """Note a broken connection. If it led to the preferred node, its healthy time starts from
        zero."""
        if self._preference is not None and self._preference.node_id == node_id:
            self._preference.reset()

    def deposed(self) -> None:
        """End a transfer as a success, as this node leads no longer."""
        self._end(None)
        self._relief.reset()
        self._declined.clear()
        if self._preference is not None:
            self._preference.reset()

    def _end(self, failed: str | None) -> None:
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.on_done(failed)

    def _voters(self) -> dict[str, Follower]:
        others = {*self._members.current.voters} - {self._peers.node_id}
        return {node_id: self._follower(node_id) for node_id in sorted(others)}

    def _follower(self, node_id: str) -> Follower:
        peer = self._peers.known.get(node_id)
        if peer is None or not self._members.current.votes(node_id):
            return Follower(linked=False, lag=0)
        return Follower(peer.link is not None, self._changes.lag(peer))
