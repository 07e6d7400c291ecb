"""The kinds of faults, as data: their names in a history, what a node is meanwhile. Pure.

`gap_median_s_max` and `gap_worst_s_max` are how long sends may pause for it. A leader whose process
is gone is missed at once, by its closed connections; one that stands still only when its
heartbeats have failed to come for an election timeout (0.9 to 1.2 s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `name` and `undone` are the history's words, `told` those for people."""

    name: str
    undone: str
    state: str
    told: str
    told_undone: str
    gap_median_s_max: float = 0.6
    gap_worst_s_max: float = 1.5


KILL: Final = Kind("kill", "restart", "down", "is killed with SIGKILL", "is started again")
STOP: Final = Kind("stop", "start", "down", "is told to stop with SIGTERM", "is started again")
PAUSE: Final = Kind(
    "pause", "resume", "paused", "stands still (SIGSTOP)", "goes on (SIGCONT)", 2.0, 3.5
)

KINDS: Final = {kind.name: kind for kind in (KILL, STOP, PAUSE)}
UNDONE: Final = {kind.undone: kind for kind in KINDS.values()}
