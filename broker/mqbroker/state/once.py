"""Entries that are written exactly once: outputs of any topics, and how far their inputs are
consumed. Pure.

A named producer's write is one entry of messages. Its first two records are in `OP_TOPIC`: a mark,
and a note of who wrote it (`mqbroker.state.producers`) and which offsets of a consumer group it
moves on; the other records are the outputs, a part for each topic. So outputs and offsets come
together or not at all, and nobody sees half of them.

The offset of a queue goes from where the consumer began to where it ended. The leader appends only
what begins at the group's present offset. If an operator has set the offset in the moment between,
what was set stands.

A write may decide a batch: then its note has the batch's number and what it consists of, for
whoever asks (docs/explanation/spark-sink.md). It has a mark of its own.

The mark reads like a move out of a topic that no version has: a replica that is too old for such
entries stops at one, and its state can't differ from the others'.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from dledger.buffers import Buffer
from dledger.remoting.numbers import INT64_MAX
from mqbroker import limits
from mqbroker.state.aside import Unusable, decoded
from mqbroker.state.groups.offsets import ConsumerOffsets
from mqbroker.state.producers import Stamp
from mqbroker.state.topics import Topics

MARK: Final = b"WRITTEN-ONCE 0"
DECISION_MARK: Final = b"WRITTEN-ONCE 1"
OnceT = TypeVar("OnceT", bound="Once")
NOTES: Final = 2
"""Records before the outputs: the mark, and the note."""


class OffsetMove(msgspec.Struct, frozen=True, array_like=True):
    """A group goes on in a queue: it began at `begin`, and goes on at `end`; before that if its
    consumer has sought back."""

    topic: str
    queue_id: int
    begin: int
    end: int


class Once(msgspec.Struct, frozen=True, array_like=True):
    """The note that makes an entry exactly-once. `sizes` are the lengths of its parts in bytes, in
    order."""

    name: str
    epoch: int
    stream: int
    sequence: int
    group: str
    moves: list[OffsetMove]
    sizes: list[int]

    @property
    def stamp(self) -> Stamp:
        """Name, epoch, stream and sequence number of the writer."""
        return Stamp(self.name, self.epoch, self.stream, self.sequence)


class Decision(Once, frozen=True, array_like=True):
    """The note of a write that decides a batch; `content` is its writer's."""

    batch: int
    content: bytes


def mark_of(once: Once) -> bytes:
    """The mark before a note."""
    return DECISION_MARK if isinstance(once, Decision) else MARK


def decode_decision(body: Buffer) -> Decision:
    """The note of a decision. Raises Unusable for what no leader writes."""
    decision = _decoded(body, Decision)
    if not (
        0 <= decision.batch <= INT64_MAX and len(decision.content) <= limits.DECISION_BYTES_MAX
    ):
        raise Unusable(f"it decides no batch that a producer has: {decision.batch}")
    return decision


def decode_once(body: Buffer) -> Once:
    """The note in a record's body. Raises Unusable for bytes that no leader writes."""
    return _decoded(body, Once)


def _decoded(body: Buffer, kind: type[OnceT]) -> OnceT:
    once = decoded(body, kind, "it says that it is written once, and not by whom")
    if not (
        0 <= once.stream < limits.STREAMS_PER_PRODUCER_MAX
        and 0 < once.epoch <= INT64_MAX
        and 0 <= once.sequence <= INT64_MAX
        and all(size > 0 for size in once.sizes)
    ):
        raise Unusable(f"it is no write that a producer makes: {once.stamp!s:.200}")
    for move in once.moves:
        if not (
            0 <= move.queue_id < limits.QUEUES_IN_STATE_MAX
            and min(move.begin, move.end) >= 0
            and max(move.begin, move.end) <= INT64_MAX
        ):
            raise Unusable(f"it takes a group from {move.begin} to {move.end} in a queue")
    return once


def move_offsets(once: Once, offsets: ConsumerOffsets, topics: Topics) -> list[OffsetMove]:
    """Move the group's offsets on, in topics that are there; returns the moves that were made."""
    made = []
    for move in once.moves:
        present = offsets.get(once.group, move.topic, move.queue_id)
        if topics.get(move.topic) is not None and present in (None, move.begin):
            offsets.commit(once.group, move.topic, move.queue_id, move.end)
            made.append(move)
    return made
