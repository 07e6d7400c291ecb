"""How a node comes into its group: for the first time, with an emptied folder, or after too long.

Three things may be missing, and each comes by its own way:

- a seat (:mod:`dledger.raft.membership.seat`);
- entries that the others no longer have: the leader sends its own head, with the first entry that
  it holds, and this node begins a new log there. All later entries come as to any follower;
- the state that those entries built on (:mod:`dledger.raft.replication.footing` says why it must be
saved,
  :mod:`dledger.raft.replication.state_copy` how it comes).
"""

from __future__ import annotations

import math
from dataclasses import replace

from dledger.checksum import crc32
from dledger.errors import StorageError
from dledger.log.entry import Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.store import SegmentedLog
from dledger.raft.library.acknowledging import Acknowledging
from dledger.raft.library.adapter import Core
from dledger.raft.library.messages import (
    Formed,
    Introduction,
    Learned,
    PeerMessage,
    Seated,
    State,
    Unseated,
    Wanted,
)
from dledger.raft.library.peer import Peer
from dledger.raft.library.peers import Peers
from dledger.raft.library.transport import PeerTransport
from dledger.raft.limits import LOOK_AGAIN_S, PICTURE_KEPT_S, STATE_ASK_AGAIN_S
from dledger.raft.membership.configuration import Configuration, decode_members
from dledger.raft.membership.members import Members
from dledger.raft.membership.seat import Barrier, Forming
from dledger.raft.replication.footing import Applying, Footing, PortableState
from dledger.raft.replication.state_copy import Copy, Picture
from dledger.raft.roles import Role


class Joining:
    """What a node still lacks, and what it gives to others that lack it."""

    def __init__(
        self,
        core: Core,
        transport: PeerTransport,
        peers: Peers,
        acknowledging: Acknowledging,
        log: SegmentedLog,
        hard_state: HardStateFile,
        members: Members,
        machine: Applying,
        footing: Footing,
    ) -> None:
        self._core = core
        self._transport = transport
        self._peers = peers
        self._acknowledging = acknowledging
        self._log = log
        self._hard_state = hard_state
        self._machine = machine
        self._footing = footing
        self._was_saved = footing.is_saved
        self._lacks_something = True
        self._members = members
        self._forming = Forming(sorted({*members.base.members} - {peers.node_id}))
        self._copy = Copy()
        self._asked_at = float("-inf")
        self._asked: str | None = None
        self._turn = 0
        self._picture: Picture | None = None
        self._picture_used_at = 0.0
        self._take_seat_if_new()

    @property
    def seated(self) -> bool:
        """Whether this node may vote and is counted."""
        return self._acknowledging.seated

    # -- links and time --------------------------------------------------------------------

    def link_up(self, node_id: str) -> None:
        """A connection to a peer stands: ask it whether there is a group."""
        self._forming.lost(node_id)
        if not self.seated:
            peer = self._peers.known[node_id]
            self._peers.post(peer, Unseated(self._core.term))

    def link_down(self, node_id: str) -> None:
        """A connection broke: what the peer said of itself may no longer be so."""
        self._forming.lost(node_id)

    def step(self, now: float) -> None:
        """Ask for what is missing, drop what nobody wants; count once what it needs is saved."""
        was_saved, self._was_saved = self._was_saved, self._footing.is_saved
        is_missing = self._footing.is_missing
        self._lacks_something = is_missing or not self._was_saved
        if self._was_saved and not was_saved:
            self._acknowledging.count_early_acks()
        if self._picture is not None and now - self._picture_used_at > PICTURE_KEPT_S:
            self._picture = None
        if is_missing and now - self._asked_at > STATE_ASK_AGAIN_S:
            peer = self._next_to_ask()
            if peer is not None:
                self._ask(peer, now)

    def next_at(self, stepped_at: float) -> float:
        """When a step has to look although nothing comes in, if the last one was at `stepped_at`.

        What is missing is asked for, and nobody says when the state is saved, so both are looked
        for: it does not take long.
        """
        if self._lacks_something:
            return stepped_at + LOOK_AGAIN_S
        return math.inf if self._picture is None else self._picture_used_at + PICTURE_KEPT_S

    def _next_to_ask(self) -> Peer | None:
        """The leader; one after the other if this node leads, or nobody does.

        A leader may lack the state, too: its log is the longest all the same.
        """
        peers = self._peers.known
        leader = peers.get(self._core.leader_id or "")
        if leader is not None:
            return leader
        linked = [peer for peer in peers.values() if peer.link is not None]
        self._turn += 1
        return linked[self._turn % len(linked)] if linked else None

    def _ask(self, peer: Peer, now: float) -> None:
        self._asked_at, self._asked = now, str(peer.node.id)
        wanted = Wanted(self._core.term, self._copy.index, self._copy.offset)
        self._peers.post(peer, wanted)

    # -- messages --------------------------------------------------------------------------

    def deliver(self, peer: Peer, message: PeerMessage, now: float) -> None:
        """A message that concerns joining. Raises FrameError, StorageError."""
        core = self._core
        match message:
            case Unseated():
                fresh = self._fresh and str(peer.node.id) in self._members.current.members
                self.introduce(peer)
                self._peers.post(peer, Formed(core.term, fresh))
            case Introduction():
                self._take_configuration(message)
            case Formed():
                self._forming.heard(str(peer.node.id), message.term, fresh=message.fresh)
                self._take_seat_if_new(peer)
            case Learned():
                self._acknowledging.deliver_ack(peer, message)
                self._admit(peer, message)
            case Seated():
                self._take_offered_seat(peer, message)
            case Wanted():
                peer.newcomer.state_asked_at = now
                self._give_state(peer, message, now)
            case State():
                self._take_state(peer, message, now)

    # -- the members -----------------------------------------------------------------------

    def introduce(self, peer: Peer) -> None:
        """Tell a stranger who belongs to the group: it may have been removed while it was away."""
        if str(peer.node.id) not in self._members.current.members:
            self._peers.tell_members(peer)

    def _take_configuration(self, message: Introduction) -> None:
        """A peer says what is committed. Who leads, or is being elected, has begun to count by its
        own log."""
        if self._core.role is Role.FOLLOWER:
            members, place = decode_members(message.run), (message.index, message.entry_term)
            self._members.adopt(Configuration(members, *place))

    # -- the seat --------------------------------------------------------------------------

    @property
    def _fresh(self) -> bool:
        """Whether nothing that this node holds can ever have been committed: it holds no entry.

        Whatever its term: a member that took its seat first may ask for votes before the others
        have heard all answers, and they must still find their seats.
        """
        return self._log.last_index <= 1 and not self._members.current.index

    def _take_seat_if_new(self, answering: Peer | None = None) -> None:
        if not self.seated and self._fresh and self._forming.complete:
            if answering is not None:
                self._transport.step_down(answering, self._forming.unused_term)
            self._take_seat()

    def _take_seat(self) -> None:
        self._hard_state.save(replace(self._hard_state.state, seated=True))

    def _admit(self, peer: Peer, message: Learned) -> None:
        """A learner acknowledged: see that there is a barrier, and whether it is passed."""
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
            self._peers.post(peer, Seated(core.term, peer.newcomer.barrier.index))

    def _take_offered_seat(self, peer: Peer, message: Seated) -> None:
        core, index = self._core, message.index
        if self.seated or message.term != core.term or core.leader_id != str(peer.node.id):
            return
        if not self._footing.is_saved:
            return  # it is offered again with every answer to the leader
        # A log that began again behind the barrier holds it too, if it holds an entry of this term.
        held = max(index, self._log.first_index)
        if held <= self._log.durable_index and self._log.header(held).term == core.term:
            self._take_seat()

    # -- the state -------------------------------------------------------------------------

    def _give_state(self, peer: Peer, message: Wanted, now: float) -> None:
        if self._footing.is_missing or not isinstance(self._machine, PortableState):
            return
        offset = message.offset
        if self._picture is None or self._picture.index != message.index:
            self._picture, offset = Picture(*self._machine.capture()), 0
        self._picture_used_at = now
        part = self._picture.part(offset)
        place = self._picture.index, len(self._picture.payload), offset
        state = State(self._core.term, *place, crc32(part), part)
        self._peers.post(peer, state)

    def _is_asked_for(self, peer: Peer, message: State) -> bool:
        """Whether a part of the state comes from whom this node asked: the leader of its term.

        While nobody else leads that may be any peer, and it must be in this node's term.
        """
        core, node_id = self._core, str(peer.node.id)
        leader = core.leader_id
        may_give = leader in (None, node_id, self._peers.node_id)
        return node_id == self._asked and may_give and message.term == core.term

    def _take_state(self, peer: Peer, message: State, now: float) -> None:
        if not self._footing.is_missing or not self._is_asked_for(peer, message):
            return
        if not isinstance(self._machine, PortableState):
            raise StorageError("this state machine can't take a state, but its log lost its head")
        picture = self._copy.take(
            message.index, message.total_bytes, message.offset, message.crc, message.run
        )
        if picture is None:
            self._ask(peer, now)
        elif picture.index + 1 >= self._log.first_index:
            # What came in while the state was missing is applied only now: it may have rotted.
            self._log.doubt_all()
            self._machine.install(picture.index, picture.payload, self._log.first_index)
