"""How long the turns of an event loop are, on any machine.

A turn is what the loop runs between two waits for its sockets. Its length is the processor time
that the loop's thread has used, beside what a fixed piece of work needs on this machine. So
neither a busy machine nor a slow one changes the result much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

REFERENCE_S = 0.06
"""What the fixed piece of work takes on the machine whose figures the docs tell."""
_TRIES = 5


def _work() -> int:
    total = 0
    for number in range(2_000_000):
        total += number
    return total


def machine_pace() -> float:
    """How many times as long as the reference this machine takes."""
    taken = []
    for _ in range(_TRIES):
        began_s = time.thread_time()
        _work()
        taken.append(time.thread_time() - began_s)
    return min(taken) / REFERENCE_S


class Meter(trio.abc.Instrument):
    """The longest turn, but for the steps of the task that asks, in seconds of the reference."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._asking = trio.lowlevel.current_task()
        self._began_s: float | None = None
        self._turn_s = 0.0
        self.longest_s = 0.0
        self.whole_s = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task goes on."""
        self._began_s = None if task is self._asking else time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """It waits again."""
        if self._began_s is not None:
            self._turn_s += (time.thread_time() - self._began_s) / self._pace
            self._began_s = None

    def before_io_wait(self, timeout: float) -> None:
        """A turn ends."""
        self.longest_s = max(self.longest_s, self._turn_s)
        self.whole_s += self._turn_s
        self._turn_s = 0.0


@contextmanager
def metered(pace: float) -> Iterator[Meter]:
    """Measure the turns within the block."""
    meter = Meter(pace)
    trio.lowlevel.add_instrument(meter)
    try:
        yield meter
    finally:
        trio.lowlevel.remove_instrument(meter)
        meter.before_io_wait(0.0)


def call_s(pace: float, call: Callable[[], object]) -> float:
    """How long a call takes, in seconds of the reference."""
    began_s = time.thread_time()
    call()
    return (time.thread_time() - began_s) / pace
