"""Concurrent handlers: which messages run together, how many, and what a failure leaves.

Queues are filled by hand and time is virtual; handlers are real coroutines.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import KEYS, properties_encode
from dledger.remoting.record import encode_record
from mqclient import HandlerTimeout, TooMuchUncommitted, limits
from mqclient.connection.signals import Broadcast
from mqclient.consuming.columns.batch import Listed
from mqclient.consuming.handling import Handling, check_policy
from mqclient.consuming.handout import HandOut
from mqclient.consuming.lanes import Lanes, Order
from mqclient.consuming.progress import Chunk, QueueProgress
from mqclient.models import ReceivedMessage

pytestmark = pytest.mark.usefixtures("autojump_clock")

QUEUES = [MessageQueue("T", "b", number) for number in range(3)]


def message(queue: MessageQueue, offset: int, key: str = "", body: bytes = b"x") -> ReceivedMessage:
    data = encode_record(
        topic=b"T",
        queue_id=queue.queue_id,
        body=body,
        properties=properties_encode({KEYS: key}) if key else b"",
        born_timestamp_ms=0,
        born_host=bytes(8),
        queue_offset=offset,
    )
    return ReceivedMessage(memoryview(data), "b")


async def nothing(messages: Sequence[ReceivedMessage], deadline_s: float) -> int:
    """Number of messages to finish: only these."""
    return len(messages)


class Filled:
    """A queue that holds messages with these keys, from offset 0."""

    may_hand_out = True

    def __init__(self, queue: MessageQueue, keys: str) -> None:
        self.progress = QueueProgress(queue)
        self.progress.start(0)
        messages = [message(queue, offset, key) for offset, key in enumerate(keys)]
        self.progress.accept(0, Chunk(Listed(messages), 1), len(keys))

    def took(self) -> None:
        """Do nothing: no message is fetched here."""


async def raised(_: ReceivedMessage, error: Exception) -> bool:
    raise error


class Bench:
    """Handlers of a second each, and what was under way at a time."""

    def __init__(self, *queues: str) -> None:
        self.readings = {
            queue: Filled(queue, keys) for queue, keys in zip(QUEUES, queues, strict=False)
        }
        self.arrived = Broadcast()
        self.started: list[tuple[int, int]] = []
        self.under_way: set[tuple[int, int]] = set()
        self.together: Counter[frozenset[tuple[int, int]]] = Counter()
        self.failed: list[tuple[int, str]] = []

    async def handler(self, message: ReceivedMessage) -> None:
        name = (message.queue_id, message.queue_offset)
        self.started.append(name)
        self.under_way.add(name)
        self.together[frozenset(self.under_way)] += 1
        try:
            await trio.sleep(1)
        finally:
            self.under_way.remove(name)

    async def run(
        self,
        seconds: float,
        concurrency: int = 1,
        order: Order = "queue",
        *,
        max_bytes: int = limits.UNDER_WAY_BYTES_MAX,
        timeout_s: float | None = None,
        handler: Callable[[ReceivedMessage], Awaitable[None] | None] | None = None,
    ) -> None:
        async def failed(message: ReceivedMessage, error: Exception) -> bool:
            self.failed.append((message.queue_offset, type(error).__name__))
            return True

        policy = check_policy(concurrency, max_bytes, order, timeout_s)
        how = handler or self.handler
        handling = Handling(
            lambda: self.readings, self.arrived, lambda batch: how(batch[0]), failed, policy
        )
        with trio.move_on_after(seconds):
            await handling.run()

    @property
    def positions(self) -> list[int]:
        return [each.progress.position for each in self.readings.values()]

    @property
    def widest(self) -> int:
        return max(map(len, self.together))


async def test_by_default_each_queue_is_handled_in_order() -> None:
    """Messages of a queue are handled one at a time by default, those of three queues at once."""
    bench = Bench("aaaa", "aaaa", "aaaa")
    await bench.run(4.5, 10)
    assert bench.widest == 3
    assert bench.positions == [4, 4, 4]
    for number in range(3):
        assert [offset for queue, offset in bench.started if queue == number] == [0, 1, 2, 3]


async def test_without_order_a_queue_is_handled_by_many() -> None:
    """Without order ten messages of a queue are handled at a time, and no more."""
    bench = Bench("a" * 25)
    await bench.run(1.5, 10, "none")
    assert bench.widest == 10
    assert bench.positions == [10]
    await bench.run(2.5, 10, "none")
    assert sorted(bench.started)[:10] == [(0, offset) for offset in range(10)]
    assert bench.positions == [25]


async def test_what_one_slow_message_holds_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other messages overtake a slow one up to the span; then its queue waits, and no other."""
    monkeypatch.setattr(limits, "UNFINISHED_SPAN_PER_QUEUE_MAX", 8)
    bench = Bench("a" * 20, "a" * 20)

    async def handler(message: ReceivedMessage) -> None:
        await trio.sleep(1000 if (message.queue_id, message.queue_offset) == (0, 2) else 1)

    await bench.run(100, 4, "none", handler=handler)
    assert bench.positions == [2, 20]
    assert bench.readings[QUEUES[0]].progress.buffered == 10


async def test_a_key_is_handled_in_order_and_beside_the_others() -> None:
    """Messages of one key run one after the other, beside those of other keys."""
    bench = Bench("aabbaacc")
    await bench.run(4.5, 8, "key")
    assert bench.widest == 3
    assert bench.positions == [8]
    for key in "abc":
        mine = [offset for _, offset in bench.started if "aabbaacc"[offset] == key]
        assert mine == sorted(mine)
    assert max(bench.started.index((0, offset)) for offset in (0, 2, 6)) < 3


async def test_messages_under_way_are_bounded_by_their_bytes_too() -> None:
    """Messages under way are bounded by bytes: two fit, and a larger one goes alone."""
    size = message(QUEUES[0], 0, "a").size_bytes
    bench = Bench("a" * 4)
    await bench.run(2.5, 4, "none", max_bytes=2 * size)
    assert (bench.widest, bench.positions) == (2, [4])
    bench = Bench("a" * 4)
    await bench.run(4.5, 4, "none", max_bytes=size - 1)
    assert (bench.widest, bench.positions) == (1, [4])


async def test_what_takes_too_long_is_cancelled_and_given_to_the_policy() -> None:
    """A handler that takes too long is cancelled for the policy, while others go on."""
    bench = Bench("aaa")

    async def handler(message: ReceivedMessage) -> None:
        await trio.sleep(math.inf if message.queue_offset == 1 else 1)

    await bench.run(20, handler=handler, timeout_s=5)
    assert bench.failed == [(1, "HandlerTimeout")]
    assert bench.positions == [3]


async def test_an_error_that_is_raised_leaves_the_message_to_the_next_run() -> None:
    """The next run begins with the message that raised and those under way."""
    bench = Bench("aaaa")
    gate = trio.Event()

    async def handler(message: ReceivedMessage) -> None:
        if message.queue_offset == 2:
            raise ValueError("the third")
        if message.queue_offset == 0:
            await gate.wait()

    policy = check_policy(2, 1 << 20, "none", None)
    with pytest.raises(ValueError, match="the third"):
        await Handling(
            lambda: bench.readings, bench.arrived, lambda batch: handler(batch[0]), raised, policy
        ).run()
    assert bench.positions == [0]
    rest = bench.readings[QUEUES[0]].progress.take(9)
    assert [each.queue_offset for each in rest] == [0, 2]


async def test_a_queue_that_is_moved_meanwhile_starts_where_it_was_moved_to() -> None:
    """A queue that is moved drops the old place's messages, and those under way finish nothing."""
    bench = Bench("aaaa")
    progress = bench.readings[QUEUES[0]].progress

    async def moved() -> None:
        await trio.sleep(0.5)
        progress.seek(2)
        progress.accept(1, Chunk(Listed([message(QUEUES[0], 2, "a")]), 1), 3)
        bench.arrived.announce()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(moved)
        await bench.run(5, 4, "key")
    assert bench.started == [(0, 0), (0, 2)]
    assert progress.position == 3


async def test_a_handler_need_not_be_asynchronous() -> None:
    """A handler that is a plain function is called in the event loop."""
    bench = Bench("aa")
    seen: list[int] = []
    await bench.run(0.05, handler=lambda message: seen.append(message.queue_offset))
    assert (seen, bench.positions) == ([0, 1], [2])


async def test_a_queue_that_is_paused_or_given_up_hands_out_nothing() -> None:
    """A queue that is paused or given up finishes the message under way and begins no other."""
    for how in ("paused", "closing"):
        bench = Bench("aaaa", "b")
        progress = bench.readings[QUEUES[0]].progress

        async def stop(its: QueueProgress = progress, how: str = how) -> None:
            await trio.sleep(0.5)
            setattr(its, how, True)
            assert its.handling == 4, "one is under way, three wait behind it"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            await bench.run(9, 8, "key")
        if how == "closing":
            assert bench.started.count((0, 0)) == 1
            assert bench.positions == [1, 1]
        assert progress.handling == 0


async def test_of_a_queue_that_is_given_up_only_what_closes_a_gap_is_begun() -> None:
    """A queue that is given up handles only messages that close a gap, which would come twice."""
    bench = Bench("aaba")
    progress = bench.readings[QUEUES[0]].progress

    async def stop() -> None:
        await trio.sleep(0.5)
        progress.closing = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await bench.run(9, 8, "key")
    assert sorted(bench.started[:2]) == [(0, 0), (0, 2)]
    assert bench.started[2:] == [(0, 1)]
    assert (bench.positions, progress.handling) == ([3], 0)


async def test_a_handler_of_batches_gets_what_there_is_of_a_queue() -> None:
    """A handler gets batches up to its size; of a failed one, the policy gets the rest."""
    bench = Bench("aaaaa", "bb")
    seen: list[list[tuple[int, int]]] = []
    sent_back: list[int] = []

    def handler(batch: Sequence[ReceivedMessage]) -> None:
        seen.append([(each.queue_id, each.queue_offset) for each in batch])
        if batch[0].queue_offset == 3:
            bench.readings[QUEUES[0]].progress.finish(3, 3)
            raise ValueError("after the first of the two")

    async def failed(message: ReceivedMessage, error: Exception) -> bool:
        sent_back.append(message.queue_offset)
        return True

    policy = check_policy(1, 1 << 20, "queue", None, 3)
    with trio.move_on_after(0.05):
        await Handling(lambda: bench.readings, bench.arrived, handler, failed, policy).run()
    assert sorted(seen) == [[(0, 0), (0, 1), (0, 2)], [(0, 3), (0, 4)], [(1, 0), (1, 1)]]
    assert (sent_back, bench.positions) == ([4], [5, 2])
    with pytest.raises(BadInput, match="several keys"):
        check_policy(1, 1, "key", None, 2)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ((0, 1, "queue", None), "concurrency=0"),
        ((1, 0, "queue", None), "max_bytes=0"),
        ((1, 1, "topic", None), "'queue', 'key' or 'none'"),
        ((1, 1, "queue", 0.0), "timeout_s=0.0"),
        ((1, 1, "queue", math.nan), "timeout_s=nan"),
    ],
)
def test_a_pace_that_can_not_be_is_refused(
    policy: tuple[int, int, Order, float | None], reason: str
) -> None:
    """A wrong concurrency or span is refused by name, before anything is handled."""
    with pytest.raises(BadInput, match=reason):
        check_policy(*policy)


def test_a_timeout_says_which_message_and_what_to_do() -> None:
    """The error of a timeout has the message's queue, its offset and the time."""
    assert "message 7 of" in str(HandlerTimeout(QUEUES[0], 7, 2.5))
    assert "2.5 s" in str(HandlerTimeout(QUEUES[0], 7, 2.5))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_a_lane_lets_one_in_at_a_time_in_the_order_of_arrival(
    steps: list[tuple[bool, int]],
) -> None:
    """A lane is compared with a list, of which the first is under way."""
    lanes: Lanes[int] = Lanes()
    model: dict[int, list[int]] = defaultdict(list)
    for number, (enters, lane) in enumerate(steps):
        if enters:
            model[lane].append(number)
            assert lanes.enter(lane, number) == (len(model[lane]) == 1)
        elif model[lane]:
            model[lane].pop(0)
            assert lanes.leave(lane) == (model[lane][0] if model[lane] else None)
        assert [lane for lane in range(4) if lanes.is_busy(lane)] == sorted(
            filter(model.get, model)
        )
        assert sorted(lanes.waiting()) == sorted(
            each for lane in model.values() for each in lane[1:]
        )


async def test_asking_for_more_finishes_what_was_given_unless_it_is_switched_off() -> None:
    """A poll or an iteration finishes earlier messages, unless that is switched off."""
    for asking, expected in ((True, [2]), (False, [0])):
        bench = Bench("aaaa")
        handout = HandOut(lambda its=bench: its.readings, nothing, asking_finishes=asking)
        assert len(await handout.poll(2, 1)) == 2
        await handout.poll(1, 1)
        assert bench.positions == expected
        await handout.next_message()
        handout.finish_handed()
        assert bench.positions == [4]


@pytest.mark.parametrize("seed", range(40))
async def test_what_must_wait_for_its_body_comes_next_and_in_order(seed: int) -> None:
    """Messages whose bodies come late are given out once and in order, and none of a lost queue.

    Bodies can't be had for a while, callers wait no longer, queues are paused or given up.
    """
    rng = random.Random(seed)
    bench = Bench(*["a" * rng.randint(1, 6) for _ in QUEUES])
    away: set[tuple[int, int]] = set()
    for queue, filled in bench.readings.items():
        for each in filled.progress._chunks:
            for one in each.messages:
                one._large_bytes = rng.choice([0, 5])
                if one._large_bytes and rng.random() < 0.5:
                    away.add((queue.queue_id, one.queue_offset))
    given: dict[int, list[int]] = defaultdict(list)
    lost: set[int] = set()

    def change() -> None:
        """Change a queue at random, during the run."""
        queue, filled = rng.choice([*bench.readings.items()])
        if rng.random() < 0.2:
            filled.progress.paused = not filled.progress.paused
        if rng.random() < 0.05 and queue.queue_id not in lost:
            lost.add(queue.queue_id)
            if rng.random() < 0.5:
                filled.progress.closing = True
            else:
                filled.progress.revoke()

    async def see_to(messages: Sequence[ReceivedMessage], deadline_s: float) -> int:
        for number, each in enumerate(messages):
            await trio.sleep(rng.random())
            change()
            if (each.queue_id, each.queue_offset) in away:
                await trio.sleep_until(max(deadline_s, trio.current_time()))
                if rng.random() < 0.3:
                    away.discard((each.queue_id, each.queue_offset))
                return number
        return len(messages)

    asking = rng.random() < 0.5
    handout = HandOut(lambda: bench.readings, see_to, asking_finishes=asking)
    for _ in range(300):
        for filled in bench.readings.values():
            filled.progress.paused = filled.progress.paused and rng.random() < 0.7
        handout.arrived.announce()
        with trio.move_on_after(rng.choice([0.5, 5])):
            if rng.random() < 0.5:
                got = [await handout.next_message()]
            else:
                got = await handout.poll(rng.randint(1, 4), rng.choice([0.1, 3]))
            for each in got:
                filled = bench.readings[QUEUES[each.queue_id]]
                assert not filled.progress.paused
                assert each.queue_id not in lost
                given[each.queue_id].append(each.queue_offset)
    for queue, filled in bench.readings.items():
        count = filled.progress.fetch_offset
        offsets = given[queue.queue_id]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) == count or queue.queue_id in lost


async def test_iterating_goes_round_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterating takes a bounded number of one queue's messages, then of the next queue's."""
    monkeypatch.setattr(limits, "TURN_RECORDS_MAX", 2)
    bench = Bench("aaaa", "aaaa")
    handout = HandOut(lambda: bench.readings, nothing, asking_finishes=True)
    taken = [(await handout.next_message()).queue_id for _ in range(8)]
    assert taken == [0, 0, 1, 1, 0, 0, 1, 1]


async def test_who_finishes_nothing_is_told_when_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer that finishes nothing is told when there are too many gaps."""
    monkeypatch.setattr(limits, "UNFINISHED_RUNS_PER_QUEUE_MAX", 2)
    bench = Bench("aaaaaa")
    progress = bench.readings[QUEUES[0]].progress
    handout = HandOut(lambda: bench.readings, nothing, asking_finishes=False)
    assert len(await handout.poll(5, 1)) == 5
    for offset in (1, 3):
        progress.finish(offset, offset)
    with pytest.raises(TooMuchUncommitted, match=r"commit\(\) what was processed"):
        await handout.poll(5, 1)
    handout.finish_handed()
    assert len(await handout.poll(5, 1)) == 1


@pytest.mark.parametrize("seed", range(24))
async def test_whatever_handlers_do_each_message_is_settled_once_and_nothing_is_committed_before(
    seed: int,
) -> None:
    """Handlers of any speed settle each message once, and commit no earlier.

    They fail, are cancelled and run again: lanes keep their order, and the position is never above
    an unsettled message.
    """
    rng = random.Random(seed)
    print(f"seed {seed}")
    order: Order = rng.choice(["queue", "key", "none"])
    bench = Bench(*("".join(rng.choices("abc", k=rng.randint(0, 30))) for _ in range(3)))
    keys = {
        (queue.queue_id, offset): key
        for queue, reading in bench.readings.items()
        for chunk in reading.progress._chunks
        for offset, key in enumerate(message.keys for message in chunk.messages)
    }
    settled: list[tuple[int, int]] = []
    lanes: set[object] = set()

    def lane(name: tuple[int, int]) -> object:
        return {"queue": name[0], "key": (name[0], keys[name]), "none": name}[order]

    def check() -> None:
        for queue, reading in bench.readings.items():
            of_queue = {offset for number, offset in settled if number == queue.queue_id}
            position = reading.progress.position
            assert set(range(position)) <= of_queue, (queue, position, of_queue)

    async def handler(batch: Sequence[ReceivedMessage]) -> None:
        (message,) = batch
        name = (message.queue_id, message.queue_offset)
        assert lane(name) not in lanes
        before = [each for each in keys if lane(each) == lane(name) and each < name]
        assert set(before) <= set(settled)
        lanes.add(lane(name))
        check()
        try:
            await trio.sleep(rng.choice([0, 0.1, 3, 50]))
            if rng.random() < 0.3:
                raise ValueError("not this time")
        finally:
            lanes.remove(lane(name))
        settled.append(name)

    async def failed(message: ReceivedMessage, error: Exception) -> bool:
        await trio.sleep(rng.choice([0, 1]))
        if rng.random() < 0.5:
            return False
        settled.append((message.queue_id, message.queue_offset))
        return True

    for _ in range(200):
        policy = check_policy(
            rng.randint(1, 6), rng.choice([1, 1 << 20]), order, rng.choice([None, 5])
        )
        handling = Handling(lambda: bench.readings, bench.arrived, handler, failed, policy)
        with trio.move_on_after(rng.choice([0.5, 20, 400])):
            await handling.run()
        check()
        if len(settled) >= len(keys):
            break
    assert len(settled) == len(keys) == len(set(settled))
    assert bench.positions == [each.progress.fetch_offset for each in bench.readings.values()]
    assert all(each.progress.handling == 0 for each in bench.readings.values())
