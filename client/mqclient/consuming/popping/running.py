"""Hands popped messages to a handler, so many at a time, and so many bytes.

A message is acknowledged when its handler returns. While the handler works, and while a message
waits for it, its time is prolonged, within bounds. One that is not handled comes again later, to
whoever pops then; after too many times it is a dead letter. Messages of an ordered queue are
handled one after the other, and one that is not handled is handled again in its place.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from dledger.errors import BadInput, DledgerError
from dledger.observe import get_logger
from dledger.remoting.numbers import INT32_MAX
from mqclient import limits
from mqclient.arguments import check_seconds, check_whole
from mqclient.connection.leaders import log_failure
from mqclient.connection.lifetime import together
from mqclient.consuming.handling import call_handler, check_at_work
from mqclient.consuming.lanes import Lanes
from mqclient.consuming.popping.message import PoppedMessage
from mqclient.consuming.popping.settling import Settling
from mqclient.consuming.popping.taking import Taking
from mqclient.consuming.popping.window import Window, lane_of, retry_delay_s
from mqclient.consuming.sending_back import DEAD, Delay, Nack, OnFailure, SendingBack, tell_failure

log = get_logger(__name__)

Handler: TypeAlias = Callable[[PoppedMessage], Awaitable[None] | None]
BatchHandler: TypeAlias = Callable[[Sequence[PoppedMessage]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Policy:
    """How messages are handled: see `PopConsumer.run`."""

    concurrency: int
    timeout_s: float | None
    hold_s: float
    times_max: int | None
    schedule: Sequence[float]
    ordered: bool
    on_error: OnFailure | None = None

    def __post_init__(self) -> None:
        check_at_work(self.concurrency, self.timeout_s)
        if check_seconds("hold_s", self.hold_s) == math.inf:
            raise BadInput(f"hold_s={self.hold_s}: expected for how long a message may be kept")
        if self.times_max is not None:
            check_whole("max_reconsume_times", self.times_max, 0, INT32_MAX)


class Running:
    """A run of a handler."""

    def __init__(
        self,
        handler: BatchHandler,
        policy: Policy,
        taking: Taking,
        settling: Settling,
        dead_letters: SendingBack,
    ) -> None:
        self._handler = handler
        self._policy = policy
        self._taking = taking
        self._settling = settling
        self._dead_letters = dead_letters
        self._window = Window(policy.concurrency, anyio.current_time())
        self._lanes: Lanes[PoppedMessage] = Lanes()
        self._next_of_lanes: deque[PoppedMessage] = deque()
        self._in_hand: dict[PoppedMessage, int] = {}
        self._hand_bytes = 0
        self._workers = 0

    async def run(self) -> None:
        """Handle messages until cancelled, or until there will be no more and all that were begun
        are through."""
        try:
            async with together() as tasks:
                tasks.start_soon(self._keep_hidden)
                while True:
                    self._want()
                    while self._workers < self._policy.concurrency and (work := self._next()):
                        self._workers += 1
                        tasks.start_soon(self._work, work)
                    if self._taking.stopped and not self._workers:
                        tasks.cancel_scope.cancel()
                        break
                    await self._taking.arrived.wait()
        finally:
            self._taking.want(0)
            self._taking.put_back([*self._in_hand])

    @property
    def is_at_work(self) -> bool:
        """Whether a handler has a message."""
        return self._workers > 0

    def _want(self) -> None:
        if self._settling.unsettled > limits.POP_UNSETTLED_MAX:
            self._taking.want(0)  # until some are sent
        else:
            self._taking.want(max(0, self._window.size - len(self._in_hand)))

    def _next(self) -> PoppedMessage | None:
        if self._next_of_lanes and not self._taking.stopped:
            return self._next_of_lanes.popleft()
        while (message := self._taking.take(self._room_bytes)) is not None:
            self._in_hand[message] = message.hand_bytes
            self._hand_bytes += message.hand_bytes
            if self._lanes.enter(lane_of(message, ordered=self._policy.ordered), message):
                return message
        return None

    @property
    def _room_bytes(self) -> int | None:
        """How large the next message may be; None if it may have any size."""
        return limits.POP_HAND_BYTES_MAX - self._hand_bytes if self._in_hand else None

    async def _work(self, message: PoppedMessage | None) -> None:
        for number in count(1):
            if message is None:
                break
            await self._handle(message)
            self._hand_bytes -= self._in_hand.pop(message)
            if number % limits.HANDLED_IN_A_ROW == 0:
                await checkpoint()  # for a handler that never waits itself
            freed = self._lanes.leave(lane_of(message, ordered=self._policy.ordered))
            if freed is not None:
                self._next_of_lanes.append(freed)
            self._window.handled(1, anyio.current_time())
            if number % limits.HANDLED_IN_A_ROW == 1:
                self._want()
            message = self._next()
        self._workers -= 1
        self._taking.arrived.announce()

    async def _handle(self, message: PoppedMessage) -> None:
        while True:
            try:
                await call_handler(self._handler, [message], message, self._policy.timeout_s)
            except Exception as error:
                if await self._settled(message, error):
                    return
            else:
                self._settling.ack_soon(message)
                return

    async def _settled(self, message: PoppedMessage, error: Exception) -> bool:
        """See to a message whose handler raised; False if it is to be handled again, here."""
        delay = error.delay if isinstance(error, Nack) else Delay()
        if not isinstance(error, Nack):
            named = {"message": repr(message), "error": repr(error)}
            log.warning("message not handled", **named, exc_info=error)
            if self._policy.on_error is not None:
                await tell_failure(self._policy.on_error, error, message)
        tried = message.reconsume_times + message.handled_again
        times_max = self._policy.times_max
        if times_max is None:
            times_max = self._taking.retry_max_times
        try:
            if delay.level == DEAD or tried >= times_max:
                late = await self._dead_letters.send_back(message, Delay(DEAD), message.pop_time_ms)
                if late is None:
                    self._settling.ack_soon(message)
                return True
            delay_s = delay_seconds(delay)
            if self._policy.ordered:
                delay_s = limits.SUSPEND_S if delay_s is None else delay_s
                if not await self._taking.stops_within(delay_s):
                    message.handled_again += 1
                    return False
            if delay_s is None:
                delay_s = retry_delay_s(self._policy.schedule, message)
            await self._settling.hide([message], delay_s, keep=False)
        except DledgerError as problem:
            # The message comes again when its invisible time is over.
            log.warning("message not given back", message=repr(message), reason=str(problem))
        return True

    async def _keep_hidden(self) -> None:
        """Prolong the time of what is in hand, and of what waits, before it is over."""
        invisible_s = self._taking.invisible_s
        while True:
            await anyio.sleep(max(limits.POP_HOLD_S_MIN, invisible_s / limits.POP_LOOKS_PER_TIME))
            now_s = anyio.current_time()
            due = [
                message
                for message in (*self._in_hand, *self._taking.ready)
                if message.until_s - now_s < invisible_s * limits.POP_PROLONG_SHARE
                and now_s - message.since_s < self._policy.hold_s
            ]
            try:
                await self._settling.hide(due, invisible_s, keep=True)
            except DledgerError as error:
                log_failure(log, "messages not kept", error, messages=len(due))


def delay_seconds(delay: Delay) -> float | None:
    """The delay that a `Nack` asks for; None if it names none. Levels are RocketMQ's, as brokers
    have them by default."""
    if delay.is_open:
        return None
    if delay.millis:
        return delay.millis / 1000
    return limits.DELAY_LEVELS_S[min(delay.level, len(limits.DELAY_LEVELS_S)) - 1]
