"""The judge of a simulated run: Raft's invariants after every step, and the client's view.

- one vote: a node gives its vote to at most one candidate of a term;
- election safety: at most one leader a term, and it has the votes of a majority;
- leader append-only: a leader removes nothing of its own log;
- log matching: equal index and term, equal log up to there (the chain CRC tells);
- leader completeness: a new leader holds whatever earlier terms committed;
- no promise is taken back: a node never removes a committed entry, and a restart finds whatever
  it had called durable of them;
- a leader's idea of a follower is true: what it counts for it was acknowledged to it in this term,
  and is on that follower's disk;
- the commit rule: a leader commits by counting only up to an entry of its own term;
- state machine safety: one entry per index, for ever, on all nodes;
- durability: at the moment when an entry is first known to be committed, it is on the disks of a
  majority, where a power loss can't take it;
- the client: one outcome per append, acknowledged entries keep their place and come in the order
  in which they were asked for, refused ones never turn up, a leader serves only with everything
  applied that was acknowledged before its term, and stops when it hears from no majority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dledger.checksum import crc32
from dledger.errors import AppendError
from dledger.log.entry import Entry
from dledger.log.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.raft.engine import Appended, RaftEngine
from dledger.raft.library import Role
from dledger.raft.messages import PREFIX, PeerKind, decode_message
from dledger.testing.disk import SimulatedDisk

SERVES_ALONE_S = 2.0
"""A leader that hears from no majority must have said so after this time, by its own clock."""

_KIND_OFFSET = PREFIX.size + 1


class Violation(AssertionError):
    """An invariant does not hold; the text says which, where and when."""


@dataclass(slots=True)
class Seen:
    """What the judge last saw of a running node."""

    role: Role = Role.FOLLOWER
    term: int = 0
    last_index: int = 0
    commit_index: int = 0
    matched_index: int = 0
    match: dict[str, int] = field(default_factory=dict)
    led_since: float = 0.0


@dataclass(frozen=True, slots=True)
class Offer:
    """An append that waits for its outcome: at which node, and what was acknowledged before."""

    node_id: str
    after_index: int


class Judge:
    """Watches one run. Every method raises Violation when something is wrong."""

    def __init__(
        self,
        folder: Path,
        disks: Mapping[str, SimulatedDisk],
        violation: Callable[[str], Violation],
    ) -> None:
        self.violation = violation
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, tuple[int, int]] = {}
        self.committed_end = 1
        self.acknowledged: dict[int, tuple[int, bytes]] = {}
        self.acknowledged_end = 0
        self._folder = folder
        self._disks = disks
        self._majority = len(disks) // 2 + 1
        self._votes: dict[tuple[int, str], str] = {}
        self._acked: dict[tuple[str, str, int], int] = {}
        self._bodies: dict[int, int] = {}
        self._chains: dict[tuple[int, int], int] = {}
        self._offers: dict[bytes, Offer] = {}
        self._refused: set[bytes] = set()
        self._seen: dict[str, Seen] = {}
        self._promised = dict.fromkeys(disks, 0)

    # -- the wire --------------------------------------------------------------------------

    def on_send(self, sender: str, receiver: str, frame: bytes) -> None:
        """A frame leaves: an acknowledgement, a vote, or the one that a candidate gives itself."""
        kind = frame[_KIND_OFFSET]
        if kind == PeerKind.ACK:
            message = decode_message(memoryview(frame))
            next_index, _, success, _ = message.fields
            key = receiver, sender, message.term
            if success:
                self._acked[key] = max(self._acked.get(key, 0), next_index - 1)
        elif kind in (PeerKind.VOTE, PeerKind.VOTED):
            term = decode_message(memoryview(frame)).term
            candidate = sender if kind == PeerKind.VOTE else receiver
            first = self._votes.setdefault((term, sender), candidate)
            if first != candidate:
                raise self.violation(f"{sender} votes for {first} and {candidate} in term {term}")

    # -- nodes, after every step -----------------------------------------------------------

    def started(self, node_id: str, log: SegmentedLog) -> None:
        """A node starts anew: it must hold the committed entries that were durable there."""
        self._seen[node_id] = Seen()
        promised = self._promised[node_id]
        if promised and not self._holds(log, promised):
            raise self.violation(
                f"{node_id} starts without committed entry {promised}, which was durable there"
            )

    def _holds(self, log: SegmentedLog, index: int) -> bool:
        """Whether a log has the committed entry of that index, and so all before it."""
        if not log.first_index <= index <= log.last_index:
            return False
        return log.header(index).chain_crc == self.committed[index][1]

    def dying(self, node_id: str, engine: RaftEngine) -> None:
        """A node died within a step, its log half changed: others may know what it committed."""
        self._check_commit(node_id, self._seen[node_id], engine)

    def died(self, node_id: str) -> None:
        """Nobody will answer the appends that were under way at a node."""
        self._offers = {
            body: offer for body, offer in self._offers.items() if offer.node_id != node_id
        }

    def look(self, node_id: str, engine: RaftEngine, now: float, heard_at: Iterable[float]) -> bool:
        """Check a node; whether it has become leader. `heard_at`: when from each peer, its time."""
        seen, core, log = self._seen[node_id], engine.core, engine.log
        self._check_matching(node_id, seen, log)
        self._check_commit(node_id, seen, engine)
        self._check_promises(node_id, seen, log)
        elected = core.role is Role.LEADER and (seen.role, seen.term) != (Role.LEADER, core.term)
        if elected:
            seen.led_since = now
            self._check_elected(node_id, engine)
        elif core.role is Role.LEADER and log.last_index < seen.last_index:
            raise self.violation(f"leader {node_id} removed entries of its own log")
        if engine.standing.serving:
            recent = [when for when in heard_at if now - max(when, seen.led_since) < SERVES_ALONE_S]
            if len(recent) + 1 < self._majority:
                raise self.violation(
                    f"{node_id} still serves in term {core.term}, "
                    f"{SERVES_ALONE_S} s after it last heard from a majority"
                )
        self._check_match(node_id, seen, engine)
        seen.role, seen.term, seen.last_index = core.role, core.term, log.last_index
        return elected

    def _check_matching(self, node_id: str, seen: Seen, log: SegmentedLog) -> None:
        last = log.last_index
        for index in {*range(seen.last_index + 1, last), last} - {0}:
            header = log.header(index)
            known = self._chains.setdefault((index, header.term), header.chain_crc)
            if known != header.chain_crc:
                raise self.violation(
                    f"entry {index} of term {header.term} of {node_id} is not that of other nodes"
                )

    def _check_commit(self, node_id: str, seen: Seen, engine: RaftEngine) -> None:
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
            if log.header(commit_index).term != engine.core.term:
                raise self.violation(
                    f"leader {node_id} of term {engine.core.term} commits up to entry "
                    f"{commit_index}, which is of term {log.header(commit_index).term}"
                )
            for index in range(self.committed_end + 1, commit_index + 1):
                self._check_durable(node_id, log, index)
            self.committed_end = commit_index
        header = log.header(commit_index)
        known = self.committed.setdefault(commit_index, (header.term, header.chain_crc))
        if known != (header.term, header.chain_crc):
            raise self.violation(
                f"{node_id} takes another entry {commit_index} (term {header.term}) for committed "
                f"than the one of term {known[0]}"
            )

    def _check_promises(self, node_id: str, seen: Seen, log: SegmentedLog) -> None:
        if seen.matched_index and not self._holds(log, seen.matched_index):
            raise self.violation(f"{node_id} removes committed entry {seen.matched_index}")
        index = min(log.last_index, self.committed_end)
        while index > max(seen.matched_index, 1) and not self._holds(log, index):
            index -= 1
        if index > max(seen.matched_index, 1):
            seen.matched_index = index
        promised = min(seen.matched_index, log.durable_index)
        self._promised[node_id] = max(self._promised[node_id], promised)

    def _check_match(self, node_id: str, seen: Seen, engine: RaftEngine) -> None:
        """What a leader counts for a follower that knows of no later term is durable there."""
        if engine.core.role is not Role.LEADER:
            seen.match.clear()
            return
        for peer_id, peer in engine.transport.peers.items():
            index = engine.core.match_index(peer.node)
            if index == seen.match.get(peer_id, 0) or self._seen[peer_id].term > engine.core.term:
                continue
            seen.match[peer_id] = index
            if index > self._acked.get((node_id, peer_id, engine.core.term), 0):
                raise self.violation(
                    f"leader {node_id} of term {engine.core.term} counts entry {index} for "
                    f"{peer_id}, which has not acknowledged it in this term"
                )
            if index > 1 and not self._is_durable(peer_id, engine.log, index):
                raise self.violation(
                    f"leader {node_id} of term {engine.core.term} counts entry {index} for "
                    f"{peer_id}, which does not hold it"
                )

    def _is_durable(self, holder: str, log: SegmentedLog, index: int) -> bool:
        """Whether an entry of `log` is on the disk of `holder`, safe from a power loss."""
        header = log.header(index)
        raw = log.view(header.position, header.size)
        offset = header.position % log.segment_bytes
        path = segment_path(self._folder, header.position - offset)
        return self._disks[holder].durable_bytes(path, offset, header.size) == raw

    def _check_durable(self, node_id: str, log: SegmentedLog, index: int) -> None:
        header = log.header(index)
        holders = [holder for holder in self._disks if self._is_durable(holder, log, index)]
        self.committed[index] = (header.term, header.chain_crc)
        if len(holders) < self._majority:
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
        if len(voters) < self._majority:
            raise self.violation(f"{node_id} leads term {term} with the votes of {voters} only")
        # What a later term committed does not bind a leader of an earlier one.
        index = self.committed_end
        while index > 1 and self.committed[index][0] >= term:
            index -= 1
        if index > 1 and (
            index > log.last_index or log.header(index).chain_crc != self.committed[index][1]
        ):
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
        if body in self._refused:
            raise self.violation(
                f"{node_id} applies entry {entry.index}, whose append was definitely refused"
            )

    def on_leading(self, node_id: str, term: int, applied_index: int) -> None:
        """A node begins to serve: all that was acknowledged in earlier terms must be applied."""
        for index in range(self.acknowledged_end, applied_index, -1):
            acknowledged = self.acknowledged.get(index)
            if acknowledged is not None and acknowledged[0] < term:
                raise self.violation(
                    f"{node_id} serves in term {term} with {applied_index} applied, but entry "
                    f"{index} of term {acknowledged[0]} was acknowledged"
                )

    # -- the client ------------------------------------------------------------------------

    def offered(self, node_id: str, body: bytes) -> None:
        """A node has taken an append."""
        self._offers[body] = Offer(node_id, self.acknowledged_end)

    def answered(self, body: bytes, outcome: Appended | AppendError) -> None:
        """A node tells what became of an append."""
        offer = self._offers.pop(body, None)
        if offer is None:
            raise self.violation(f"append {body[:12]!r} was answered twice")
        if isinstance(outcome, AppendError):
            if outcome.definite:
                self._refused.add(body)
            return
        index = outcome.index
        if index > self.committed_end:
            raise self.violation(f"{offer.node_id} acknowledges entry {index}, not committed")
        if index in self.acknowledged:
            raise self.violation(f"two appends were acknowledged as entry {index}")
        if index <= offer.after_index:
            raise self.violation(
                f"{offer.node_id} acknowledges entry {index}, although entry {offer.after_index} "
                "was acknowledged before it was asked for"
            )
        self.acknowledged[index] = (outcome.term, body)
        self.acknowledged_end = max(self.acknowledged_end, index)

    def finish(self, logs: Mapping[str, SegmentedLog]) -> None:
        """All is healed: every log must hold what was acknowledged, every append be answered."""
        for node_id, log in sorted(logs.items()):
            for index, (term, body) in self.acknowledged.items():
                entry = log.entry(index)
                if entry.term != term or bytes(entry.body) != body:
                    raise self.violation(f"{node_id} lost acknowledged entry {index}")
        for body, offer in self._offers.items():
            raise self.violation(f"{offer.node_id} never answered append {body[:12]!r}")
