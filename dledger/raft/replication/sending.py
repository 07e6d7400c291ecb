"""Sends entries of a leader's log to each peer, and decides how much at a time.

Each peer gets all that it lacks, in messages of bounded size, as soon as it is written here: the
same bytes as in the file. A peer that is far behind is slowed down for the sake of the appends
(`pacing`). A peer that reads nothing is sent nothing more (19). A peer that needs entries that are
gone here gets the head of this log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.failpoints import failpoint
from dledger.raft.limits import (
    BATCH_BYTES,
    BURST_BYTES,
    BURST_ENTRIES,
    COMMITS_GO_ON_S,
    HEAD_AGAIN_S,
    PACE_S,
    SIGN_OF_LIFE_S,
)
from dledger.raft.messages import Append, Head
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.log.store import SegmentedLog
    from dledger.raft.library.adapter import Node
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer


def batch_end(log: SegmentedLog, first_index: int) -> int:
    """The last entry of a message that begins with `first_index`."""
    return log.reader.batch_end(first_index, BATCH_BYTES)


class Sending:
    """A node's sending of entries, while it leads."""

    def __init__(self, consensus: Consensus, replica: Replica) -> None:
        self._core = consensus.core
        self._peers = consensus.peers
        self._log = replica.log
        self._members = replica.members
        self._sent_index = self._sent_position = 0
        self._committed = 0, 0.0
        self._core.send_entries = self.send_entries

    @property
    def has_burst(self) -> bool:
        """Whether so much was appended since the last sending that it should be sent before the
        rest comes."""
        return (
            self._log.last_index - self._sent_index >= BURST_ENTRIES
            or self._log.end_position - self._sent_position >= BURST_BYTES
        )

    @property
    def sent_to_all_index(self) -> int:
        """The last entry that a leader has sent to every connected peer; 0 on other nodes."""
        if self._core.role is not Role.LEADER:
            return 0
        members = self._members.current.members
        peers = self._peers.known.items()
        linked = [peer for node_id, peer in peers if peer.link and node_id in members]
        sent = [self._core.next_index(peer.node) - 1 for peer in linked]
        return min([self._log.last_index, *sent])

    def next_at(self, stepped_at: float) -> float:
        """When a leader's next step is due after one at `stepped_at`, even if no message
        arrives."""
        heartbeat_at = self._core.heartbeat_at()
        for peer in self._peers.known.values():
            if peer.sent.held_back:
                return min(heartbeat_at, stepped_at + PACE_S)
        return heartbeat_at

    def begin_to_lead(self) -> None:
        """Forget what this node sent when it led before: that is no longer acknowledged."""
        failpoint("raft.elected")
        for peer in self._peers.known.values():
            peer.sent.flow.start_again()

    def send_new(self, now: float) -> None:
        """Send what is new, or what was held back, if this node leads."""
        if self._core.role is not Role.LEADER:
            return
        log, is_asked = self._log, self._peers.take_request()
        if is_asked or log.last_index != self._sent_index:
            self._sent_index, self._sent_position = log.last_index, log.end_position
            self._core.send_append_entries()
            return
        for peer in self._peers.known.values():
            if peer.sent.held_back:
                self.send_entries(peer.node, now)

    def send_entries(self, node: Node, now: float) -> None:
        """Send a peer all that it lacks, in messages of bounded size; an empty one if it lacks
        nothing.

        A peer that lacks entries from before the log's head gets the head.
        """
        peer, log = self._peers.known[str(node.id)], self._log
        peer.sent.held_back = False
        self._peers.pause_if_slow(peer)
        next_index, last_index = self._core.next_index(node), log.last_index
        if next_index <= log.first_index:
            self._send_head(peer, now)
            return
        behind_bytes = log.reader.bytes_behind(next_index - 1)
        while peer.link is not None and not peer.paused:
            if behind_bytes and not self._may_send(peer, behind_bytes, now):
                peer.sent.held_back = True
                if now - peer.sent.at > SIGN_OF_LIFE_S / 2:
                    self._send_append(peer, next_index, next_index - 1, now)
                return
            end = batch_end(log, next_index) if next_index < last_index else last_index
            self._send_append(peer, next_index, end, now)
            sent_bytes, behind_bytes = behind_bytes, log.reader.bytes_behind(end)
            if sent_bytes:
                peer.sent.flow.sent(end, sent_bytes - behind_bytes, now)
            next_index = end + 1
            self._core.set_next_index(node, next_index)
            if next_index > last_index:
                return

    def _may_send(self, peer: Peer, behind_bytes: int, now: float) -> bool:
        core = self._core
        if core.commit_index != self._committed[0]:
            self._committed = core.commit_index, now
        # If nothing is being committed, either there are no appends, or they wait for this very
        # peer.
        busy = now - self._committed[1] < COMMITS_GO_ON_S
        return peer.sent.flow.may_send(now, behind_bytes=behind_bytes, busy=busy)

    def _send_append(self, peer: Peer, first_index: int, last_index: int, now: float) -> None:
        """Send the entries from `first_index` to `last_index`. With none, it shows that there is a
        leader."""
        core, sent = self._core, peer.sent
        count = last_index - first_index + 1
        previous = self._log.reader.checked_header(first_index - 1)
        sent.sequence += 1
        sent.at = now
        message = Append(
            core.term, core.commit_index, previous.index, previous.term, sent.sequence, count
        )
        self._peers.post(peer, message, (first_index, last_index) if count else None)

    def _send_head(self, peer: Peer, now: float) -> None:
        """Send the head of this log to a peer that needs entries from before it."""
        peers, log, core = self._peers, self._log, self._core
        if now - peer.sent.head_at < HEAD_AGAIN_S:
            return
        peer.sent.head_at = now
        failpoint("head.send")
        peer.sent.sequence += 1
        peers.tell_members(peer)
        first = log.first_index
        head = log.reader.head_before(first)
        place = first, head.base_position, head.chain_crc
        run = log.reader.checked_run_of(first, first)
        peers.post(peer, Head(core.term, core.commit_index, *place, peer.sent.sequence, run))
