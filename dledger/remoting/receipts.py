"""The handle of a popped message, by which its receiver acknowledges it; and the handle of a
message that waits for its time, by which its sender takes it back. Pure.

The first is RocketMQ's POP_CK: eight words, ``<first offset> <pop time> <invisible time> <revive
queue> <flag> <broker> <queue> <offset>``. Here the pop time names the delivery: a broker gives each
delivery of a queue's messages another one. The others only say which message it is; the revive
queue is 999 for ordered pops. A batch of acks names messages by bits from the first offset on.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from dledger.errors import BadInput
from dledger.remoting.numbers import INT64_MAX

ORDERED_QUEUE: Final = 999
"""The revive queue in the handles of ordered pops."""
_WORDS: Final = 8
_LONGEST: Final = len(str(INT64_MAX))
_RECALL_VERSION: Final = "v1"
_RECALL_WORDS: Final = 5


class RecallHandle(NamedTuple):
    """Names a message that waits for its time, in RocketMQ's format; `due_ms` is text, as on the
    wire."""

    topic: str
    broker_name: str
    due_ms: str
    unique_key: str

    def encode(self) -> str:
        """The text that clients get."""
        return urlsafe_b64encode(" ".join((_RECALL_VERSION, *self)).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """The handle that `encode` wrote as text. Raises BadInput if it is something else."""
        try:
            words = urlsafe_b64decode(text.encode()).decode().split(" ")
        except (binascii.Error, UnicodeError):
            words = []
        if len(words) != _RECALL_WORDS or words[0] != _RECALL_VERSION:
            raise BadInput(f"{text[:200]!r} is not a valid recall handle")
        return cls(*words[1:])


class Receipt(NamedTuple):
    """The fields of a handle that a broker needs."""

    pop_time: int
    ordered: bool
    queue_id: int
    offset: int


def read_receipt(text: str) -> Receipt:
    """Raises BadInput for what is no handle."""
    words = text.split(" ")
    if len(words) != _WORDS:
        raise BadInput(f"the handle {text[:80]!r} has {len(words)} words, expected {_WORDS}")
    numbers = [words[number] for number in (1, 3, 6, 7)]
    if not all(word.isdecimal() and word.isascii() and len(word) <= _LONGEST for word in numbers):
        raise BadInput(f"the handle {text[:80]!r} has a word that is not a number")
    pop_time, revive, queue_id, offset = map(int, numbers)
    if max(pop_time, offset) > INT64_MAX:
        raise BadInput(f"the handle {text[:80]!r} has a number above {INT64_MAX}")
    return Receipt(pop_time, revive == ORDERED_QUEUE, queue_id, offset)


def write_receipt(
    pop_time: int,
    invisible_ms: int,
    broker_name: str,
    queue_id: int,
    offset: int,
    *,
    ordered: bool = False,
) -> str:
    """The handle of a message of an ordinary topic."""
    revive = ORDERED_QUEUE if ordered else 0
    return f"{offset} {pop_time} {invisible_ms} {revive} 0 {broker_name} {queue_id} {offset}"


def read_bits(text: str, bytes_max: int) -> int:
    """Bits as batches of acks write them, the lowest first. Raises BadInput."""
    try:
        data = b64decode(text, validate=True)
    except ValueError as error:
        raise BadInput(f"the bits {text[:80]!r} are not Base64") from error
    if len(data) > bytes_max:
        raise BadInput(f"{len(data)} bytes of bits are above {bytes_max}")
    return int.from_bytes(data, "little")


def write_bits(bits: int) -> str:
    """The text of some bits, as `read_bits` reads it."""
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
