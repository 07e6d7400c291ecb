"""Handing messages to a handler: so many at a time, in the order that was asked for.

A worker handles a message, then takes the next one that may be handled now; when there is none it
ends, and another is started when something arrives. What may not be handled yet, for one of its
lane is under way, waits here, a bounded number of it. When the handling ends before a message is
finished, its queue takes it back: whoever asks next is given it again.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.connection.lifetime import together
from mqclient.connection.signals import Broadcast
from mqclient.consuming.lanes import Lanes, Order, check_order, lane_of
from mqclient.consuming.progress import QueueProgress
from mqclient.consuming.turns import Reading, Turns
from mqclient.errors import HandlerTimeout
from mqclient.models import ReceivedMessage

Handler: TypeAlias = Callable[[ReceivedMessage], Awaitable[None] | None]
Failed: TypeAlias = Callable[[ReceivedMessage, Exception], Awaitable[bool]]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A message that a handler is to get, from which queue, and in which lane it is."""

    progress: QueueProgress
    epoch: int
    message: ReceivedMessage
    lane: Hashable

    @property
    def counts(self) -> bool:
        """Whether its queue is still ours, and was not moved meanwhile."""
        return self.progress.epoch == self.epoch


@dataclass(frozen=True, slots=True)
class Pace:
    """How a handler is called: see `Consumer.run`."""

    concurrency: int
    bytes_max: int
    order: Order
    timeout_s: float | None


def check_pace(concurrency: int, bytes_max: int, order: Order, timeout_s: float | None) -> Pace:
    """Raises BadInput for what can't be."""
    if concurrency < 1:
        raise BadInput(f"concurrency={concurrency}: at least one message is handled at a time")
    if bytes_max < 1:
        raise BadInput(f"max_bytes={bytes_max}: expected how much may be under way at a time")
    if timeout_s is not None and not 0 < timeout_s < math.inf:
        raise BadInput(f"timeout_s={timeout_s}: expected seconds for a message, or None for no end")
    return Pace(concurrency, bytes_max, check_order(order), timeout_s)


class Handling:
    """One run of a handler. `failed` is told what it raises; if that returns False the message is
    handled again."""

    def __init__(
        self,
        readings: Callable[[], Mapping[MessageQueue, Reading]],
        arrived: Broadcast,
        handler: Handler,
        failed: Failed,
        pace: Pace,
    ) -> None:
        self._turns = Turns(readings)
        self._arrived = arrived
        self._handler = handler
        self._failed = failed
        self._pace = pace
        self._lanes: Lanes[Work] = Lanes()
        self._ready: deque[Work] = deque()
        self._under_way: dict[Work, None] = {}
        self._waiting = Counter[MessageQueue]()
        self._bytes = 0
        self._workers = 0

    async def run(self) -> None:
        """Handle messages until cancelled, or until the handler's error is raised."""
        try:
            async with together() as tasks:
                while True:
                    while self._workers < self._pace.concurrency and (work := self._next()):
                        self._workers += 1
                        tasks.start_soon(self._work, work)
                    await self._arrived.wait()
        finally:
            for work in (*self._under_way, *self._ready, *self._lanes.waiting()):
                work.progress.give_back(work.message, work.epoch)
            self._arrived.announce()

    async def _work(self, work: Work | None) -> None:
        while work is not None:
            await self._handle(work)
            self._finish(work)
            if self._workers < self._pace.concurrency:
                self._arrived.announce()  # what was in the way may have been more than one
            work = self._next()
        self._workers -= 1

    async def _handle(self, work: Work) -> None:
        while work.counts:
            try:
                await self._call(work.message)
            except Exception as error:
                if not await self._failed(work.message, error):
                    continue
            return

    async def _call(self, message: ReceivedMessage) -> None:
        timeout_s = self._pace.timeout_s
        result = self._handler(message)
        if not inspect.isawaitable(result):
            return
        if timeout_s is None:
            await result
            return
        with anyio.move_on_after(timeout_s) as scope:
            await result
        if scope.cancelled_caught:
            raise HandlerTimeout(message.queue, message.queue_offset, timeout_s)

    def _next(self) -> Work | None:
        """What is to be handled now; None if nothing may be."""
        while True:
            work = self._ready.popleft() if self._ready else self._take()
            if work is None:
                return None
            if work.counts:
                self._under_way[work] = None
                self._bytes += work.message.size_bytes
                return work
            self._leave(work)

    def _take(self) -> Work | None:
        """A message out of the queues' buffers that need not wait for another one."""
        while (reading := self._turns.next(self._may_take)) is not None:
            progress = reading.progress
            (message,) = progress.take()
            reading.took()
            lane = (progress.queue, lane_of(message, self._pace.order))
            work = Work(progress, progress.epoch, message, lane)
            if self._lanes.enter(lane, work):
                return work
            self._waiting[progress.queue] += 1
        return None

    def _may_take(self, progress: QueueProgress) -> bool:
        if self._bytes and self._bytes + progress.next_size_bytes > self._pace.bytes_max:
            return False
        if progress.unfinished.span >= limits.UNFINISHED_SPAN_PER_QUEUE_MAX:
            return progress.has_returned
        if self._pace.order == "queue":
            return not self._lanes.is_busy((progress.queue, None))
        return self._waiting[progress.queue] < limits.WAITING_FOR_LANES_PER_QUEUE_MAX

    def _finish(self, work: Work) -> None:
        del self._under_way[work]
        self._bytes -= work.message.size_bytes
        if work.counts:
            offset = work.message.queue_offset
            work.progress.finish(offset, offset)
        self._leave(work)

    def _leave(self, work: Work) -> None:
        freed = self._lanes.leave(work.lane)
        if freed is not None:
            self._waiting[freed.progress.queue] -= 1
            self._ready.append(freed)
