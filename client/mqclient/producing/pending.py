"""A message on its way, as `send_nowait` returns it.

The object is only a place in a batch, or in a chunk of messages that are settled together: an
event is made only if a task waits, and the result is computed when it is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import anyio

from mqclient.models import SendResult
from mqclient.producing.batch import Slot


class PendingSend(ABC):
    """The outcome of a send: await it, or register a callback; `settled` and `result()` never
    block."""

    __slots__ = ()

    @property
    @abstractmethod
    def unique_key(self) -> str:
        """The key that names the message."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether the outcome is known."""

    @abstractmethod
    def result(self) -> SendResult:
        """The place of a settled message. Raises the error if the send failed."""

    @abstractmethod
    def _when_settled(self, listener: Callable[[], None]) -> None:
        """Call this when the outcome of a message that is not settled may be there."""

    def __await__(self) -> Generator[Any, Any, SendResult]:
        """Wait for the outcome, as `wait()` does."""
        return self.wait().__await__()

    async def wait(self) -> SendResult:
        """Wait for the outcome of the send. Raises SendFailed (definitely not stored) or
        SendUnknown.

        Cancelling the wait does not stop the message.
        """
        await self.wait_until_settled()
        return self.result()

    async def wait_until_settled(self) -> None:
        """Wait until the outcome is known, whatever it is."""
        while not self.settled:
            event = anyio.Event()
            self._when_settled(event.set)
            await event.wait()

    def add_callback(self, callback: Callable[[PendingSend], None]) -> None:
        """Call `callback(self)` once the outcome is known, or at once if it is known already.

        The callback runs in the client's event loop between two messages: it must be quick and not
        raise.
        """
        if self.settled:
            callback(self)
        else:
            self._when_settled(partial(self.add_callback, callback))


class PendingSlot(Slot, PendingSend):
    """A pending send with a place of its own in a batch."""

    __slots__ = ()

    def _when_settled(self, listener: Callable[[], None]) -> None:
        self.batch.listeners.append(listener)
