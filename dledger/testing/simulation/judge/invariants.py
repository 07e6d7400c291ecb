"""The judge of a simulated run: Raft's invariants after every step, and the client's view.

- one vote: a node gives its vote to at most one candidate of a term;
- election safety: at most one leader a term, and it has the votes of a majority;
- a node that is not eligible stands for no election;
- configurations: a node acts by the last one in its log that may be committed, or by a newer one
  that is; a leader adds or removes one voter at a time, after the change before and an entry of
  its own term are committed. A node counts majorities by the configuration in its own log;
- leader append-only: a leader removes nothing from its own log;
- log matching: entries with equal index and term have equal logs before them, as their chain CRCs
  show;
- leader completeness: a new leader holds all that earlier terms committed;
- no promise is taken back: a node never removes a committed entry, and a restart finds all of them
  that it had called durable;
- a follower acknowledges only what messages of that term have verified;
- what a leader counts for a follower was acknowledged to it in this term, and is on that follower's
  disk;
- the commit rule: a leader commits by counting only up to an entry of its own term;
- state machine safety: one entry per index, for ever, on all nodes;
- durability: at the moment when an entry is first known to be committed, it is on the disks of a
  majority, where a power loss can't take it;
- an entry that has rotted on a disk is never sent;
- a leader that hears from no majority stops serving;
- a log that lost its head begins with a committed entry, and a state that was taken over is one
  that the group had;
- no node holds an entry durably, or becomes eligible, without a saved state from before its log's
  first entry;
- a leader that hands leadership over takes appends again if that is not done in time.

:mod:`dledger.testing.simulation.judge.client_history` judges the answers to clients.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import FrameError
from dledger.log.entry import HEADER_BYTES, Entry
from dledger.log.head import decode_head
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.raft.engine import RaftEngine
from dledger.raft.limits import TRANSFER_TIMEOUT_S
from dledger.raft.messages import (
    PREFIX,
    Ack,
    Append,
    Head,
    PeerKind,
    PeerMessage,
    Vote,
    decode_message,
    split_run,
)
from dledger.raft.roles import Role
from dledger.testing.disk import SimulatedDisk
from dledger.testing.simulation.judge.client_history import ClientHistory, Violation
from dledger.testing.simulation.judge.configurations import Configurations, is_majority

SERVES_ALONE_S = 2.0
"""A leader that hears from no majority must stop serving within this time, by its own clock."""
STEP_S = 0.1
"""Seconds beyond a busy node's step: deadlines are timed from within one."""

FIRST_INDEX = 1
"""Index of the entry that every log begins with, committed or not: before it there is nothing to
lose."""

_KIND_OFFSET = PREFIX.size + 1


@dataclass(slots=True)
class Seen:
    """State of a running node, as the judge saw it last."""

    role: Role = Role.FOLLOWER
    term: int = 0
    last_index: int = 0
    commit_index: int = 0
    matched_index: int = 0
    match: dict[str, int] = field(default_factory=dict)
    led_since: float = 0.0
    handing_over_since: float | None = None
    voters: frozenset[str] = frozenset()
    eligible: bool = False


class Judge:
    """Watches one run by its invariants. Every method raises Violation when something is wrong."""

    def __init__(
        self,
        folder: Path,
        disks: Mapping[str, SimulatedDisk],
        saved: Mapping[str, int],
        voters: Iterable[str],
        violation: Callable[[str], Violation],
    ) -> None:
        self.violation = violation
        self.client = ClientHistory(violation)
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, tuple[int, int]] = {}
        self.committed_end = FIRST_INDEX
        #: Nodes whose disks may have lost entries that were rightly acknowledged.
        self.damaged: set[str] = set()
        #: The entry that rotted last on a node: a header that is read there may be wrong.
        self.rotten: dict[str, int] = {}
        self._committed_in: dict[int, int] = {}
        self._folder = folder
        self._disks = disks
        self._saved = saved
        self.configurations = Configurations(frozenset(voters))
        self._votes: dict[tuple[int, str], str] = {}
        self._acked: dict[tuple[str, str, int], int] = {}
        self._verified: dict[tuple[str, str, int], int] = {}
        self._bodies: dict[int, int] = {}
        self._chains: dict[tuple[int, int], int] = {}
        self._seen: dict[str, Seen] = {}
        self._promised: defaultdict[str, int] = defaultdict(int)

    # -- the wire --------------------------------------------------------------------------

    def on_send(self, sender: str, receiver: str, frame: bytes) -> None:
        """A frame leaves: it may hold an acknowledgement, a vote, a candidate's own for one, or
        entries of a node whose disk is rotten."""
        kind = frame[_KIND_OFFSET]
        if kind == PeerKind.APPEND and sender not in self.damaged:
            return
        if kind not in (PeerKind.APPEND, PeerKind.ACK, PeerKind.VOTE, PeerKind.VOTED):
            return
        message = decode_message(memoryview(frame))
        if isinstance(message, Append):
            self._check_entries(sender, receiver, message)
            return
        if isinstance(message, Ack):
            index = message.next_index - 1
            if message.success and index > self._verified.get((sender, receiver, message.term), 0):
                raise self.violation(
                    f"{sender} acknowledges entry {index} to {receiver}, whose messages of term "
                    f"{message.term} did not verify it"
                )
            return
        candidate = sender if isinstance(message, Vote) else receiver
        first = self._votes.setdefault((message.term, sender), candidate)
        if first != candidate:
            raise self.violation(
                f"{sender} votes for {first} and {candidate} in term {message.term}"
            )

    def _check_entries(self, sender: str, receiver: str, message: Append) -> None:
        """Check that a rotted entry is not sent."""
        first_index = message.previous_index + 1
        try:
            entries = split_run(message.run, first_index, message.count, message.term)
        except FrameError as error:
            raise self.violation(f"{sender} sends {receiver} a damaged entry: {error}") from error
        for header in (entry.header for entry in entries):
            key = header.index, header.term
            if self._chains.get(key, header.chain_crc) != header.chain_crc:
                raise self.violation(f"{sender} sends {receiver} a damaged entry {header.index}")

    def on_receive(self, sender: str, receiver: str, message: PeerMessage) -> None:
        """A frame arrives: it may hold entries or an acknowledgement."""
        key = receiver, sender, message.term
        if isinstance(message, Ack) and message.success:
            self._acked[key] = max(self._acked.get(key, 0), message.next_index - 1)
        elif isinstance(message, Head):
            self._verified[key] = max(self._verified.get(key, 0), message.first_index)
        elif isinstance(message, Append):
            verified = message.previous_index + message.count
            self._verified[key] = max(self._verified.get(key, 0), verified)

    # -- nodes, after every step -----------------------------------------------------------

    def started(self, node_id: str, engine: RaftEngine) -> None:
        """A node starts anew: it must hold the committed entries that were durable there."""
        self._seen[node_id] = Seen(eligible=engine.acknowledging.eligible)
        promised = self._promised[node_id]
        if promised and not self._holds(node_id, engine.log, promised):
            raise self.violation(
                f"{node_id} starts without committed entry {promised}, which was durable there"
            )

    def emptied(self, node_id: str) -> None:
        """A node's disk was replaced: nothing that it held is promised any more.

        Votes that it gave to others still count for those; the one for itself died with it."""
        self._promised[node_id] = 0
        self._votes = {
            (term, voter): candidate
            for (term, voter), candidate in self._votes.items()
            if not voter == candidate == node_id
        }

    def on_install(self, node_id: str, index: int, payload: Buffer) -> None:
        """A node takes over the state of another."""
        if payload != b"%d" % index or index > self.committed_end:
            raise self.violation(f"{node_id} takes {payload!r} for the state of entry {index}")

    def _holds(self, node_id: str, log: SegmentedLog, index: int) -> bool:
        """Whether a log has the committed entry of that index, and so all before it.

        If that is gone with the log's head, the first entry speaks for it."""
        index = max(index, log.first_index)
        if index > log.last_index or index not in self.committed:
            return False
        if node_id in self.damaged and self.rotten.get(node_id) == index:
            return True
        return log.reader.header(index).chain_crc == self.committed[index][1]

    def dying(self, node_id: str, engine: RaftEngine) -> None:
        """A node died, or was fenced, within a step, its state half changed.

        What it committed before, others may know."""
        self._check_commit(node_id, self._seen[node_id], engine)

    def died(self, node_id: str) -> None:
        """Note that appends under way at a dead node will have no answer."""
        self.client.died(node_id)

    def look(
        self, node_id: str, engine: RaftEngine, now: float, heard_at: Mapping[str, float]
    ) -> bool:
        """Check a node; whether it has become leader. `heard_at`: when from each peer, its time."""
        seen, core, log = self._seen[node_id], engine.core, engine.log
        self._check_matching(node_id, seen, log)
        self._learn(node_id, engine)
        self._check_configuration(node_id, engine)
        self._check_commit(node_id, seen, engine)
        self._check_promises(node_id, seen, log)
        if core.role is not Role.FOLLOWER and not engine.acknowledging.eligible:
            raise self.violation(f"{node_id} stands for term {core.term} without being eligible")
        elected = core.role is Role.LEADER and (seen.role, seen.term) != (Role.LEADER, core.term)
        if elected:
            seen.led_since = now
            self._check_elected(node_id, engine)
        elif core.role is Role.LEADER and log.last_index < seen.last_index:
            raise self.violation(f"leader {node_id} removed entries of its own log")
        if engine.standing.serving:
            voters = self._voters(log)
            recent = {
                voter
                for voter in voters
                if now - max(heard_at.get(voter, 0.0), seen.led_since) < SERVES_ALONE_S
            }
            if not is_majority({node_id, *recent}, voters):
                raise self.violation(
                    f"{node_id} still serves in term {core.term}, "
                    f"{SERVES_ALONE_S} s after it last heard from a majority"
                )
        self._check_match(node_id, seen, engine)
        if (
            engine.acknowledging.eligible
            and not seen.eligible
            and not self._has_base_state(node_id)
        ):
            raise self.violation(f"{node_id} becomes eligible without a saved state to build on")
        self._check_transfer(node_id, seen, engine, now)
        seen.role, seen.term, seen.last_index = core.role, core.term, log.last_index
        seen.voters, seen.eligible = self._voters(log), engine.acknowledging.eligible
        return elected

    def _voters(self, log: SegmentedLog) -> frozenset[str]:
        return self.configurations.of(log, self.committed)[1]

    def _learn(self, node_id: str, engine: RaftEngine) -> None:
        """A leader may have changed the configuration, which it must be allowed to."""
        known, core = self.configurations, engine.core
        for configuration in (engine.members.base, *engine.members.later):
            key = configuration.index, configuration.term
            if known.learn(configuration) and core.role is Role.LEADER:
                problem = known.problem_of(key, engine.log, self.committed, core.commit_index)
                if problem is not None:
                    raise self.violation(f"leader {node_id} of term {core.term} {problem}")

    def _check_configuration(self, node_id: str, engine: RaftEngine) -> None:
        known, log, current = self.configurations, engine.log, engine.members.current
        key, voters = known.of(log, self.committed)
        acts_by = current.index, current.term
        allowed = [key]
        # The configuration of an uncommitted entry may be forgotten before the log loses the entry.
        while self._committed_term(allowed[-1][0]) not in (None, allowed[-1][1]):
            allowed.append(known.of(log, self.committed, allowed[-1][0])[0])
        ahead = current.index >= key[0] and self._committed_term(current.index) == current.term
        if acts_by not in allowed and not ahead:
            raise self.violation(
                f"{node_id} acts by the configuration of entry {acts_by[0]} of term {acts_by[1]}, "
                f"although its log's last one is entry {key[0]} of term {key[1]}: {sorted(voters)}"
            )

    def _committed_term(self, index: int) -> int | None:
        """Term of the entry that is committed at an index; None if none is."""
        return self.committed[index][0] if index in self.committed else None

    def _check_matching(self, node_id: str, seen: Seen, log: SegmentedLog) -> None:
        last = log.last_index
        rotten = self.rotten.get(node_id, 0) if node_id in self.damaged else 0
        for index in {*range(max(seen.last_index + 1, log.first_index), last), last} - {0, rotten}:
            header = log.reader.header(index)
            known = self._chains.setdefault((index, header.term), header.chain_crc)
            if known != header.chain_crc:
                raise self.violation(
                    f"entry {index} of term {header.term} of {node_id} is not that of other nodes"
                )

    def _check_commit(self, node_id: str, seen: Seen, engine: RaftEngine) -> None:
        self._learn(node_id, engine)
        commit_index, log = engine.core.commit_index, engine.log
        if commit_index == seen.commit_index:
            return
        seen.commit_index = commit_index
        if commit_index > log.last_index:
            raise self.violation(
                f"{node_id} takes {commit_index} for committed, its log ends at {log.last_index}"
            )
        if commit_index > self.committed_end:
            if Role.LEADER not in (seen.role, engine.core.role):
                raise self.violation(
                    f"follower {node_id} takes {commit_index} for committed, the leaders "
                    f"{self.committed_end}"
                )
            if log.reader.header(commit_index).term != engine.core.term:
                raise self.violation(
                    f"leader {node_id} of term {engine.core.term} commits up to entry "
                    f"{commit_index}, which is of term {log.reader.header(commit_index).term}"
                )
            for index in range(self.committed_end + 1, commit_index + 1):
                self._committed_in[index] = engine.core.term
                self._check_durable(node_id, log, index)
            self.committed_end = commit_index
        header = log.reader.header(commit_index)
        known = self.committed.setdefault(commit_index, (header.term, header.chain_crc))
        if known != (header.term, header.chain_crc):
            raise self.violation(
                f"{node_id} takes another entry {commit_index} (term {header.term}) for committed "
                f"than the one of term {known[0]}"
            )

    def _check_promises(self, node_id: str, seen: Seen, log: SegmentedLog) -> None:
        if seen.matched_index and not self._holds(node_id, log, seen.matched_index):
            raise self.violation(f"{node_id} removes committed entry {seen.matched_index}")
        index = min(log.last_index, self.committed_end)
        while index > max(seen.matched_index, 1) and not self._holds(node_id, log, index):
            index -= 1
        if index > max(seen.matched_index, 1):
            seen.matched_index = index
        promised = min(seen.matched_index, log.durable_index)
        self._promised[node_id] = max(self._promised[node_id], promised)

    def _check_match(self, node_id: str, seen: Seen, engine: RaftEngine) -> None:
        """Check that entries are durable that a leader counts for a follower that knows of no later
        term."""
        if engine.core.role is not Role.LEADER:
            seen.match.clear()
            return
        for peer_id, peer in engine.peers.known.items():
            index = engine.core.match_index(peer.node)
            term = self._seen.get(peer_id, Seen()).term
            if index == seen.match.get(peer_id, 0) or term > engine.core.term:
                continue
            seen.match[peer_id] = index
            if index > self._acked.get((node_id, peer_id, engine.core.term), 0):
                raise self.violation(
                    f"leader {node_id} of term {engine.core.term} counts entry {index} for "
                    f"{peer_id}, which has not acknowledged it in this term"
                )
            if index < max(2, engine.log.first_index) or self._is_trimmed(peer_id, index):
                continue
            if self.damaged & {node_id, peer_id}:
                continue
            if not self._is_durable(peer_id, engine.log, index):
                raise self.violation(
                    f"leader {node_id} of term {engine.core.term} counts entry {index} for "
                    f"{peer_id}, which does not hold it"
                )

    def _check_transfer(self, node_id: str, seen: Seen, engine: RaftEngine, now: float) -> None:
        if engine.handing_over_to is None:
            seen.handing_over_since = None
        elif seen.handing_over_since is None:
            seen.handing_over_since = now
        elif now - seen.handing_over_since > TRANSFER_TIMEOUT_S + STEP_S:
            raise self.violation(
                f"{node_id} has been handing leadership to {engine.handing_over_to} for more than "
                f"{TRANSFER_TIMEOUT_S} s and takes no appends"
            )

    def _is_durable(self, holder: str, log: SegmentedLog, index: int) -> bool:
        """Whether an entry of `log` is on the disk of `holder`, safe from a power loss.

        Told by the header, which names the body by its checksum: the body in `log` may have rotted.
        """
        header = log.reader.header(index)
        raw = log.reader.view(header.position, HEADER_BYTES)
        offset = header.position % log.segment_bytes
        path = segment_path(self._folder, header.position - offset)
        held = self._disks[holder].durable_bytes(path, offset, header.size)
        intact = held[:HEADER_BYTES] == raw and crc32(held[HEADER_BYTES:]) == header.body_crc
        return intact and self._has_base_state(holder)

    def _has_base_state(self, holder: str) -> bool:
        """Whether the saved state of `holder` reaches to where the log on its disk begins."""
        return self._saved[holder] + 1 >= self._first_index(holder)

    def _first_index(self, holder: str) -> int:
        return decode_head(self._disks[holder].read(self._folder / "head")).first_index

    def _is_trimmed(self, holder: str, index: int) -> bool:
        """Whether an entry lies before the head of what `holder` has on its disk."""
        return index < self._first_index(holder) and index <= self.committed_end

    def _check_durable(self, node_id: str, log: SegmentedLog, index: int) -> None:
        header = log.reader.header(index)
        holders = [holder for holder in self._disks if self._is_durable(holder, log, index)]
        self.committed[index] = (header.term, header.chain_crc)
        # The node may have changed its configuration in the same step, after it had counted.
        counted_by = self._seen[node_id].voters, self._voters(log)
        if not any(is_majority(holders, voters) for voters in counted_by):
            raise self.violation(
                f"{node_id} commits entry {index} of term {header.term}, which is durable only on "
                f"{', '.join(holders) or 'no node'}"
            )

    def _check_elected(self, node_id: str, engine: RaftEngine) -> None:
        term, log = engine.core.term, engine.log
        known = self.leaders.setdefault(term, node_id)
        if known != node_id:
            raise self.violation(f"{known} and {node_id} both lead in term {term}")
        voters = [voter for (of, voter), who in self._votes.items() if (of, who) == (term, node_id)]
        if not is_majority(voters, self._voters(log)):
            raise self.violation(f"{node_id} leads term {term} with the votes of {voters} only")
        # A commit in a later term does not bind a leader of an earlier one, although the entry
        # itself may be older than both.
        index = self.committed_end
        while index > 1 and self._committed_in[index] >= term:
            index -= 1
        if index > 1 and not self._holds(node_id, log, index):
            raise self.violation(
                f"{node_id} leads term {term} without entry {index} of term "
                f"{self.committed[index][0]}, which is committed"
            )

    # -- applying --------------------------------------------------------------------------

    def on_apply(self, node_id: str, engine: RaftEngine, entry: Entry) -> None:
        """A node applies an entry: it must be committed, and the same as on all others."""
        self._check_commit(node_id, self._seen[node_id], engine)
        body = bytes(entry.body)
        if entry.index > self.committed_end:
            raise self.violation(f"{node_id} applies entry {entry.index}, which is not committed")
        if self._bodies.setdefault(entry.index, crc32(body)) != crc32(body):
            raise self.violation(f"{node_id} applies another entry {entry.index} than others did")
        self.client.check_applied(node_id, entry.index, body)
