"""When a node may start an election: pre-vote and leader stickiness. Pure.

A real election raises the term, and a raised term deposes the leader. So a node first asks: would
you vote for me, and do you miss the leader too? The library may start an election only after a
majority said yes. So a node that is cut off can't raise its term alone, and a node that merely lost
its own link to a living leader does not depose it.

A leader is alive to a node while the link to it is up and it was heard from within the shortest
election timeout. The links of a leader that was killed are closed, so no follower waits for the
timeout. Each asks after a short random wait, so that they do not all ask at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from dledger.raft.roles import Timing


@dataclass(slots=True)
class Asking:
    """A pre-vote of this node that is under way."""

    term: int
    granted: set[str] = field(default_factory=set)


class ElectionGate:
    """Holds the library's election deadline until a majority has agreed to an election."""

    def __init__(
        self,
        node_id: str,
        is_majority: Callable[[Collection[str]], bool],
        timing: Timing,
        rng: random.Random,
    ) -> None:
        self._node_id = node_id
        self._is_majority = is_majority
        self._timing = timing
        self._rng = rng
        self._asking: Asking | None = None
        self._heard_from_leader_at = float("-inf")
        self._leader_linked = False
        self._yielded: dict[str, int] = {}

    def wait(self, bounds: tuple[float, float]) -> float:
        """A random time within bounds, in seconds."""
        return self._rng.uniform(*bounds)

    def election_timeout(self) -> float:
        """How long to wait in the normal case, in seconds."""
        return self.wait((self._timing.election_timeout_min_s, self._timing.election_timeout_max_s))

    def heard_from_leader(self, now: float) -> None:
        """The leader of the current term sent something."""
        self._heard_from_leader_at = now
        self._leader_linked = True
        self._asking = None

    def leader_lost(self) -> None:
        """The link to the leader broke, or it said that it leads no longer."""
        self._leader_linked = False

    def leader_alive(self, now: float) -> bool:
        """Whether this node has no reason to want another leader."""
        silence_s = now - self._heard_from_leader_at
        return self._leader_linked and silence_s < self._timing.election_timeout_min_s * 0.9

    @property
    def reason(self) -> str:
        """Why this node wants a leader: what it knew of the last one."""
        if self._heard_from_leader_at == float("-inf"):
            return "none known"
        return "leader silent" if self._leader_linked else "leader gone"

    def ask(self, term: int) -> bool:
        """Begin a pre-vote in `term`; returns whether this node alone is a majority."""
        self._asking = Asking(term, {self._node_id})
        return self._won()

    def granted(self, by: str, asked_term: int) -> bool:
        """Count a yes; returns whether a majority has agreed now."""
        if self._asking is None or self._asking.term != asked_term:
            return False
        self._asking.granted.add(by)
        return self._won()

    def yields_to(self, asker: str, term: int) -> bool:
        """Whether to let another node that asks in `term` go first: once in a term.

        A node that can send but hears no answers asks again and again. If this node let it go first
        each time, it would never start an election itself.
        """
        again = self._yielded.get(asker) == term
        self._yielded[asker] = term
        return not again

    def _won(self) -> bool:
        if self._asking is None or not self._is_majority(self._asking.granted):
            return False
        self._asking = None
        return True

    def cancel(self) -> None:
        """Forget a pre-vote under way."""
        self._asking = None
