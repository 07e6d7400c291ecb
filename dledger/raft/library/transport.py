"""The library's transport: what PySyncObj calls to send, and what it is handed of arrivals.

The rules, each with the hole of the library that it closes:

- every message carries the sender's term (2), and a node that is behind in terms learns it (12);
- the commit index that a follower takes is at most the last entry that the message verified (4, and
  more);
- snapshots, chunked entries, forwarded commands and membership entries do not exist here (4, 10,
  11, 15, 16).

`Acknowledging` has the rules for acknowledgements, `Peers` those for links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dledger import limits
from dledger.errors import CorruptLog, FrameError
from dledger.failpoints import failpoint
from dledger.log.head import LogHead, first_entry_of
from dledger.raft.library.adapter import Core, Node, Transport
from dledger.raft.messages import Append, Denied, Head, Vote, Voted, split_run
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.log.entry import Header
    from dledger.log.store import SegmentedLog
    from dledger.raft.library.seams import Acknowledgements, Members, Peers
    from dledger.raft.peer import Peer


class PeerTransport(Transport):  # type: ignore[misc]
    """The library's transport; the engine hands it what arrives."""

    ready = True
    _core: Core
    _peers: Peers
    _acknowledging: Acknowledgements
    _is_wished: Callable[[], bool]

    def __init__(self, log: SegmentedLog, members: Members) -> None:
        Transport.__init__(self, None, None, None)
        self._log = log
        self._members = members
        self._votes: set[tuple[str, int]] = set()

    def begin(
        self,
        core: Core,
        peers: Peers,
        acknowledging: Acknowledgements,
        is_wished: Callable[[], bool],
    ) -> None:
        """Set the parts that this one works with: the library takes its transport before they
        exist.

        `is_wished`: this node is a candidate because its leader asked it to lead.
        """
        self._core = core
        self._peers = peers
        self._acknowledging = acknowledging
        self._is_wished = is_wished

    # -- the library sends -----------------------------------------------------------------

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        """Called by the library; returns whether the message was sent."""
        peer = self._peers.known.get(str(node.id))
        if peer is None or peer.link is None:
            return False
        kind, term = message["type"], self._core.term
        if kind == "next_node_idx":
            self._acknowledging.hold(peer, term, message)
        elif kind == "request_vote":
            position = message["last_log_index"], message["last_log_term"]
            self._peers.post(peer, Vote(message["term"], *position, self._is_wished()))
        elif kind == "response_vote":
            self._peers.post(peer, Voted(message["term"]))
        else:
            return False
        return True

    # -- a peer's message arrives ----------------------------------------------------------

    def deliver_from_leader(self, peer: Peer, message: Append | Head) -> bool:
        """Handle a leader's message; returns whether its sender leads now. Raises what the two
        below do."""
        if isinstance(message, Head):
            return self.deliver_head(peer, message)
        return self.deliver_append(peer, message)

    def deliver_append(self, peer: Peer, message: Append) -> bool:
        """Check an Append and hand it to the library; returns whether it is of a current leader.

        Raises FrameError for a malformed run, CorruptLog where the replicas differ.
        """
        if message.term < self._core.term:
            self.deny(peer)
            return False
        previous_index, count = message.previous_index, message.count
        copies = split_run(message.run, previous_index + 1, count, message.term)
        failpoint("raft.received")
        held = max(0, self._log.last_index - previous_index)
        if held < count and not self._log.space.takes(copies[held].header):
            copies, count = [], 0
        entries = [(copy, copy.header.index, copy.header.term) for copy in copies]
        self._acknowledging.received(peer, message.sequence)
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
        """The leader's log begins behind the end of this log, or this log differs there. Replace
        this log by one that begins with the leader's first entry. That entry is committed, and
        everything in this log that may be committed lies before it. Returns whether the message is
        of a current leader.

        Invariant: a node acts by the last configuration before the end of its log. The members
        come before the head, and who led or was a candidate then has passed them over. Were the
        head taken all the same, this node would count majorities by a configuration that it had
        before, until the next change. So it steps down only; the leader sends both again.

        Raises FrameError for a malformed run, CorruptLog where the replicas differ.
        """
        if message.term < self._core.term:
            self.deny(peer)
            return False
        term, first_index = message.term, message.first_index
        header = split_run(message.run, first_index, 1, term)[0].header
        head = LogHead(message.base_position, first_index, message.chain_crc, bytes(message.run))
        self._check_head(head, message.commit_index)
        failpoint("head.take")
        has_the_members = self._has_taken_the_members()
        # A term must be durable before its first entry.
        self.step_down(peer, term)
        if has_the_members and self._must_begin_anew(header):
            self._members.begin_anew()
            self._log.replace_by(head)
        place = message.commit_index, first_index, header.term
        return self.deliver_append(peer, Append(term, *place, message.sequence, count=0))

    def _has_taken_the_members(self) -> bool:
        """Whether the members that a leader sends before its head were taken."""
        return self._core.role is Role.FOLLOWER

    def _check_head(self, head: LogHead, commit_index: int) -> None:
        """Raise FrameError for a head that can't be a leader's. This comes before anything is
        dropped.

        The first entry must fit the head, be committed, and leave room for later entries. It can't
        contradict what is committed here, since logs with different committed entries are of
        different groups.
        """
        log = self._log
        try:
            header, *_ = first_entry_of(head)
        except CorruptLog as error:
            raise FrameError(f"a leader's HEAD is malformed: {error}") from error
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
        """Whether a leader's first entry lies behind this log, or differs from this log's entry."""
        log, first_index = self._log, header.index
        return first_index > log.last_index or (
            first_index >= log.first_index
            and log.reader.header(first_index).chain_crc != header.chain_crc
        )

    def deliver_vote(self, peer: Peer, message: Vote) -> None:
        """A candidate asks for this node's vote."""
        if message.term < self._core.term:
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
        """A vote for this node. Only a voter's counts, and only once in a term."""
        if not self._members.current.votes(str(peer.node.id)):
            return
        vote = (str(peer.node.id), message.term)
        if message.term != self._core.term or vote in self._votes:
            return
        self._votes = {held for held in self._votes if held[1] == message.term} | {vote}
        self._onMessageReceived(peer.node, {"type": "response_vote", "term": message.term})

    def deny(self, peer: Peer) -> None:
        """Tell a peer that its term is too old."""
        self._peers.post(peer, Denied(self._core.term))

    def step_down(self, peer: Peer, term: int) -> None:
        """Take the higher term of a peer. The library does so when it gets a vote request that it
        can't grant, so this gives it one."""
        if term > self._core.term:
            self._onMessageReceived(
                peer.node,
                {
                    "type": "request_vote",
                    "term": term,
                    "last_log_index": 0,
                    "last_log_term": -1,
                },
            )

    # -- what the library gets ----------------------------------------------------------

    def connected(self, node: Node) -> None:
        """Messages to a peer may be sent."""
        self._onNodeConnected(node)

    def disconnected(self, node: Node) -> None:
        """No messages to a peer may be sent."""
        self._onNodeDisconnected(node)

    def answered(self, node: Node, next_index: int, *, reset: bool, success: bool) -> None:
        """Hand the library an answer to this leader, which counts."""
        message = {"next_node_idx": next_index, "reset": reset, "success": success}
        self._onMessageReceived(node, {"type": "next_node_idx", **message})

    # -- what the library may ask and never gets -------------------------------------------

    def addNode(self, node: Node) -> None:  # noqa: N802
        """Refuse: the library's own membership changes are off."""
        raise FrameError(f"the Raft library tried to add {node.id}")

    def dropNode(self, node: Node) -> None:  # noqa: N802
        """Refuse: members change by entries of the log, not by the library."""
        raise FrameError(f"the Raft library tried to drop {node.id}")

    def destroy(self) -> None:
        """Do nothing: the links are the shell's."""
