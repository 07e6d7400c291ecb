"""Who reads which queue: RocketMQ's AllocateMessageQueueAveragely, to the letter.

Each member of a group computes the assignment by itself from the same two sorted lists, so any
difference from the Java class would give a queue to two members or to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Queue = TypeVar("Queue")


def allocate_averagely(
    member: str, members: Sequence[str], queues: Sequence[Queue]
) -> tuple[Queue, ...]:
    """The share of `member`: a contiguous run of `queues`.

    With q queues and n members, the first q mod n members get one queue more than the others; with
    fewer queues than members the last members get none. Both sequences must be sorted alike by
    every member. Nothing is allocated to a member who is not in the list.
    """
    if not queues or member not in members:
        return ()
    index = members.index(member)
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return tuple(queues[start : start + share + (1 if index < rest else 0)])
