"""When a node may start an election: pre-vote and leader stickiness. Pure.

A real election raises the term, and a raised term deposes whoever leads. So a node first asks:
would you vote for me, and do you miss the leader too? Only a majority of yes lets the library
start. A node cut off from the others can't raise its term alone, and one that merely lost its own
link to a living leader disturbs nobody.

A leader is alive to a node while the link to it is up and it was heard from within the shortest
election timeout. A leader that was killed closes its links, so nobody waits for the timeout: the
followers ask at once, after a short random wait that keeps them from asking each other in step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from dledger.raft.roles import Timing

LINK_LOST_WAIT_S = (0.002, 0.03)
"""After the leader's link broke: wait this long, at random, before asking the others."""
RETRY_WAIT_S = (0.05, 0.2)
"""After a pre-vote or an election without a result."""
YIELD_WAIT_S = (0.1, 0.25)
"""After granting another's pre-vote: let it get on."""


@dataclass(slots=True)
class Asking:
    """A pre-vote under way."""

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
        """How long to wait when nothing speaks for haste, in seconds."""
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

    def ask(self, term: int) -> bool:
        """Begin a pre-vote in `term`; whether this node alone is a majority."""
        self._asking = Asking(term, {self._node_id})
        return self._won()

    def granted(self, by: str, asked_term: int) -> bool:
        """Count a yes; whether a majority has agreed now."""
        if self._asking is None or self._asking.term != asked_term:
            return False
        self._asking.granted.add(by)
        return self._won()

    def yields_to(self, asker: str, term: int) -> bool:
        """Whether to let another node that asks in `term` get on first: once in a term.

        One that can ask but hears no answers asks again and again. Whoever let it get on each time
        would never elect.
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
