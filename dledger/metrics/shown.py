"""Which of very many names have series of their own. Pure.

A page must stay small however many topics and groups there are. So only some are shown, those with
most traffic, and all others are folded into `_other`. Whoever is shown stays shown for a while: a
counter that leaves `_other` would look as if it had been reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dledger.metrics import limits

OTHER: Final = "_other"


class Shown:
    """The names that are shown, of one kind."""

    def __init__(self, names_max: int = limits.NAMES_SHOWN_MAX) -> None:
        self._names_max = names_max
        self._names: frozenset[str] = frozenset()
        self._chosen_s = float("-inf")
        #: How many are folded.
        self.folded = 0

    def choose(self, names: Iterable[str], weights: Mapping[str, int], now_s: float) -> None:
        """Choose of the names that there are now; of equal weight the first by name."""
        every = set(names)
        kept = self._names & every
        if len(every) > self._names_max and now_s - self._chosen_s >= limits.NAMES_CHOSEN_S:
            kept, self._chosen_s = frozenset(), now_s
        room = self._names_max - len(kept)
        if len(every) > self._names_max:
            best = sorted(every - kept, key=lambda name: (-weights.get(name, 0), name))[:room]
            self._names = kept.union(best)
        else:
            self._names = frozenset(every)
        self.folded = len(every) - len(self._names)

    def name(self, name: str) -> str:
        """The name, or that of all the others."""
        return name if name in self._names else OTHER
