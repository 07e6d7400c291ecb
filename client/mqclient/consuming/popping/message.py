"""A message that was popped: it is this consumer's for a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.receipts import write_receipt
from mqclient.models import ReceivedMessage


class PoppedMessage(ReceivedMessage):
    """A `ReceivedMessage` with what names its delivery. `until_s` is when others may get it, by
    this process's monotonic clock; `since_s` is when it came, and `asked_s` the moment before it
    was asked for."""

    __slots__ = (
        "_handed_out",
        "asked_s",
        "invisible_s",
        "ordered",
        "pop_time_ms",
        "since_s",
        "until_s",
    )

    def __init__(
        self,
        data: memoryview,
        broker_name: str,
        pop_time_ms: int,
        invisible_s: float,
        now_s: float,
        *,
        asked_s: float,
        ordered: bool = False,
        handed_out: bool = False,
    ) -> None:
        super().__init__(data, broker_name)
        self.pop_time_ms = pop_time_ms
        self.invisible_s = invisible_s
        self.asked_s = asked_s
        self.since_s = now_s
        self.until_s = now_s + invisible_s
        self.ordered = ordered
        self._handed_out = handed_out

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handed out before: to others, or in an answer that was lost.

        If not, nobody of the group has had it since its offset was set. One that was given back
        before anybody had it is redelivered, though that counts as no delivery.
        """
        return self._handed_out or self.reconsume_times > 0

    @property
    def deliveries(self) -> int:
        """How often it was handed out, this time included."""
        return self.reconsume_times + 1

    @property
    def receipt(self) -> str:
        """RocketMQ's handle of it (POP_CK)."""
        return write_receipt(
            self.pop_time_ms,
            int(self.invisible_s * 1000),
            self.broker_name,
            self.queue_id,
            self.queue_offset,
            ordered=self.ordered,
        )


def by_delivery(
    messages: Iterable[PoppedMessage],
) -> Iterator[tuple[MessageQueue, list[PoppedMessage], int]]:
    """Messages that were handed out together: their queue, they in the order of their offsets, and
    a bit for each from the first one's on."""
    found: dict[tuple[MessageQueue, int], list[PoppedMessage]] = {}
    for message in messages:
        found.setdefault((message.queue, message.pop_time_ms), []).append(message)
    for (queue, _), some in found.items():
        some.sort(key=_offset)
        base = some[0].queue_offset
        bits = 0
        for message in some:
            bits |= 1 << message.queue_offset - base
        yield queue, some, bits


def _offset(message: PoppedMessage) -> int:
    return message.queue_offset
