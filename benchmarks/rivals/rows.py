"""Which client does which work with which system, in which order. Pure.

A row of the page is a work at one durability and size; a contender is a client with a system. The
steps of one cluster's life run one after the other on it, reads after what they read was sent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of the page: what is measured, and in what."""

    name: str
    title: str
    unit: str
    more_is_better: bool = True
    aim: float | None = None


@dataclass(frozen=True)
class Step:
    """One measurement: `contender` does `work` for a row on a topic of its own kind."""

    row: str
    client: str
    work: str
    size_bytes: int = 1024
    processes: int = 1
    label: str = ""


@dataclass(frozen=True)
class Life:
    """One life of one system's cluster: its steps, then so many leaders are killed."""

    system: str
    fsync: bool
    steps: tuple[Step, ...]
    kills: int = 0
    kills_by: str = ""


ROWS = (
    Row("pipelined", "pipelined, no fsync", "messages/s", aim=150_000),
    Row("pipelined-fsync", "pipelined, fsync", "messages/s", aim=100_000),
    Row("pipelined-100", "pipelined, no fsync, 100 B", "messages/s", aim=300_000),
    Row("batches", "batches of 64, no fsync", "messages/s", aim=40_000),
    Row("single", "one outstanding, no fsync, median", "ms", more_is_better=False, aim=0.45),
    Row("single-fsync", "one outstanding, fsync, median", "ms", more_is_better=False, aim=1.2),
    Row("read", "read from the first message on", "messages/s", aim=300_000),
    Row("gap", "leader killed: longest gap between two sends", "ms", False, 80),
    Row("resident", "resident memory of a broker after the load", "MB", False, 100),
    Row("cpu", "CPU of the three brokers, pipelined", "us a message", more_is_better=False),
    Row("cpu-client", "CPU of the client, pipelined", "us a message", more_is_better=False),
)

CONTENDERS = {
    "ours": "ours, Python client",
    "ours-many": "ours, Python client, `send_many`",
    "ours-read-many": "ours, Python client, `poll_many`",
    "ours-java": "ours, stock Java client",
    "nats-c": "NATS JetStream, C client",
    "nats-c-4": "NATS JetStream, C client, 4 processes",
    "nats-py": "NATS JetStream, nats-py",
    "rocketmq-java": "RocketMQ DLedger, stock Java client",
    "bare-epoll": "the floor: the same system calls in Python, no logic",
    "bare-trio": "the floor: the same by trio",
}
FLOORS = ("bare-epoll", "bare-trio")
"""They do nothing, so they win nothing."""

_JAVA = (
    Step("pipelined", "java", "pipelined"),
    Step("batches", "java", "batches"),
    Step("single", "java", "single"),
)


def _ours(suffix: str) -> tuple[Step, ...]:
    return (
        Step(f"single{suffix}", "ours", "single"),
        Step(f"pipelined{suffix}", "ours", "pipelined"),
        Step(f"pipelined{suffix}", "ours", "many", label="ours-many"),
    )


def _nats(suffix: str, client: str) -> tuple[Step, ...]:
    return (
        Step(f"single{suffix}", client, "single"),
        Step(f"pipelined{suffix}", client, "pipelined"),
    )


_BARE_MANY = (
    Step("pipelined", "bare-epoll", "many"),
    Step("pipelined-100", "bare-epoll", "many", 100),
)


def _bare(loop: str) -> tuple[Life, Life]:
    """What is pipelined goes in large frames: which loop hands them over does not matter."""
    by_epoll = loop == "bare-epoll"
    many = _BARE_MANY if by_epoll else ()
    synced = (Step("pipelined-fsync", loop, "many"),) if by_epoll else ()
    return (
        Life(loop, False, (Step("single", loop, "single"), *many)),
        Life(loop, True, (Step("single-fsync", loop, "single"), *synced)),
    )


def lives(kills: int) -> tuple[Life, ...]:
    """All of a round. Fewer leaders of the others are killed: each takes them many seconds."""
    few = max(1, kills // 5) if kills else 0
    return (
        Life(
            "ours",
            False,
            (
                *_ours(""),
                Step("read", "ours", "read"),
                Step("read", "ours", "read-many", label="ours-read-many"),
                Step("batches", "ours", "batches"),
                Step("pipelined-100", "ours", "pipelined", 100),
                Step("pipelined-100", "ours", "many", 100, label="ours-many"),
            ),
            kills,
            "ours",
        ),
        Life(
            "nats",
            False,
            (
                *_nats("", "nats-c"),
                Step("read", "nats-c", "read"),
                *_nats("", "nats-py"),
                Step("read", "nats-py", "read"),
                Step("pipelined-100", "nats-c", "pipelined", 100),
                Step("pipelined-100", "nats-c", "pipelined", 100, 4, "nats-c-4"),
                Step("pipelined-100", "nats-py", "pipelined", 100),
            ),
            few,
            "nats-c",
        ),
        Life("ours", True, _ours("-fsync")),
        Life("nats", True, (*_nats("-fsync", "nats-c"), *_nats("-fsync", "nats-py"))),
        Life("ours", False, (*_JAVA, Step("pipelined-100", "java", "pipelined", 100))),
        Life(
            "rocketmq",
            False,
            (
                *_JAVA,
                Step("read", "java", "read"),
                Step("pipelined-100", "java", "pipelined", 100),
            ),
            few,
            "java",
        ),
        *_bare("bare-epoll"),
        *_bare("bare-trio"),
    )


def contender(life: Life, step: Step) -> str:
    """Whose figure it is."""
    if step.label:
        return step.label
    return f"{life.system}-java" if step.client == "java" else step.client
