"""How a message names the parts of its body: one property of text. Pure.

The set's id, size, CRC-32, topic, broker group, queue and offsets, separated by blanks; the offsets
as runs, `7-9,12`. All parts lie in one queue, whose offsets name the same bytes for ever. Each part
bears the set's id, so that others are not taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import LARGE_BODY, LARGE_PART, PARTS_PREFIX
from dledger.remoting.numbers import is_number
from mqclient import limits
from mqclient.models import Message
from mqclient.user_properties import OwnProperties

_FIELDS = 7


class Manifest(NamedTuple):
    """The parts of a body. `runs` are first and last offsets."""

    set_id: str
    size_bytes: int
    crc: int
    queue: MessageQueue
    runs: Sequence[tuple[int, int]]

    def encode(self) -> str:
        """The manifest as the property's value."""
        queue = self.queue
        runs = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.runs)
        place = f"{queue.topic} {queue.broker_name} {queue.queue_id} {runs}"
        return f"{self.set_id} {self.size_bytes} {self.crc:08x} {place}"

    @classmethod
    def decode(cls, text: str) -> Manifest:
        """Read a manifest from its text. Raises BadInput for a text that no producer of ours
        writes."""
        fields = text.split(" ")
        if len(fields) != _FIELDS or len(text) > limits.LARGE_MANIFEST_CHARACTERS_MAX:
            raise _unreadable(text)
        set_id, size, crc, topic, broker_name, queue_id, places = fields
        try:
            runs = [_run(place) for place in places.split(",")]
            manifest = cls(
                set_id,
                _number(size, limits.LARGE_BODY_BYTES_MAX),
                int(crc, 16),
                MessageQueue(topic, broker_name, _number(queue_id, limits.QUEUES_PER_TOPIC_MAX)),
                runs,
            )
        except ValueError as error:
            raise _unreadable(text) from error
        count = sum(last - first + 1 for first, last in runs)
        in_order = all(last < after for (_, last), (after, _) in pairwise(runs))
        if not topic.startswith(PARTS_PREFIX) or not in_order or count > limits.LARGE_PARTS_MAX:
            raise _unreadable(text)
        return manifest


def runs_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of neighbours in ascending offsets."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def parts_of(message: Message, set_id: str) -> Iterator[Message]:
    """The parts of a message's body, as messages."""
    own = OwnProperties.of(None, {LARGE_PART: set_id})
    for at in range(0, len(message.body), limits.LARGE_PART_BYTES):
        piece = bytes(message.body[at : at + limits.LARGE_PART_BYTES])
        yield Message(PARTS_PREFIX + message.topic, piece, properties=own)


def _run(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    begin = _number(first, limits.OFFSET_MAX)
    end = _number(last, limits.OFFSET_MAX) if dash else begin
    if end < begin:
        raise ValueError(f"{text} ends before it begins")
    return begin, end


def _number(text: str, most: int) -> int:
    if not is_number(text, limits.OFFSET_DIGITS_MAX):
        raise ValueError(f"{text[:40]!r} is not a number")
    value = int(text)
    if value > most:
        raise ValueError(f"{value} is above {most}")
    return value


def _unreadable(text: str) -> BadInput:
    return BadInput(f"the property {LARGE_BODY} names no parts of a body: {text[:200]!r}")
