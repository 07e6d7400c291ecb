"""Sends a message whose body is too large for one record: first the parts, then the message.

The parts go to one queue of their topic, in the broker group that the message is to go to: so a
group that is away has all of a message, or nothing. If one of them is not stored, or its outcome is
unknown, the message is certainly not sent: what is stored of it stays there, unseen, until
retention removes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import uuid4
from zlib import crc32

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import LARGE_BODY
from dledger.world import seconds_left
from mqclient import limits
from mqclient.errors import BadMessage, SendError, SendFailed
from mqclient.large.manifest import Manifest, parts_of, runs_of
from mqclient.models import Message, Selector, SendResult
from mqclient.user_properties import OwnProperties, check_properties, keys_text


class Pending(Protocol):
    """A message on its way."""

    def wait(self) -> Awaitable[SendResult]:
        """Wait for the outcome of the send."""


class Sender(Protocol):
    """The calls of a producer that send parts."""

    async def send(
        self, message: Message, *, selector: Selector | None = None, timeout_s: float | None = None
    ) -> SendResult:
        """Send one, and wait for it."""

    async def send_soon(
        self, message: Message, *, selector: Selector | None = None, timeout_s: float | None = None
    ) -> Pending:
        """Hand over one message; the send goes on while the caller does other work."""


def check_large(message: Message) -> None:
    """Raises BadMessage for what can't be sent in parts."""
    size_bytes = len(message.body)
    if size_bytes > limits.LARGE_BODY_BYTES_MAX:
        raise BadMessage(
            f"a body of {size_bytes} bytes to topic {message.topic!r}; in parts at most "
            f"{limits.LARGE_BODY_BYTES_MAX} are sent"
        )
    if message.delayed:
        raise BadMessage(
            f"a message to topic {message.topic!r} with a body of {size_bytes} bytes can't be "
            "delayed: its parts are stored now, and may be removed before it is delivered"
        )
    try:
        check_properties(message.properties or {})
        keys_text(message.keys)
    except BadInput as error:
        raise BadMessage(f"message to topic {message.topic!r}: {error}") from error


async def store_parts(
    sender: Sender, message: Message, broker_name: str | None, deadline_s: float
) -> Message:
    """Store the parts of a message's body, in this broker group if it can have them; the message
    that is to be sent then.

    Raises SendFailed, or NoRoute and what else a producer raises before anything is sent.
    """
    check_large(message)
    set_id = uuid4().hex
    first, *others = parts_of(message, set_id)
    try:
        stored = [
            await sender.send(
                first,
                selector=lambda queues, _part: _one_of(queues, broker_name, set_id),
                timeout_s=seconds_left(deadline_s),
            )
        ]
        queue = MessageQueue(first.topic, stored[0].broker_name, stored[0].queue_id)
        pending = [
            await sender.send_soon(
                part,
                selector=lambda _queues, _part: queue,
                timeout_s=seconds_left(deadline_s),
            )
            for part in others
        ]
        stored += [await each.wait() for each in pending]
    except SendError as error:
        raise SendFailed(
            f"a part of its body was not stored, so it was not sent: {error.reason}",
            message.topic,
            error.broker_name,
            message.unique_key or set_id,
        ) from error
    body = message.body
    offsets = runs_of([each.queue_offset for each in stored])
    manifest = Manifest(set_id, len(body), crc32(body), queue, offsets)
    properties = OwnProperties.of(message.properties, {LARGE_BODY: manifest.encode()})
    return replace(message, body=b"", properties=properties)


def always(queue: MessageQueue) -> Selector:
    """A selector that always chooses this queue."""
    return lambda _queues, _message: queue


def _one_of(queues: Sequence[MessageQueue], broker_name: str | None, set_id: str) -> MessageQueue:
    """A queue of this group, if there is one."""
    of_group = [queue for queue in queues if queue.broker_name == broker_name] or queues
    return of_group[int(set_id, 16) % len(of_group)]
