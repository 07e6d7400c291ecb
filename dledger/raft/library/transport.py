"""Between PySyncObj and its peers: what may pass in either direction, and when.

Outgoing messages leave by :class:`Link` objects, which the shell (or a simulation) provides. The
rules, each with the hole of the library that it closes:

- every message carries the sender's term; acknowledgements of another term are dropped (2);
- an acknowledgement waits until the entries behind it are durable here (7), and an acknowledgement
  that reaches a leader waits until the leader's own copy is durable, so that the leader never
  counts itself too early;
- a rejected message is answered with this node's own commit index + 1, which surely matches, so
  one round trip finds the common end; a rejection that answers a message sent before the last
  reset is ignored (3);
- an acknowledgement never moves the next index back, so nothing in flight is sent twice (1);
- the commit index that a follower takes is at most what the message verified (4, and more);
- snapshots, chunked entries, forwarded commands and membership entries do not exist here (4, 10,
  11, 15, 16);
- a node that is behind in terms is told so (12);
- one link a peer: what an older one still delivers is dropped (20); a peer that reads too slowly is
  paused (19).
"""

from __future__ import annotations

from typing import Any

from dledger import limits
from dledger.errors import CorruptLog, FrameError
from dledger.log.entry import Header
from dledger.log.head import LogHead, first_entry_of
from dledger.log.store import SegmentedLog
from dledger.raft.library.adapter import Core, Node, Transport
from dledger.raft.library.messages import (
    Ack,
    Answer,
    Append,
    Denied,
    Head,
    Introduction,
    Learned,
    PeerMessage,
    Vote,
    Voted,
    encode_message,
    split_run,
)
from dledger.raft.library.peer import Held, Link, Peer
from dledger.raft.membership.configuration import encode_members
from dledger.raft.membership.members import Members
from dledger.raft.replication.footing import Footing

NO_SPACE_ASK_S = 1.0
"""A follower whose disk is full asks for what it lacks that often."""
SIGN_OF_LIFE_S = 0.2
"""A follower whose disk is busy for longer than this says meanwhile that it is there."""
ACK_AGAIN_S = 0.3
"""What was acknowledged is acknowledged again after this: three times while a leader has patience.
Each answer wakes the leader of a group that has nothing to do."""


class PeerTransport(Transport):  # type: ignore[misc]
    """The library's transport; the engine hands it what arrives."""

    ready = True

    def __init__(
        self, node_id: str, members: Members, log: SegmentedLog, footing: Footing, *, sync: bool
    ) -> None:
        Transport.__init__(self, None, None, None)
        self.node_id = node_id
        #: The other members, and strangers while they are connected.
        self.peers: dict[str, Peer] = {}
        self.must_send = False
        #: Whether this node elects at its leader's wish: voters need not miss that leader first.
        self.handed_over = False
        self.seated = False
        self._log = log
        self._footing = footing
        self._members = members
        self._sync = sync
        self._asked_without_space_at = float("-inf")
        self._votes: set[tuple[str, int]] = set()
        self._core: Core | None = None

    @property
    def core(self) -> Core:
        """The library's state machine; set once, right after it was made."""
        assert self._core is not None
        return self._core

    @core.setter
    def core(self, core: Core) -> None:
        self._core = core

    @property
    def vouched_index(self) -> int:
        """Up to here this node may promise its entries: durable ones, or all if flush is async."""
        return self._log.durable_index if self._sync else self._log.last_index

    @property
    def is_counted(self) -> bool:
        """Whether what this node acknowledges may be counted for a majority."""
        return self.seated and self._footing.is_saved

    @property
    def counted_index(self) -> int:
        """Up to here this node's copy counts when it leads."""
        return self.vouched_index if self._footing.is_saved else 0

    # -- members and strangers -------------------------------------------------------------

    def take_members(self) -> None:
        """Another configuration is in force: count, and send to, whom it names."""
        configuration = self._members.current
        others = {*configuration.members} - {self.node_id}
        for node_id in sorted(others - {*self.peers}):
            self.peers[node_id] = Peer(Node(node_id))
        for node_id in {*self.peers} - others:
            self.peers[node_id].early_ack = None
            if self.peers[node_id].link is None:
                del self.peers[node_id]
        voters, learners = {*configuration.voters} & others, {*configuration.learners} & others
        self.core.set_members(map(Node, sorted(voters)), map(Node, sorted(learners)))
        self.must_send = True

    def tell_members(self, peer: Peer) -> None:
        """Tell a peer of the last configuration that is committed, if there ever was a change."""
        self._members.committed(self.core.commit_index)
        base = self._members.base
        if base.index:
            run = memoryview(encode_members(base.members))
            self.post(peer, Introduction(self.core.term, base.index, base.term, run))

    # -- links -----------------------------------------------------------------------------

    def link_up(self, node_id: str, link: Link) -> None:
        """A connection to a peer stands. An older one is closed."""
        peer = self.peers.get(node_id) or Peer(Node(node_id))
        old, peer.link = peer.link, None
        if old is not None:
            old.close("replaced by a newer connection")
            self._onNodeDisconnected(peer.node)
            self.core.forget_match(peer.node)
        self.peers[node_id] = Peer(peer.node, link, acknowledged_at=self.core.now)
        self._onNodeConnected(peer.node)
        self.must_send = True

    def link_down(self, node_id: str, link: Link) -> bool:
        """A connection broke; whether it was the live one of that peer."""
        peer = self.peers.get(node_id)
        if peer is None or peer.link is not link:
            return False
        if node_id in self._members.current.members:
            self.peers[node_id] = Peer(peer.node)
        else:
            del self.peers[node_id]
        self._onNodeDisconnected(peer.node)
        # It may come back with an emptied folder: what it held is counted when it says so again.
        self.core.forget_match(peer.node)
        return True

    def link_drained(self, node_id: str) -> None:
        """A paused peer's queue has run low again."""
        peer = self.peers.get(node_id)
        if peer is not None and peer.paused and peer.link is not None:
            peer.paused = False
            self._onNodeConnected(peer.node)
            self.must_send = True

    def pause_if_slow(self, peer: Peer) -> None:
        """Send nothing more to a peer that takes it too slowly, until its queue has run low."""
        queued_bytes = 0 if peer.link is None else peer.link.queued_bytes
        if queued_bytes > limits.PEER_SEND_BUFFER_BYTES_MAX and not peer.paused:
            peer.paused = True
            self._onNodeDisconnected(peer.node)

    def close_links(self, reason: str) -> None:
        """Close all connections, as after cutting bytes that may still be queued."""
        for peer in list(self.peers.values()):
            if peer.link is not None:
                peer.link.close(reason)

    # -- the library sends -----------------------------------------------------------------

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        """Called by the library; whether the message was sent."""
        peer = self.peers.get(str(node.id))
        if peer is None or peer.link is None:
            return False
        kind, term = message["type"], self.core.term
        if kind == "next_node_idx":
            self._hold_ack(peer, term, message)
        elif kind == "request_vote":
            position = message["last_log_index"], message["last_log_term"]
            self.post(peer, Vote(message["term"], *position, self.handed_over))
        elif kind == "response_vote":
            self.post(peer, Voted(message["term"]))
        else:
            return False
        return True

    def post(self, peer: Peer, message: PeerMessage) -> None:
        """Send a message that depends on nothing that is not durable yet."""
        if peer.link is not None:
            peer.link.send(encode_message(message))

    def broadcast(self, message: PeerMessage) -> None:
        """Post to every peer."""
        for peer in self.peers.values():
            self.post(peer, message)

    # -- acknowledgements of this node's own copy ------------------------------------------

    def _hold_ack(self, peer: Peer, term: int, message: dict[str, Any]) -> None:
        next_index, reset = message["next_node_idx"], message["reset"]
        if reset:
            next_index = min(next_index, self.core.commit_index + 1)
            if self._log.space.lacking is not None:
                # What would come again finds no room again: ask now and then.
                if self.core.now - self._asked_without_space_at < NO_SPACE_ASK_S:
                    self._show_life(peer, term)
                    return
                self._asked_without_space_at = self.core.now
        elif not message["success"] or self._was_told(peer, term, next_index):
            return
        success = bool(message["success"])
        needs = next_index - 1 if success else 0
        answer = self._answer(term, next_index, bool(reset), success, peer.received_sequence)
        waits_already = bool(peer.held)
        peer.held.append(Held(answer, needs))
        if waits_already and needs > self.vouched_index:
            # Not what the leader waits for, but all that is true by now: a disk that takes a second
            # for a sync must not look like a node that is gone.
            self._show_life(peer, term)

    def _show_life(self, peer: Peer, term: int) -> None:
        if self._is_quiet(peer):
            next_index = self.vouched_index + 1
            answer = self._answer(term, next_index, False, True, peer.received_sequence)
            self._acknowledge(peer, answer)

    @property
    def _answer(self) -> type[Answer]:
        return Ack if self.is_counted else Learned

    def _was_told(self, peer: Peer, term: int, next_index: int) -> bool:
        """Whether a leader was told just now, over this link, what it would be told again.

        Only what was counted is left out, and only for a while, so that a leader which could not
        take it then does not wait for it.
        """
        told = peer.told == (term, next_index) and self.is_counted and not peer.held
        return told and self.core.now - peer.acknowledged_at < ACK_AGAIN_S

    def _is_quiet(self, peer: Peer) -> bool:
        return self.core.now - peer.acknowledged_at > SIGN_OF_LIFE_S

    def _acknowledge(self, peer: Peer, answer: Answer) -> None:
        if peer.link is not None:
            peer.acknowledged_at = self.core.now
            peer.link.send(encode_message(answer))

    def release_held(self) -> None:
        """Send the acknowledgements whose entries this node can vouch for.

        Of several that accept entries the last one says all that the others do.
        One of an older term is dropped: its entries may have been cut, so that it would wait for
        others in their places, and hold back whatever comes after it.
        """
        vouched, term = self.vouched_index, self.core.term
        for peer in self.peers.values():
            latest: Answer | None = None
            while peer.held:
                answer, needed_index = peer.held[0]
                if answer.term >= term and needed_index > vouched:
                    break
                peer.held.popleft()
                if answer.term < term:
                    continue
                if latest is not None and not (latest.success and answer.success):
                    self._acknowledge(peer, latest)
                latest = answer
            if latest is not None:
                self._acknowledge(peer, latest)
                counts = latest.success and isinstance(latest, Ack)
                peer.told = (latest.term, latest.next_index) if counts else None

    # -- a peer's message arrives ----------------------------------------------------------

    def deliver_from_leader(self, peer: Peer, message: Append | Head) -> bool:
        """Whether it was of a current leader. Raises as those two do."""
        if isinstance(message, Head):
            return self.deliver_head(peer, message)
        return self.deliver_append(peer, message)

    def deliver_append(self, peer: Peer, message: Append) -> bool:
        """Check an Append and hand it to the library; whether it was of a current leader.

        Raises FrameError for a malformed run, CorruptLog where the replicas differ.
        """
        if message.term < self.core.term:
            self.deny(peer)
            return False
        previous_index, count = message.previous_index, message.count
        copies = split_run(message.run, previous_index + 1, count, message.term)
        if not self._log.space.takes(copy.header for copy in copies):
            copies, count = [], 0
        entries = [(copy, copy.header.index, copy.header.term) for copy in copies]
        peer.received_sequence = message.sequence
        verified = previous_index + count
        commit_index = min(message.commit_index, verified)
        self._onMessageReceived(
            peer.node,
            {
                "type": "append_entries",
                "term": message.term,
                "commit_index": commit_index,
                "prevLogIdx": previous_index,
                "prevLogTerm": message.previous_term,
                "entries": entries,
            },
        )
        return True

    def deliver_head(self, peer: Peer, message: Head) -> bool:
        """A leader's log begins behind the end of this one, or this one differs there: begin anew
        with the leader's first entry. It is committed, and all that may have been committed here
        lies before it. Whether the message was of a current leader.

        Raises FrameError for a malformed run, CorruptLog where the replicas differ.
        """
        if message.term < self.core.term:
            self.deny(peer)
            return False
        term, first_index = message.term, message.first_index
        header = split_run(message.run, first_index, 1, term)[0].header
        head = LogHead(message.base_position, first_index, message.chain_crc, bytes(message.run))
        self._check_head(head, message.commit_index)
        # A term is durable before the first entry of it.
        self.step_down(peer, term)
        if self._must_begin_anew(header):
            self._members.begin_anew()
            self._log.replace_by(head)
        place = message.commit_index, first_index, header.term
        return self.deliver_append(peer, Append(term, *place, message.sequence, count=0))

    def _check_head(self, head: LogHead, commit_index: int) -> None:
        """Raise FrameError for a head that can't be a leader's, before anything is dropped for it.

        Its entry fits it, is committed, and has room for others behind it. What is committed here
        it can't contradict: two logs with different committed entries are of no one group.
        """
        log = self._log
        try:
            header, *_ = first_entry_of(head)
        except CorruptLog as error:
            raise FrameError(f"a leader's HEAD can't be one: {error}") from error
        room_end = max(head.base_position + log.segment_bytes, head.first_index + 1)
        if head.first_index > commit_index or room_end > limits.NUMBER_MAX:
            raise FrameError(
                f"a leader's HEAD has its first entry {head.first_index} at position "
                f"{head.base_position}, with {commit_index} committed: a log can't begin there"
            )
        if self._must_begin_anew(header) and head.first_index <= log.commit_index:
            raise FrameError(
                f"a leader's HEAD with entry {head.first_index} would take back what is committed "
                f"here up to {log.commit_index}"
            )

    def _must_begin_anew(self, header: Header) -> bool:
        """Whether a leader's first entry lies behind this log, or is another one than here."""
        log, first_index = self._log, header.index
        return first_index > log.last_index or (
            first_index >= log.first_index and log.header(first_index).chain_crc != header.chain_crc
        )

    def deliver_ack(self, peer: Peer, message: Answer, received_at: float | None = None) -> None:
        """Hand an acknowledgement to the library, if it is of this term and this node can count.

        A learner's only says what to send next. `received_at`: when it came, if kept until now.
        """
        if message.term != self.core.term:
            if message.term > self.core.term:
                self.step_down(peer, message.term)
            return
        if str(peer.node.id) not in self._members.current.members:
            return
        next_index = message.next_index
        if next_index - 1 > self._log.last_index:
            raise FrameError(f"an acknowledgement up to {next_index - 1}, which was never sent")
        peer.pace.acknowledged(next_index - 1)
        if message.reset:
            if message.sequence <= peer.reset_sequence:
                return
            peer.reset_sequence = peer.sent_sequence
            peer.pace.start_again()
            self.must_send = True
        elif isinstance(message, Ack) and next_index - 1 > self.counted_index:
            peer.early_ack = message, self.core.now if received_at is None else received_at
            return
        last_contact = self.core.last_contact(peer.node)
        self._count_ack(peer, next_index, reset=message.reset, success=message.success)
        if isinstance(message, Learned):
            # It may have forgotten what it acknowledged before, too.
            self.core.forget_match(peer.node)
            self.core.set_last_contact(peer.node, last_contact)

    def _count_ack(self, peer: Peer, next_index: int, *, reset: bool, success: bool) -> None:
        before = self.core.next_index(peer.node)
        self._onMessageReceived(
            peer.node,
            {
                "type": "next_node_idx",
                "next_node_idx": next_index,
                "reset": reset,
                "success": success,
            },
        )
        if not reset:
            self._keep_next_index(peer.node, before)

    def _keep_next_index(self, node: Node, before: int) -> None:
        if self.core.next_index(node) < before:
            self.core.set_next_index(node, before)

    def count_early_acks(self) -> None:
        """This node's own copy became durable: acknowledgements that came earlier count now."""
        for peer in self.peers.values():
            early, peer.early_ack = peer.early_ack, None
            if early is not None:
                self.deliver_late_ack(peer, *early)

    def deliver_late_ack(self, peer: Peer, message: Ack, received_at: float) -> None:
        """An acknowledgement that came some time ago, and could wait.

        As a sign of life it is as old as it is: a leader that was cut off meanwhile must not take
        it for news.
        """
        last_contact = self.core.last_contact(peer.node)
        self.deliver_ack(peer, message, received_at)
        if self.core.last_contact(peer.node) != last_contact:
            self.core.set_last_contact(peer.node, max(last_contact, received_at))

    def deliver_vote(self, peer: Peer, message: Vote) -> None:
        """A candidate asks for this node's vote."""
        if message.term < self.core.term:
            self.deny(peer)
            return
        self._onMessageReceived(
            peer.node,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            },
        )

    def deliver_voted(self, peer: Peer, message: Voted) -> None:
        """A vote for this node; only a voter's counts, and once in a term."""
        if not self._members.current.votes(str(peer.node.id)):
            return
        vote = (str(peer.node.id), message.term)
        if message.term != self.core.term or vote in self._votes:
            return
        self._votes = {held for held in self._votes if held[1] == message.term} | {vote}
        self._onMessageReceived(peer.node, {"type": "response_vote", "term": message.term})

    def deny(self, peer: Peer) -> None:
        """Tell a peer that it is behind in terms."""
        self.post(peer, Denied(self.core.term))

    def step_down(self, peer: Peer, term: int) -> None:
        """Take a higher term. A vote request that can't be granted makes the library do it."""
        if term > self.core.term:
            self._onMessageReceived(
                peer.node,
                {
                    "type": "request_vote",
                    "term": term,
                    "last_log_index": 0,
                    "last_log_term": -1,
                },
            )

    # -- what the library may ask and never gets -------------------------------------------

    def addNode(self, node: Node) -> None:  # noqa: N802
        """Refuse: the library's own membership changes are off."""
        raise FrameError(f"the Raft library tried to add {node.id}")

    def dropNode(self, node: Node) -> None:  # noqa: N802
        """Refuse, likewise."""
        raise FrameError(f"the Raft library tried to drop {node.id}")

    def destroy(self) -> None:
        """Do nothing: the links are the shell's."""
