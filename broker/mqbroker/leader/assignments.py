"""Offsets and times that the leader assigns to messages when their place in the log is known. Pure.

Queue offsets and store times are handed out in log order, starting from what is applied when the
leadership begins. An append that fails ends the leadership (the ledger takes nothing more in that
term), so an offset that was handed out and not used is never skipped: the next leader starts from
what is applied again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.limits import BEHIND_MS_MAX, BEHIND_PACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mqbroker.state.machine import Machine


class Assignments:
    """The next queue offset of each queue, and the leader's clock.

    `clock_ms` is the wall clock, which may jump; `clock_s` one that never does.
    """

    def __init__(
        self, machine: Machine, clock_ms: Callable[[], int], clock_s: Callable[[], float]
    ) -> None:
        self._machine = machine
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._read_at_s = clock_s()
        self._next: dict[tuple[str, int], int] = {}
        self._newest_ms = 0.0
        #: Queue -> the last entry placed when offsets of the queue were given back.
        self._withdrawn: dict[tuple[str, int], int] = {}

    def reset(self) -> None:
        """Leadership begins: start from the applied state."""
        self._next.clear()
        self._withdrawn.clear()
        self._newest_ms = self._machine.clock_ms
        self._read_at_s = self._clock_s()

    def take(self, topic: str, queue_id: int, count: int) -> int:
        """The first of `count` consecutive offsets, handed out for good."""
        first = self.next_offset(topic, queue_id)
        self._next[topic, queue_id] = first + count
        return first

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue will have."""
        known = self._next.get((topic, queue_id))
        return self._machine.queues.end(topic, queue_id) if known is None else known

    def withdraw(self, places: Iterable[tuple[str, int]], index: int, last_index: int) -> None:
        """The entry `index` took offsets in `places` and has no effect: give them out again.

        Entries up to `last_index` are placed already. Those behind this one that took later offsets
        of the same queues are set aside as well, and must not give the offsets back a second time.
        """
        for key in set(places):
            if index > self._withdrawn.get(key, 0):
                self._withdrawn[key] = last_index
                self._next.pop(key, None)

    def forget(self, topic: str) -> None:
        """The topic was deleted: a new topic with this name starts from offset 0."""
        for key in [key for key in self._next if key[0] == topic]:
            del self._next[key]

    def now_ms(self) -> int:
        """The store time for messages that are placed now: the wall clock, but it never goes back.

        While the wall clock is well behind what it was, or what an earlier leader's was, time goes
        on at half its pace until the wall clock has caught up. It must go on, or no delay would
        end meanwhile.
        """
        wall_ms, read_at_s = self._clock_ms(), self._clock_s()
        passed_ms, self._read_at_s = (read_at_s - self._read_at_s) * 1000, read_at_s
        if wall_ms + BEHIND_MS_MAX < self._newest_ms:
            self._newest_ms += passed_ms * BEHIND_PACE
        self._newest_ms = max(wall_ms, self._newest_ms)
        return int(self._newest_ms)
