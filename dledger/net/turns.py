"""Turns at the event loop: costly requests of some clients do not delay the others for long.

The loop runs whatever is ready, then looks at its sockets and timers again; that is one turn.
Four hundred connections with a request of 2 ms each would make a turn of 0.8 s, in which nothing
else is read. So the requests of one turn may use `LOOP_TURN_S`; connections that are ready later
wait in a queue for the next turns.

The connections whose recent requests were cheapest go first, as many as a turn has time for. So a
client that asks little waits for a turn or two, however many heavy clients there are. Every fourth
time the connection that has waited longest goes, so that none starves. If a connection looked cheap
and is not, the clock stops it: once a turn has lasted `LOOP_TURN_MAX_S`, those that were let go
wait again.

One `Turns` belongs to a loop, and is found by `turns_of_loop`. The owner of a long series of
requests or answers splits it: after `LOOP_SLICE_S` it waits for its turn again (`in_turns`), and
so does who writes a long answer (`encode_in_turns`). What is long only sometimes begins where it is
asked (`at_once_or_in_turns`).
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import TypeVar

import msgspec
import trio

from dledger.errors import BadInput
from dledger.limits import (
    ANSWER_BODY_BYTES_MAX,
    LOOP_CHEAP_S,
    LOOP_COST_UNKNOWN_S,
    LOOP_COST_WEIGHT,
    LOOP_GONE_MAX,
    LOOP_SLICE_S,
    LOOP_TURN_MAX_S,
    LOOP_TURN_S,
)
from dledger.remoting.bodies import Dialect
from dledger.remoting.bodies.base import encode_steps

T = TypeVar("T")

#: A connection in this many is admitted for its age, the others as the cheapest.
_OLDEST_EACH = 4


class Share:
    """The cost of one connection's recent turns, in seconds of the loop."""

    __slots__ = ("_known", "cost_s")

    def __init__(self) -> None:
        self.cost_s = LOOP_COST_UNKNOWN_S
        self._known = False

    def spent(self, seconds: float) -> None:
        """A turn took this long. A single one says little: the process may have lost the processor,
        on a busy machine every few turns. So one counts as twice as dear as what was known, at
        most: what is dear again and again is known to be after some turns."""
        if not self._known:
            self._known, self.cost_s = True, seconds
            return
        counted_s = min(seconds, 2 * self.cost_s + LOOP_CHEAP_S / 2)
        self.cost_s += LOOP_COST_WEIGHT * (counted_s - self.cost_s)

    @property
    def cheap(self) -> bool:
        """Whether its recent requests were cheap. Not for a newcomer, whose cost is unknown."""
        return self._known and self.cost_s < LOOP_CHEAP_S


class Queue:
    """The connections that wait for the loop. Pure."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}
        #: Waiting connections, by cost and by age; some of them wait no longer.
        self._by_cost: list[tuple[float, int]] = []
        self._by_age: list[int] = []
        self._numbers = itertools.count(1)
        self._admitted = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, share: Share, go: Callable[[], None], number: int | None = None) -> int:
        """Call `go` when it is this connection's turn. Returns its number, by which it keeps
        its age if it was let go in vain and waits again."""
        if number is None:
            number = next(self._numbers)
        self._waiting[number] = (share.cost_s, go)
        heapq.heappush(self._by_cost, (share.cost_s, number))
        heapq.heappush(self._by_age, number)
        if len(self._by_cost) > 2 * len(self._waiting) + LOOP_GONE_MAX:
            self._by_cost = sorted((cost_s, each) for each, (cost_s, _) in self._waiting.items())
            self._by_age = sorted(self._waiting)
        return number

    def admit(self) -> None:
        """Start as many as one turn has time for, and at least one."""
        expected_s = 0.0
        while self._waiting and expected_s < LOOP_TURN_S:
            self._admitted += 1
            number = self._cheapest() if self._admitted % _OLDEST_EACH else self._oldest()
            cost_s, go = self._waiting.pop(number)
            expected_s += cost_s
            go()

    def _oldest(self) -> int:
        while True:
            number = heapq.heappop(self._by_age)
            if number in self._waiting:
                return number

    def _cheapest(self) -> int:
        while True:
            _, number = heapq.heappop(self._by_cost)
            if number in self._waiting:
                return number


class Turns(trio.abc.Instrument):
    """The time that requests use of one loop. `clock_s` is a fine monotonic clock."""

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
        """Whether to `wait`: the turn's time is used up, or others wait already."""
        return self._used_s >= LOOP_TURN_S or bool(self._queue)

    def used(self, share: Share, seconds: float) -> None:
        """Requests of one connection took this long in this turn."""
        self._used_s += seconds
        share.spent(seconds)

    async def wait(self, share: Share) -> None:
        """Wait until this connection's next request may run. A cheap connection's runs at once,
        unless this turn of the loop is already far too long."""
        if share.cheap and self._used_s < LOOP_TURN_MAX_S:
            return
        number = None
        while True:
            go = trio.Event()
            number = self._queue.put(share, go.set, number)
            if not self._pumping:
                self._pumping = True
                trio.lowlevel.spawn_system_task(self._pump)
            await go.wait()
            if self._used_s < LOOP_TURN_MAX_S:
                return

    async def _pump(self) -> None:
        """Start some in each turn until none waits."""
        try:
            while self._queue:
                await trio.lowlevel.checkpoint()
                self._queue.admit()
        finally:
            self._pumping = False


async def in_turns(steps: Iterable[object]) -> float:
    """Take all `steps`, which answer clients; wait whenever a slice of the loop's time is used up.
    Returns how many seconds of the loop they took."""
    turns, share, all_s = turns_of_loop(), Share(), 0.0
    if turns.crowded:
        await turns.wait(share)
    began_s = turns.clock_s()
    for _ in steps:
        if (took_s := turns.clock_s() - began_s) > LOOP_SLICE_S:
            turns.used(share, took_s)
            all_s += took_s
            await trio.lowlevel.checkpoint()
            if turns.crowded:
                await turns.wait(share)
            began_s = turns.clock_s()
    took_s = turns.clock_s() - began_s
    turns.used(share, took_s)
    return all_s + took_s


def single_steps() -> Callable[[Callable[[], T]], Awaitable[T]]:
    """A function that takes single steps of one connection in its turns, for example of a
    handshake."""
    turns, share = turns_of_loop(), Share()

    async def in_turn(step: Callable[[], T]) -> T:
        if turns.crowded:
            await turns.wait(share)
        began_s = turns.clock_s()
        try:
            return step()
        finally:
            turns.used(share, turns.clock_s() - began_s)

    return in_turn


async def result_in_turns(steps: Generator[object, None, T]) -> T:
    """Take all `steps` in the same way, for their result."""
    results = list[T]()

    def collected() -> Iterator[object]:
        results.append((yield from steps))

    await in_turns(collected())
    return results[0]


def at_once_or_in_turns(steps: Generator[object, None, T]) -> T | Awaitable[T]:
    """The result of `steps` if they take no more than a slice; else what awaits it."""
    clock_s = turns_of_loop().clock_s
    until_s = clock_s() + LOOP_SLICE_S
    try:
        while clock_s() < until_s:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return result_in_turns(steps)


async def encode_in_turns(body: msgspec.Struct, dialect: Dialect = Dialect.STANDARD) -> bytes:
    """`encode_body` for an answer that may be long. Raises BadInput if no frame can hold it."""
    return await result_in_turns(encoding(body, dialect))


def encoding(
    body: msgspec.Struct, dialect: Dialect = Dialect.STANDARD
) -> Generator[None, None, bytes]:
    """`encode_in_turns` as steps, each of them short; the last one returns the bytes."""
    pieces, size = list[bytes](), 0
    for piece in encode_steps(body, dialect):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BODY_BYTES_MAX:
            raise BadInput(
                f"the answer would be above {ANSWER_BODY_BYTES_MAX} bytes: ask for a part of it"
            )
        yield
    return b"".join(pieces)


_turns: trio.lowlevel.RunVar[Turns] = trio.lowlevel.RunVar("turns")


def turns_of_loop() -> Turns:
    """The turns of the running event loop."""
    try:
        return _turns.get()
    except LookupError:
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        _turns.set(turns)
        return turns
