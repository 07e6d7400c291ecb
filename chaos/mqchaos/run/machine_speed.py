"""How fast the machine is while a run lasts: the bounds on pauses were measured on a faster one.

A shared machine may need four times as long for the same work an hour later. Elections and starts
take as much longer there, and that says nothing about the servers. So a small, fixed piece of work
is timed now and then, and the bounds grow as it does. What is taken is the processor time of its
own thread: that the servers want the processor, too, must not excuse them. Two sessions on one core
still disturb each other's caches, and a host that takes the core away counts: so one look in ten,
the slowest ones, is left out.
"""

from __future__ import annotations

import time

import trio

from mqchaos.limits import LOOK_EVERY_S, LOOK_WORK, LOOK_WORK_S, SLOWNESS_MAX


class MachineSpeed:
    """The speed of the machine in a run. `looks`: processor time of each, in s."""

    def __init__(self) -> None:
        self.looks: list[float] = []

    async def keep_looking(self) -> None:
        """Measure the machine every `LOOK_EVERY_S` seconds until cancelled."""
        while True:
            self.looks.append(await trio.to_thread.run_sync(work_s))
            await trio.sleep(LOOK_EVERY_S)

    @property
    def slowness(self) -> float:
        """How many times slower this machine is than the reference machine; at least 1."""
        if not self.looks:
            return 1.0
        slow_s = sorted(self.looks)[len(self.looks) * 9 // 10]
        return min(max(1.0, slow_s / LOOK_WORK_S), SLOWNESS_MAX)


def work_s() -> float:
    """The processor time that the fixed work takes this thread now."""
    began_s, total = time.thread_time(), 0
    for number in range(LOOK_WORK):
        total += number
    return time.thread_time() - began_s
