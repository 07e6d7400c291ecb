"""What the history is told of a message: where it was stored, and who was given it."""

from __future__ import annotations

import time

from dledger.checksum import crc32
from dledger.errors import RecordError
from mqchaos.run.history import Ack, Deliver
from mqclient import ReceivedMessage, SendResult


def acknowledged(client: str, result: SendResult, *, waits: bool = False) -> Ack:
    """What is noted of a message that was stored."""
    return Ack(
        time.monotonic_ns(),
        client,
        result.message_id,
        result.topic,
        result.broker_name,
        result.queue_id,
        result.queue_offset,
        result.position,
        waits,
    )


def delivered(
    client: str, reader: str, message: ReceivedMessage, pop_time: int | None = None
) -> Deliver:
    """What is noted of a message that a reader was given."""
    try:
        body: bytes | memoryview = message.body
    except RecordError:
        body = message.record.body  # as it arrived: the judge will see that it is another
    return Deliver(
        time.monotonic_ns(),
        client,
        reader,
        message.topic,
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.message_id,
        crc32(body),
        pop_time,
    )
