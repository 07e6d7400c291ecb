"""Pulls: which messages they find, by which filters, and how long they are held."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import tags_code
from mqbroker.refusal import Refused
from mqbroker.requests.filters import filter_of, parse_subscription, selection
from mqbroker.requests.held_pulls import HeldPull, HeldPulls, Takes
from mqbroker.requests.reading.queue_reading import read_queue
from mqbroker.state.derived.consume_queue import ConsumeQueue
from mqbroker.state.derived.entry_index import EntryIndex, Run
from mqbroker.state.derived.file_pool import FilePool
from mqbroker.state.derived.units import UNIT, Units

ALL = 1 << 30


def no_log(position: int, size: int) -> memoryview:
    """Tags need no look at messages."""
    raise AssertionError(f"{size} bytes were read at {position}")


def queue_of(directory: Path, rows: list[tuple[int, int, int]]) -> ConsumeQueue:
    """A queue of (position, size, tags code)."""
    units = np.array([(*row[:2], 0, 0, row[2], 0) for row in rows], UNIT)
    queue = ConsumeQueue(directory, FilePool())
    queue.append(units.tobytes())
    return queue


def pull(
    queue: ConsumeQueue | None,
    offset: int,
    messages_max: int = 32,
    bytes_max: int = ALL,
    tags: frozenset[int] | None = None,
) -> tuple[ResponseCode, int, list[tuple[int, int]]]:
    found = read_queue(
        queue,
        offset,
        messages_max=messages_max,
        bytes_max=bytes_max,
        selection=selection(tags, no_log),
    )
    return found.code, found.next_offset, list(found.pieces)


FOUND = ResponseCode.SUCCESS
NONE = ResponseCode.PULL_NOT_FOUND
NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


def test_the_result_table_of_the_reference(tmp_path: Path) -> None:
    """A pull has the reference's result in an empty queue, at its end, beyond and before it."""
    queue = queue_of(tmp_path, [(0, 100, 1)] * 5)
    assert pull(None, 0) == (NONE, 0, [])
    assert pull(None, 7) == (MOVED, 0, [])
    assert pull(queue, 5) == (NONE, 5, [])
    assert pull(queue, 6) == (MOVED, 5, [])
    queue.begin = 2
    assert pull(queue, 1) == (MOVED, 2, [])
    found = read_queue(queue, 2, messages_max=1, bytes_max=ALL, selection=None)
    assert (found.min_offset, found.max_offset, found.next_offset) == (2, 5, 3)


def test_records_side_by_side_in_the_log_are_one_piece(tmp_path: Path) -> None:
    """Adjacent records are one piece, so a big pull is a few pieces of the log."""
    queue = queue_of(tmp_path, [(0, 10, 0), (10, 20, 0), (78, 5, 0), (83, 5, 0), (200, 1, 0)])
    assert pull(queue, 0) == (FOUND, 5, [(0, 30), (78, 10), (200, 1)])
    assert pull(queue, 1, messages_max=2) == (FOUND, 3, [(10, 20), (78, 5)])


def test_a_pull_is_bounded_by_bytes_but_never_empty(tmp_path: Path) -> None:
    """A message above the bound still comes, or its queue would be stuck."""
    queue = queue_of(tmp_path, [(0, 100, 0), (100, 100, 0), (200, 100, 0)])
    assert pull(queue, 0, bytes_max=200) == (FOUND, 2, [(0, 200)])
    assert pull(queue, 0, bytes_max=199) == (FOUND, 1, [(0, 100)])
    assert pull(queue, 0, bytes_max=1) == (FOUND, 1, [(0, 100)])


@pytest.mark.parametrize("sizes", [(1000,), (900, 1100), (100, 100, 100, 5000)])
def test_who_is_far_behind_costs_no_look_at_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """A pull far behind looks at what fits alone, and leaves nothing out, for any sizes."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    all_sizes = [chance.choice(sizes) for _ in range(6000)]
    ends = [*accumulate(all_sizes)]
    queue = queue_of(
        tmp_path, [(end - size, size, 0) for end, size in zip(ends, all_sizes, strict=True)]
    )
    looked_at = []
    read = ConsumeQueue.read

    def counting(queue: ConsumeQueue, first: int, count: int) -> Units:
        looked_at.append(count)
        return read(queue, first, count)

    monkeypatch.setattr(ConsumeQueue, "read", counting)
    offset, given = 0, list[int]()
    while offset < len(ends):
        code, next_offset, pieces = pull(queue, offset, 4096, 500_000)
        begin = ends[offset] - all_sizes[offset]
        assert (code, pieces) == (FOUND, [(begin, ends[next_offset - 1] - begin)])
        given.append(pieces[0][1])
        offset = next_offset
    assert max(given) <= 500_000
    assert sum(looked_at) < 2 * len(ends) + 128 * len(given)
    if len(sizes) < 3:
        assert min(given[:-1]) > 500_000 - max(sizes)


def test_a_filter_skips_other_tags_and_says_how_far_it_looked(tmp_path: Path) -> None:
    """A pull with tags says how far it looked, so that the client goes on behind that."""
    queue = queue_of(tmp_path, [(number * 10, 10, number % 3) for number in range(9)])
    assert pull(queue, 0, tags=frozenset({1})) == (FOUND, 9, [(10, 10), (40, 10), (70, 10)])
    assert pull(queue, 0, messages_max=2, tags=frozenset({1})) == (FOUND, 7, [(10, 10), (40, 10)])
    assert pull(queue, 0, bytes_max=10, tags=frozenset({1, 2})) == (FOUND, 2, [(10, 10)])
    assert pull(queue, 4, tags=frozenset({9})) == (NO_MATCH, 9, [])


def test_a_filter_looks_at_a_bounded_number_of_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare tag must not make one pull read the whole queue."""
    monkeypatch.setattr("mqbroker.limits.PULL_UNITS_SCANNED_MAX", 4)
    queue = queue_of(tmp_path, [(number * 10, 10, int(number == 6)) for number in range(9)])
    assert pull(queue, 0, tags=frozenset({1})) == (NO_MATCH, 4, [])
    assert pull(queue, 4, tags=frozenset({1})) == (FOUND, 8, [(60, 10)])


def test_subscriptions_are_read_as_the_reference_reads_them() -> None:
    """`*` and nothing mean all; tags are separated by double bars."""
    assert parse_subscription(None, None) is None
    assert parse_subscription(" * ", "TAG") is None
    assert parse_subscription("A || B||", None) == frozenset({tags_code("A"), tags_code("B")})
    with pytest.raises(Refused) as caught:
        parse_subscription(" || ", None)
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    with pytest.raises(Refused, match="CLASS"):
        parse_subscription("Any.java", "CLASS")
    with pytest.raises(Refused, match="character 4: expected") as caught:
        parse_subscription("a > ", "SQL92")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_heartbeats_codes_are_the_filter() -> None:
    """Clients hash their tags themselves; without codes the expression counts."""
    assert filter_of(SubscriptionData("T", "A", ["A"], [65])) == frozenset({65})
    assert filter_of(SubscriptionData("T", "A")) == frozenset({tags_code("A")})
    assert filter_of(SubscriptionData("T")) is None


class Held:
    """Held pulls, with a record of those that ran."""

    def __init__(self) -> None:
        self.woken = 0
        self.pulls = HeldPulls(self._wake, lambda until_s: None)

    def _wake(self) -> None:
        self.woken += 1

    def hold(
        self, name: str, queue_id: int = 0, until_s: float = 15, tags: frozenset[int] | None = None
    ) -> None:
        self.ran: list[str] = []
        pull = HeldPull(
            hash(name), "G", "T", queue_id, until_s, tags, lambda _: self.ran.append(name)
        )
        assert self.pulls.hold(pull)

    def due(self) -> list[str]:
        self.ran.clear()
        for pull in self.pulls.take_due():
            pull.again(pull)
        return list(self.ran)


def arrival(queue_id: int, code: int) -> EntryIndex:
    units = np.array([(0, 1, 0, 0, code, 0)], UNIT).tobytes()
    return EntryIndex("T", 0, None, [Run(queue_id, 0, units)])


def test_a_held_pull_runs_when_a_message_that_it_wants_arrives() -> None:
    """A held pull wakes for a message of its queue and tag; one message wakes all of them."""
    held = Held()
    held.hold("all")
    held.hold("tag 7", tags=frozenset({7}))
    held.hold("other queue", queue_id=1)
    held.pulls.arrived(arrival(0, 5))
    assert held.due() == ["all"]
    held.pulls.arrived(arrival(0, 7))
    assert held.due() == ["tag 7"]
    assert held.due() == []
    assert len(held.pulls) == 1
    assert held.woken == 2


def test_a_held_pull_runs_when_its_time_is_up_or_leadership_ends() -> None:
    """The client gets an answer before it gives up."""
    held = Held()
    held.hold("short", until_s=5)
    held.hold("long", until_s=15)
    held.pulls.expire(4.9)
    assert held.due() == []
    held.pulls.expire(5.0)
    assert held.due() == ["short"]
    held.pulls.release_all()
    assert held.due() == ["long"]


def test_the_pulls_of_a_closed_connection_are_dropped() -> None:
    """Pulls of a closed connection are dropped, also those that were about to run."""
    held = Held()
    held.hold("gone")
    held.hold("stays")
    held.pulls.disconnected(hash("gone"))
    held.pulls.release_all()
    held.pulls.disconnected(hash("nobody"))
    assert held.due() == ["stays"]


def test_the_number_of_held_pulls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a pull is answered at once."""
    monkeypatch.setattr("mqbroker.limits.PULLS_HELD_MAX", 1)
    held = Held()
    held.hold("first")
    assert not held.pulls.hold(HeldPull(2, "G", "T", 0, 15, None, lambda _: None))


@pytest.mark.parametrize("takes", Takes)
@pytest.mark.parametrize("is_due", [False, True])
def test_a_question_that_is_withdrawn_takes_no_queue(is_due: bool, takes: Takes) -> None:
    """A question that its member withdraws takes no queue; all others wait on."""
    held = HeldPulls(lambda: None, lambda _: None)
    questions = [
        HeldPull(connection, "G", "T", queue, 1.0, frozenset(), lambda _: None, takes)
        for connection, queue in [(1, 0), (2, 0), (1, 1)]
    ]
    assert all(held.hold(each) for each in questions)
    if is_due:
        held.given_up("G", "T", 0, takes)
    held.withdraw(1, "G", "T", 0)
    assert [each.takes for each in questions] == [None, takes, takes]
    assert [*held.take_due()] == questions[: 2 if is_due else 1]
    held.disconnected(1)
    held.disconnected(2)
    assert (len(held), [*held.take_due()], held._taking) == (0, [], {})


def test_questions_of_members_are_few_and_no_message_looks_at_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand held locks of one queue made each send to it late, and each collection."""
    monkeypatch.setattr("mqbroker.limits.TAKERS_HELD_MAX", 1)
    held = HeldPulls(lambda: None, lambda _: None)
    first, second = (
        HeldPull(each, "G", "T", 0, 1.0, None, lambda _: None, Takes.LOCK) for each in (1, 2)
    )
    assert (held.hold(first), held.hold(second)) == (True, False)
    assert held.hold(HeldPull(3, "G", "T", 1, 1.0, None, lambda _: None))
    held.arrived(arrival(0, 5))
    assert [*held.take_due()] == []
    held.given_up("G", "T", 0, Takes.LOCK)
    assert [*held.take_due()] == [first]
    assert held.hold(second)
