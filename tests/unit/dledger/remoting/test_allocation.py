"""Averaged allocation: the same answer as RocketMQ's AllocateMessageQueueAveragely."""

from hypothesis import given
from hypothesis import strategies as st

from dledger.remoting.allocation import allocate_averagely, allocate_by_circle


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
    """For any number of queues and members, each share is the one that Java computes."""
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
    """Who is not in the group's list reads no queue."""
    assert allocate_averagely("x", ["a", "b"], [1, 2, 3]) == ()


def test_by_circle_members_take_turns() -> None:
    """The Java class: from the member's place on, every n-th queue."""
    members, queues = ["a", "b", "c"], list(range(7))
    shares = [allocate_by_circle(member, members, queues) for member in members]
    assert shares == [(0, 3, 6), (1, 4), (2, 5)]
    assert allocate_by_circle("x", members, queues) == ()
