"""Whether the disks of a majority have room for what a leader takes.

A follower whose disk is full drops the entries of the next segment (`dledger.log.segments.space`).
Once the others are no majority, nothing more is committed: appends would wait until their deadlines
and end with an unknown outcome. Behind them would wait the entry that lets old segments be removed,
which could make room. So a follower reports to its leader, each second, while it can't begin
another segment.
While a majority can't, the leader goes by that as on a full disk of its own: what is free in the
present segment is the last room that there is, messages leave a part of it for the rest, and what
does not fit is definitely not taken.

What a follower says counts for a few seconds. So nothing has to be taken back when there is room
again, or when a message is lost: the leader then goes on taking appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.errors import NoSpace
from dledger.raft.election.transfer import Obstacle
from dledger.raft.limits import NO_SPACE_COUNTS_S, NO_SPACE_REPORT_S
from dledger.raft.messages import Declined

if TYPE_CHECKING:
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer


class MajoritySpace:
    """A node's part in this: as a follower that reports, and as a leader that hears."""

    def __init__(self, consensus: Consensus, replica: Replica, heartbeat_s: float) -> None:
        self._core = consensus.core
        self._peers = consensus.peers
        self._members = replica.members
        self._log = replica.log
        self._counts_s = max(NO_SPACE_COUNTS_S, 3 * heartbeat_s)
        self._reported_term, self._reported_at = 0, 0.0
        self._heard_at: dict[str, float] = {}

    def report(self, leader: Peer, now: float) -> None:
        """A leader's message has come: report it if this node can't begin another segment."""
        if self._log.space.lacking is None:
            return
        term = self._core.term
        if term != self._reported_term or now - self._reported_at >= NO_SPACE_REPORT_S:
            self._reported_term, self._reported_at = term, now
            self._peers.post(leader, Declined(term, Obstacle.NO_SEGMENT))

    def heard(self, node_id: str, message: Declined, now: float) -> None:
        """A follower says why it could not lead; of those reasons one matters here."""
        if message.reason == Obstacle.NO_SEGMENT and message.term == self._core.term:
            self._heard_at[node_id] = now

    def check(self, size_bytes: int, kind: int, now: float, *, urgent: bool) -> None:
        """Make sure that there is room for an entry of this leader, here and on a majority. Raises
        NoSpace, OSError."""
        lacking = self._lacking_elsewhere(now) if self._heard_at else None
        if lacking is not None and self._is_ahead():
            raise NoSpace(lacking)
        self._log.space.check(size_bytes, kind, urgent=urgent, elsewhere=lacking)

    def _lacking_elsewhere(self, now: float) -> str | None:
        """Why a majority can't begin another segment; None if it can, as far as this node knows."""
        self._heard_at = {
            node_id: at for node_id, at in self._heard_at.items() if now - at < self._counts_s
        }
        voters = {*self._members.current.voters}
        if self._members.is_majority(voters - {*self._heard_at}):
            return None
        return (
            f"there is no space left on the disks of {', '.join(sorted(self._heard_at))} for "
            "another segment, so no majority would store it; what is there can be read. Make room "
            "there: it goes on by itself"
        )

    def _is_ahead(self) -> bool:
        """Whether nothing of this leader's last segment is committed: the others may not have the
        segment, and would drop whatever comes."""
        log = self._log
        committed, last = (
            log.reader.header(self._core.commit_index),
            log.reader.header(log.last_index),
        )
        return committed.position // log.segment_bytes < last.position // log.segment_bytes
