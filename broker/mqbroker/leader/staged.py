"""Judges staged entries that nobody has ended, by the answer of their home group. Pure.

========================  ================================  ====================================
its batch                 and                               is
========================  ================================  ====================================
below the last decided    -                                 dropped: what counted has ended
the last decided          the decision names it             ended, in the decision's order
the last decided          the decision does not             dropped
the last decided          the home's log has it no more     left alone, and logged
above the last decided    it is young                       left alone: it may yet be decided
above, and old            its epoch is not fenced           left alone until that is fenced
above, and old            its epoch is fenced               dropped: it can't be decided any more
========================  ================================  ====================================

An answer of the home group is one replica's state at one index. If that knows a newer epoch, it
knows all decisions of older ones, which come before it in the log. So an answer that is out of date
can make an entry wait, and never drops one that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dledger.remoting.bodies.staged import Staged


class Entry(NamedTuple):
    """A staged entry of this group: its offset among the half messages, and since when it waits."""

    offset: int
    staged: Staged
    stored_ms: int


class HomeAnswer(NamedTuple):
    """The home group's answer about a name: its epoch, its last batch, and the offsets of this
    group that its decision names and that still wait; None if nobody knows them any more."""

    epoch: int
    batch: int
    offsets: Sequence[int] | None


class Ends(NamedTuple):
    """Entries to end, in this order; to drop; that wait for a fence; and that nobody can judge."""

    ended: Sequence[int]
    dropped: Sequence[int]
    unfenced: Sequence[int]
    unknown: Sequence[int]


def ends_of(entries: Sequence[Entry], answer: HomeAnswer, old_ms: int) -> Ends:
    """The ends of the entries of one name. Entries are old if they were stored before `old_ms`."""
    named, ended = answer.offsets or (), False
    dropped, unfenced, unknown = list[int](), list[int](), list[int]()
    for offset, staged, stored_ms in entries:
        if staged.batch == answer.batch and answer.offsets is None:
            unknown.append(offset)
        elif staged.batch == answer.batch and offset in named:
            ended = True
        elif staged.batch <= answer.batch:
            dropped.append(offset)
        elif stored_ms < old_ms:
            (dropped if answer.epoch > staged.epoch else unfenced).append(offset)
    return Ends([*named] if ended else [], dropped, unfenced, unknown)
