"""Who may vote and be counted: a node has a seat in its group, or it is a learner. Pure.

A node whose folder was emptied has forgotten which entries it acknowledged and for whom it voted.
If it went on voting, a majority could be found that has never heard of a committed entry. So a
seat is remembered on the disk, with term and vote, and an empty folder means: no seat. A learner
takes entries, but its acknowledgements are not counted, and it does not vote.

There are two ways to a seat.

*A new group.* Every other member says that it holds no entry either. Then nothing was ever
committed. All must say so, not a majority: of three members, one may never have been there and one
may have lost its disk, and only the third would know. They may have voted already, one that took
its seat first does, and this node with them before it forgot. Whoever it voted for is in that term
and says so; so it enters a later term than all of them, and can't vote twice.

*A barrier.* A leader that hears from a learner notes the end of its log, and appends a no-op. Once
an entry behind that end is committed by a majority without the learner, and the learner holds it,
it may take its seat. Nothing that it forgot can do harm any more. Entries: all that was committed
before lies below the barrier. Votes: let it have voted for X in a later term before it forgot. X
is in that term since, so it took no part in the barrier's majority and lacks the entry. Whoever
else took part will not vote for a log that lacks it, and without one of them X has no majority.
"""

from __future__ import annotations

from dataclasses import dataclass


class Forming:
    """Which peers said, since their present links stand, that they hold nothing, in which terms."""

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
        """The link broke: the peer may come back as somebody else."""
        self._terms.pop(peer_id, None)

    @property
    def complete(self) -> bool:
        """Whether all have said so."""
        return self._terms.keys() == self._peers

    @property
    def unused_term(self) -> int:
        """One in which this node can't have voted; 0 while nobody has."""
        term = max(self._terms.values(), default=0)
        return term + 1 if term else 0


@dataclass(frozen=True, slots=True)
class Barrier:
    """A leader's, for one learner on one link: what it must hold to take its seat."""

    term: int
    index: int

    def passed(self, *, commit_index: int, held_index: int) -> bool:
        """Whether the learner may take its seat."""
        return min(commit_index, held_index) >= self.index
