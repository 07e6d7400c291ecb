"""A leader's part in handing leadership over: to which node, when to tell it, when to give up.

`transfer` decides. This module tells it how far a follower is, and sends the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from dledger.errors import TransferFailed
from dledger.failpoints import failpoint
from dledger.raft.election.transfer import Follower, Next, Preference, Transfer
from dledger.raft.library.adapter import Core
from dledger.raft.library.messages import TakeOver
from dledger.raft.library.peers import Peers
from dledger.raft.limits import TRANSFER_TIMEOUT_S
from dledger.raft.membership.changes import Changes
from dledger.raft.membership.members import Members


class HandOver:
    """The transfer under way, and the node that is preferred. Called while this node leads."""

    def __init__(
        self,
        core: Core,
        peers: Peers,
        members: Members,
        changes: Changes,
        preference: Preference | None,
    ) -> None:
        self._core = core
        self._peers = peers
        self._members = members
        self._changes = changes
        preferred = preference is not None and preference.node_id != peers.node_id
        self._preference = preference if preferred else None
        self._transfer: Transfer | None = None

    @property
    def target(self) -> str | None:
        """The node that shall lead next, while a transfer is under way."""
        return None if self._transfer is None else self._transfer.target

    def begin(self, target: str | None, now: float, on_done: Callable[[str | None], None]) -> str:
        """Begin a transfer, by default to the voter that holds most. Returns its id.

        `on_done` is called once: with None when this node leads no longer, or with the reason why
        it still leads. Raises TransferFailed at once.
        """
        if self._transfer is not None:
            raise TransferFailed(f"leadership goes to {self._transfer.target} already")
        node_id = self._peers.node_id
        voters = {*self._members.current.voters} - {node_id}
        linked = {peer_id: self._follower(peer_id) for peer_id in sorted(voters)}
        if target is None:
            target = min(linked, key=lambda peer_id: linked[peer_id].lag, default=node_id)
        if target not in linked:
            others = ", ".join(sorted(linked)) or "this group has no other members"
            raise TransferFailed(f"{target} can't take over; choose one of the others: {others}")
        self._transfer = Transfer(target, now + TRANSFER_TIMEOUT_S, on_done)
        failpoint("transfer.begin")
        return target

    def step(self, now: float, uncommitted: int) -> None:
        """Go on with a transfer, or begin one to the preferred node."""
        if self._transfer is None:
            self._prefer(now)
        transfer = self._transfer
        if transfer is None:
            return
        target = self._follower(transfer.target)
        match transfer.next(now, target, uncommitted):
            case Next.TELL:
                failpoint("transfer.tell")
                transfer.told = True
                peer = self._peers.known[transfer.target]
                self._peers.post(peer, TakeOver(self._core.term))
            case Next.GIVE_UP:
                self._end(transfer.reason(target, uncommitted))

    def _prefer(self, now: float) -> None:
        preference = self._preference
        if preference and preference.due(now, self._follower(preference.node_id)):
            self.begin(preference.node_id, now, partial(preference.ended, now))

    @property
    def next_at(self) -> float:
        """When the next step is due for a transfer, even if no message arrives."""
        if self._transfer is not None:
            return self._transfer.deadline
        return math.inf if self._preference is None else self._preference.next_at

    def link_down(self, node_id: str) -> None:
        """A connection broke. If it led to the preferred node, its healthy time starts from
        zero."""
        if self._preference is not None and self._preference.node_id == node_id:
            self._preference.reset()

    def deposed(self) -> None:
        """This node leads no longer, so a transfer has succeeded."""
        self._end(None)
        if self._preference is not None:
            self._preference.reset()

    def _end(self, failed: str | None) -> None:
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.on_done(failed)

    def _follower(self, node_id: str) -> Follower:
        peer = self._peers.known.get(node_id)
        if peer is None or not self._members.current.votes(node_id):
            return Follower(linked=False, lag=0)
        return Follower(peer.link is not None, self._changes.lag(peer))
