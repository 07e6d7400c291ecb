"""The parts that the handlers of POP share: entries on their way to the log, waiting requests, and
the loop that looks after both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import trio

from dledger.net.turns import in_turns
from mqbroker import limits
from mqbroker.requests.core import Core
from mqbroker.requests.popping.giving_up import GivingUp
from mqbroker.requests.popping.held_pops import HeldPop, HeldPops, Key
from mqbroker.requests.popping.pops import Pops
from mqbroker.requests.popping.settling import Settling
from mqbroker.upkeep.alarm import Alarm, Signal


class Popping:
    """The POP of one broker, beside its replicated state."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due, self._gathered = Signal(), Signal()
        self._look_due, self._sweep_due = Alarm(core.clock_s), Alarm(core.clock_s)
        self.held = HeldPops(self._due.set)
        self.pops = Pops(core, self.changed)
        self.settling = Settling(core, self._gathered.set, self.changed)
        self.giving_up = GivingUp(core, self.pops, self.settling, self.changed)
        self._going_on: list[Callable[[], None]] = []
        self._turns_s: dict[Key, float] = {}
        self._left: dict[tuple[int, str], None] = {}
        self._is_over = False

    def hold(self, pop: HeldPop) -> bool:
        """Keep a pop until messages come or its time is over. Returns False if too many wait."""
        if not self.held.hold(pop):
            return False
        self._sweep_due.set(pop.until_s)
        self._set_look(pop.key)
        return True

    def go_on(self, look: Callable[[], None]) -> None:
        """Continue the search of a pop that has found nothing yet, in turn with other pops."""
        self._going_on.append(look)
        self._due.set()

    def look_again(self, key: Key, at_s: float) -> None:
        """Try those who wait there at a time: their group is given no more before."""
        self._turns_s[key] = at_s
        self._look_due.set(at_s)

    def changed(self, group: str, topic: str) -> None:
        """Something was handed out or given back: others may get what they could not before."""
        key = (group, topic)
        self.held.look(key)
        self._set_look(key)

    def leading(self) -> None:
        """Begin without pops on their way, as this replica becomes leader."""
        self.pops.reset()
        self._is_over = False

    def following(self) -> None:
        """Leadership ended: who waits is answered where to ask."""
        self.pops.reset()
        self.settling.reset()
        self._is_over = True
        self._due.set()

    def left(self, connection_id: int, group: str) -> None:
        """A member leaves its group: it waits for nothing any more, and is answered."""
        if any(pop.key[0] == group for pop in self.held.of_connection(connection_id)):
            self._left[connection_id, group] = None
            self._due.set()

    async def serve(self) -> None:
        """Try those for whom there may be something; one turn of the loop."""
        await self._due.wait()
        if self._is_over:
            self._is_over = False
            await in_turns(self._end(self.held.expired(math.inf)))
        left, self._left = self._left, {}
        for connection_id, group in left:
            pops = self.held.of_connection(connection_id)
            await in_turns(self._end([pop for pop in pops if pop.key[0] == group]))
        await in_turns(self._look_further())
        await in_turns(self._try_due())

    def _look_further(self) -> Iterator[None]:
        going_on, self._going_on = self._going_on, []
        for look in going_on:
            look()
            yield

    def _try_due(self) -> Iterator[None]:
        for key in self.held.take_due():
            for pop in self.held.of(key):
                if not self.held.holds(pop):
                    continue
                if pop.again(False):
                    self.held.drop(pop)
                elif pop.is_open:
                    break
                yield

    def _end(self, pops: list[HeldPop]) -> Iterator[None]:
        for pop in pops:
            if self.held.holds(pop):
                self.held.drop(pop)
                pop.again(True)
                yield

    async def sweep(self) -> None:
        """Answer those that have waited long enough; one turn of the loop."""
        await self._sweep_due.wait()
        now_s = self._core.clock_s()
        try:
            await in_turns(self._end(self.held.expired(now_s)))
        finally:
            self._sweep_due.set(max(self.held.next_s, now_s + limits.SWEEP_PAUSE_S))

    async def look(self) -> None:
        """Find what is visible again; one turn of the loop."""
        await self._look_due.wait()
        self._turns_s = {key: at_s for key, at_s in self._turns_s.items() if key in self.held}
        if self._core.role.serving:
            for key in [*self.held.keys()]:
                self._set_look(key)
        await trio.sleep(limits.POP_PAUSE_S)

    def _set_look(self, key: Key) -> None:
        """Look again when the next message of a key is visible, or its group may have more; if one
        is, somebody may want it."""
        turn_s = self._turns_s.get(key)
        if turn_s is not None and turn_s > self._core.clock_s():
            self._look_due.set(turn_s)
            return
        if turn_s is not None:
            del self._turns_s[key]
            self.held.look(key)
        popped = self._core.machine.popped.topic(*key)
        next_ms = None if popped is None else popped.next_ms()
        if next_ms is None or key not in self.held:
            return
        wait_s = (next_ms - self._core.assignments.now_ms()) / 1000
        if wait_s <= 0:
            self.held.look(key)
            wait_s = limits.POP_LOOK_S_MAX
        self._look_due.set(self._core.clock_s() + min(wait_s, limits.POP_LOOK_S_MAX))

    async def settle(self) -> None:
        """Write what was given back; one turn of the loop."""
        await self._gathered.wait()
        self.settling.flush()
