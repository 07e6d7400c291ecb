"""Allocation of queues: RocketMQ's strategies give what RocketMQ's classes gave, ours is even."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.allocation import (
    allocate_averagely,
    allocate_by_circle,
    allocate_by_hash,
    allocate_by_machine_room,
    allocate_nearby,
    allocate_stickily,
)
from dledger.remoting.json_dialect import MessageQueue

GOLDEN = Path(__file__).parents[3] / "data" / "golden" / "allocations.txt"
ROOMS = ("north", "south", "west", "größer", "nowhere")
BROKERS = ("broker-a", "north@b-1", "south@b-2", "west@b-3", "x@y@z", "größer")
Allocate = Callable[[str, Sequence[str], Sequence[MessageQueue]], tuple[MessageQueue, ...]]


def room_of_queue(queue: MessageQueue) -> str:
    """A queue's room: the part of its broker's name before an @."""
    return queue.broker_name.partition("@")[0]


def room_of(member: str) -> str:
    """A member's room by the third number of its address, as in the program that asked Java."""
    parts = member.split(".")
    return ROOMS[int(parts[2]) % 5] if len(parts) > 2 else "north"


STRATEGIES: dict[str, Allocate] = {
    "averaged": allocate_averagely,
    "circular": allocate_by_circle,
    "hashed": partial(allocate_by_hash, virtual_nodes=10),
    "hashed 3": partial(allocate_by_hash, virtual_nodes=3),
    "rooms": partial(allocate_by_machine_room, rooms={"north", "west"}),
    **{
        f"nearby {name}": partial(
            allocate_nearby, within=within, room_of_queue=room_of_queue, room_of_member=room_of
        )
        for name, within in (("averaged", allocate_averagely), ("circular", allocate_by_circle))
    },
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_gives_what_rocketmqs_class_of_it_gave(name: str) -> None:
    """Strategies share out forty groups as the classes of 4.9.8 and 5.5.0 did."""
    cases = [line.split("|") for line in GOLDEN.read_text().splitlines()]
    cases = [case for case in cases if case[0] == name]
    assert len(cases) == 40
    for _, ids, counts, shares in cases:
        queues = sorted(
            MessageQueue("Orders", broker, number)
            for broker, count in zip(BROKERS, counts.split(","), strict=True)
            for number in range(int(count))
        )
        for member, share in zip(ids.split(","), shares.split(";"), strict=True):
            mine = STRATEGIES[name](member, ids.split(","), queues)
            assert [queues.index(queue) for queue in mine] == [int(n) for n in share.split()]


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:03}" for number in range(count)]


def numbered(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", f"b{number % 3}", number) for number in range(count)]


@given(st.integers(0, 40), st.integers(1, 12), st.sampled_from([*STRATEGIES, "sticky"]))
def test_all_members_together_read_every_queue_once(queues: int, members: int, name: str) -> None:
    """Members together read each queue once, but for machine rooms, which leave some out."""
    allocate = STRATEGIES.get(name, allocate_stickily)
    its = [MessageQueue("T", "north@b", number) for number in range(queues)]
    ids = names("c", members)
    shares = [allocate(member, ids, its) for member in ids]
    assert sorted(queue for share in shares for queue in share) == its
    assert allocate("stranger", ids, its) == ()
    if not name.startswith("hashed"):
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_few_queues_move_when_a_member_leaves_a_sticky_group() -> None:
    """A sticky group moves 5 % of the other queues when a member leaves, averaging a third."""

    def moved(allocate: Allocate, members: int) -> float:
        queues, ids = numbered(64), names("c", members)
        before = {q: each for each in ids for q in allocate(each, ids, queues)}
        left = ids[0]
        rest = [each for each in ids if each != left]
        after = {q: each for each in rest for q in allocate(each, rest, queues)}
        return sum(before[q] != after[q] for q in queues if before[q] != left) / len(queues)

    assert mean(moved(allocate_stickily, members) for members in range(2, 17)) < 0.08
    assert mean(moved(allocate_averagely, members) for members in range(2, 17)) > 0.3


def reference(member: str, members: list[str], queues: list[int]) -> list[int]:
    """The Java class, line by line."""
    index = members.index(member)
    mod = len(queues) % len(members)
    if len(queues) <= len(members):
        average = 1
    elif mod > 0 and index < mod:
        average = len(queues) // len(members) + 1
    else:
        average = len(queues) // len(members)
    start = index * average if mod > 0 and index < mod else index * average + mod
    count = min(average, len(queues) - start)
    return [queues[(start + i) % len(queues)] for i in range(count)]


@given(queue_count=st.integers(1, 40), member_count=st.integers(1, 12))
def test_equals_the_java_class(queue_count: int, member_count: int) -> None:
    """Each member's share is the one that Java computes, for any number of queues and members."""
    members = [f"c{i:02}" for i in range(member_count)]
    queues = list(range(queue_count))
    for member in members:
        expected = reference(member, members, queues)
        assert expected == list(allocate_averagely(member, members, queues))


@given(queue_count=st.integers(0, 40), member_count=st.integers(1, 12))
def test_every_queue_has_exactly_one_reader(queue_count: int, member_count: int) -> None:
    """The shares of all members, in order, are the queues in order."""
    members = [f"c{i:02}" for i in range(member_count)]
    queues = list(range(queue_count))
    shares = [queue for m in members for queue in allocate_averagely(m, members, queues)]
    assert queues == shares


def test_a_stranger_gets_nothing() -> None:
    """A member that is not in the group's list gets no queue."""
    assert allocate_averagely("x", ["a", "b"], [1, 2, 3]) == ()


def test_by_circle_members_take_turns() -> None:
    """Members take turns by circle: every n-th queue from the member's place on, as in Java."""
    members, queues = ["a", "b", "c"], list(range(7))
    shares = [allocate_by_circle(member, members, queues) for member in members]
    assert shares == [(0, 3, 6), (1, 4), (2, 5)]
    assert allocate_by_circle("x", members, queues) == ()


@given(
    st.dictionaries(st.sampled_from(names("c", 6)), st.sampled_from("xyz"), min_size=1),
    st.lists(st.sampled_from("wxyz"), max_size=12),
    st.sampled_from([allocate_averagely, allocate_by_circle, allocate_stickily]),
)
def test_nearby_each_queue_has_one_reader_who_is_near_if_anybody_is(
    rooms: dict[str, str], brokers: list[str], within: Allocate
) -> None:
    """A queue has one reader, who is near if any member is."""
    queues = sorted({MessageQueue("T", room, n) for n, room in enumerate(brokers)})
    ids = sorted(rooms)
    readers: dict[MessageQueue, str] = {}
    for member in ids:
        for queue in allocate_nearby(
            member,
            ids,
            queues,
            within=within,
            room_of_queue=lambda queue: queue.broker_name,
            room_of_member=rooms.__getitem__,
        ):
            assert queue not in readers
            readers[queue] = member
    assert sorted(readers) == queues
    for queue, member in readers.items():
        assert rooms[member] == queue.broker_name or queue.broker_name not in rooms.values()


@pytest.mark.parametrize(("rooms", "said"), [(("", "x"), "queue"), (("x", ""), "member 'a'")])
def test_nearby_a_room_that_is_not_known_is_told(rooms: tuple[str, str], said: str) -> None:
    """Java's class throws an IllegalArgumentException; then nothing is shared out anew."""
    with pytest.raises(BadInput, match=f"the machine room of {said}"):
        allocate_nearby(
            "a",
            ["a"],
            [MessageQueue("T", "b", 0)],
            within=allocate_averagely,
            room_of_queue=lambda _: rooms[0],
            room_of_member=lambda _: rooms[1],
        )
