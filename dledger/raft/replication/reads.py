"""Linearizable reads: a read sees everything that was acknowledged before it began.

A leader that was cut off does not know that another one leads by now and has acknowledged more. So
a read on the leader waits for a round of confirmations (Raft's read index, section 6.4 of Ongaro's
dissertation): the leader notes its commit index, asks all peers whether they are still in its term,
and answers when a majority, itself included, has confirmed and everything up to the noted index is
applied. No clock is involved, so a wrong clock does no harm.

Why that is enough. A peer that confirms was in this term *after* the read began, so it had not
voted in a later term. A later leader needs the vote of a node of that majority. So when the read
began there was no later leader, and everything acknowledged by then was acknowledged by this leader
or earlier ones. What this leader acknowledged is committed, so it lies at or below the noted index.
What earlier leaders acknowledged lies before this leader's no-op, and reads are taken only when
that is applied.

A node that is not eligible does not confirm: it may have forgotten a vote. Reads that come during a
round wait for the next one and share it: its confirmations are sent after they came.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dledger import limits
from dledger.errors import Busy, NotLeader
from dledger.raft.limits import BUSY_RETRY_AFTER_S, READS_ASK_AGAIN_S
from dledger.raft.messages import Confirm, Confirmed

if TYPE_CHECKING:
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer

OnRead = Callable[[int | NotLeader], None]
"""Called once, with the index up to which everything is applied, or with NotLeader."""


class Reads:
    """A node's part in reads: as the leader that asks, and as a peer that confirms."""

    def __init__(self, consensus: Consensus, replica: Replica) -> None:
        self._core = consensus.core
        self._transport = consensus.transport
        self._peers = consensus.peers
        self._hard_state = replica.hard_state
        self._members = replica.members
        self._waiting: list[OnRead] = []
        self._asking: list[OnRead] = []
        self._round = 0
        self._index = 0
        self._asked_at = 0.0
        self._confirmed: set[str] = set()

    def add(self, on_read: OnRead) -> None:
        """Take a read: it is part of the next round. Raises Busy."""
        count = len(self._waiting) + len(self._asking)
        if count >= limits.READS_PENDING_MAX:
            raise Busy(f"{count} reads wait to be confirmed", BUSY_RETRY_AFTER_S)
        self._waiting.append(on_read)

    def step(self, now: float, applied_index: int) -> None:
        """Answer reads, begin a round, or ask again. Called on a leader that serves."""
        self._answer(applied_index)
        if self._waiting and not self._asking:
            self._begin_round()
            self._ask(now)
            self._answer(applied_index)  # at once, if there are no peers
        elif self._asking and now - self._asked_at >= READS_ASK_AGAIN_S:
            self._ask(now)

    @property
    def awaits_applied(self) -> bool:
        """Whether a round of reads is confirmed, and not answered as entries are to be applied."""
        return bool(self._asking) and self._is_confirmed()

    @property
    def next_at(self) -> float:
        """When the next step is due to ask again, even if no message arrives."""
        if self._asking:
            return self._asked_at + READS_ASK_AGAIN_S
        return self._asked_at if self._waiting else math.inf

    def _begin_round(self) -> None:
        self._round += 1
        self._confirmed.clear()
        self._index = self._core.commit_index
        self._asking, self._waiting = self._waiting, []

    def _ask(self, now: float) -> None:
        self._asked_at = now
        self._peers.broadcast(Confirm(self._core.term, self._round))

    def _answer(self, applied_index: int) -> None:
        if self._asking and self._is_confirmed() and applied_index >= self._index:
            answered, self._asking = self._asking, []
            for on_read in answered:
                on_read(self._index)

    def _is_confirmed(self) -> bool:
        return self._members.is_majority({self._peers.node_id, *self._confirmed})

    def fail(self, error: NotLeader) -> None:
        """Fail all reads, as this node leads no longer."""
        failed = self._asking + self._waiting
        self._asking, self._waiting = [], []
        for on_read in failed:
            on_read(error)

    # -- messages --------------------------------------------------------------------------

    def deliver(self, peer: Peer, message: Confirm | Confirmed) -> None:
        """A leader asks, or a peer confirms."""
        transport, core = self._transport, self._core
        if message.term < core.term:
            transport.deny(peer)
            return
        transport.step_down(peer, message.term)
        if isinstance(message, Confirmed):
            if message.number == self._round:
                self._confirmed.add(str(peer.node.id))
        elif self._hard_state.state.eligible:
            self._peers.post(peer, Confirmed(core.term, message.number))
