"""How a node joins its group: for the first time, with an emptied folder, or after too long.

Three things may be missing, and each comes in its own way:

- eligibility (:mod:`dledger.raft.membership.eligibility`);
- entries that the others no longer hold: the leader sends the head of its log, with the first entry
  that it holds, and this node begins a new log there. It gets later entries as any follower does;
- the state that those entries build on. :mod:`dledger.raft.replication.base_state` says why it must
  be saved, :mod:`dledger.raft.replication.state_transfer` how it comes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.failpoints import failpoint
from dledger.log.entry import Kind
from dledger.raft.limits import LOOK_AGAIN_S
from dledger.raft.membership.configuration import Configuration, decode_members
from dledger.raft.membership.eligibility import Barrier, Forming
from dledger.raft.messages import (
    Eligible,
    Formed,
    Ineligible,
    Introduction,
    Learned,
    PeerMessage,
)
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.raft.acknowledging import Acknowledging
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer


class Joining:
    """The data that this node still lacks, and its help for others that lack some."""

    def __init__(
        self, consensus: Consensus, replica: Replica, acknowledging: Acknowledging
    ) -> None:
        self._core = consensus.core
        self._transport = consensus.transport
        self._peers = peers = consensus.peers
        self._acknowledging = acknowledging
        self._log = replica.log
        self._hard_state = replica.hard_state
        self._base_state = replica.base_state
        self._was_saved = self._base_state.is_saved
        self._lacks_something = True
        self._members = members = replica.members
        self._forming = Forming(sorted({*members.base.members} - {peers.node_id}))
        self._become_eligible_if_new()

    @property
    def eligible(self) -> bool:
        """Whether this node may vote and is counted."""
        return self._acknowledging.eligible

    # -- links and time --------------------------------------------------------------------

    def link_up(self, node_id: str) -> None:
        """A connection to a peer stands: ask the peer whether there is a group."""
        self._forming.lost(node_id)
        if not self.eligible:
            peer = self._peers.known[node_id]
            self._peers.post(peer, Ineligible(self._core.term))

    def link_down(self, node_id: str) -> None:
        """A connection broke: what the peer said of itself may no longer hold."""
        self._forming.lost(node_id)

    def step(self) -> None:
        """Be counted once the state is saved."""
        was_saved, self._was_saved = self._was_saved, self._base_state.is_saved
        self._lacks_something = self._base_state.is_missing or not self._was_saved
        if self._was_saved and not was_saved:
            self._acknowledging.count_early_acks()

    def next_at(self, stepped_at: float) -> float:
        """When the next step is due after one at `stepped_at`, even if no message arrives.

        What is missing must be asked for again. And nothing tells the engine when the state is
        saved, so it checks every now and then.
        """
        return stepped_at + LOOK_AGAIN_S if self._lacks_something else math.inf

    # -- messages --------------------------------------------------------------------------

    def deliver(self, peer: Peer, message: PeerMessage) -> None:
        """A message that concerns joining. Raises FrameError."""
        core = self._core
        match message:
            case Ineligible():
                fresh = self._fresh and str(peer.node.id) in self._members.current.members
                self.introduce(peer)
                self._peers.post(peer, Formed(core.term, fresh))
            case Introduction():
                self._take_configuration(message)
            case Formed():
                self._forming.heard(str(peer.node.id), message.term, fresh=message.fresh)
                self._become_eligible_if_new(peer)
            case Learned():
                self._acknowledging.deliver_ack(peer, message)
                self._admit(peer, message)
            case Eligible():
                self._take_offer(peer, message)

    # -- the members -----------------------------------------------------------------------

    def introduce(self, peer: Peer) -> None:
        """Tell a stranger which members the group has: it may have been removed while it was
        away."""
        if str(peer.node.id) not in self._members.current.members:
            self._peers.tell_members(peer)

    def _take_configuration(self, message: Introduction) -> None:
        """Take a committed configuration from a peer. A leader or candidate does not: it already
        counts by its own log."""
        if self._core.role is Role.FOLLOWER:
            members, place = decode_members(message.run), (message.index, message.entry_term)
            self._members.adopt(Configuration(members, *place))

    # -- eligibility -----------------------------------------------------------------------

    @property
    def _fresh(self) -> bool:
        """Whether this node holds no entry, so that nothing can have been committed on it.

        Its term does not matter: a member that became eligible first may ask for votes before the
        others have heard all answers, and these must still be able to become eligible.
        """
        return self._log.last_index <= 1 and not self._members.current.index

    def _become_eligible_if_new(self, answering: Peer | None = None) -> None:
        if not self.eligible and self._fresh and self._forming.complete:
            if answering is not None:
                self._transport.step_down(answering, self._forming.unused_term)
            self._become_eligible()

    def _become_eligible(self) -> None:
        failpoint("members.eligible")
        self._hard_state.save(replace(self._hard_state.state, eligible=True))

    def _admit(self, peer: Peer, message: Learned) -> None:
        """A learner acknowledged entries: set its barrier, or check whether it has passed it."""
        core = self._core
        if core.role is not Role.LEADER or message.term != core.term:
            return
        if str(peer.node.id) not in self._members.current.members:
            return
        if peer.newcomer.barrier is None or peer.newcomer.barrier.term != core.term:
            peer.newcomer.barrier = Barrier(core.term, self._log.last_index + 1)
            self._log.append(self._log.last_index + 1, core.term, Kind.NOOP, b"")
        if message.success and peer.newcomer.barrier.passed(
            commit_index=core.commit_index, held_index=message.next_index - 1
        ):
            self._peers.post(peer, Eligible(core.term, peer.newcomer.barrier.index))

    def _take_offer(self, peer: Peer, message: Eligible) -> None:
        core, index = self._core, message.index
        if self.eligible or message.term != core.term or core.leader_id != str(peer.node.id):
            return
        if not self._base_state.is_saved:
            return  # the learner answers again and again, so this is tried again
        # A log that began anew behind the barrier counts too, if it holds an entry of this term.
        held = max(index, self._log.first_index)
        if held <= self._log.durable_index and self._log.reader.header(held).term == core.term:
            self._become_eligible()
