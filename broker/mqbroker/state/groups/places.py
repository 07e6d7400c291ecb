"""The place of a group in a queue, and the offsets that it may commit. Pure.

One statement for all who show or use it. A queue has the offsets from its begin to its end. A
group's place in it is the offset that it has committed; or the queue's first message if the queue
came into being after the group began (whatever its members say about where to begin); else it has
none. What was committed below the begin, before retention took it, or beyond the end, by an older
version, is shown as the begin or the end. So no lag is negative, and none counts what is gone.

A position belongs to a life of its topic (`mqbroker.state.topics`). A commit that names another
life, a queue that is not there, or an offset beyond the end is nobody's: it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.refusal import lacks_queue

if TYPE_CHECKING:
    from mqbroker.state.machine import Machine


def place(
    machine: Machine, group: str, topic: str, queue_id: int, taken: int | None = None
) -> int | None:
    """Where a group is in a queue, if anywhere. `taken` is a commit that is newer than the state,
    if there is one."""
    begin, end = machine.queues.span(topic, queue_id)
    offset = machine.offsets.get(group, topic, queue_id) if taken is None else taken
    if offset is None:
        return begin if is_newer(machine, group, topic, queue_id) else None
    return min(max(offset, begin), end)


def is_newer(machine: Machine, group: str, topic: str, queue_id: int) -> bool:
    """Whether a queue came into being after a group began."""
    begun = machine.groups.beginning(group)
    return begun is not None and machine.topics.birth(topic, queue_id).entry > begun.entry


def is_of_life(machine: Machine, topic: str, position: int) -> bool:
    """Whether what lies at a position of the log was stored in the topic's present life."""
    topics = machine.topics
    return topics.get(topic) is not None and position >= topics.life(topic).position


def is_other_life(machine: Machine, topic: str, life: int | None) -> bool:
    """Whether a client means another life of a topic than the present one. One that names none, or
    a life from before they were noted, is believed."""
    known = machine.topics.life(topic).entry
    return bool(life and known and life != known)


def has_queue(machine: Machine, topic: str, queue_id: int) -> bool:
    """Whether a queue exists, or has messages of a time at which its topic had more queues."""
    is_left = machine.queues.get(topic, queue_id) is not None
    return is_left or 0 <= queue_id < machine.topics.queues_of(topic)


def fault(machine: Machine, topic: str, queue_id: int, offset: int) -> str | None:
    """Why an offset of a queue can't be committed; None if it can."""
    if not has_queue(machine, topic, queue_id):
        return lacks_queue(topic, queue_id, machine.topics.queues_of(topic))
    begin, end = machine.queues.span(topic, queue_id)
    if not 0 <= offset <= end:
        return f"queue {queue_id} of {topic!r} has the offsets {begin} to {end}, and no {offset}"
    return None
