"""A node whose log is damaged gets what it lacks from the leader, before it takes part.

While its log is damaged a node only tells its peers which entry it lacks. It does not vote,
acknowledges nothing and answers no pre-vote, so it does no more harm than a node that is down. What
must be shown is that it may take part afterwards, with its eligibility, its term and its vote,
which it never lost.

- *What it is given* is committed, so these are the right entries. Each answer comes from a leader
  that serves, after a round of confirmations that began after the question arrived (as for a read,
  see `reads`). So an old leader that was cut off gives nothing.
- *What it may lack afterwards.* Up to the leader's commit index C the repaired log holds all that
  is committed. Behind C it holds what it can still read. It may have acknowledged entries that it
  can no longer read, but none of them is committed, or will be by that acknowledgement. Suppose an
  entry behind C was committed in a term before the leader's, by a majority that counted this node.
  The leader was elected by a majority too. A node in both had the entry when it voted, so the
  leader has it as well, before its own no-op, which it had committed when it began to serve. So the
  entry lies at or below C. In a later term than the leader's nothing was committed yet, as the
  confirmations show. In the leader's own term only the leader commits. So far it did up to C, and
  this node has acknowledged nothing since before its question; later it counts only what this node
  acknowledges after the repair.

C is what the first answer says. All of the above holds for it until the repair is over, as this
node acknowledges nothing before. Later answers say more while the group takes messages: a repair
that aimed at these would not end where messages come as fast as entries are given.

So after a repair nothing is missing that another node relies on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.errors import CorruptLog, NotLeader
from dledger.log.entry import Kind
from dledger.raft.claims import check_term
from dledger.raft.limits import BATCH_BYTES
from dledger.raft.membership.configuration import Configuration, decode_members
from dledger.raft.membership.members import note_committed
from dledger.raft.messages import EMPTY_RUN, Given, Lacking, split_run
from dledger.raft.replication.sending import batch_end

if TYPE_CHECKING:
    from dledger.log.hard_state import HardStateFile
    from dledger.log.recovery.repair import LogRepair
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer


class Asking:
    """The side that lacks entries. Its caller asks all peers, again and again."""

    def __init__(self, repair: LogRepair, hard_state: HardStateFile) -> None:
        self._repair = repair
        self._hard_state = hard_state
        self._committed: int | None = None

    @property
    def question(self) -> Lacking:
        """The question to all peers. Its term is 0, since this node takes no part."""
        return Lacking(0, self.wanted_index)

    @property
    def wanted_index(self) -> int:
        """The entry that is needed next."""
        return self._repair.next.next_index

    def take(self, message: Given) -> int | Lacking | None:
        """Take a leader's answer to a question. Returns an index up to which all was committed, and
        is here; or the next question to who answered; or None if it has helped nothing, since it
        came twice, say: then nothing is to be asked, else there would be two of each question from
        there on.

        Raises FrameError for what is malformed, CorruptLog if the leader can't help, OSError.
        """
        before = self.wanted_index
        committed_index = self._take(message)
        if committed_index is None and self.wanted_index != before:
            return self.question
        return committed_index

    def _take(self, message: Given) -> int | None:
        """Take the entries; None while some are missing."""
        first_index, count = message.first_index, message.count
        check_term(self._hard_state.state.term, message.term, "a peer that says it leads")
        repair, place = self._repair, self._repair.next
        if first_index > place.next_index:
            raise CorruptLog(
                f"entry {place.next_index} is damaged here, and gone at the leader, whose log "
                f"begins with {first_index}. Remove this replica's folder so that it copies "
                "everything."
            )
        if first_index < place.next_index:
            return None  # the answer to an earlier question
        if self._committed is None:
            self._committed = message.commit_index
        if count and message.chain_crc != place.chain_crc:
            repair.begin_at_what_is_committed()
            return None
        copies = split_run(message.run, first_index, count, message.term)
        self._take_term(message.term)
        for copy in copies:
            header = copy.header
            if header.kind == Kind.CONFIGURATION:
                members = Configuration(decode_members(copy.body), header.index, header.term)
                note_committed(repair.folder, repair.disk, members)
            if repair.take(header, copy.raw_header, copy.body):
                break
        else:
            if repair.next.next_index <= self._committed:
                return None
        repair.finish()
        return self._committed

    def _take_term(self, term: int) -> None:
        """A term must be durable before its first entry."""
        state = self._hard_state.state
        if term > state.term:
            self._hard_state.save(replace(state, term=term, vote=None))


class Giving:
    """A leader that gives entries to nodes that repair their logs."""

    def __init__(self, consensus: Consensus, replica: Replica) -> None:
        self._core = consensus.core
        self._peers = consensus.peers
        self._log = replica.log

    def give(self, peer: Peer, wanted_index: int, commit_index: int | NotLeader) -> None:
        """Send committed entries from `wanted_index` on, or from where this log begins.

        `commit_index` was confirmed after the question arrived. If that failed nothing is sent.
        Nor is anything while as much still waits to be sent: who asks through a slow link asks
        again before the answer has arrived. In one step the same is given once, and two answers at
        most.
        """
        waits = peer.link is not None and peer.link.queued_bytes >= BATCH_BYTES
        if isinstance(commit_index, NotLeader) or waits:
            return
        log = self._log
        first = max(wanted_index, log.first_index)
        given = [
            each.first_index for each in self._peers.posted_to(peer) if isinstance(each, Given)
        ]
        if first in given or len(given) > 1:
            return
        chain_crc, count = 0, 0
        run = EMPTY_RUN
        if first <= commit_index:
            last = min(batch_end(log, first), commit_index)
            chain_crc = log.reader.chain_crc_before(first)
            count, run = last - first + 1, log.reader.checked_run_of(first, last)
        self._peers.post(peer, Given(self._core.term, first, chain_crc, commit_index, count, run))
