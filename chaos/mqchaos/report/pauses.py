"""How long sends paused at each fault. Pure.

The gap of a fault is the longest time between two successive acknowledged sends, over all
producers, that ended after the fault and began before the next one: what an application feels of
it, whether the pause came with the fault itself or with the node's return. The next fault's own
pause begins with the last acknowledgement before it, so only what lies before it counts here.
Without an acknowledgement after it the gap lasts until the end, unless nothing waited for one: then
nobody felt anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which something happened to a node."""

    at_s: float
    what: str
    node: str
    term: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A fault and the longest pause between acknowledged sends that followed. Times in s."""

    fault: Mark
    began_s: float
    length_s: float


@dataclass(slots=True)
class _Open:
    """A fault whose longest pause is sought."""

    fault: Mark
    until_s: float = inf
    began_s: float = 0.0
    length_s: float | None = None

    def passed(self, before_s: float, at_s: float) -> None:
        """Two successive acknowledgements came then."""
        length_s = min(at_s, self.until_s) - before_s
        if at_s > self.fault.at_s and (self.length_s is None or length_s > self.length_s):
            self.began_s, self.length_s = before_s, length_s


class Pauses:
    """Follows a run in the order of its time."""

    def __init__(self) -> None:
        self._all: list[_Open] = []
        self._open: list[_Open] = []
        self._acked_s: float | None = None

    def injected(self, fault: Mark) -> None:
        """A fault that hurt several nodes at one moment is one: its mark names them all."""
        last = self._all[-1] if self._all else None
        if last and (last.fault.at_s, last.fault.what) == (fault.at_s, fault.what):
            last.fault = Mark(fault.at_s, fault.what, f"{last.fault.node}, {fault.node}")
            return
        for each in self._open:
            each.until_s = min(each.until_s, fault.at_s)
        self._all.append(_Open(fault))
        self._open.append(self._all[-1])

    def acked(self, at_s: float) -> None:
        """Note an acknowledged send, which ends a gap, at `at_s` seconds."""
        if self._acked_s is not None:
            for each in self._open:
                each.passed(self._acked_s, at_s)
        self._acked_s = at_s
        if self._open and self._open[0].until_s < at_s:
            self._open = [each for each in self._open if each.until_s >= at_s]

    def gaps(self, end_s: float, *, waiting: bool) -> list[Gap]:
        """The gaps: one for each fault, in order. `waiting`: whether a send is unanswered at the
        end."""
        found = []
        for each in self._all:
            if each.length_s is None:
                rest_s = max(0.0, end_s - each.fault.at_s) if waiting else 0.0
                found.append(Gap(each.fault, each.fault.at_s, rest_s))
            else:
                found.append(Gap(each.fault, each.began_s, each.length_s))
        return found
