"""Turns at the event loop: nobody waits long for what others' requests cost.

The loop runs whatever is ready, then looks at its sockets and timers again; that is one turn.
Four hundred connections with a request of 2 ms each would make a turn of 0.8 s, in which nobody
else is heard. So the requests of one turn may use `LOOP_TURN_S`; whoever is ready after that waits
in a queue, from which the next turns take.

Whose requests have been cheapest of late goes first, as many as a turn has time for. So a
bystander that asks little waits for a turn or two, however many heavy clients there are. Each
fourth time it is the turn of whoever has waited longest, so that nobody starves. Who looks cheap
and turns out dear is stopped by the clock: once a turn has lasted `LOOP_TURN_MAX_S`, whoever was
let go waits again.

One `Turns` belongs to a loop, and is found by `turns_of_loop`. A long series of requests, or of
answers, is cut by its owner: after `LOOP_SLICE_S` it asks again.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable

import trio

from dledger.limits import (
    LOOP_CHEAP_S,
    LOOP_COST_UNKNOWN_S,
    LOOP_COST_WEIGHT,
    LOOP_SLICE_S,
    LOOP_TURN_MAX_S,
    LOOP_TURN_S,
)

#: One of so many is let go for its age, not for its cost.
_OLDEST_EACH = 4


class Share:
    """What one connection's turns cost of late, in seconds of the loop."""

    __slots__ = ("_known", "cost_s")

    def __init__(self) -> None:
        self.cost_s = LOOP_COST_UNKNOWN_S
        self._known = False

    def spent(self, seconds: float) -> None:
        """A turn took so long. One alone says little: the machine may have been elsewhere."""
        weight = LOOP_COST_WEIGHT if self._known else 1.0
        self._known = True
        self.cost_s += weight * (seconds - self.cost_s)

    @property
    def cheap(self) -> bool:
        """Whether its requests have been cheap. A newcomer's are not known to be."""
        return self._known and self.cost_s < LOOP_CHEAP_S


class Queue:
    """Who waits for the loop. Pure."""

    def __init__(self) -> None:
        self._by_cost: list[tuple[float, int]] = []
        self._by_age: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._by_age)

    def put(self, share: Share, go: Callable[[], None]) -> None:
        """Have `go` called when it is this one's turn."""
        number = next(self._numbers)
        self._by_age[number] = (share.cost_s, go)
        heapq.heappush(self._by_cost, (share.cost_s, number))

    def admit(self) -> None:
        """Let go as many as one turn has time for, and one at least."""
        expected_s = 0.0
        for count in itertools.count(1):
            if not self._by_age or expected_s >= LOOP_TURN_S:
                return
            number = self._oldest() if count % _OLDEST_EACH == 0 else self._cheapest()
            cost_s, go = self._by_age.pop(number)
            expected_s += cost_s
            go()

    def _oldest(self) -> int:
        return next(iter(self._by_age))

    def _cheapest(self) -> int:
        while True:
            _, number = heapq.heappop(self._by_cost)
            if number in self._by_age:
                return number


class Turns(trio.abc.Instrument):
    """The time of one loop, as requests use it. `clock_s` is a fine monotonic clock."""

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self.clock_s = clock_s
        self._used_s = 0.0
        self._queue = Queue()
        self._pumping = False

    def before_io_wait(self, timeout: float) -> None:
        """A turn of the loop ends."""
        self._used_s = 0.0

    @property
    def crowded(self) -> bool:
        """Whether there may be reason to `wait`: time is used up, or others wait already."""
        return self._used_s >= LOOP_TURN_S or bool(self._queue)

    def used(self, share: Share, seconds: float) -> None:
        """Requests of one connection took so long in this turn."""
        self._used_s += seconds
        share.spent(seconds)

    async def wait(self, share: Share) -> None:
        """Wait for a turn; a cheap one has it at once as long as this turn is not far too long."""
        if share.cheap and self._used_s < LOOP_TURN_MAX_S:
            return
        while True:
            go = trio.Event()
            self._queue.put(share, go.set)
            if not self._pumping:
                self._pumping = True
                trio.lowlevel.spawn_system_task(self._pump)
            await go.wait()
            if self._used_s < LOOP_TURN_MAX_S:
                return

    async def _pump(self) -> None:
        """Let some go in each turn until nobody waits."""
        try:
            while self._queue:
                await trio.lowlevel.checkpoint()
                self._queue.admit()
        finally:
            self._pumping = False


async def in_turns(steps: Iterable[object]) -> None:
    """Take all `steps`, which answer clients; whenever a slice of the loop's time is used, wait."""
    turns, share = turns_of_loop(), Share()
    began_s = turns.clock_s()
    for _ in steps:
        if (took_s := turns.clock_s() - began_s) > LOOP_SLICE_S:
            turns.used(share, took_s)
            await trio.lowlevel.checkpoint()
            began_s = turns.clock_s()
    turns.used(share, turns.clock_s() - began_s)


_turns: trio.lowlevel.RunVar[Turns] = trio.lowlevel.RunVar("turns")


def turns_of_loop() -> Turns:
    """The running loop's turns."""
    try:
        return _turns.get()
    except LookupError:
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        _turns.set(turns)
        return turns
