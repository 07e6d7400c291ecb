"""Which queues of a topic are read, and by whom of a group: RocketMQ's rules, to the letter.

Each member of a group computes its share by itself from the same two sorted lists (or a broker does
so for it), so any difference from the Java classes would give a queue to two members or to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dledger.remoting.bodies import TopicRouteData
from dledger.remoting.json_dialect import MessageQueue

PERM_WRITE = 2
PERM_READ = 4

Queue = TypeVar("Queue")


def queues_of(topic: str, data: TopicRouteData, perm: int) -> tuple[MessageQueue, ...]:
    """A route's queues to read (PERM_READ) or to write (PERM_WRITE), as every client sorts them."""
    known = {broker.broker_name for broker in data.broker_datas}
    return tuple(
        MessageQueue(topic, entry.broker_name, queue_id)
        for entry in sorted(data.queue_datas, key=lambda entry: entry.broker_name)
        if entry.broker_name in known and entry.perm & perm
        for queue_id in range(
            entry.write_queue_nums if perm == PERM_WRITE else entry.read_queue_nums
        )
    )


def allocate_averagely(
    member: str, members: Sequence[str], queues: Sequence[Queue]
) -> tuple[Queue, ...]:
    """AllocateMessageQueueAveragely: the share of `member`, a contiguous run of `queues`.

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


def allocate_by_circle(
    member: str, members: Sequence[str], queues: Sequence[Queue]
) -> tuple[Queue, ...]:
    """AllocateMessageQueueAveragelyByCircle: members take one queue each in turn."""
    if member not in members:
        return ()
    return tuple(queues[members.index(member) :: len(members)])
