"""Ranges of a batch, and its end, from values alone."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import pytest

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from mqclient import Bounds
from mqspark.limits import TASK_MESSAGES
from mqspark.topics.planning import Known, Range, advance, limit, ranges, tasks
from mqspark.topics.positions import Position, from_json, to_json

QUEUES = [
    MessageQueue(topic, broker, queue_id)
    for topic in ("S", "T")
    for broker in ("broker-a", "broker-b")
    for queue_id in range(3)
]


def some_positions(chance: random.Random, most: int = 60) -> dict[MessageQueue, Position]:
    lives = {
        (topic, broker): chance.randrange(3)
        for topic in "ST"
        for broker in ("broker-a", "broker-b")
    }
    return {
        queue: Position(chance.randrange(most), lives[queue.topic, queue.broker_name])
        for queue in QUEUES
        if chance.random() < 0.8
    }


#: Starts and ends as checkpoints of this version keep them, and the ranges that they mean for ever:
#: a batch of an old checkpoint that is repeated must be the batch that it was.
STORED = [
    (
        '{"T": {"broker-a": {"0": 0, "1": 7, "life": 12}}}',
        '{"T": {"broker-a": {"0": 10, "1": 7, "2": 3, "life": 12}, "broker-b": {"0": 5}}}',
        0,
        [("broker-a", 0, 0, 10, 12)],
    ),
    (
        '{"T": {"broker-a": {"0": 0, "life": 12}, "broker-b": {"10": 2, "9": 1}}}',
        '{"T": {"broker-a": {"0": 4, "life": 13}, "broker-b": {"9": 4, "10": 3}}}',
        0,
        [("broker-b", 9, 1, 4, 0), ("broker-b", 10, 2, 3, 0)],
    ),
    (
        '{"T": {"broker-a": {"0": 0, "1": 0}}}',
        '{"T": {"broker-a": {"0": 10, "1": 1}}}',
        4,
        [
            ("broker-a", 0, 0, 2, 0),
            ("broker-a", 0, 2, 5, 0),
            ("broker-a", 0, 5, 7, 0),
            ("broker-a", 0, 7, 10, 0),
            ("broker-a", 1, 0, 1, 0),
        ],
    ),
    ('{"T": {"broker-a": {"0": 9}}}', '{"T": {"broker-a": {"0": 4}}}', 0, []),
    ("{}", "{}", 3, []),
]


@pytest.mark.parametrize(("start", "end", "min_partitions", "wanted"), STORED)
def test_a_stored_batch_has_the_ranges_that_it_had(
    start: str, end: str, min_partitions: int, wanted: list[tuple[str, int, int, int, int]]
) -> None:
    """A queue is read if both ends have it in one life; else the end announces it."""
    found = ranges(from_json(json.loads(start)), from_json(json.loads(end)), min_partitions)
    assert found == [
        Range(MessageQueue("T", broker, queue_id), begin, upto, life)
        for broker, queue_id, begin, upto, life in wanted
    ]


def test_a_checkpoint_gives_back_its_positions() -> None:
    """A checkpoint gives its positions back, as a text that does not depend on their order."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(100):
        positions = some_positions(chance)
        text = json.dumps(to_json(positions))
        assert from_json(json.loads(text)) == positions
        shuffled = dict(chance.sample([*positions.items()], len(positions)))
        assert json.dumps(to_json(shuffled)) == text
        assert json.dumps(to_json(from_json(json.loads(text)))) == text


@pytest.mark.parametrize("told", [{"T": 3}, {"T": {"b": {"x": 1}}}, {"T": {"b": {"0": -1}}}])
def test_a_checkpoint_of_another_source_is_refused(told: dict[str, object]) -> None:
    """A checkpoint of another source, for example Kafka's, is refused."""
    with pytest.raises(BadInput, match="another source"):
        from_json(told)  # type: ignore[arg-type]


class Model:
    """Queues of brokers: messages from a first to a last offset, in a life of the topic."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.bounds: dict[MessageQueue, Bounds] = {}
        self.lives = 1
        self.silent: set[str] = set()

    def known(self) -> Known:
        there = {q: b for q, b in self.bounds.items() if q.broker_name not in self.silent}
        told = {
            (topic, broker)
            for topic in ("S", "T")
            for broker in ("broker-a", "broker-b")
            if broker not in self.silent
        }
        return Known(there, told)

    def step(self) -> None:
        """Messages come and go; topics are made, widened, deleted, made again; brokers are away."""
        chance = self.chance
        self.silent = {"broker-b"} if chance.random() < 0.2 else set()
        topic, broker = chance.choice("ST"), chance.choice(("broker-a", "broker-b"))
        here = [q for q in self.bounds if (q.topic, q.broker_name) == (topic, broker)]
        event = chance.random()
        if event < 0.1 and here:
            for queue in here:
                del self.bounds[queue]
        elif event < 0.3:
            if not here:
                self.lives += 1
            life = self.bounds[here[0]].life if here else self.lives
            for queue_id in range(chance.randrange(1, 4)):
                queue = MessageQueue(topic, broker, queue_id)
                self.bounds.setdefault(queue, Bounds(0, 0, life))
        for queue, was in self.bounds.items():
            end = was.end + chance.choice((0, 0, 1, 30))
            begin = min(end, was.begin + chance.choice((0, 0, 0, 2)))
            self.bounds[queue] = Bounds(begin, end, was.life)


def test_every_message_is_in_one_batch_or_was_lost() -> None:
    """Each offset of each life is read once in order, or was lost with a notice, or had expired.

    A long run over topics that live; every batch has an end.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    model, at = Model(chance), dict[MessageQueue, Position]()
    read: dict[tuple[MessageQueue, int], int] = {}
    losses = 0
    for _ in range(3000):
        model.step()
        known = model.known()
        before = dict(model.bounds)
        end, lost = advance(at, known)
        losses += len(lost)
        for loss in lost:
            assert at[loss.queue] == (loss.begin, loss.life)
            gone = before.get(loss.queue)
            assert gone is None or gone.life != loss.life
        rows = chance.choice((None, 1, 7, 1000))
        near = limit(at, end, rows)
        batch = ranges(at, near)
        if rows is not None:
            assert sum(each.end - each.begin for each in batch) <= rows + len(batch)
        for each in batch:
            last = read.get((each.queue, each.life))
            assert last is None or last == each.begin
            read[each.queue, each.life] = each.end
            assert each.end <= before[each.queue].end
        for queue, position in near.items():
            if queue not in at:
                assert position == (known.bounds[queue].begin, known.bounds[queue].life)
        assert ranges(at, near) == batch
        at = near
    assert losses > 20
    model.silent = set()
    known = model.known()
    for _ in range(3):
        at = advance(at, known)[0]
    assert at == {queue: (bounds.end, bounds.life) for queue, bounds in known.bounds.items()}


def test_a_limit_is_shared_by_what_queues_have() -> None:
    """A limit in rows, bytes or both is shared by the queues' backlogs, one message at least."""
    start = {queue: Position(0) for queue in QUEUES[:3]}
    end = dict(zip(QUEUES[:3], map(Position, (100, 300, 1)), strict=True))

    def allowed(*limits: object) -> list[int]:
        return [position.offset for position in limit(start, end, *limits).values()]  # type: ignore[arg-type]

    assert allowed(None) == [100, 300, 1]
    assert allowed(40) == [9, 29, 1]
    assert allowed(1) == [1, 1, 1]
    means: Mapping[MessageQueue, float] = dict.fromkeys(QUEUES[:3], 1000.0)
    assert allowed(None, 40_000, means) == [9, 29, 1]
    assert allowed(20, 40_000, means) == [4, 14, 1]
    assert allowed(None, 1, means) == [1, 1, 1]


def test_pieces_of_a_range_are_the_range() -> None:
    """Pieces of a range are the range, without gaps and empty ones."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        start, end = some_positions(chance, 9), some_positions(chance)
        whole = ranges(start, end)
        most = chance.choice((None, 1, 3, 50))
        pieces = ranges(start, end, chance.randrange(40), most)
        assert all(0 < piece.end - piece.begin <= (most or 10**9) for piece in pieces)
        for each in whole:
            mine = [piece for piece in pieces if piece.queue == each.queue]
            ends = [piece.end for piece in mine]
            assert [piece.begin for piece in mine] == [each.begin, *ends[:-1]]
            assert ends[-1] == each.end


def test_small_ranges_share_a_task_and_large_ones_have_their_own() -> None:
    """A batch has a task for each `TASK_MESSAGES`, up to one a range: so a small one has one, and a
    large one as many as it has queues. With minPartitions or maxRecordsPerPartition each range has
    a task, and large ranges are cut."""

    def sizes(
        *messages: int, min_partitions: int = 0, records_max: int | None = None
    ) -> list[list[int]]:
        end = {queue: Position(each) for queue, each in zip(QUEUES, messages, strict=False)}
        start = dict.fromkeys(end, Position(0))
        found = tasks(start, end, min_partitions, records_max)
        return [[each.end - each.begin for each in ranges] for ranges in found]

    most = TASK_MESSAGES
    assert sizes() == []
    assert sizes(*[1] * 8) == [[1] * 8]
    assert sizes(*[most // 8] * 8) == [[most // 8] * 8]
    assert sizes(*[most // 4] * 8) == [[most // 4] * 4] * 2
    assert sizes(*[most] * 8) == [[most]] * 8
    assert sizes(*[most * 100] * 3) == [[most * 100]] * 3
    assert sizes(1, most * 9, 1, 1) == [[1], [most * 9], [1, 1]]
    assert sizes(1, 1, 1, min_partitions=1) == [[1]] * 3
    assert sizes(9, 1, min_partitions=4) == [[2], [2], [2], [3], [1]]
    assert sizes(9, 1, 1, records_max=4) == [[3], [3], [3], [1], [1]]
    assert sizes(9, 1, min_partitions=2, records_max=4) == [[3], [3], [3], [1]]
    assert sizes(9, 1, min_partitions=8, records_max=4) == [[1], [1], [1], [2], [1], [1], [2], [1]]


def test_tasks_have_the_ranges_of_the_batch_in_order() -> None:
    """Tasks have the ranges of the batch in order, each once, in fair shares."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        most = chance.choice((9, TASK_MESSAGES, 20 * TASK_MESSAGES))
        start, end = some_positions(chance, 9), some_positions(chance, most)
        whole = ranges(start, end)
        shared = tasks(start, end)
        assert [each for task in shared for each in task] == whole
        assert all(shared)
        total = sum(each.end - each.begin for each in whole)
        wanted = -(-total // TASK_MESSAGES)
        assert len(shared) <= min(wanted, len(whole))
        for task in shared:
            counts = [each.end - each.begin for each in task]
            assert (sum(counts) - max(counts)) * wanted <= total
