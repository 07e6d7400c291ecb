"""Single messages and small batches of our producers share entries while a leader is busy.

Each is stored once, and a batch in one piece, however often it is tried, at whichever leader, while
its first copy is on its way or later.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from dledger.errors import AppendError
from dledger.log.entry import Kind
from dledger.remoting.message import properties_encode
from dledger.remoting.record import Record, encode_record
from dledger.remoting.record.lone import parse_records
from mqbroker import limits
from mqbroker.leader.appending.append import Appender
from mqbroker.leader.appending.drafts import BatchDraft
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.refusal import Refused
from mqbroker.state import control
from mqbroker.state.dedup import dedup_key
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine

TOPICS = ("T", "U")
QUEUES = 3
LARGEST = limits.BATCH_SHARES_UP_TO + 2
STEPS = 160


class World:
    """Producers, each with its messages, and leaders on a log in memory."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.chance = chance
        self.leader = LeadingMachine(directory, lambda: 1000, auto=False)
        self.appender = Appender(self.leader.machine, self.leader.appending)
        topics = [read_write(topic, QUEUES) for topic in TOPICS]
        self.leader.change(control.PutTopics(topics, 1000))
        self.leader.ledger.commit()
        self.told: list[list[tuple[int, ...]]] = []
        """Positions that each send's tries were answered with."""
        self.counts: list[int] = []
        """How many messages each send has."""

    def send(self) -> None:
        """A message that nobody has sent before, or a batch."""
        self.told.append([])
        self.counts.append(self.chance.choices([1, 2, 3, LARGEST], weights=[5, 3, 2, 1])[0])
        self.attempt(len(self.told) - 1)

    def send_again(self) -> None:
        """A try of one that was sent: its answer is late, or its connection broke."""
        if self.told:
            self.attempt(self.chance.randrange(len(self.told)))

    def attempt(self, number: int) -> None:
        """Try a send, with the same bytes as before; a batch goes to several queues in turn."""
        topic, count = TOPICS[number % 2].encode(), self.counts[number]
        queue_ids = sorted((number + each) % QUEUES for each in range(count))
        records = b"".join(
            encode_record(
                topic=topic,
                queue_id=queue_id,
                body=f"{number}.{each}".encode(),
                properties=properties_encode({"UNIQ_KEY": f"k{number}.{each}"}),
                born_timestamp_ms=1,
                born_host=HOST,
            )
            for each, queue_id in enumerate(queue_ids)
        )
        runs = [*Counter(queue_ids).items()]
        parsed = parse_records(bytearray(records), topic, runs)
        draft = BatchDraft(parsed, topic.decode(), runs, self.leader.assignments, HOST)

        def done(outcome: Stored | Refused | AppendError) -> None:
            assert not isinstance(outcome, Refused)
            if isinstance(outcome, Stored):
                assert len(outcome.positions) == count
                assert [queue_id for queue_id, _ in outcome.offsets] == [*Counter(queue_ids)]
                self.told[number].append(tuple(outcome.positions))

        self.appender.append(draft, dedup_key(topic, f"k{number}.0".encode()), done)

    def commit(self) -> None:
        """Commit one entry; sends that waited for it are appended."""
        self.leader.ledger.commit()

    def commit_all(self) -> None:
        """Commit all entries, also those that are appended meanwhile."""
        while self.leader.ledger.uncommitted:
            self.leader.ledger.commit()

    def another_leader(self) -> None:
        """Lose what is not committed, and lead anew."""
        self.leader.ledger.follow("n1")
        self.leader.ledger.lead()
        self.leader.assignments.reset()
        self.appender.reset()

    def copies(self) -> Counter[str]:
        """How often each message is in the queues, which have no gap."""
        found: Counter[str] = Counter()
        for topic, queue_id in product(TOPICS, range(QUEUES)):
            queue = self.leader.machine.queues.get(topic, queue_id)
            for unit in queue.read(0, queue.end) if queue is not None else ():
                view = self.leader.ledger.view(int(unit["position"]), int(unit["size"]))
                found[bytes(Record(view).body).decode()] += 1
        return found


def played(directory: Path, seed: int) -> World:
    """Random tries, commits and leaders; at the end every message is tried until it is stored."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    world = World(directory, chance)
    actions = [world.send, world.send_again, world.commit, world.commit_all, world.another_leader]
    for _ in range(STEPS):
        chance.choices(actions, weights=[10, 6, 3, 1, 0.6])[0]()
    for number in range(len(world.told)):
        world.attempt(number)
    world.commit_all()
    return world


@pytest.mark.parametrize("nth", range(40))
def test_each_message_is_stored_once_and_all_its_tries_are_told_where(
    tmp_path: Path, nth: int
) -> None:
    """A message is stored once and all its tries get its place, in shared entries, too."""
    world = played(tmp_path, random.randrange(2**32))

    sent = [
        f"{number}.{each}" for number, count in enumerate(world.counts) for each in range(count)
    ]
    assert world.copies() == dict.fromkeys(sent, 1)
    assert [len({*tries}) for tries in world.told] == [1] * len(world.told)
    world.leader.machine.close()


def test_the_sends_that_are_drawn_do_share_entries(tmp_path: Path) -> None:
    """A seed of its own: another can, rarely, lose each shared entry with a leader."""
    world = played(tmp_path, 1)

    entries = world.leader.ledger.entries(1)
    assert Counter(entry.kind for entry in entries)[Kind.SENDS] > 3
    world.leader.machine.close()
