"""Handing messages to the application, and taking note of what it is through with.

Queues that have messages take turns, a pull's worth at a time. A queue whose messages are being
handed out is *busy*: nobody else takes from it, so each queue is seen in order. A message counts as
processed when the application comes back for more: one rule for iterating, polling and handlers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from dledger.remoting.json_dialect import MessageQueue
from mqclient.connection.signals import Broadcast
from mqclient.consuming.fetching import QueueFetcher
from mqclient.consuming.progress import QueueProgress
from mqclient.models import ReceivedMessage

Handler: TypeAlias = Callable[[ReceivedMessage], Awaitable[None] | None]
Failed: TypeAlias = Callable[[ReceivedMessage, Exception], Awaitable[bool]]


class HandOut:
    """Gives out what `fetchers` have fetched. `arrived` is announced when they have more."""

    def __init__(self, fetchers: Callable[[], Mapping[MessageQueue, QueueFetcher]]) -> None:
        self.arrived = Broadcast()
        self._fetchers = fetchers
        self._turn = 0
        self._current: QueueProgress | None = None
        self._epoch = 0
        self._messages: Iterator[ReceivedMessage] = iter(())
        self._message: ReceivedMessage | None = None
        self._polled: list[QueueProgress] = []

    async def next_message(self) -> ReceivedMessage:
        """Wait for the next message; the one before it is processed."""
        progress = self._current
        if progress is not None:
            if self._message is not None:
                progress.processed(self._message, self._epoch)
                self._message = None
            if progress.epoch == self._epoch:
                for message in self._messages:
                    progress.handed(message)
                    self._message = message
                    return message
            self._put_back(progress)
            self._current = None
        self._current = progress = await self._next_queue()
        self._epoch = progress.epoch
        self._messages = iter(self._take(progress, None))
        self._message = next(self._messages)
        progress.handed(self._message)
        return self._message

    async def poll(self, messages_max: int, timeout_s: float) -> list[ReceivedMessage]:
        """Wait for messages for `timeout_s`; those of the poll before are processed."""
        self._leave_off()
        for progress in self._polled:
            progress.process_handed()
        self._polled = []
        messages: list[ReceivedMessage] = []
        await checkpoint()
        with anyio.move_on_after(timeout_s):
            while self._ready() is None:
                await self.arrived.wait()
        while len(messages) < messages_max:
            ready = self._ready()
            if ready is None:
                break
            taken = self._take(ready, messages_max - len(messages))
            ready.handed(taken[-1])
            self._polled.append(ready)
            messages += taken
        return messages

    async def work(self, handler: Handler, failed: Failed) -> None:
        """Handle one queue's messages in order, then another's.

        `failed` is told what the handler raises; if it returns False the message is handled again.
        """
        while True:
            progress = await self._next_queue()
            epoch = progress.epoch
            try:
                for message in self._take(progress, None):
                    if progress.epoch != epoch:
                        break
                    progress.handed(message)
                    while progress.epoch == epoch:
                        if await _handled(handler, message, failed):
                            break
                    progress.processed(message, epoch)
            finally:
                self._put_back(progress)

    def process_handed(self) -> None:
        """Everything handed out so far, by iterating or polling, is processed."""
        if self._current is not None and self._message is not None:
            self._current.processed(self._message, self._epoch)
        for progress in self._polled:
            progress.process_handed()

    async def _next_queue(self) -> QueueProgress:
        """Wait for a queue that has messages and that nobody takes from, and claim it."""
        await checkpoint()
        while True:
            progress = self._ready()
            if progress is not None:
                progress.busy = True
                return progress
            await self.arrived.wait()

    def _ready(self) -> QueueProgress | None:
        """The next queue in turn that has messages and that nobody takes from."""
        fetchers = [*self._fetchers().values()]
        for step in range(len(fetchers)):
            progress = fetchers[(self._turn + step) % len(fetchers)].progress
            if progress.has_messages and not progress.busy:
                self._turn = (self._turn + step + 1) % len(fetchers)
                return progress
        return None

    def _take(self, progress: QueueProgress, messages_max: int | None) -> list[ReceivedMessage]:
        messages = progress.hand_out(messages_max)
        fetcher = self._fetchers().get(progress.queue)
        if fetcher is not None:
            fetcher.room.announce()
        return messages

    def _put_back(self, progress: QueueProgress) -> None:
        """The queue is free again for whoever takes the next messages."""
        progress.busy = False
        if progress.has_messages:
            self.arrived.announce()

    def _leave_off(self) -> None:
        """Stop iterating: what was not seen of the messages in hand is fetched again."""
        progress, self._current = self._current, None
        if progress is None:
            return
        if self._message is not None:
            progress.processed(self._message, self._epoch)
        unseen = next(self._messages, None)
        self._messages, self._message = iter(()), None
        if unseen is not None and progress.epoch == self._epoch:
            progress.seek(unseen.queue_offset)
            fetcher = self._fetchers().get(progress.queue)
            if fetcher is not None:
                fetcher.restart()
        self._put_back(progress)


async def _handled(handler: Handler, message: ReceivedMessage, failed: Failed) -> bool:
    """Whether the handler is through with it, or `failed` has seen to it."""
    try:
        result = handler(message)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        return await failed(message, error)
    return True
