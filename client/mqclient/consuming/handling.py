"""Handing messages to a handler: so many at a time, in the order that was asked for.

A worker handles a message, then takes the next one that may be handled now; when there is none it
ends, and another is started when something arrives. What may not be handled yet, for one of its
lane is under way, waits here, a bounded number of it. When the handling ends before a message is
finished, its queue takes it back: whoever asks next is given it again. A handler of batches is
given what there is of a queue, up to its size; everything else is the same.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import CoroutineType
from typing import TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.world import unix_ms
from mqclient import limits
from mqclient.arguments import check_count, check_seconds
from mqclient.connection.lifetime import together
from mqclient.connection.signals import Broadcast
from mqclient.consuming.lanes import Lanes, Order, check_order, lane_of
from mqclient.consuming.progress import QueueProgress
from mqclient.consuming.turns import Reading, Turns
from mqclient.errors import HandlerTimeout
from mqclient.models import ReceivedMessage

HandledT = TypeVar("HandledT")
Handler: TypeAlias = Callable[[ReceivedMessage], Awaitable[None] | None]
BatchHandler: TypeAlias = Callable[[Sequence[ReceivedMessage]], Awaitable[None] | None]
Failed: TypeAlias = Callable[[ReceivedMessage, Exception], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class Work:
    """Messages that a handler is to get at a time, from which queue, and in which lane they are."""

    reading: Reading
    messages: list[ReceivedMessage]
    lane: Hashable
    progress: QueueProgress = field(init=False)
    epoch: int = field(init=False)
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.progress = self.reading.progress
        self.epoch = self.progress.epoch
        self.size_bytes = sum([message.held_bytes for message in self.messages])

    @property
    def may_start(self) -> bool:
        """Whether they may be handled now: of a queue that is given up, only what closes a gap."""
        progress = self.progress
        if progress.closing and self.messages[-1].queue_offset + 1 >= progress.begun_to:
            return False
        return progress.epoch == self.epoch and self.reading.may_hand_out

    @property
    def counts(self) -> bool:
        """Whether their queue is still ours, and was not moved meanwhile."""
        return self.progress.epoch == self.epoch

    def settle(self, message: ReceivedMessage) -> None:
        """Note that a message is handled, or will come again."""
        if self.counts:
            self.progress.finish(message.queue_offset, message.queue_offset)
        self.messages.remove(message)

    def settle_all(self) -> None:
        """Note that a handler has finished messages."""
        if self.counts:
            for message in self.messages:
                self.progress.finish(message.queue_offset, message.queue_offset)
        self.messages = []

    def drop_settled(self) -> None:
        """Forget those that the handler itself has committed or sent back."""
        unfinished = self.progress.unfinished
        self.messages = [each for each in self.messages if each.queue_offset in unfinished]

    def give_back(self) -> None:
        """Give unsettled messages back: they are the next of their queue again."""
        for message in self.messages:
            self.progress.give_back(message, self.epoch)


@dataclass(frozen=True, slots=True)
class Policy:
    """How a handler is called: see `Consumer.run`."""

    concurrency: int
    bytes_max: int
    order: Order
    timeout_s: float | None
    batch_max: int = 1


def check_policy(
    concurrency: int, bytes_max: int, order: Order, timeout_s: float | None, batch_max: int = 1
) -> Policy:
    """Raises BadInput for what can't be."""
    check_at_work(concurrency, timeout_s)
    check_count("max_bytes", bytes_max)
    if not 1 <= check_count("max_messages", batch_max) <= limits.PULL_RECORDS_MAX:
        raise BadInput(f"max_messages={batch_max} is not within 1 and {limits.PULL_RECORDS_MAX}")
    if batch_max > 1 and order == "key":
        raise BadInput(
            "order='key': a batch has messages of several keys; choose 'queue' or 'none'"
        )
    return Policy(concurrency, bytes_max, check_order(order), timeout_s, batch_max)


class Handling:
    """A run of a handler, which is given a list. `failed` gets each message's exception; if that
    returns False the message is handled again."""

    def __init__(
        self,
        readings: Callable[[], Mapping[MessageQueue, Reading]],
        arrived: Broadcast,
        handler: BatchHandler,
        failed: Failed,
        policy: Policy,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ended = ended
        self._turns = Turns(readings)
        self._arrived = arrived
        self._handler = handler
        self._failed = failed
        self._policy = policy
        self._lanes: Lanes[Work] = Lanes()
        self._ready: deque[Work] = deque()
        self._under_way: dict[Work, None] = {}
        self._waiting = Counter[QueueProgress]()
        self._bytes = 0
        self._workers = 0

    async def run(self) -> None:
        """Handle messages until cancelled, or until the handler's error is raised, or until there
        will be no more and all that were begun are through."""
        try:
            async with together() as tasks:
                while True:
                    if self._ended():  # the queues may be gone: nothing more is begun
                        if not self._workers:
                            break
                    else:
                        self._begin(tasks)
                    await self._arrived.wait()
        finally:
            for work in (*self._under_way, *self._ready, *self._lanes.waiting()):
                work.progress.handling -= 1
                work.give_back()
            self._arrived.announce()

    async def _work(self, work: Work | None) -> None:
        for number in count(1):
            if work is None:
                break
            await self._handle(work)
            if number % limits.HANDLED_IN_A_ROW == 0:
                await checkpoint()  # for a handler that never waits itself
            self._finish(work)
            if self._workers < self._policy.concurrency or work.progress.closing:
                self._arrived.announce()  # what was in the way may have been more than one
            work = None if self._ended() else self._next()
        self._workers -= 1
        if self._ended():
            self._arrived.announce()

    async def _handle(self, work: Work) -> None:
        """Handle messages until all are settled; what is not, when the queue is lost, is its next
        reader's."""
        while work.messages and work.counts:
            if not work.may_start:
                work.give_back()
                return
            try:
                await call_handler(
                    self._handler, work.messages, work.messages[0], self._policy.timeout_s
                )
            except Exception as error:
                work.drop_settled()
                for message in [*work.messages]:
                    if await self._failed(message, error):
                        work.settle(message)
            else:
                work.settle_all()

    def _begin(self, tasks: TaskGroup) -> None:
        """Give work to as many workers as may be."""
        while self._workers < self._policy.concurrency and (work := self._next()):
            self._workers += 1
            tasks.start_soon(self._work, work)

    def _next(self) -> Work | None:
        """The messages to be handled now; None if none may be."""
        while True:
            work = self._ready.popleft() if self._ready else self._take()
            if work is None:
                return None
            if work.may_start:
                self._under_way[work] = None
                end = work.messages[-1].queue_offset + 1
                work.progress.begun_to = max(work.progress.begun_to, end)
                self._bytes += work.size_bytes
                return work
            work.give_back()
            self._leave(work)
            self._arrived.announce()

    def _take(self) -> Work | None:
        """Messages in the queues' buffers that need not wait for anything."""
        while (reading := self._turns.next(self._may_take)) is not None:
            progress = reading.progress
            now_ms = unix_ms() if progress.may_expire else 0
            messages = progress.take(self._policy.batch_max, now_ms).listed()
            reading.took()
            if not messages:
                continue  # they have expired
            lane = (progress, lane_of(messages[0], self._policy.order))
            work = Work(reading, messages, lane)
            progress.handling += 1
            if self._lanes.enter(lane, work):
                return work
            self._waiting[progress] += 1
        return None

    def _may_take(self, progress: QueueProgress) -> bool:
        if self._bytes and self._bytes + progress.next_size_bytes > self._policy.bytes_max:
            return False
        if progress.unfinished.span >= limits.UNFINISHED_SPAN_PER_QUEUE_MAX:
            return bool(progress.returned)
        if self._policy.order == "queue":
            return not self._lanes.is_busy((progress, None))
        return self._waiting[progress] < limits.WAITING_FOR_LANES_PER_QUEUE_MAX

    def _finish(self, work: Work) -> None:
        del self._under_way[work]
        self._bytes -= work.size_bytes
        self._leave(work)

    def _leave(self, work: Work) -> None:
        work.progress.handling -= 1
        freed = self._lanes.leave(work.lane)
        if freed is not None:
            self._waiting[freed.progress] -= 1
            self._ready.append(freed)


def check_at_work(concurrency: int, timeout_s: float | None) -> None:
    """How many handlers work at a time, and how long one may take. Raises BadInput."""
    check_count("concurrency", concurrency)
    if timeout_s is not None and check_seconds("timeout_s", timeout_s, above_zero=True) == math.inf:
        raise BadInput(f"timeout_s={timeout_s}: expected seconds for a message, or None for no end")


async def call_handler(
    handler: Callable[[HandledT], Awaitable[None] | None],
    handled: HandledT,
    first: ReceivedMessage,
    timeout_s: float | None,
) -> None:
    """Call a handler with a message or a batch, and await it if it is asynchronous. Raises what it
    raises, and HandlerTimeout, which names the `first` message."""
    result = handler(handled)
    if result is None or not (type(result) is CoroutineType or inspect.isawaitable(result)):
        return
    if timeout_s is None:
        await result
        return
    with anyio.move_on_after(timeout_s) as scope:
        await result
    if scope.cancelled_caught:
        raise HandlerTimeout(first.queue, first.queue_offset, timeout_s)
