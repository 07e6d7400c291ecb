"""Allocation of a topic's queues to the members of a group: RocketMQ's rules to the letter. Pure.

Each member of a group computes its share by itself from the same two sorted lists (or a broker does
so for it), so any difference from the Java classes would give a queue to two members or to none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import md5
from typing import TypeVar

from dledger import limits
from dledger.errors import BadInput
from dledger.remoting.bodies import BrokerData, TopicRouteData
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_WRITE

Queue = TypeVar("Queue")


def checked_route(route: TopicRouteData) -> TopicRouteData:
    """The route, if it is within the bounds of clients and brokers. Raises BadInput if it is not:
    before two thousand million queues are named one by one."""
    check_groups(route.broker_datas)
    rows = [*route.queue_datas, *(route.absent_queue_datas or ())]
    check_count("queue counts", len(rows), limits.ROUTE_GROUPS_MAX)
    queues = 0
    for entry in rows:
        least = min(entry.read_queue_nums, entry.write_queue_nums)
        queues += max(entry.read_queue_nums, entry.write_queue_nums)
        if least < 0 or queues > limits.ROUTE_QUEUES_MAX:
            raise BadInput(
                f"a route has {entry.read_queue_nums} queues to read and {entry.write_queue_nums} "
                f"to write on {entry.broker_name[:100]!r}: not within 0 to "
                f"{limits.ROUTE_QUEUES_MAX} for a topic"
            )
    return route


def check_groups(groups: Collection[BrokerData]) -> None:
    """Raise BadInput for more broker groups, or members of one, than there may be."""
    check_count("broker groups", len(groups), limits.ROUTE_GROUPS_MAX)
    for group in groups:
        check_count("members of a broker group", len(group.broker_addrs), limits.ROUTE_MEMBERS_MAX)


def check_count(what: str, count: int, count_max: int) -> None:
    """Raise BadInput for too many of something."""
    if count > count_max:
        raise BadInput(f"{count} {what} are above {count_max}")


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


def allocate_by_machine_room(
    member: str, members: Sequence[str], queues: Sequence[MessageQueue], rooms: Collection[str]
) -> tuple[MessageQueue, ...]:
    """AllocateMessageQueueByMachineRoom: of the brokers named `room@name` in one of the rooms.

    Each member gets the same number of their queues, in runs; those left over go to the first
    members, one each. Queues of other brokers are read by nobody.
    """
    if member not in members:
        return ()
    index = members.index(member)
    near = [queue for queue in queues if _room(queue) in rooms]
    share, rest = divmod(len(near), len(members))
    run = near[share * index : share * (index + 1)]
    return tuple(run + near[share * len(members) + index :][: 1 if index < rest else 0])


def _room(queue: MessageQueue) -> str | None:
    """The machine room in a broker's name of exactly two parts; Java's split drops empty ones at
    the end."""
    parts = queue.broker_name.split("@")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == len(("room", "name")) else None


def allocate_nearby(
    member: str,
    members: Sequence[str],
    queues: Sequence[MessageQueue],
    *,
    within: Callable[[str, Sequence[str], Sequence[MessageQueue]], tuple[MessageQueue, ...]],
    room_of_queue: Callable[[MessageQueue], str],
    room_of_member: Callable[[str], str],
) -> tuple[MessageQueue, ...]:
    """AllocateMachineRoomNearby: the queues of a room are shared by the room's members, if it has
    any, else by all members; `within` says how.

    Raises BadInput for a queue, or a member, whose room is not known.
    """
    if not queues or member not in members:
        return ()
    of_room: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        of_room.setdefault(_known(room_of_queue(queue), f"queue {queue}"), []).append(queue)
    near: dict[str, list[str]] = {}
    for each in members:
        near.setdefault(_known(room_of_member(each), f"member {each!r}"), []).append(each)
    own = room_of_member(member)
    here = of_room.pop(own, [])
    share = [*within(member, near[own], here)] if here else []
    # Java's TreeMap has rooms by the UTF-16 of their names.
    for room in sorted(of_room, key=lambda room: room.encode("utf-16-be", "surrogatepass")):
        if room not in near:
            share += within(member, members, of_room[room])
    return tuple(share)


def _known(room: str, whose: str) -> str:
    if not room:
        raise BadInput(f"the machine room of {whose} is not known: every queue and member has one")
    return room


def allocate_by_hash(
    member: str, members: Sequence[str], queues: Sequence[MessageQueue], virtual_nodes: int
) -> tuple[MessageQueue, ...]:
    """AllocateMessageQueueConsistentHash: a queue belongs to the next node on a ring.

    Each member is there `virtual_nodes` times. Few queues move when one comes or goes; the shares
    are as uneven as chance has it.
    """
    if member not in members:
        return ()
    ring = {_hash(f"{each}-{n}"): each for each in members for n in range(virtual_nodes)}
    places = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        text = (
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
            f"queueId={queue.queue_id}]"
        )
        return ring[places[bisect_left(places, _hash(text)) % len(places)]]

    return tuple(queue for queue in queues if owner(queue) == member)


def _hash(text: str) -> int:
    """The first four bytes of MD5: no secret, but what RocketMQ's ring is made of."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def allocate_stickily(
    member: str, members: Sequence[str], queues: Sequence[MessageQueue]
) -> tuple[MessageQueue, ...]:
    """Shares as even as can be, of which few queues move when a member comes or goes.

    Every pair of queue and member has a weight by chance, the same for everybody. From the heaviest
    on, a queue goes to the member if it is free and the member's share is not full. RocketMQ has no
    such strategy: all members must be our clients. Of too many pairs none are made: the shares
    are averaged then.
    """
    if not queues or member not in members:
        return ()
    if len(queues) * len(members) > limits.STICKY_PAIRS_MAX:
        return allocate_averagely(member, members, queues)
    share, rest = divmod(len(queues), len(members))
    names = {queue: f"{queue.topic} {queue.broker_name} {queue.queue_id}" for queue in queues}
    pairs = sorted(
        (
            (_hash(f"{name} {each}"), name, each, queue)
            for queue, name in names.items()
            for each in members
        ),
        key=lambda pair: pair[:3],
    )
    counts = dict.fromkeys(members, 0)
    owners: dict[MessageQueue, str] = {}
    for _, _, each, queue in pairs:
        fits = counts[each] < share or (counts[each] == share and rest > 0)
        if queue not in owners and fits:
            rest -= counts[each] == share
            counts[each] += 1
            owners[queue] = each
    return tuple(queue for queue in queues if owners[queue] == member)
