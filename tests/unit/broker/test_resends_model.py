"""Applications send message objects, clients retry, connections break, leaders change.

Whatever happens in which order, two promises hold, stated here without the broker's own rule:

* A send that was answered is stored for itself alone. Two sends share one copy
  only where the broker can't know better: an earlier leader answered the one, and a later one the
  other; or both were on their way at once, over different connections or for longer than a client
  waits.
* A send of an object that is used once is stored once, however often its client tried, as long as
  that was within the retry span.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import AppendError
from dledger.remoting.message import host_bytes, properties_encode
from mqbroker import limits
from mqbroker.leader.appending.append import Appender
from mqbroker.leader.appending.drafts import NewRecord, RecordsDraft
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.leader.appending.resends import Asker, Send
from mqbroker.refusal import Refused
from mqbroker.state import control
from mqbroker.state.dedup import dedup_key
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine

TOPIC = "Orders"
QUEUES = 2


@dataclass(eq=False)
class Sending:
    """An application's send: the object, and its client's tries."""

    key: int
    oneway: bool
    tries: list[Try] = field(default_factory=list)
    position: int | None = None
    """The answer that the client got, by the leader of which term, and when (in steps)."""
    term: int = 0
    told_step: int = 0

    @property
    def span_s(self) -> float:
        return self.tries[-1].at_s - self.tries[0].at_s


@dataclass(eq=False)
class Try:
    sending: Sending
    connection: int
    at_s: float
    step: int
    ended: bool = False
    """A connection that broke, or an answer that came: nothing more comes of the try."""


class World:
    """Sends of one client to the broker's own code, on a log in memory and virtual time."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 1000.0
        self.connection = 1
        self.term = 1
        self.step = 0
        self.leader = LeadingMachine(directory, lambda: round(self.now_s * 1000), auto=False)
        self.appender = Appender(self.leader.machine, self.leader.appending)
        self.leader.change(control.PutTopics([read_write(TOPIC, QUEUES)], 1000))
        self.leader.ledger.commit()
        self.sendings: list[Sending] = []
        self.untold: list[Callable[[], None]] = []
        self.name_servers_know = True

    # -- what applications and clients do; `drawn` decides what is left open

    def send_a_new_object(self, drawn: int) -> None:
        """Send a new object, every fourth one-way."""
        self.send(Sending(len(self.sendings), drawn % 4 == 3), drawn)

    def send_an_object_again(self, drawn: int) -> None:
        """Send an object again, though an earlier send of it may not have ended."""
        if self.sendings:
            key = self.sendings[-1 - drawn % min(3, len(self.sendings))].key
            self.send(Sending(key, drawn % 4 == 3), drawn)

    def try_again(self, drawn: int) -> None:
        """A client got no answer: its connection broke, it was refused, or it has waited enough."""
        failed = [each for each in self.sendings if self.failed(each)]
        if failed:
            self.attempt(failed[drawn % len(failed)], drawn)

    def time_passes(self, drawn: int) -> None:
        self.now_s += (0.01, 0.6, 0.6, 4.0, 20.0)[drawn % 5]

    # -- what happens to the broker

    def commit(self, drawn: int) -> None:
        """Commit the entries, and sometimes also the sends that waited for them."""
        self.leader.ledger.commit()
        if drawn % 2:
            self.commit_all()

    def commit_all(self) -> None:
        while self.leader.ledger.uncommitted:
            self.leader.ledger.commit()

    def the_connection_breaks(self, _: int) -> None:
        for sending in self.sendings:
            for each in sending.tries:
                each.ended = True
        self.connection += 1

    def another_leader(self, _: int) -> None:
        """Lose what is not committed, and lead anew, over a new connection or the old one."""
        self.term += 1
        self.leader.ledger.follow("n1")
        self.leader.ledger.lead()
        self.leader.assignments.reset()
        self.appender.reset()

    def name_servers_are_slow(self, _: int) -> None:
        """Answers wait until name servers know the topic."""
        self.name_servers_know = False

    def name_servers_are_told(self, _: int) -> None:
        self.name_servers_know = True
        untold, self.untold = self.untold, []
        for tell in untold:
            tell()

    # -- how it ends

    def every_client_tries_again(self, *, told: bool) -> None:
        """Over a new connection; the answers reach it, or come when it is gone."""
        self.the_connection_breaks(0)
        for sending in filter(self.failed, self.sendings):
            self.attempt(sending, 0)
        self.name_servers_are_slow(0)
        self.commit_all()
        if not told:
            self.the_connection_breaks(0)
        self.name_servers_are_told(0)

    def every_object_is_sent_again(self) -> None:
        """Send each of the last objects twice at once: a copy answers one send at most."""
        for key in {each.key for each in self.sendings[-3:]}:
            self.send(Sending(key, False), 0)
            self.send(Sending(key, False), 1)
        self.commit_all()

    # -- how it is done

    def failed(self, sending: Sending) -> bool:
        last = sending.tries[-1]
        waited_s = self.now_s - last.at_s
        unanswered = sending.position is None and not sending.oneway
        return unanswered and (last.ended or waited_s >= limits.RETRY_PATIENCE_S)

    def send(self, sending: Sending, drawn: int) -> None:
        self.sendings.append(sending)
        self.attempt(sending, drawn)

    def attempt(self, sending: Sending, drawn: int) -> None:
        self.step += 1
        attempt = Try(sending, self.connection, self.now_s, self.step)
        sending.tries.append(attempt)
        unique_key = f"k{sending.key}"
        record = NewRecord(
            body=unique_key.encode(),
            properties=properties_encode({"UNIQ_KEY": unique_key, "sw8": str(self.now_s)}),
            born_timestamp_ms=round(self.now_s * 1000),
            born_host=host_bytes("10.0.0.1", self.connection),
        )
        draft = RecordsDraft([record], TOPIC, [(drawn % QUEUES, 1)], self.leader.assignments, HOST)
        keys = [] if sending.oneway else [dedup_key(TOPIC.encode(), unique_key.encode())]
        asker = Asker(self.connection, self.now_s)
        send = Send(keys, [record], asker, self.leader.assignments.now_ms())
        term = self.term

        def done(outcome: Stored | Refused | AppendError) -> None:
            if not isinstance(outcome, Stored):
                attempt.ended = True
            elif self.name_servers_know:
                self.tell(attempt, asker, outcome, term)
            else:
                self.untold.append(lambda: self.tell(attempt, asker, outcome, term))

        self.appender.send(draft, send, done)

    def tell(self, attempt: Try, asker: Asker, outcome: Stored, term: int) -> None:
        """The answer of a leader is written, to a connection that may be gone."""
        sending, reached = attempt.sending, attempt.connection == self.connection
        self.appender.answered(asker, reached)
        if reached and attempt is sending.tries[-1]:
            self.step += 1
            sending.position, sending.term = outcome.positions[0], term
            sending.told_step = self.step

    # -- what is promised

    def copies(self) -> Counter[int]:
        """How many copies of each object the queues hold."""
        found: Counter[int] = Counter()
        for queue_id in range(QUEUES):
            queue = self.leader.machine.queues.get(TOPIC, queue_id)
            if queue is not None:
                units = queue.read(0, queue.end)
                for position, size in zip(units["position"], units["size"], strict=True):
                    record = self.leader.ledger.view(int(position), int(size))
                    found[int(bytes(record).partition(b"UNIQ_KEY\x01k")[2].split(b"\x02")[0])] += 1
        return found

    def a_copy_is_told_to_one_send(self) -> None:
        told = [each for each in self.sendings if each.position is not None]
        told.sort(key=lambda each: each.told_step)
        for first, second in itertools.combinations(told, 2):
            if first.position == second.position:
                earlier_leader = first.term < second.term
                assert earlier_leader or at_once(first, second), f"{first} and {second} share it"

    def an_object_that_is_sent_once_is_stored_once(self) -> None:
        uses = Counter(each.key for each in self.sendings)
        copies = self.copies()
        for sending in self.sendings:
            if uses[sending.key] == 1:
                if sending.span_s <= limits.RETRY_SPAN_S:
                    assert copies[sending.key] <= 1, f"{copies[sending.key]} copies of {sending}"
                if sending.position is not None:
                    assert copies[sending.key] >= 1, f"no copy of {sending}"


def at_once(first: Sending, second: Sending) -> bool:
    """Whether a try of the one may have been taken for one of the other, which was not answered."""
    return second.tries[-1].step < first.told_step and any(
        one.connection != other.connection or abs(one.at_s - other.at_s) >= limits.RETRY_PATIENCE_S
        for one in first.tries
        for other in second.tries
    )


OFTEN = {
    World.send_a_new_object: 2,
    World.send_an_object_again: 2,
    World.try_again: 5,
    World.time_passes: 2,
    World.commit: 4,
    World.the_connection_breaks: 2,
    World.another_leader: 1,
    World.name_servers_are_slow: 1,
    World.name_servers_are_told: 2,
}
steps = st.tuples(
    st.sampled_from([each for each, weight in OFTEN.items() for _ in range(weight)]),
    st.integers(0, 59),
)


@pytest.mark.parametrize("alone", [1, limits.SENDS_TOGETHER_FROM])
def test_every_send_is_stored_and_no_retry_is_stored_again(
    alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both promises hold after any course of events, with sends stored one by one or together."""
    monkeypatch.setattr(limits, "SENDS_TOGETHER_FROM", alone)
    they_come_and_go()


@settings(max_examples=80)
@given(st.lists(steps, min_size=20, max_size=50))
def they_come_and_go(drawn: list[tuple[Callable[[World, int], None], int]]) -> None:
    """Run one course of events to its end."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        for happens, choice in drawn:
            happens(world, choice)
        world.every_client_tries_again(told=False)
        world.another_leader(0)
        world.every_client_tries_again(told=True)
        world.an_object_that_is_sent_once_is_stored_once()
        world.every_object_is_sent_again()
        world.a_copy_is_told_to_one_send()
        world.leader.machine.close()
