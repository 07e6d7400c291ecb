"""Moves: messages leave one of the broker's own queues for their real topic, in one entry. Pure.

A delayed message is stored twice: first in `SCHEDULE_TOPIC_XXXX`, in the queue of its delay level,
and when it is due once more, in its real topic. If the second copy and the note of it were two
entries, a message would be delivered twice or never if the leader died between them. So both are
one entry of messages: its first record is in `OP_TOPIC` and says which offsets of which queue are
taken; the other records are the messages as they are delivered, of any topics. (The idea is that of
RocketMQ's op records of transactions, made atomic.) Only a leader writes into `OP_TOPIC`.

An op record's body is text, ``<topic> <queue id> <first>-<end> <first>-<end> ...``; an end is
exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dledger.buffers import Buffer
from mqbroker.state.aside import Unusable

_MOVE: Final = re.compile(rb"[A-Za-z0-9%|_-]+ [0-9]{1,9}(?: [0-9]{1,18}-[0-9]{1,18})*")


class Move(NamedTuple):
    """The offsets that an entry takes out of a queue: ranges of (first, end)."""

    topic: str
    queue_id: int
    ranges: tuple[tuple[int, int], ...]


def encode_move(move: Move) -> bytes:
    """The body of an op record."""
    ranges = (f"{first}-{end}" for first, end in move.ranges)
    return " ".join((move.topic, str(move.queue_id), *ranges)).encode()


def decode_move(body: Buffer) -> Move:
    """The move that `encode_move` wrote. Raises Unusable if it is something else."""
    match = _MOVE.fullmatch(body)
    if match is None:
        raise Unusable("its op record is no move")
    topic, queue_id, *ranges = str(body, "ascii").split(" ")
    pairs = [part.split("-") for part in ranges]
    return Move(topic, int(queue_id), tuple((int(first), int(end)) for first, end in pairs))


class Delays:
    """The first offset that is not delivered, for each queue of delayed messages."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def next(self, queue_id: int) -> int:
        """The first offset of the level's queue that was not taken."""
        return self._next.get(queue_id, 0)

    def check(self, move: Move) -> None:
        """Raise Unusable if messages were delivered before."""
        next_offset = self.next(move.queue_id)
        for first, end in move.ranges:
            if not next_offset <= first < end:
                raise Unusable(
                    f"it delivers the delayed messages {first} to {end} of queue {move.queue_id}, "
                    f"but all before {next_offset} were already"
                )
            next_offset = end

    def take(self, move: Move) -> None:
        """Note that messages were delivered. They must have been checked."""
        for _, end in move.ranges:
            self._next[move.queue_id] = end

    def dump(self) -> dict[int, int]:
        """The rows for a snapshot."""
        return dict(self._next)

    def restore(self, next_offsets: Mapping[int, int]) -> None:
        """Take over what a snapshot kept."""
        self._next = dict(next_offsets)


def ranges_of(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending offsets as ranges of (first, end)."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges)
