"""Figures of a producer that is made with metrics: counted by batches, not by messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dledger.errors import DledgerError
from dledger.world import steady_s
from mqclient.metrics import Labels, MeasuredClient, Metrics
from mqclient.models import Message
from mqclient.producing.batch import Batch, Kind, Slot
from mqclient.producing.batching import Budget

About: TypeAlias = "str | Message | Sequence[Message]"


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
