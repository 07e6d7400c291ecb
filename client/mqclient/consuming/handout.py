"""Handing messages to who asks for them, by iterating or polling.

Queues that have messages take turns, a pull's worth at a time. Who comes back for more is through
with what it was given before: that is one rule for iterating and polling, and it is switched off
together with `auto_commit`. Then only `commit` and `nack` say what is finished.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
from anyio.lowlevel import checkpoint

from dledger.remoting.json_dialect import MessageQueue
from dledger.world import unix_ms
from mqclient import limits
from mqclient.connection.signals import Broadcast
from mqclient.consuming.progress import QueueProgress
from mqclient.consuming.turns import Reading, Turns
from mqclient.errors import TooMuchUncommitted
from mqclient.models import ReceivedMessage


class HandOut:
    """Gives out what `readings` have fetched. `arrived` is announced when they have more.

    `see_to` gets messages what else belongs to them, before they are given out.
    """

    def __init__(
        self,
        readings: Callable[[], Mapping[MessageQueue, Reading]],
        see_to: Callable[[Sequence[ReceivedMessage]], Awaitable[None]],
        *,
        asking_finishes: bool,
    ) -> None:
        self._see_to = see_to
        self.arrived = Broadcast()
        self._asking_finishes = asking_finishes
        self._turns = Turns(readings)
        self._current: Reading | None = None
        self._left = 0
        self._handed: dict[QueueProgress, tuple[int, int]] = {}
        self._in_hand: tuple[QueueProgress, list[ReceivedMessage]] | None = None

    async def next_message(self) -> ReceivedMessage:
        """Wait for the next message; the one before it is finished, if asking says so."""
        if self._asking_finishes:
            self.finish_handed()
        elif self._in_hand is not None:
            self._note(*self._in_hand)
        self._in_hand = None
        message, reading = await self.take_one()
        self._in_hand = (reading.progress, [message])
        reading.progress.polled = True
        if message.large_bytes:
            await self._see_to(self._in_hand[1])
        return message

    async def take_one(self) -> tuple[ReceivedMessage, Reading]:
        """Wait for the next message, of which whoever takes it says when it is finished."""
        while True:
            if self._current is None or self._left == 0:
                await checkpoint()
                self._current = self._turns.next(_has_room)
                self._left = limits.TURN_RECORDS_MAX
            if self._current is None:
                await self._wait()
                continue
            self._left -= 1
            if self._current.may_hand_out:
                for message in self._take(self._current, 1):
                    return message, self._current
            self._current = None

    async def poll(
        self, messages_max: int, timeout_s: float, *, one_group: bool = False
    ) -> list[ReceivedMessage]:
        """Wait for messages for `timeout_s`; those of the poll before are finished."""
        if self._asking_finishes:
            self.finish_handed()
        messages: list[ReceivedMessage] = []
        large_bytes = 0
        await checkpoint()
        with anyio.move_on_after(timeout_s):
            while not messages:
                messages, large_bytes = self._take_all(messages_max, one_group=one_group)
                if not messages:
                    await self._wait()
        if large_bytes:
            await self._see_to(messages)
        return messages

    def finish_handed(self) -> None:
        """Everything handed out so far, by iterating or polling, is finished."""
        if self._in_hand is not None:
            self._note(*self._in_hand)
            self._in_hand = None
        self.finish_polled()

    def finish_polled(self) -> None:
        """All of it but the message that a loop has in hand, which it may have been left for."""
        for progress, (first, last) in self._handed.items():
            progress.finish(first, last)
            progress.polled = False
            if progress.closing:
                self.arrived.announce()  # somebody may wait for that
        self._handed.clear()

    def handed_out(self) -> list[QueueProgress]:
        """The queues of what was handed out and not finished."""
        in_hand = [] if self._in_hand is None else [self._in_hand[0]]
        return [*dict.fromkeys([*self._handed, *in_hand])]

    def finish(self, progress: QueueProgress, end: int) -> None:
        """What was handed out of one queue before `end` is finished."""
        if self._in_hand is not None and self._in_hand[0] is progress:
            self._note(*self._in_hand)
        first, last = self._handed[progress]
        progress.finish(first, end - 1)
        self.forget(progress)
        if last >= end:
            self._handed[progress] = (end, last)
            progress.polled = True

    def forget(self, progress: QueueProgress) -> None:
        """What was handed out of one queue is not looked after any more."""
        if self._in_hand is not None and self._in_hand[0] is progress:
            self._in_hand = None
        self._handed.pop(progress, None)
        progress.polled = False
        if progress.closing:
            self.arrived.announce()  # somebody may wait for that

    def _take_all(self, messages_max: int, *, one_group: bool) -> tuple[list[ReceivedMessage], int]:
        """Messages, and how many bytes of large bodies they are still without."""
        messages: list[ReceivedMessage] = []
        large_bytes = 0

        def fits(progress: QueueProgress) -> bool:
            mixed = one_group and messages and messages[0].broker_name != progress.queue.broker_name
            return _has_room(progress) and not mixed

        while len(messages) < messages_max:
            reading = self._turns.next(fits)
            if reading is None:
                break
            taken = self._take(reading, messages_max - len(messages))
            large_bytes += sum([message.large_bytes for message in taken])
            while large_bytes > limits.UNDER_WAY_BYTES_MAX and len(messages) + len(taken) > 1:
                large_bytes -= taken[-1].large_bytes
                reading.progress.give_back(taken.pop(), reading.progress.epoch)
                messages_max = 0  # the rest of it is for the next poll
            if taken:  # else they have expired
                self._note(reading.progress, taken)
                messages += taken
        return messages, large_bytes

    @staticmethod
    def _take(reading: Reading, messages_max: int) -> list[ReceivedMessage]:
        messages = reading.progress.take(messages_max, unix_ms())
        reading.took()
        return messages

    def _note(self, progress: QueueProgress, messages: list[ReceivedMessage]) -> None:
        first, last = messages[0].queue_offset, messages[-1].queue_offset
        progress.polled = True
        before = self._handed.get(progress, (first, last))
        self._handed[progress] = (min(first, before[0]), max(last, before[1]))

    async def _wait(self) -> None:
        """Until something arrives. TooMuchUncommitted if that can't help."""
        for queue, reading in self._turns.readings().items():
            if reading.progress.has_messages and not _has_room(reading.progress):
                raise TooMuchUncommitted(queue, reading.progress.unfinished.runs)
        await self.arrived.wait()


def _has_room(progress: QueueProgress) -> bool:
    return progress.unfinished.runs < limits.UNFINISHED_RUNS_PER_QUEUE_MAX
