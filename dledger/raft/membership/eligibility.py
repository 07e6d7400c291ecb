"""Eligibility: only nodes that remember their promises may vote and are counted. Pure.

A node whose folder was emptied has forgotten which entries it acknowledged and for whom it voted.
If it went on voting, a majority might form that has never heard of a committed entry. So a node's
eligibility is saved on the disk, with term and vote, and an empty folder means: not eligible. Such
a node takes entries, but its acknowledgements are not counted, and it does not vote.

A node becomes eligible in one of two ways.

*A new group.* Every other member says that it holds no entry either. Then nothing was ever
committed. All must say so, not just a majority: of three members, one may never have been started
and one may have lost its disk, and only the third would know of an entry. Some may have voted
already, because one became eligible first, and this node too before it forgot. But the candidate
that it voted for is in that term and tells it. So this node enters a later term than all of them,
and can't vote twice.

*A barrier.* A leader that hears from a learner notes the end of its log, and appends a no-op. Once
an entry behind that end is committed by a majority without the learner, and the learner holds it,
it may become eligible. What the learner forgot can then do no harm. Entries: all that was committed
before lies below the barrier. Votes: suppose it voted for X in a later term before it forgot. X has
been in that term since, so X took no part in the barrier's majority and lacks the entry. The nodes
of that majority do not vote for a log that lacks the entry, and without any of them X has no
majority.
"""

from __future__ import annotations

from dataclasses import dataclass


class Forming:
    """Which peers have said on their present links that they hold nothing, and in which terms."""

    def __init__(self, peer_ids: list[str]) -> None:
        self._peers = frozenset(peer_ids)
        self._terms: dict[str, int] = {}

    def heard(self, peer_id: str, term: int, *, fresh: bool) -> None:
        """A peer's answer, and the term that it was in."""
        if fresh and peer_id in self._peers:
            self._terms[peer_id] = term
        else:
            self.lost(peer_id)

    def lost(self, peer_id: str) -> None:
        """The link broke: the peer may come back with another folder."""
        self._terms.pop(peer_id, None)

    @property
    def complete(self) -> bool:
        """Whether all have said so."""
        return self._terms.keys() == self._peers

    @property
    def unused_term(self) -> int:
        """A term in which this node can't have voted; 0 if no peer is in any term yet."""
        term = max(self._terms.values(), default=0)
        return term + 1 if term else 0


@dataclass(frozen=True, slots=True)
class Barrier:
    """A leader's barrier for one learner on one link: what it must hold to become eligible."""

    term: int
    index: int

    def passed(self, *, commit_index: int, held_index: int) -> bool:
        """Whether the learner may become eligible."""
        return min(commit_index, held_index) >= self.index
