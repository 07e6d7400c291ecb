"""The entries by which messages are popped and given back, and what they do. Pure.

A POP is an entry: it names what its member gets, as bits, so every replica knows what is in flight,
and the member is answered when it is committed. What members give back (acks) and keep longer, or
shorter (changes), is gathered, many requests in one entry. The leader's clock is in them; a replica
never asks its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from dledger.remoting.numbers import INT64_MAX
from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.groups.bits import bits_from_bytes
from mqbroker.state.groups.offsets import ConsumerOffsets
from mqbroker.state.groups.popped import Again, Granted, Popped, Take

OFFSET_MAX: Final = INT64_MAX // 2


class PopQueue(msgspec.Struct, frozen=True, array_like=True):
    """The messages that a POP takes of a queue: see `mqbroker.state.groups.popped.Take`. With
    `expected` -2 it takes no new ones. `again` are rows of (fence, base, bits)."""

    queue_id: int
    expected: int
    cursor: int
    base: int
    bits: bytes
    again: list[tuple[int, int, bytes]] = []


class PopMessages(msgspec.Struct, frozen=True):
    """Hand messages of a topic out to a member of a group, until `visible_ms`."""

    group: str
    topic: str
    queues: list[PopQueue]
    now_ms: int
    visible_ms: int
    attempt_id: str = ""
    repeats: bool = False


class PopAck(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a queue that were handed out under a fence are done."""

    group: str
    topic: str
    queue_id: int
    fence: int
    base: int
    bits: bytes


class PopChange(msgspec.Struct, frozen=True, array_like=True):
    """Messages that are visible at another time: see
    `mqbroker.state.groups.popped.Popped.change`."""

    group: str
    topic: str
    queue_id: int
    fence: int
    base: int
    bits: bytes
    visible_ms: int
    uncounted: bool = False
    keeps_fence: bool = False


class SettlePopped(msgspec.Struct, frozen=True):
    """Members of groups are through with messages, or want them hidden for another time."""

    acks: list[PopAck]
    changes: list[PopChange]
    now_ms: int


class Settled(NamedTuple):
    """The effect of an entry's rows: the messages that were in flight, as bits from each row's base
    on; a change has their new fence, too."""

    acked: Sequence[int]
    changed: Sequence[tuple[int, int]]


def pop(change: PopMessages, popped: Popped, offsets: ConsumerOffsets) -> Granted:
    """Hand out; the group's offsets follow."""
    takes = [
        Take(
            each.queue_id,
            each.expected,
            each.cursor,
            each.base,
            bits_from_bytes(each.bits),
            [Again(fence, base, bits_from_bytes(bits)) for fence, base, bits in each.again],
        )
        for each in change.queues
    ]
    granted = popped.pop(
        change.group,
        change.topic,
        takes,
        change.now_ms,
        change.visible_ms,
        change.attempt_id,
        repeats=change.repeats,
    )
    for take in takes:
        follow(popped, offsets, change.group, change.topic, take.queue_id)
    return granted


def settle(change: SettlePopped, popped: Popped, offsets: ConsumerOffsets) -> Settled:
    """Take back what is acknowledged, then hide the rest for other times."""
    acked = [
        popped.ack(each.group, each.topic, each.queue_id, _named(each)) for each in change.acks
    ]
    changed = [
        popped.change(
            each.group,
            each.topic,
            each.queue_id,
            _named(each),
            change.now_ms,
            each.visible_ms,
            uncounted=each.uncounted,
            keeps_fence=each.keeps_fence,
        )
        for each in change.changes
    ]
    for queue in dict.fromkeys((each.group, each.topic, each.queue_id) for each in change.acks):
        follow(popped, offsets, *queue)
    return Settled(acked, changed)


def follow(popped: Popped, offsets: ConsumerOffsets, group: str, topic: str, queue_id: int) -> None:
    """A group's offset is the lowest that is not acknowledged."""
    queue = popped.queue(group, topic, queue_id)
    if queue is not None:
        offsets.commit(group, topic, queue_id, queue.committed)


def _named(row: PopAck | PopChange) -> Again:
    return Again(row.fence, row.base, bits_from_bytes(row.bits))


def check_pop(change: PopMessages) -> None:
    """Raise Unusable for what no leader writes."""
    _check_time(change.visible_ms)
    for queue in change.queues:
        _check_queue(queue)


def check_settling(change: SettlePopped) -> None:
    """Raise Unusable for what no leader writes."""
    for ack in change.acks:
        _check_bits(ack.base, ack.bits)
    for each in change.changes:
        _check_bits(each.base, each.bits)
        _check_time(each.visible_ms)


def _check_time(at_ms: int) -> None:
    if not 0 <= at_ms <= limits.TIME_MS_MAX:
        raise Unusable(f"it hides messages until {at_ms} ms, which is no time")


def _check_queue(queue: PopQueue) -> None:
    """New messages lie between the cursor that is expected and the one that it goes to."""
    end = queue.base + _check_bits(queue.base, queue.bits)
    is_new = any(queue.bits)
    if not (
        0 <= queue.queue_id < limits.QUEUES_IN_STATE_MAX
        and -2 <= queue.expected <= OFFSET_MAX
        and 0 <= queue.cursor <= OFFSET_MAX
        and (not is_new or queue.expected <= queue.base < end <= queue.cursor)
    ):
        raise Unusable(
            f"it pops messages {queue.base} to {end} of queue {queue.queue_id}, whose cursor goes "
            f"from {queue.expected} to {queue.cursor}"
        )
    for _, base, bits in queue.again:
        _check_bits(base, bits)


def _check_bits(base: int, bits: bytes) -> int:
    """How far a bitmap reaches from its base on."""
    if not 0 <= base <= OFFSET_MAX or len(bits) > limits.POP_BITS_BYTES_MAX:
        raise Unusable(f"it has {len(bits)} bytes of bits from message {base} on")
    return bits_from_bytes(bits).bit_length()
