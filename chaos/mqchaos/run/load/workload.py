"""Workloads: the words between harness and workers about a run's clients. Pure.

A worker is a process that runs the real client: a producer that sends lines at a steady rate, or a
member of a consumer group. It gets its task as one JSON argument, writes what happens to a history
file of its own, and prints a line of progress ten times a second. When its standard input ends it
finishes what it has begun and leaves, so workers never outlive the harness.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from dledger.errors import ConfigError
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from mqchaos.cluster.access import NO_IDENTITY, Identity
from mqchaos.limits import DELAYS_S, LIFETIMES_S, MESSAGES_MAX, POP_MEMBERS, SEND_TIMEOUT_S

Sends: TypeAlias = Literal[
    "plain", "equal", "few", "patient", "delayed", "transactional", "fleeting", "parts", "priority"
]
Tools: TypeAlias = Literal["resets", "changes", "widens", "administers", "leaves"]
Beginning: TypeAlias = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of clients in a run. `lines`: how many lines of text make a message.

    `sends`: when messages are to be delivered: at once, after a delay, or when their transaction is
    committed; some for a short time only, or in parts; or by priorities, in a topic for these. What
    is `equal` is told apart by the unique keys alone that producers make; `few`: keys come again
    and again; `patient` senders send what was refused again until it is stored.
    `rate_per_s_max` is of all producers together.

    `keyed`: each message has a key that decides its queue. `stay_s`: consumers leave their group
    after so long, and join it again. `dies_s`: all clients are killed after so long, and others
    come; `only_readers_die`: all consumers are. `deployed`: consumers handle messages until they
    are told to stop (SIGTERM), one after the other, and others come before; with `threads` they
    are blocking ones. `ordered`: consumers lock their queues.
    `broadcast`: each reads all. `tools`: what is changed meanwhile, as by `mqadmin`: the group's
    offsets, or topics, groups and settings. `once`: consumers write an output for each message, in
    transactions with its offset. `members`: so many in each of the consumers' processes, which pop.
    `beginning`: where the group reads queues without an offset; `away`: all its members are now
    and then. `groups`: so many broker groups have the topic. `forks`: each program makes its client
    first, and so many children of it open that.
    `stock`: the clients are RocketMQ's own, of those that the conformance suite builds.
    """

    name: str
    story: str
    lines: int = 1
    keyed: bool = True
    rate_share: float = 1.0
    stay_s: float | None = None
    sends: Sends = "plain"
    rate_per_s_max: float = math.inf
    dies_s: float | None = None
    only_readers_die: bool = False
    deployed: bool = False
    threads: bool = False
    ordered: bool = False
    broadcast: bool = False
    tools: Tools | None = None
    once: bool = False
    members: int = 0
    beginning: Beginning = "first"
    away: bool = False
    forks: int = 0
    groups: int = 1
    stock: str = ""

    @property
    def paused_by_faults_alone(self) -> bool:
        """Whether pauses are as long as our client needs at a fault, and no longer."""
        return self.dies_s is None and not self.stock and not self.lives

    @property
    def lives(self) -> bool:
        """Whether the topic is deleted and made again meanwhile, among other things."""
        return self.tools == "administers"

    @property
    def producers_die_s(self) -> float | None:
        """After so long all producers are killed."""
        return None if self.only_readers_die else self.dies_s

    @property
    def by_priority(self) -> bool:
        """Whether each message has a priority."""
        return self.sends == "priority"


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("keyed", "lines, each with a key that decides its queue; sends are idempotent"),
        Workload("spread", "lines without a key, over all queues in turn", keyed=False),
        Workload(
            "large", "messages of some 40 KiB, a fiftieth as many", lines=1000, rate_share=0.02
        ),
        Workload("churn", "as keyed; consumers leave their group and join again", stay_s=2.0),
        Workload(
            "delayed",
            "messages that wait, in turn by a level and by a timer",
            sends="delayed",
            rate_per_s_max=500.0,
        ),
        Workload(
            "transactional",
            "transactions: two of three are committed; of each fifth the broker has to ask",
            sends="transactional",
            rate_per_s_max=100.0,
        ),
        Workload(
            "ordered",
            "as churn, in a group whose members lock their queues",
            stay_s=3.0,
            ordered=True,
        ),
        Workload(
            "broadcast",
            "as churn, but each consumer reads all, and keeps its offsets in a file",
            stay_s=3.0,
            broadcast=True,
        ),
        Workload(
            "mortal",
            "as keyed; producers and consumers are killed every few seconds, and others come",
            rate_per_s_max=500.0,
            dies_s=4.0,
        ),
        Workload(
            "exactly-once",
            "as mortal; consumers write an output for each message, in transactions",
            rate_per_s_max=500.0,
            dies_s=4.0,
            once=True,
        ),
        Workload(
            "pop",
            "more members than queues pop, are killed, and forget, delay and give up messages, of "
            "which a tenth ends soon",
            rate_per_s_max=300.0,
            dies_s=4.0,
            only_readers_die=True,
            sends="fleeting",
            members=POP_MEMBERS,
        ),
        Workload(
            "priority",
            "as pop, in a topic of priorities, which all have; members take naps together",
            keyed=False,
            rate_per_s_max=150.0,
            dies_s=4.0,
            only_readers_die=True,
            sends="priority",
            members=POP_MEMBERS,
        ),
        Workload(
            "parts",
            "as keyed; each hundredth message has 5 MiB, and is sent in parts",
            sends="parts",
            rate_per_s_max=100.0,
        ),
        Workload(
            "resets", "as keyed; now and then the group's offsets are set back", tools="resets"
        ),
        Workload(
            "tools",
            "as keyed; topics, groups and settings are made, changed and deleted meanwhile",
            tools="changes",
        ),
        Workload(
            "deploy",
            "consumers handle messages, and are stopped in order one after the other; others come",
            rate_per_s_max=300.0,
            deployed=True,
        ),
        Workload(
            "deploy-ordered",
            "as deploy, in a group whose members lock their queues",
            rate_per_s_max=300.0,
            deployed=True,
            ordered=True,
        ),
        Workload(
            "deploy-pop",
            "as deploy, in a group that pops",
            rate_per_s_max=300.0,
            deployed=True,
            members=1,
        ),
        Workload(
            "deploy-broadcast",
            "as deploy, but each consumer reads all, and goes on where the one before it was",
            rate_per_s_max=300.0,
            deployed=True,
            broadcast=True,
        ),
        Workload(
            "deploy-blocking",
            "as deploy, by blocking consumers, whose handlers work in threads",
            rate_per_s_max=300.0,
            deployed=True,
            threads=True,
        ),
        Workload(
            "widened",
            "the topic gets queues while its group, which begins at the end, reads or is away",
            rate_per_s_max=300.0,
            tools="widens",
            beginning="last",
            away=True,
        ),
        Workload(
            "forked",
            "programs make a client and fork; children open it, send equal messages, and read",
            rate_per_s_max=300.0,
            sends="equal",
            forks=2,
        ),
        Workload(
            "administered",
            "the topic is made anew, read-only, unreadable; its group disabled and set back",
            sends="patient",
            rate_per_s_max=200.0,
            tools="administers",
        ),
        Workload(
            "administered-pop",
            "as administered, with a group that pops",
            sends="patient",
            rate_per_s_max=200.0,
            tools="administers",
            members=POP_MEMBERS,
        ),
        Workload(
            "distant",
            "one of two broker groups comes and goes; keys stay, though producers are killed",
            sends="few",
            rate_per_s_max=200.0,
            dies_s=4.0,
            tools="leaves",
            groups=2,
        ),
        *(
            Workload(
                name,
                f"a stock Java client, {version}: synchronous sends, again at errors, ordered",
                stock=f"{name}-{version}",
            )
            for name, version in (("java4", "4.9.8"), ("java5", "5.5.0"))
        ),
    )
}


class Task(msgspec.Struct, frozen=True, tag_field="role", tag=str.lower):
    """The task of all workers. `client` names the worker in the history.

    Each has `at_once`, too: whether an event is in the history's file before anything else happens,
    since the worker may be killed; `part_bytes`: of a history that is a row of files; and `forks`:
    so many children do it, each with a history of its own; `identity`: what it
    gets in by.
    """

    client: str
    namesrv_addr: str
    topic: str
    history: str


class Produce(Task, frozen=True):
    """Send `messages` lines (None: until told to stop) of the file `lines`, so many a second.

    The n-th message of producer `index` is line `index + n * producers`, modulo the file's length,
    and with `lines_each` those that follow it.
    """

    lines: str
    index: int
    producers: int
    messages: int | None
    rate_per_s: float
    run: str
    lines_each: int = 1
    keyed: bool = True
    send_timeout_s: float = SEND_TIMEOUT_S
    sends: Sends = "plain"
    at_once: bool = False
    part_bytes: int = 0
    forks: int = 0
    identity: Identity = NO_IDENTITY


class Consume(Task, frozen=True):
    """Read the topic as a member of `group`, leaving it for a moment every `stay_s`.

    With a file for `offsets` it reads all queues, whoever else does. With a producer's name in
    `once` it writes an output for each message, in transactions. With `members` it is so many
    members that pop, who with `naps` all stand still now and then. With `handles` a handler is
    called until the process is told to stop; with `threads` by a blocking consumer, in threads.
    `away`: between its stays, with all other members. `waits`: a process that has started begins
    with the first byte of its standard input.
    """

    group: str
    stay_s: float | None = None
    ordered: bool = False
    offsets: str | None = None
    once: str | None = None
    at_once: bool = False
    members: int = 0
    naps: bool = False
    handles: bool = False
    threads: bool = False
    beginning: Beginning = "first"
    away: bool = False
    waits: bool = False
    part_bytes: int = 0
    forks: int = 0
    identity: Identity = NO_IDENTITY

    @property
    def reader(self) -> str:
        """Name in the history of the reader that is given each message once: the consumer group, or
        the members that have this file for their offsets."""
        if self.offsets is None:
            return self.group
        return f"{self.group}-{Path(self.offsets).name.partition('.')[0]}"


TaskT = TypeVar("TaskT", Produce, Consume)


def clients_of(task: Produce | Consume) -> list[str]:
    """The clients that do a task, by their names in the history."""
    if not task.forks:
        return [task.client]
    return [f"{task.client}.{number}" for number in range(task.forks)]


class Progress(msgspec.Struct):
    """How far a worker is. `ends`: per "broker/queue", the offset after the last one
    seen."""

    sent: int = 0
    acked: int = 0
    failed: int = 0
    delivered: int = 0
    ends: dict[str, int] = {}
    error: str | None = None

    def reach(self, queue: str, end: int) -> None:
        """Note that everything before this offset of a queue was seen."""
        self.ends[queue] = max(end, self.ends.get(queue, 0))


def together(before: Progress, now: Progress) -> Progress:
    """Progress of a worker that was killed together with its replacement's."""
    both = Progress(
        before.sent + now.sent,
        before.acked + now.acked,
        before.failed + now.failed,
        before.delivered + now.delivered,
        dict(before.ends),
        before.error or now.error,
    )
    for queue, end in now.ends.items():
        both.reach(queue, end)
    return both


def all_together(some: Iterable[Progress]) -> Progress:
    """Progress of several workers together."""
    return reduce(together, some, Progress())


def ending(number: int) -> str:
    """How the producer's n-th transaction ends, whoever is asked: two of three are committed."""
    return "rollback" if number % 3 == 2 else "commit"


def ends_itself(number: int) -> bool:
    """Whether the producer ends it itself; of each fifth one the broker has to ask."""
    return number % 5 != 4


def outputs_of(topic: str) -> str:
    """The topic of what is written for a topic's messages."""
    return f"{topic}-outputs"


def output_key(input_key: str) -> str:
    """The unique key of what is written for a message: the same at each try, by whoever."""
    return f"{input_key}-output"


def number_of(unique: str) -> int:
    """The number in a unique key."""
    return int(unique.rpartition("-")[2])


def delay_of(number: int) -> tuple[int, float]:
    """The level and the seconds by which the n-th delayed message waits: one of them is 0."""
    return (1, 0.0) if number % 2 else (0, DELAYS_S[number // 2 % len(DELAYS_S)])


def lifetime_of(number: int) -> float | None:
    """For how many seconds the n-th message is to be delivered, if not for ever."""
    return LIFETIMES_S[number // 10 % len(LIFETIMES_S)] if number % 10 == 9 else None


Fate: TypeAlias = Literal["done", "left", "again", "dead"]


def fate_of(number: int, deliveries: int) -> Fate:
    """Fate of the n-th message at a member that pops, by how often it was delivered: one of fifty
    is given up; of twenty, one is forgotten at first and one asked for again."""
    if number % 50 == 7:
        return "dead"
    if deliveries == 1 and number % 20 == 3:
        return "left"
    return "again" if deliveries == 1 and number % 20 == 14 else "done"


def unique_key(run: str, client: str, number: int) -> str:
    """A message's unique key: it names the message in history, broker and audit alike."""
    return f"{run}-{client}-{number:08d}"


def run_name(seed: int, scenario: str) -> str:
    """A short name for a run, so that keys of two runs on one cluster differ."""
    return hashlib.blake2b(f"{scenario} {seed}".encode(), digest_size=4).hexdigest()


def split(messages: int, producers: int) -> list[int]:
    """How many each producer sends so that they send `messages` together."""
    if not 1 <= messages <= MESSAGES_MAX:
        raise ConfigError(f"messages is {messages}; it must be from 1 to {MESSAGES_MAX}")
    return [messages // producers + (k < messages % producers) for k in range(producers)]


def read_lines(path: Path) -> list[bytes]:
    """The non-empty lines of a text file, without their line ends."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise ConfigError(f"the input {path} can't be read: {error.strerror}") from error
    if not lines:
        raise ConfigError(f"the input {path} has no line with text in it")
    number, longest = max(enumerate(lines, start=1), key=lambda each: len(each[1]))
    if len(longest) > MESSAGE_BODY_BYTES_MAX:
        raise ConfigError(
            f"the input {path} has a line of {len(longest)} bytes (number {number} of those with "
            f"text); each line is sent as a message, which has at most {MESSAGE_BODY_BYTES_MAX}"
        )
    return lines


def acknowledged_since(acked: int, now: Progress) -> bool:
    """Whether a producer has had more acknowledged than these, or waits for no outcome."""
    return now.acked > acked or now.acked + now.failed >= now.sent


def caught_up(producers: Sequence[Progress], consumers: Sequence[Progress]) -> bool:
    """Whether the consumers together were given everything that was acknowledged."""
    reached = all_together(consumers).ends
    return all(reached.get(queue, 0) >= end for queue, end in all_together(producers).ends.items())
