"""Chooses, of very many names, those that have series of their own. Pure.

A page must stay small however many topics and groups there are. So only some are shown, those with
most traffic, and all others are folded into `_other`. Whoever is shown stays shown for a while: a
counter that leaves `_other` would look as if it had been reset. To choose among very many names
takes a while, so it goes in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from heapq import nsmallest
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

    def choosing(
        self, names: Sequence[str], weights: Callable[[], Mapping[str, int]], now_s: float
    ) -> Iterator[None]:
        """Choose of the names that there are now, in steps; of equal weight the first by name."""
        if len(names) <= self._names_max:
            self._names = frozenset(names)
        else:
            is_time = now_s - self._chosen_s >= limits.NAMES_CHOSEN_S
            if is_time:
                self._chosen_s = now_s
            kept = frozenset() if is_time else self._names.intersection(names)
            if len(kept) < self._names_max:
                kept = kept.union((yield from self._best(names, kept, weights())))
            self._names = kept
        self.folded = len(names) - len(self._names)

    def _best(
        self, names: Sequence[str], kept: frozenset[str], weights: Mapping[str, int]
    ) -> Generator[None, None, list[str]]:
        """The others, as many as there is room for."""
        room, best = self._names_max - len(kept), list[tuple[int, str]]()
        for at in range(0, len(names), limits.NAMES_PER_STEP):
            yield
            some = names[at : at + limits.NAMES_PER_STEP]
            rows = [(-weights.get(name, 0), name) for name in some if name not in kept]
            best = nsmallest(room, best + rows)
        return [name for _, name in best]

    def name(self, name: str) -> str:
        """The name, or that of all the others."""
        return name if name in self._names else OTHER
