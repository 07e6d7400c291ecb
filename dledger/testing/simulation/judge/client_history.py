"""Checks what the clients of a simulated group are answered.

- every append has one outcome, unless its node dies;
- an acknowledged entry is committed, and keeps its place in every log for ever;
- acknowledged entries come in the order in which they were asked for;
- an append that was definitely refused is never applied;
- a leader serves only with everything applied that was acknowledged before its term;
- a read that is answered sees everything that any node acknowledged before it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dledger.errors import AppendError
from dledger.log.store import SegmentedLog
from dledger.raft.appends import Appended


class Violation(AssertionError):
    """An invariant does not hold; the text says which, where and when."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An append or a read that waits for its outcome: at which node, and what was acknowledged
    before it."""

    node_id: str
    after_index: int


class ClientHistory:
    """The requests of one run's clients, and the answers."""

    def __init__(self, violation: Callable[[str], Violation]) -> None:
        self.violation = violation
        self._acknowledged: dict[int, tuple[int, bytes]] = {}
        self._end = 0
        self._offers: dict[bytes, Offer] = {}
        self._refused: set[bytes] = set()
        self._reads: dict[int, Offer] = {}
        self._reads_asked = 0

    @property
    def acknowledged(self) -> int:
        """How many appends were acknowledged."""
        return len(self._acknowledged)

    def died(self, node_id: str) -> None:
        """A node died: the appends that were under way at it will not be answered."""
        self._offers = {
            body: offer for body, offer in self._offers.items() if offer.node_id != node_id
        }
        self._reads = {
            number: read for number, read in self._reads.items() if read.node_id != node_id
        }

    def check_applied(self, node_id: str, index: int, body: bytes) -> None:
        """A node applies an entry."""
        if body in self._refused:
            raise self.violation(
                f"{node_id} applies entry {index}, whose append was definitely refused"
            )

    def on_leading(self, node_id: str, term: int, applied_index: int) -> None:
        """A node begins to serve: all that was acknowledged in earlier terms must be applied."""
        for index in range(self._end, applied_index, -1):
            acknowledged = self._acknowledged.get(index)
            if acknowledged is not None and acknowledged[0] < term:
                raise self.violation(
                    f"{node_id} serves in term {term} with {applied_index} applied, but entry "
                    f"{index} of term {acknowledged[0]} was acknowledged"
                )

    def offered(self, node_id: str, body: bytes) -> None:
        """A node has taken an append."""
        self._offers[body] = Offer(node_id, self._end)

    def refused(self, body: bytes) -> None:
        """A node has definitely not taken an append."""
        self._refused.add(body)

    def answered(self, body: bytes, outcome: Appended | AppendError, committed_index: int) -> None:
        """A node answers an append; `committed_index`: what is committed by now."""
        offer = self._offers.pop(body, None)
        if offer is None:
            raise self.violation(f"append {body[:12]!r} was answered twice")
        if isinstance(outcome, AppendError):
            if outcome.definite:
                self._refused.add(body)
            return
        index = outcome.index
        if index > committed_index:
            raise self.violation(f"{offer.node_id} acknowledges entry {index}, not committed")
        if index in self._acknowledged:
            raise self.violation(f"two appends were acknowledged as entry {index}")
        if index <= offer.after_index:
            raise self.violation(
                f"{offer.node_id} acknowledges entry {index}, although entry {offer.after_index} "
                "was acknowledged before it was asked for"
            )
        self._acknowledged[index] = (outcome.term, body)
        self._end = max(self._end, index)

    def read_asked(self, node_id: str) -> int:
        """A read begins at a node; its number."""
        self._reads_asked += 1
        self._reads[self._reads_asked] = Offer(node_id, self._end)
        return self._reads_asked

    def read_answered(self, number: int, outcome: int | AppendError, applied_index: int) -> None:
        """A node answers a read with an index, and has applied up to `applied_index`."""
        read = self._reads.pop(number, None)
        if read is None:
            raise self.violation(f"read {number} was answered twice")
        if isinstance(outcome, AppendError):
            return
        if min(outcome, applied_index) < read.after_index:
            raise self.violation(
                f"{read.node_id} reads up to entry {outcome} with {applied_index} applied, "
                f"although entry {read.after_index} was acknowledged before the read began"
            )
        if applied_index < outcome:
            raise self.violation(
                f"{read.node_id} answers a read with entry {outcome}, applied is {applied_index}"
            )

    @property
    def reads_waiting(self) -> int:
        """How many reads were not answered yet."""
        return len(self._reads)

    def finish(self, logs: Mapping[str, SegmentedLog]) -> None:
        """Check healed logs for every acknowledged entry, and that every append was answered.

        Entries that are gone with a log's head were applied by the node, or came with another's
        state.
        """
        for node_id, log in sorted(logs.items()):
            for index, (term, body) in self._acknowledged.items():
                if index < log.first_index:
                    continue
                entry = log.reader.entry(index)
                if entry.term != term or bytes(entry.body) != body:
                    raise self.violation(f"{node_id} lost acknowledged entry {index}")
        for body, offer in self._offers.items():
            raise self.violation(f"{offer.node_id} never answered append {body[:12]!r}")
        for number, read in self._reads.items():
            raise self.violation(f"{read.node_id} never answered read {number}")
