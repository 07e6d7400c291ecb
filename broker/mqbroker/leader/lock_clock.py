"""The time by which queue locks end: as fast as real time, whatever wall clocks do. Pure.

By a wall clock that was set ahead all locks would end at once, and two members would have one
queue. By one that has fallen back, or another leader's that is behind, the locks of dead members
would last for minutes. So locks have a time of their own, which entries carry. A replica lets it go
on from what the last one said by a clock that never jumps, and a leader tells it on.

A replica that starts does not know for how long it was away: to it no time has passed since that
entry. So a lock may last longer by that much. None ends early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqbroker.state.machine import Machine


class LockClock:
    """The locks' time on one replica. `clock_s` never jumps."""

    def __init__(self, machine: Machine, clock_s: Callable[[], float]) -> None:
        self._machine = machine
        self._clock_s = clock_s
        self.heard()

    def said(self) -> None:
        """Note that an entry of this leader's own was applied. It is not ahead of this clock, and
        does not hold it up."""
        self._last = self._last_said

    def begin(self) -> None:
        """Take over the time of a state that another replica has given, as this replica becomes
        leader."""
        if self._last != self._last_said:
            self.heard()

    def now_ms(self) -> int:
        """Time of the locks now, in ms."""
        return self._from_ms + int((self._clock_s() - self._from_s) * 1000)

    def heard(self) -> None:
        """Another replica's entry was applied: its time is the time, though it may be the same as
        that of an entry before."""
        self._last = self._last_said
        self._from_ms, self._from_s = self._machine.locks.clock_ms, self._clock_s()

    @property
    def _last_said(self) -> tuple[int, int]:
        """The time of the state's last entry; and which state it is, if states were given."""
        return self._machine.locks.clock_ms, self._machine.generation
