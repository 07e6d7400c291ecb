"""Handing messages to who asks for them, by iterating or polling.

Queues that have messages take turns, a pull's worth at a time. Who comes back for more is through
with what it was given before: that is one rule for iterating and polling, and it is switched off
together with `auto_commit`. Then only `commit` and `nack` say what is finished.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import anyio
from anyio.lowlevel import checkpoint

from dledger.remoting.json_dialect import MessageQueue
from dledger.world import unix_ms
from mqclient import limits
from mqclient.arguments import check_count, check_seconds
from mqclient.connection.signals import Broadcast
from mqclient.consuming.columns.batch import Listed, MessageBatch
from mqclient.consuming.columns.many import ReadMany
from mqclient.consuming.progress import QueueProgress
from mqclient.consuming.turns import Reading, Turns
from mqclient.errors import ClientClosed, TooMuchUncommitted
from mqclient.models import ReceivedMessage


class _Taken(NamedTuple):
    """Messages of one queue, of one of its epochs; whether any has a large body elsewhere."""

    progress: QueueProgress
    epoch: int
    messages: MessageBatch
    large: bool

    def give_back(self, first: int) -> None:
        """Take back the messages from number `first` on: they come next."""
        for message in reversed(self.messages[first:]):
            self.progress.give_back(message, self.epoch)


class HandOut:
    """Gives out what `readings` have fetched. `arrived` is announced when they have more.

    `see_to` gets messages what else belongs to them, before they are given out. At a time of the
    event loop's clock it gives up for now, and says how many of them, from the first on, have it.
    """

    def __init__(
        self,
        readings: Callable[[], Mapping[MessageQueue, Reading]],
        see_to: Callable[[Sequence[ReceivedMessage], float], Awaitable[int]],
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
        self._in_hand: tuple[QueueProgress, ReceivedMessage] | None = None
        self._here: QueueProgress | None = None
        #: Nothing more is handed out: the consumer is drained.
        self.ended = False

    async def next_message(self) -> ReceivedMessage:
        """Wait for the next message; the one before it is finished, if asking says so."""
        if self._asking_finishes:
            self.finish_handed()
        elif self._in_hand is not None:
            self._note_one(*self._in_hand)
        self._in_hand = None
        message, reading = await self.take_one()
        self._in_hand = (reading.progress, message)
        reading.progress.polled = True
        return message

    async def next_after(self, message: ReceivedMessage | None) -> ReceivedMessage | None:
        """Wait for the next message; `message` is handled. For handlers in the caller's thread.
        None if there will be none."""
        if message is not None:
            self._end_here().finish(message.queue_offset, message.queue_offset)
        try:
            message, reading = await self.take_one()
        except StopAsyncIteration:
            return None
        self._here = reading.progress
        self._here.handling += 1
        return message

    def give_back(self, message: ReceivedMessage) -> None:
        """Give back `message`, which was not handled, and is the next again. For handlers in the
        caller's thread."""
        progress = self._end_here()
        progress.give_back(message, progress.epoch)

    def _end_here(self) -> QueueProgress:
        """End the turn of the queue whose message a handler in the caller's thread has had."""
        progress, self._here = self._here, None
        assert progress is not None
        progress.handling -= 1
        self.arrived.announce()
        return progress

    async def take_one(self) -> tuple[ReceivedMessage, Reading]:
        """Wait for the next message, of which whoever takes it says when it is finished. Raises
        StopAsyncIteration if there will be none."""
        while True:
            if self._current is None or self._left == 0:
                await checkpoint()  # the consumer may be drained meanwhile
                self._current = None if self.ended else self._turns.next(_has_room)
                self._left = limits.TURN_RECORDS_MAX
            if self.ended:
                raise StopAsyncIteration
            reading = self._current
            if reading is None:
                await self._wait()
                continue
            self._left -= 1
            # Since its turn began it may have been paused, or is about to be another member's.
            if reading.may_hand_out and reading.progress.has_messages:
                for message in self._take(reading, 1).listed():
                    if not message.large_bytes:
                        return message, reading
                    alone = Listed([message])
                    taken = _Taken(reading.progress, reading.progress.epoch, alone, True)
                    if await self._see_to_it([taken], limits.LARGE_TURN_S):
                        return message, reading
            self._current = None

    async def poll(
        self, max_messages: int, timeout_s: float, *, one_group: bool = False
    ) -> ReadMany:
        """Wait for messages for `timeout_s`; those of the poll before are finished. Raises
        BadInput for numbers that can't be meant, and then nothing is finished."""
        check_count("max_messages", max_messages)
        check_seconds("timeout_s", timeout_s)
        if self._asking_finishes:
            self.finish_handed()
        if self.ended:
            raise ClientClosed("this consumer was drained: it hands out nothing more")
        taken: list[_Taken] = []
        deadline_s = anyio.current_time() + timeout_s
        await checkpoint()
        with anyio.move_on_after(timeout_s):
            while not taken:
                taken = self._take_all(max_messages, one_group=one_group)
                if not taken and self._has_ended():
                    break
                if not taken:
                    await self._wait()
        if any(each.large for each in taken):
            taken = await self._see_to_it(taken, deadline_s - anyio.current_time())
        for each in taken:
            messages = each.messages
            self._note(each.progress, messages[0].queue_offset, messages[-1].queue_offset)
        return ReadMany([each.messages for each in taken])

    async def _see_to_it(self, taken: Sequence[_Taken], patience_s: float) -> list[_Taken]:
        """The messages that can be given out. Messages that must wait come next, and the later ones
        of their queue behind them; so do all of them if the caller stops waiting."""
        deadline_s = anyio.current_time() + patience_s
        counts: list[int] = []
        waiting: set[QueueProgress] = set()
        try:
            for each in taken:
                count = len(each.messages)
                if each.progress in waiting:
                    count = 0
                elif each.large:
                    count = await self._see_to(each.messages, deadline_s)
                if count < len(each.messages):
                    waiting.add(each.progress)
                counts.append(count)
            # Meanwhile a queue may have been paused, or is about to be another member's.
            counts = [
                0 if each.progress.paused or each.progress.closing else count
                for each, count in zip(taken, counts, strict=True)
            ]
        except BaseException:
            counts = []
            raise
        finally:
            counts += [0] * (len(taken) - len(counts))
            for each, count in zip(reversed(taken), reversed(counts), strict=True):
                each.give_back(count)
        return [
            each._replace(messages=each.messages[:count])
            for each, count in zip(taken, counts, strict=True)
            if count and each.progress.epoch == each.epoch  # else another member has the queue now
        ]

    def finish_handed(self) -> None:
        """Everything handed out so far, by iterating or polling, is finished."""
        if self._in_hand is not None:
            progress, message = self._in_hand
            self._in_hand = None
            if not self._handed:  # as when nothing but a loop takes messages
                progress.finish(message.queue_offset, message.queue_offset)
                self._let_go(progress)
                return
            self._note_one(progress, message)
        self.finish_polled()

    def finish_polled(self) -> None:
        """All of it but the message that a loop has in hand, which it may have been left for."""
        for progress, (first, last) in self._handed.items():
            progress.finish(first, last)
            self._let_go(progress)
        self._handed.clear()

    def _has_ended(self) -> bool:
        return self.ended

    def forget_polled(self) -> None:
        """Forget what was iterated or polled: its reader has left, and finishes nothing."""
        for progress in self.handed_out():
            progress.polled = False

    def handed_out(self) -> list[QueueProgress]:
        """The queues of what was handed out and not finished."""
        in_hand = [] if self._in_hand is None else [self._in_hand[0]]
        return [*dict.fromkeys([*self._handed, *in_hand])]

    def finish(self, progress: QueueProgress, end: int) -> None:
        """Finish the messages of one queue that were handed out before `end`."""
        if self._in_hand is not None and self._in_hand[0] is progress:
            self._note_one(*self._in_hand)
        first, last = self._handed[progress]
        progress.finish(first, end - 1)
        self.forget(progress)
        if last >= end:
            self._handed[progress] = (end, last)
            progress.polled = True

    def forget(self, progress: QueueProgress) -> None:
        """Forget the messages of one queue that were handed out."""
        if self._in_hand is not None and self._in_hand[0] is progress:
            self._in_hand = None
        self._handed.pop(progress, None)
        self._let_go(progress)

    def _let_go(self, progress: QueueProgress) -> None:
        """The application has nothing of this queue that it asked for itself."""
        progress.polled = False
        if progress.closing:
            self.arrived.announce()  # somebody may wait for that

    def _take_all(self, messages_max: int, *, one_group: bool) -> list[_Taken]:
        """Messages, of which a few only if their bodies are large."""
        all_taken: list[_Taken] = []
        count = large_bytes = 0

        def fits(progress: QueueProgress) -> bool:
            group = all_taken[0].progress.queue.broker_name if all_taken else None
            mixed = one_group and group is not None and group != progress.queue.broker_name
            return _has_room(progress) and not mixed

        while count < messages_max:
            reading = self._turns.next(fits)
            if reading is None:
                break
            progress = reading.progress
            messages = self._take(reading, messages_max - count)
            if more_bytes := messages.large_bytes:
                few = self._few(progress, messages.listed(), large_bytes, first=not count)
                if len(few) < len(messages):
                    messages_max = 0  # the rest of it is for the next poll
                messages = few
            large_bytes += more_bytes
            if messages:  # else they have expired
                all_taken.append(_Taken(progress, progress.epoch, messages, more_bytes > 0))
                count += len(messages)
        return all_taken

    @staticmethod
    def _few(
        progress: QueueProgress, messages: list[ReceivedMessage], large_bytes: int, *, first: bool
    ) -> MessageBatch:
        """The messages that fit, beside large bodies of so many bytes; at least the `first` of
        all."""
        large_bytes += sum([message.large_bytes for message in messages])
        while large_bytes > limits.UNDER_WAY_BYTES_MAX and len(messages) > first:
            large_bytes -= messages[-1].large_bytes
            progress.give_back(messages.pop(), progress.epoch)
        return Listed(messages)

    @staticmethod
    def _take(reading: Reading, messages_max: int) -> MessageBatch:
        progress = reading.progress
        messages = progress.take(messages_max, unix_ms() if progress.may_expire else 0)
        reading.took()
        return messages

    def _note_one(self, progress: QueueProgress, message: ReceivedMessage) -> None:
        self._note(progress, message.queue_offset, message.queue_offset)

    def _note(self, progress: QueueProgress, first: int, last: int) -> None:
        progress.polled = True
        before = self._handed.get(progress, (first, last))
        self._handed[progress] = (min(first, before[0]), max(last, before[1]))

    async def _wait(self) -> None:
        """Wait until messages arrive. Raises TooMuchUncommitted if that can't help, as a queue has
        no room."""
        for queue, reading in self._turns.readings().items():
            if reading.progress.has_messages and not _has_room(reading.progress):
                raise TooMuchUncommitted(queue, reading.progress.unfinished.runs)
        await self.arrived.wait()


def _has_room(progress: QueueProgress) -> bool:
    return progress.unfinished.runs < limits.UNFINISHED_RUNS_PER_QUEUE_MAX
