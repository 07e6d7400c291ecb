"""Notes about messages for the history: where a message was stored, and who was given it."""

from __future__ import annotations

import math
import time

import trio

from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.remoting.message import KEYS, TAGS, sender_crc
from mqchaos.history.events import Ack, Deliver, Send
from mqchaos.limits import CLOCK_STEP_NS, NS_PER_S
from mqclient import Message, PoppedMessage, ReceivedMessage, SendResult


def sent(
    now: int,
    client: str,
    message: Message,
    unique_key: str,
    due: int | None = None,
    transaction: str | None = None,
    expires: int | None = None,
) -> Send:
    """The event of a message that is about to be sent."""
    body, keys = message.body, message.keys
    return Send(
        now,
        client,
        unique_key,
        message.topic,
        keys if isinstance(keys, str) else " ".join(keys),
        crc32(body),
        len(body),
        due,
        transaction,
        expires,
        message.priority,
        said(message),
    )


def acknowledged(client: str, result: SendResult, *, waits: bool = False) -> Ack:
    """The event of a message that was stored."""
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


def said(message: Message) -> int:
    """Checksum of all that an application says of a message beside its body."""
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    named = {**(message.properties or {}), KEYS: keys, TAGS: message.tags}
    return sender_crc(named, message.flag)


def popped(client: str, reader: str, message: PoppedMessage) -> Deliver:
    """The event of a message that a member was given for a time."""
    # The harness's clock is read first: what lies between the two makes the moment earlier.
    now, now_s = time.monotonic_ns(), trio.current_time()
    asked = None
    if not message.redelivered:
        asked = now - math.ceil((now_s - message.asked_s) * NS_PER_S) - CLOCK_STEP_NS
    return delivered(client, reader, message, message.pop_time_ms, asked)


def delivered(
    client: str,
    reader: str,
    message: ReceivedMessage,
    pop_time: int | None = None,
    asked: int | None = None,
) -> Deliver:
    """The event of a message that a reader was given."""
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
        asked,
        sender_crc(message.properties, message.record.flag),
    )
