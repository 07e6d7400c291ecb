"""Steering a consumer: where in its queues it reads, which of them it hands out, how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.arguments import check_whole
from mqclient.connection.lifetime import Living
from mqclient.connection.session import Session
from mqclient.consuming.assignment import Assignment
from mqclient.consuming.fetching import QueueFetcher
from mqclient.consuming.handout import HandOut
from mqclient.consuming.sharing.starts import Start, check_start, offset_of
from mqclient.errors import ClientClosed, NotAssigned
from mqclient.models import ReceivedMessage
from mqclient.signatures import checked


@checked
class Steered(Living):
    """A consumer, as far as its queues go."""

    group: str | None
    _session: Session
    _assignment: Assignment | None
    _handout: HandOut

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer has at the moment."""
        return tuple(sorted(self._assigned().fetchers))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading `queue` at `offset`. Raises NotAssigned unless the queue is ours."""
        fetcher = self._reading(queue, "seek")
        fetcher.progress.seek(check_whole("offset", offset, 0, limits.OFFSET_MAX))
        fetcher.restart()

    async def seek_to(self, queue: MessageQueue, start: Start) -> int:
        """Go on reading `queue` at its "first" message, behind its "last", or at a time.

        The offset. Raises NotAssigned unless the queue is ours; Refused, or another ClientError or
        RemotingError, if its broker can't be asked.
        """
        self._reading(queue, "seek")
        offset = await offset_of(self._session.finder, queue, check_start(start, "seek_to"))
        self.seek(queue, offset)
        return offset

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out no more of these queues, or of all. Raises NotAssigned for one that isn't ours.

        The queues stay with this consumer, and messages in hand may be finished.
        """
        for fetcher in self._chosen(queues, "pause"):
            fetcher.progress.paused = True

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all. Raises NotAssigned for one that isn't ours."""
        for fetcher in self._chosen(queues, "resume"):
            fetcher.progress.paused = False
        self._handout.arrived.announce()

    def paused(self) -> tuple[MessageQueue, ...]:
        """The queues that are paused. A queue that was lost and gained again is not paused."""
        readings = self._readings().items()
        return tuple(sorted(queue for queue, fetcher in readings if fetcher.progress.paused))

    def _paused(self) -> list[MessageQueue]:
        """The queues that are paused, for brokers, at any moment of this consumer's life."""
        assignment = self._assignment
        readings = {} if assignment is None else assignment.fetchers
        return [queue for queue, fetcher in readings.items() if fetcher.progress.paused]

    def _chosen(self, queues: Sequence[MessageQueue], purpose: str) -> list[QueueFetcher]:
        return [self._reading(queue, purpose) for queue in queues or self.queues]

    def lag(self) -> dict[MessageQueue, int]:
        """Messages not processed yet by queue, as of the last answer of each queue's broker."""
        fetchers = self._assigned().fetchers
        return {queue: fetcher.progress.lag for queue, fetcher in fetchers.items()}

    async def next_after(self, message: ReceivedMessage | None) -> ReceivedMessage | None:
        """Wait for the next message; `message` is handled. For handlers in the caller's thread.
        None if there will be none."""
        self.check_open()
        return await self._handout.next_after(message)

    async def give_back(self, message: ReceivedMessage) -> None:
        """Give back `message`, which was not handled, and is the next again. For handlers in the
        caller's thread."""
        self.check_open()
        self._handout.give_back(message)

    def _fetchers(self) -> Mapping[MessageQueue, QueueFetcher]:
        """All at this moment; asked for in any thread."""
        return {} if self._assignment is None else dict(self._assignment.fetchers)

    def _readings(self) -> Mapping[MessageQueue, QueueFetcher]:
        return self._assigned().fetchers

    def _reading(self, queue: MessageQueue, purpose: str) -> QueueFetcher:
        fetcher = self._readings().get(queue)
        if fetcher is None:
            raise NotAssigned(
                f"can't {purpose}: {queue} is not read by this consumer of group {self.group!r}, "
                f"which has {len(self._readings())} queues. A rebalance may have moved it: what "
                "was not committed is delivered to its reader"
            )
        return fetcher

    def _assigned(self) -> Assignment:
        if self._assignment is None:
            self.check_open()
            raise ClientClosed(
                f"the consumer of group {self.group!r} is not open: use it inside its `with` block"
            )
        return self._assignment
