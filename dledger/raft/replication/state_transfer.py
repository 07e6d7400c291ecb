"""Gives this node's state to others that lack it, and takes another's if this node lacks it.

Both take seconds for a large state, so they are done in slices, one in each step of the engine:
meanwhile this node is heard, hears others, and acknowledges. Invariant: the state that is given for
entry i is exactly that after entry i, on every node the same bytes. So nothing is applied until a
picture is taken (`Hold`); what is committed meanwhile waits in the log, and appends that wait for
it are bounded, too (`dledger.raft.appends`). The crash that would break it: a picture holds one
table as of entry 7 and the next as of entry 9, where a message went from the one to the other. The
node that took it saves that, its log's head goes, and no replay mends it: it differs for ever.

At most one picture is taken, and one is kept, besides one that is received: each is as long as the
state's bytes (`STATE_BYTES_MAX`), and what is copied for a picture no larger than the tables.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING

from dledger.checksum import crc32
from dledger.errors import StorageError
from dledger.failpoints import failpoint
from dledger.raft.limits import PICTURE_KEPT_S, STATE_ASK_AGAIN_S
from dledger.raft.messages import PeerMessage, State, Wanted
from dledger.raft.replication.base_state import Hold, PortableState
from dledger.raft.replication.state_copy import Copy, Picture

if TYPE_CHECKING:
    from dledger.buffers import Buffer
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer


class StateTransfer:
    """The state machine's state on its way, to this node or from it."""

    def __init__(self, consensus: Consensus, replica: Replica) -> None:
        self._core = consensus.core
        self._peers = consensus.peers
        self._log = replica.log
        self._base_state = replica.base_state
        self._machine = replica.machine
        self._copy = Copy()
        self._asked_at = -math.inf
        self._asked: str | None = None
        self._turn = 0
        self._picture: Picture | None = None
        self._picture_used_at = 0.0
        self._taking: Generator[Hold, None, tuple[int, Buffer]] | None = None
        self._hold = Hold.NOTHING
        #: The peers that wait for the picture that is being taken.
        self._waiting: dict[str, None] = {}
        self._installing: Generator[None, None, None] | None = None
        self._installing_from = 0

    @property
    def holds(self) -> bool:
        """Whether nothing may be applied now."""
        return self._installing is not None or self._hold is Hold.APPLYING

    def step(self, now: float) -> None:
        """Take a slice of what is under way, drop a picture that nobody asks for, ask for what is
        missing."""
        self._install_some()
        self._take_some(now)
        if self._picture is not None and now - self._picture_used_at > PICTURE_KEPT_S:
            self._picture = None
        if self._lacks and now - self._asked_at > STATE_ASK_AGAIN_S:
            peer = self._next_to_ask()
            if peer is not None:
                self._ask(peer, now)

    @property
    def is_busy(self) -> bool:
        """Whether another slice is left."""
        return self._taking is not None or self._installing is not None

    def next_at(self) -> float:
        """When the next step is due for what it keeps."""
        return math.inf if self._picture is None else self._picture_used_at + PICTURE_KEPT_S

    def deliver(self, peer: Peer, message: PeerMessage, now: float) -> None:
        """A part of a state is wanted, or has come. Raises FrameError, StorageError."""
        match message:
            case Wanted():
                peer.newcomer.state_asked_at = now
                self._give(peer, message, now)
            case State():
                self._take(peer, message, now)

    # -- giving ----------------------------------------------------------------------------

    def _give(self, peer: Peer, message: Wanted, now: float) -> None:
        if self._base_state.is_missing or not isinstance(self._machine, PortableState):
            return
        if self._picture is not None and self._picture.index == message.index:
            self._send(peer, self._picture, message.offset, now)
            return
        self._waiting[str(peer.node.id)] = None
        if self._taking is None:
            self._picture = None
            self._taking = self._machine.capture()
            self._hold = Hold.APPLYING

    def spoiled(self) -> None:
        """The state is made again: a picture that is being taken is none. It is asked for again."""
        self._taking, self._hold = None, Hold.NOTHING
        self._waiting.clear()

    def _take_some(self, now: float) -> None:
        if self._taking is None:
            return
        try:
            self._hold = next(self._taking)
        except StopIteration as end:
            picture = self._picture = Picture(*end.value)
            self._taking, self._hold = None, Hold.NOTHING
            waiting, self._waiting = self._waiting, {}
            for node_id in waiting:
                peer = self._peers.known.get(node_id)
                if peer is not None:
                    self._send(peer, picture, 0, now)

    def _send(self, peer: Peer, picture: Picture, offset: int, now: float) -> None:
        self._picture_used_at = now
        failpoint("state.give")
        part = picture.part(offset)
        place = picture.index, len(picture.payload), offset
        self._peers.post(peer, State(self._core.term, *place, crc32(part), part))

    # -- taking ----------------------------------------------------------------------------

    @property
    def _lacks(self) -> bool:
        return self._base_state.is_missing and self._installing is None

    def _next_to_ask(self) -> Peer | None:
        """The peer to ask: the leader; or one peer after the other if this node leads, or none
        does.

        A leader may lack the state too, since it is elected for its log.
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

    def _is_asked_for(self, peer: Peer, message: State) -> bool:
        """Whether a part of the state comes from a peer that this node asks: the leader of its
        term.

        While no other node leads, that may be any peer in this node's term.
        """
        core, node_id = self._core, str(peer.node.id)
        leader = core.leader_id
        may_give = leader in (None, node_id, self._peers.node_id)
        return node_id == self._asked and may_give and message.term == core.term

    def _take(self, peer: Peer, message: State, now: float) -> None:
        if not self._lacks or not self._is_asked_for(peer, message):
            return
        if not isinstance(self._machine, PortableState):
            raise StorageError(
                "this state machine can't be given a state, but the head of its log is gone"
            )
        picture = self._copy.take(
            message.index, message.total_bytes, message.offset, message.crc, message.run
        )
        if picture is None:
            self._ask(peer, now)
        elif picture.index + 1 >= self._log.first_index:
            # Entries that came while the state was missing are applied only now, and may have
            # rotted since.
            self._log.reader.doubt_all()
            failpoint("state.install")
            first = self._installing_from = self._log.first_index
            self._installing = self._machine.install(picture.index, picture.payload, first)

    def _install_some(self) -> None:
        if self._installing is None:
            return
        if self._log.first_index != self._installing_from:
            # The log has begun anew meanwhile: the state is asked for once more.
            self._installing.close()
            self._installing = None
            return
        try:
            next(self._installing)
        except StopIteration:
            self._installing = None
            failpoint("state.installed")
