"""A broker whose state is as large as it may be, made directly, without its many requests.

The names: topics `Wide0`, `Wide1`, ... with as many queues as a topic may have; the group `Many`,
which has offsets in all of them, and groups `G0`, `G1`, ... which have them in `Wide0`. `Wide0` has
messages in each queue, `Deep` very many in one.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import trio

from dledger.buffers import Buffer
from dledger.errors import AppendError
from dledger.limits import ACL_ENTRIES_MAX, USERS_MAX
from dledger.log.entry import Draft
from dledger.raft.appends import Appended
from dledger.remoting.bodies import (
    ConsumerData,
    DataVersion,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from dledger.remoting.codec import encode_frame
from dledger.remoting.command import Command
from dledger.testing.local import LocalLedger
from dledger.trust.policies import Entry
from dledger.trust.users import User
from dledger.trust.wrapping import Wrapping
from mqbroker import limits
from mqbroker.broker import Broker
from mqbroker.config import BrokerConfig
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import Client
from mqbroker.state.derived.units import Units
from mqbroker.state.machine import Machine
from mqbroker.testing.requests import produce_request

NOW_MS = 1_790_000_000_000
WIDE_TOPICS = 340
WIDE_GROUPS = 400
SOME_TOPICS = 12
MEMBERS = 400
UNITS_PER_QUEUE = 900
DEEP_MESSAGES = 16_000
FLYING_PER_QUEUE = 90
NEVER_SILENT_S = 1e12
GROUPS_PER_CLIENT = limits.GROUPS_PER_CLIENT_MAX


AnswerT = TypeVar("AnswerT")


class Sink:
    """A member's connection: what it is sent is encoded, and dropped."""

    closed = False
    peer = ("127.0.0.1", 1)

    def __init__(self, number: int) -> None:
        self.id = number
        self.kept_bytes = 0
        self.sent_bytes = 0

    def send_oneway_request(self, command: Command) -> None:
        """Count the bytes of a request."""
        self.sent_bytes += sum(map(len, encode_frame(command)))

    async def request(self, command: Command, timeout_s: float) -> Command:
        """Answer a request at once with success."""
        self.send_oneway_request(command)
        return command.reply()

    def answer_by(self, _: Command, answer: AnswerT) -> AnswerT:
        """Unexpected exceptions are the test's."""
        return answer

    def send(self, command: Command) -> None:
        """Drop the answer of a request."""

    def tell_kept(self) -> None:
        """Leave the kept bytes uncounted."""


class Ledger(LocalLedger):
    """Commits in another turn of the loop than appends, as a group does."""

    def __init__(self, machine: Machine, *, auto: bool) -> None:
        self.appended = trio.Event()
        super().__init__(machine, auto=auto)

    def append_nowait(
        self, body: Buffer | Draft, kind: int, on_done: Callable[[Appended | AppendError], None]
    ) -> None:
        """Place an entry, which is committed soon."""
        super().append_nowait(body, kind, on_done)
        self.appended.set()

    async def commit_forever(self) -> None:
        """Commit what was appended, one entry in each turn."""
        while True:
            await self.appended.wait()
            self.appended = trio.Event()
            while self.uncommitted:
                await trio.lowlevel.checkpoint()
                self.commit(1)


@dataclass
class Largest:
    """The broker, and what its requests go to."""

    broker: Broker
    machine: Machine
    core: Core


SECRET = "the secret of the largest"  # noqa: S105


@asynccontextmanager
async def largest(directory: Path) -> AsyncIterator[Largest]:
    """A broker that serves, with all of its state."""
    machine = Machine(directory)
    machine.restore()
    ledger = Ledger(machine, auto=False)
    core = Core(
        BrokerConfig(store_path_root_dir=str(directory / "store"), d_leger_secret=SECRET),
        machine,
        ledger,
        clock_ms=lambda: NOW_MS + int(trio.current_time() * 1000),
        clock_s=trio.current_time,
    )
    broker = Broker(core)
    units = _messages(broker, ledger)
    _definitions(machine)
    _offsets(machine)
    _queues(machine, units)
    _popped(machine)
    _waiting(machine)
    _members(broker)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.commit_forever)
            nursery.start_soon(broker.run)
            yield Largest(broker, machine, core)
            nursery.cancel_scope.cancel()
    finally:
        machine.close()


def _definitions(machine: Machine) -> None:
    queues = limits.QUEUES_PER_TOPIC_MAX
    wide = [
        TopicConfig(f"Wide{number}", queues, queues, 6, order=0 < number < SOME_TOPICS // 2)
        for number in range(WIDE_TOPICS)
    ]
    count = limits.TOPICS_MAX - len(machine.topics) - WIDE_TOPICS
    others = [TopicConfig(f"Topic-{number:05}", 4, 4, 6) for number in range(count)]
    machine.topics.restore([*machine.topics, *wide, *others], DataVersion(1, NOW_MS))
    names = ["Many", "Some", "C", "P", *(f"G{number}" for number in range(WIDE_GROUPS))]
    names += [f"Group-{number:05}" for number in range(limits.GROUPS_MAX - len(names) - 10)]
    machine.groups.restore(
        [*machine.groups, *map(SubscriptionGroupConfig, names)], DataVersion(1, NOW_MS)
    )


def _offsets(machine: Machine) -> None:
    queues = range(limits.QUEUES_PER_TOPIC_MAX)
    table = {"Many": {f"Wide{number}": dict.fromkeys(queues, 1) for number in range(WIDE_TOPICS)}}
    table |= {f"G{number}": {"Wide0": dict.fromkeys(queues, 1)} for number in range(WIDE_GROUPS)}
    table["Some"] = {f"Wide{n}": dict.fromkeys(queues, 1) for n in range(SOME_TOPICS)}
    left = limits.CONSUMER_OFFSETS_MAX - (WIDE_TOPICS + WIDE_GROUPS + SOME_TOPICS) * len(queues)
    for number in range(left // 8 - 1000):
        topics = (f"Topic-{number % 10_000:05}", f"Topic-{number % 10_000 + 1:05}")
        table[f"Group-{number:05}"] = {topic: dict.fromkeys(range(4), 1) for topic in topics}
    machine.offsets._groups = table
    for group, topics_ in table.items():
        machine.offsets.shares.change(group, sum(map(len, topics_.values())))


def _messages(broker: Broker, ledger: Ledger) -> Units:
    """Very many in one queue, by one entry, for what reads the log; their units."""
    request = produce_request("k", "Deep", [(0, DEEP_MESSAGES)], b"")
    broker.handler(request, Sink(0))  # type: ignore[arg-type]
    ledger.commit()
    queue = broker.core.machine.queues.get("Deep", 0)
    assert queue is not None
    return queue.read(0, UNITS_PER_QUEUE)


def _queues(machine: Machine, units: Units) -> None:
    content = units.tobytes()
    for queue_id in range(limits.QUEUES_PER_TOPIC_MAX):
        machine.queues.append("Wide0", queue_id, content, 1)


def _popped(machine: Machine) -> None:
    queues = range(limits.QUEUES_PER_TOPIC_MAX)
    flying = [
        (base, b"\1", NOW_MS - 10**6 + base, NOW_MS - 1, 1, "") for base in range(FLYING_PER_QUEUE)
    ]
    machine.popped.restore(
        ("G0", "Wide0", queue_id, UNITS_PER_QUEUE, NOW_MS, flying) for queue_id in queues
    )


def _waiting(machine: Machine) -> None:
    offsets = np.arange(limits.TIMERS_MAX)
    times = NOW_MS + 10**9 + offsets[::-1]
    machine.timers.restore(b"".join(part.astype(">i8").tobytes() for part in (offsets, times)))
    wrapping = Wrapping(SECRET.encode())
    wrapped, per_user = wrapping.wrap("user-1", "p" * 256), ACL_ENTRIES_MAX // USERS_MAX
    entries = [
        Entry("Custom", f"Topic:topic-{number}", ("All",), ("10.0.0.0/8",) * 16, "Allow")
        for number in range(per_user)
    ]
    machine.users.restore(
        User(f"user-{number}", wrapped, entries=tuple(entries)) for number in range(USERS_MAX)
    )
    machine.producers.restore(
        (f"named-{number}", ["a"], 1, NOW_MS, [(0, 1, 0, 100)])
        for number in range(limits.PRODUCERS_MAX)
    )
    machine.locks.restore(
        [
            (f"G{number}", "Wide0", queue_id, "c1", NOW_MS)
            for number in range(8)
            for queue_id in range(limits.QUEUES_PER_TOPIC_MAX)
        ]
    )


def _members(broker: Broker) -> None:
    clients, numbers = broker._clients, itertools.count(1_000_000)
    membership = clients._membership

    def join(name: str, language: str, data: HeartbeatData) -> None:
        number = next(numbers)
        client = Client(name, "127.0.0.1:1", language, 1)
        clients._connections[number] = Sink(number)  # type: ignore[assignment]
        membership.heartbeat(number, client, data, NEVER_SILENT_S)

    subscribed = [SubscriptionData(f"Wide{number}") for number in range(2)]
    for number in range(MEMBERS):
        consumers = [ConsumerData("Many", subscription_data_set=subscribed)]
        language = "CPP" if number % 2 else "JAVA"
        join(f"member-{number}", language, HeartbeatData(f"member-{number}", [], consumers))
    producers = [ProducerData(f"producers-{number}") for number in range(GROUPS_PER_CLIENT)]
    for number in range(100):
        join(f"producer-{number}", "JAVA", HeartbeatData(f"producer-{number}", producers, []))
    topics = [SubscriptionData(f"Topic-{number:05}") for number in range(400)]
    consumers = [
        ConsumerData(f"G{number}", subscription_data_set=topics) for number in range(WIDE_GROUPS)
    ]
    join("wide", "JAVA", HeartbeatData("wide", [], consumers))
