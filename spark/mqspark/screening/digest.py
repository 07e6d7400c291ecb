"""The digest: one row a message, made of all statements about it. Pure.

It has counts, and the least and the most of every value on which sources must agree. Where least
and most are equal all sources agree. The few messages for which they do not, or of which something
is missing, are suspects: only their testimony is read again, and judged exactly. A digest misses
nothing: any violation of property 1, 2 or 9 differs in one of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from mqspark.screening.packets import (
    NONE,
    SLOT,
    SUSPECT,
    WAITER,
    Flags,
    Numbers,
    Rows,
    rows_of,
    run_starts,
)
from mqspark.screening.testimony import (
    ACK,
    DELIVER,
    FAIL,
    HELD,
    RESOLVE,
    SEND,
    SOURCES,
    STORED,
    WAITING,
)

_MOST: Final = 2**63 - 1
ELSEWHERE: Final = -1
"""The broker of what is said of a broker without any replica here."""
Totals = dict[str, Any]


class _Messages:
    """Statements, sorted by message: what is asked of them is answered for each message."""

    def __init__(self, statements: Rows) -> None:
        rows = np.take(statements, np.argsort(statements["identity"]))
        # Each column is gone through several times: in one piece it is at hand.
        self.rows = {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}
        identity = self.rows["identity"]
        self._starts = run_starts(identity)
        self.identity = identity[self._starts]

    def are(self, *sources: str) -> Flags:
        """Which statements are of these sources."""
        return np.isin(self.rows["source"], [SOURCES.index(source) for source in sources])

    def least(self, name: str, where: Flags, *, absent: bool = False) -> Numbers:
        """The least value; `NONE` without any. With `absent`, to have none is a value, too."""
        values = self.rows[name]
        known = where if absent else where & (values != NONE)
        found = self._reduced(np.minimum, np.where(known, values, _MOST))
        return np.where(found == _MOST, NONE, found)

    def most(self, name: str, where: Flags) -> Numbers:
        """The most; `NONE` without any."""
        return self._reduced(np.maximum, np.where(where, self.rows[name].astype(np.int64), NONE))

    def count(self, where: Flags) -> Numbers:
        """Number of each message's statements that `where` marks."""
        return self._reduced(np.add, where.astype(np.int64))

    def bits(self, name: str, where: Flags) -> Numbers:
        """All bits of a mask."""
        return self._reduced(np.bitwise_or, np.where(where, self.rows[name], 0))

    def _reduced(self, operation: np.ufunc, values: Numbers) -> Numbers:
        if not len(values):
            return np.zeros(0, np.int64)
        reduced: Numbers = operation.reduceat(values, self._starts)
        return reduced


@dataclass(frozen=True)
class Digest:
    """The digest of messages: a row for each, column by column.

    `send_t`, `ack_t`, `read_t` are the first such event's time. So is `waiting_t`, of the
    acknowledgement of a message that waits; `held_...` is said of it there. `full` is the mask of
    those replicas of the message's broker whose log reaches back to it, `held_full` the same of the
    place where it waits.
    """

    identity: Numbers
    broker_number: Numbers
    full: Numbers
    held_full: Numbers
    send_t: Numbers
    ack_t: Numbers
    read_t: Numbers
    waiting_t: Numbers
    deliveries: Numbers
    refusals: Numbers
    damaged: Numbers
    versions: Numbers
    holders: Numbers
    queue: Numbers
    queue_offset: Numbers
    position_min: Numbers
    held_versions: Numbers
    held_holders: Numbers
    held_position_min: Numbers
    due: Numbers
    outcome: Numbers
    resolved: Numbers
    resolved_t: Numbers
    disagree: Flags
    """The sources name different places, or different bodies."""

    @cached_property
    def suspect(self) -> Flags:
        """Which messages need a closer look."""
        acked, delivered, waits = (
            column != NONE for column in (self.ack_t, self.read_t, self.waiting_t)
        )
        read = (self.versions > 0) | delivered
        judged = self.broker_number >= 0
        suspect: Flags = (
            ((self.send_t == NONE) & (read | acked))
            | (delivered & (self.read_t < self.send_t))
            | self.disagree
            | (self.damaged > 0)
            | (self.versions > 1)
            | (self.held_versions > 1)
            | ((self.refusals > 0) & ~acked & read)
            | (judged & (acked | delivered) & (self.holders & self.full != self.full))
            | (judged & delivered & (self.position_min == NONE))
            | (judged & waits & (self.held_holders & self.held_full != self.held_full))
        )
        return suspect

    def suspects(self) -> Rows:
        """The messages that need a closer look."""
        return rows_of(SUSPECT, identity=self.identity[self.suspect])

    def slots(self) -> Rows:
        """The places in queues of the others, those in an unsettled tail among them."""
        chosen = ~self.suspect & (self.queue != NONE)
        own = self._columns(SLOT, chosen, position=self.position_min)
        return rows_of(SLOT, **own)

    def waiters(self) -> Rows:
        """The messages that had to wait."""
        chosen = (self.due != NONE) | (self.outcome != NONE) | (self.waiting_t != NONE)
        return rows_of(WAITER, **self._columns(WAITER, chosen))

    @property
    def _expected(self) -> Numbers:
        """The replicas that must hold what was acknowledged."""
        return np.where(self.ack_t != NONE, self.full, self.held_full)

    def _columns(self, kind: np.dtype[Any], chosen: Flags, **renamed: Numbers) -> dict[str, Any]:
        return {
            name: (renamed[name] if name in renamed else getattr(self, name))[chosen]
            for name in kind.names or ()
        }

    def totals(self, full_masks: Sequence[int]) -> Totals:
        """Counts, and for each broker the last position that clients know of."""
        acked = (self.ack_t != NONE) | (self.waiting_t != NONE)
        read = (self.ack_t != NONE) | (self.read_t != NONE)
        known = np.maximum(
            np.where(read, self.position_min, NONE),
            np.where(self.waiting_t != NONE, self.held_position_min, NONE),
        )
        own = [self.broker_number == number for number in range(len(full_masks))]
        return {
            "messages": len(self.identity),
            "sent": _count(self.send_t != NONE),
            "acknowledged": _count(acked),
            "delayed": _count(self.due != NONE),
            "transactions": _count(self.outcome != NONE),
            "consumed": _count(self.read_t != NONE),
            "reads": int(np.bitwise_count(self.holders).sum() + self.deliveries.sum()),
            "elsewhere": _count(self.broker_number == ELSEWHERE),
            "suspects": _count(self.suspect),
            "removed": _count(acked & (self._expected == 0) & (self.broker_number >= 0)),
            "expected_copies": int(np.bitwise_count(self._expected[acked]).sum()),
            "stored": [
                [_count(self.holders[mine] & (1 << bit) != 0) for bit in range(full.bit_length())]
                for mine, full in zip(own, full_masks, strict=True)
            ],
            "known": [int(known[mine].max(initial=NONE)) for mine in own],
        }


def digest(statements: Rows, full_masks: Numbers, begins: Sequence[Sequence[int]] = ()) -> Digest:
    """All these statements, gathered by message. `full_masks`, and where each replica's log
    `begins`: broker by broker."""
    said = _Messages(statements)
    good = ~said.rows["damaged"]
    sent, acked, delivered = said.are(SEND), said.are(ACK), said.are(DELIVER)
    refused, resolved, waiting = said.are(FAIL), said.are(RESOLVE), said.are(WAITING)
    stored, held = said.are(STORED) & good, said.are(HELD) & good
    placed, waits = acked | delivered | stored, waiting | held
    of_topic = sent | delivered | stored
    known = said.rows["outcome"] > 0
    queue, offset = said.most("queue", placed), said.most("queue_offset", placed)
    position, held_position = said.least("position", placed), said.least("position", waits)
    broker = said.most("broker", placed | waits)
    disagree = (
        (said.least("queue", placed, absent=True) != queue)
        | (said.least("queue_offset", placed, absent=True) != offset)
        | (said.most("position", placed) != position)
        | (said.most("position", waits) != held_position)
        | (said.most("topic", of_topic) != said.least("topic", of_topic))
        | (said.most("crc", good) != said.least("crc", good))
        | (said.most("properties", good) != said.least("properties", good))
    )
    return Digest(
        identity=said.identity,
        broker_number=broker,
        full=_reaching(broker, position, full_masks, begins),
        held_full=_reaching(broker, held_position, full_masks, begins),
        send_t=said.least("t", sent),
        ack_t=said.least("t", acked),
        read_t=said.least("t", delivered),
        waiting_t=said.least("t", waiting),
        deliveries=said.count(delivered),
        refusals=said.count(refused & said.rows["definite"]),
        damaged=said.count(~good),
        versions=said.count(stored),
        holders=said.bits("holders", stored),
        queue=queue,
        queue_offset=offset,
        position_min=position,
        held_versions=said.count(held),
        held_holders=said.bits("holders", held),
        held_position_min=held_position,
        due=said.most("due", sent),
        outcome=said.most("outcome", sent & known),
        resolved=said.most("outcome", resolved & known),
        resolved_t=said.least("t", resolved),
        disagree=disagree,
    )


def _reaching(
    broker: Numbers, position: Numbers, full_masks: Numbers, begins: Sequence[Sequence[int]]
) -> Numbers:
    """The masks of the replicas whose logs reach back to `position`."""
    masks: Numbers = np.where(broker >= 0, full_masks[np.maximum(broker, 0)], 0)
    for number, of_replicas in enumerate(begins):
        for bit, begin in enumerate(of_replicas):
            if begin:
                masks &= ~np.where((broker == number) & (position < begin), 1 << bit, 0)
    return masks


def added(all_totals: list[Totals]) -> Totals:
    """The totals of several parts as one."""
    total: Totals = {
        name: sum(each[name] for each in all_totals)
        for name in all_totals[0]
        if name not in {"stored", "known"}
    }
    stored = zip(*(each["stored"] for each in all_totals), strict=True)
    total["stored"] = [[sum(bits) for bits in zip(*parts, strict=True)] for parts in stored]
    known = zip(*(each["known"] for each in all_totals), strict=True)
    total["known"] = [max(ends) for ends in known]
    return total


def _count(flags: Flags) -> int:
    return int(np.count_nonzero(flags))
