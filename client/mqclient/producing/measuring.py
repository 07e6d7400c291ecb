"""Figures of a producer that is made with metrics: counted by batches, not by messages.

What is refused before it is in a batch is counted here, too, around the calls that refuse it. A
producer without metrics has a plain outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from dledger.errors import DledgerError
from dledger.world import steady_s
from mqclient.metrics import Labels, MeasuredClient, Metrics
from mqclient.models import Message
from mqclient.producing.batch import Batch, Kind, Slot
from mqclient.producing.batching import Budget
from mqclient.producing.outbox import Outbox

About: TypeAlias = "str | Message | Sequence[Message]"
CallT = TypeVar("CallT", bound="Callable[..., Any]")


class Measured(MeasuredClient):
    """The numbers of one producer."""

    def __init__(self, metrics: Metrics, group: str, budget: Budget) -> None:
        super().__init__(metrics, group, self._values)
        self._budget = budget

    def ended(self, batch: Batch) -> None:
        """A batch is acknowledged, or nothing is left of it."""
        labels = (self._group, batch.topic)
        if batch.ack is not None:
            self._counted.add("sends", labels, batch.count - batch.late)
            if batch.kind is not Kind.ONEWAY:
                self._counted.observe("send_duration", labels, steady_s() - batch.opened_s)
        if batch.delivery.attempt > 1:
            self._counted.add("send_retries", labels, batch.delivery.attempt - 1)

    def failed(self, slots: Iterable[Slot]) -> None:
        """Count messages that have failed just now."""
        for slot in slots:
            if slot.error is not None:
                self._fail(slot.batch.topic, slot.error, slot.count)

    def refused(self, about: About, error: DledgerError) -> None:
        """A call did not hand over what it was given."""
        first = about if isinstance(about, str | Message) else about[0]
        self._fail(first if isinstance(first, str) else first.topic, error, 1)

    def _fail(self, topic: str, error: DledgerError, count: int) -> None:
        self._counted.add("send_failures", (self._group, topic, type(error).__name__), count)

    def _values(self) -> Iterable[tuple[str, Labels, float]]:
        budget, labels = self._budget, (self._group,)
        yield "pending_messages", labels, budget.messages
        yield "pending_messages_limit", labels, budget.messages_max
        yield "pending", labels, budget.size_bytes
        yield "pending_limit", labels, budget.bytes_max


def _counting(method: CallT) -> CallT:
    """A call of an outbox that counts what it refuses."""

    @wraps(method)
    def call(outbox: MeasuredOutbox, about: About, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(outbox, about, *args, **kwargs)
        except DledgerError as error:
            outbox.measured.refused(about, error)
            raise

    return cast("CallT", call)


class MeasuredOutbox(Outbox):
    """An outbox that counts the messages it refuses."""

    measured: Measured

    check_room = _counting(Outbox.check_room)
    choose = _counting(Outbox.choose)
    choose_each = _counting(Outbox.choose_each)
    gather = _counting(Outbox.gather)
    put = _counting(Outbox.put)
    put_together = _counting(Outbox.put_together)
    chunks = _counting(Outbox.chunks)

    async def wait_ready(self, topic: str, timeout_s: float, *, for_any: bool) -> None:
        """Wait until there is room, and count it if there is none, or no route."""
        try:
            await super().wait_ready(topic, timeout_s, for_any=for_any)
        except DledgerError as error:
            self.measured.refused(topic, error)
            raise
