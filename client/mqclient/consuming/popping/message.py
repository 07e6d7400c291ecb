"""A popped message: it belongs to this consumer for a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.receipts import write_receipt
from dledger.remoting.record import COMPRESSED
from mqclient import limits
from mqclient.models import ReceivedMessage


class PoppedMessage(ReceivedMessage, kw_only=True, eq=False, gc=False):
    """A `ReceivedMessage` with the data of its delivery.

    From `until_s` on other members may get the message. It came at `since_s`; `asked_s` is the
    moment before the pop was sent. All three are times of this process's monotonic clock.
    """

    pop_time_ms: int
    invisible_s: float
    since_s: float
    asked_s: float
    ordered: bool = False
    handed_out: bool = False
    until_s: float = 0.0

    def __post_init__(self) -> None:
        self.until_s = self.since_s + self.invisible_s

    @property
    def redelivered(self) -> bool:
        """Whether the message may have been handed out before: to others, or in a lost answer.

        If not, no member of the group has had it since the group's offset was set. A message that
        was given back before any member had it is redelivered, though that does not count as a
        delivery.
        """
        return self.handed_out or self.reconsume_times > 0

    @property
    def deliveries(self) -> int:
        """The number of times that the message was handed out, including this time."""
        return self.reconsume_times + 1

    @property
    def hand_bytes(self) -> int:
        """Bytes that the message may take in memory while it is in hand: its body may be fetched in
        parts, or be inflated."""
        if not self.large_bytes and self.record.sys_flag & COMPRESSED:
            return self.size_bytes + limits.INFLATED_BODY_BYTES_MAX
        return self.held_bytes

    @property
    def receipt(self) -> str:
        """RocketMQ's handle of the delivery (POP_CK)."""
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
    """Messages grouped by the delivery that handed them out: the queue, the messages in the order
    of their offsets, and a bitmap of their offsets from the first message's on."""
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
