"""Our producers' single messages, which share entries while a leader is busy: each is stored once.

However often one is tried, at whichever leader, while its first copy is on its way or later.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from dledger.log.entry import Kind
from dledger.remoting.message import properties_encode
from dledger.remoting.record import encode_record
from dledger.remoting.record.lone import parse_records
from mqbroker.leader.appending.append import Appender, Stored
from mqbroker.leader.appending.drafts import BatchDraft
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.role import Role
from mqbroker.refusal import Refused
from mqbroker.state import control
from mqbroker.state.dedup import dedup_key
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine

TOPIC = "T"
QUEUES = 3
STEPS = 120


def raise_it(fault: Exception) -> None:
    """A fault of the broker is the test's."""
    raise fault


class World:
    """Producers, each with its messages, and leaders on a log in memory."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.chance = chance
        self.leader = LeadingMachine(directory, lambda: 1000, auto=False)
        entries = Entries(self.leader.ledger, self.leader.assignments, raise_it)
        role = Role("n0", {"n0": "127.0.0.1:10911"})
        self.appender = Appender(self.leader.machine, entries, role)
        self.leader.change(control.PutTopics([read_write(TOPIC, QUEUES)], 1000))
        self.leader.ledger.commit()
        self.told: list[list[int]] = []
        """For each message, the positions that its tries were answered with."""

    def send(self) -> None:
        """A message that nobody has sent before."""
        self.told.append([])
        self.attempt(len(self.told) - 1)

    def send_again(self) -> None:
        """A try of one that was sent: its answer is late, or its connection broke."""
        if self.told:
            self.attempt(self.chance.randrange(len(self.told)))

    def attempt(self, number: int) -> None:
        """One try, with the very bytes of the others."""
        unique_key, queue_id = f"k{number}", number % QUEUES
        record = encode_record(
            topic=TOPIC.encode(),
            queue_id=queue_id,
            body=unique_key.encode(),
            properties=properties_encode({"UNIQ_KEY": unique_key}),
            born_timestamp_ms=1,
            born_host=HOST,
        )
        runs = [(queue_id, 1)]
        lone = parse_records(bytearray(record), TOPIC.encode(), runs)
        draft = BatchDraft(lone, TOPIC, runs, self.leader.assignments, HOST)

        def done(outcome: Stored | Refused) -> None:
            if isinstance(outcome, Stored):
                self.told[number] += outcome.positions

        self.appender.append(draft, dedup_key(TOPIC.encode(), unique_key.encode()), done)

    def commit(self) -> None:
        """One entry; what waited for it is appended."""
        self.leader.ledger.commit()

    def commit_all(self) -> None:
        """Everything, also what is appended meanwhile."""
        while self.leader.ledger.uncommitted:
            self.leader.ledger.commit()

    def another_leader(self) -> None:
        """What is not committed is lost."""
        self.leader.ledger.follow("n1")
        self.leader.ledger.lead()
        self.leader.assignments.reset()
        self.appender.reset()

    def copies(self) -> Counter[int]:
        """How often each message is in the queues, which have no gap."""
        found: Counter[int] = Counter()
        for queue_id in range(QUEUES):
            queue = self.leader.machine.queues.get(TOPIC, queue_id)
            for unit in queue.read(0, queue.end) if queue is not None else ():
                record = bytes(self.leader.ledger.view(int(unit["position"]), int(unit["size"])))
                found[int(record.partition(b"UNIQ_KEY\x01k")[2].split(b"\x02")[0])] += 1
        return found


@pytest.mark.parametrize("nth", range(40))
def test_each_message_is_stored_once_and_all_its_tries_are_told_where(
    tmp_path: Path, nth: int
) -> None:
    """Random tries, commits and leaders; at the end every message is tried until it is stored."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    world = World(tmp_path, chance)
    actions = [world.send, world.send_again, world.commit, world.commit_all, world.another_leader]
    for _ in range(STEPS):
        chance.choices(actions, weights=[10, 6, 6, 1, 0.6])[0]()
    for number in range(len(world.told)):
        world.attempt(number)
    world.commit_all()

    assert world.copies() == dict.fromkeys(range(len(world.told)), 1)
    assert [len({*positions}) for positions in world.told] == [1] * len(world.told)
    entries = world.leader.ledger.entries(1)
    assert Kind.SENDS in {entry.kind for entry in entries}, "nothing was gathered"
    world.leader.machine.close()
