"""Clients, works and systems of the benchmark, in their order. Pure.

A row of the page is a work at one durability and size; a contender is a client with a system. The
steps of one cluster's life run one after the other on it, reads after the sends of their messages.
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
    """A measurement: `contender` does `work` for a row on a topic of its own kind."""

    row: str
    client: str
    work: str
    size_bytes: int = 1024
    processes: int = 1
    label: str = ""


@dataclass(frozen=True)
class Life:
    """A life of one system's cluster: its steps, and then a number of killed leaders."""

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
    Row("resident", "resident memory of a broker after the load", "MB", False, 80),
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
    "nats-c-fetch": "NATS JetStream, C client, batches of 1,000",
    "nats-c-fetch-ack": "NATS JetStream, C client, batches of 1,000, each acknowledged",
    "nats-go": "NATS JetStream, Go client",
    "nats-go-fast": "NATS JetStream, Go client, fast-ingest batch",
    "nats-py": "NATS JetStream, nats-py",
    "kafka-java": "Kafka, Java client",
    "kafka-py": "Kafka, confluent-kafka (Python over C)",
    "rabbitmq-java": "RabbitMQ quorum queue, Java client",
    "rocketmq-java": "RocketMQ 4.9 DLedger, Java client",
    "rocketmq-java-5": "RocketMQ 5, Java client",
    "bare-epoll": "the floor: the same system calls in Python, no logic",
    "bare-trio": "the floor: the same by trio",
}
FLOORS = ("bare-epoll", "bare-trio")
"""Contenders that do nothing, and so win nothing."""

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


def _both(suffix: str, client: str) -> tuple[Step, ...]:
    return (
        Step(f"single{suffix}", client, "single"),
        Step(f"pipelined{suffix}", client, "pipelined"),
    )


_BARE_MANY = (
    Step("pipelined", "bare-epoll", "many"),
    Step("pipelined-100", "bare-epoll", "many", 100),
)


def _bare(loop: str) -> tuple[Life, Life]:
    """Lives of a bare loop; large frames are the same on both, so one has them."""
    by_epoll = loop == "bare-epoll"
    many = _BARE_MANY if by_epoll else ()
    synced = (Step("pipelined-fsync", loop, "many"),) if by_epoll else ()
    return (
        Life(loop, False, (Step("single", loop, "single"), *many)),
        Life(loop, True, (Step("single-fsync", loop, "single"), *synced)),
    )


_NATS = (
    *_both("", "nats-c"),
    Step("read", "nats-c", "read"),
    Step("read", "nats-c", "fetch", label="nats-c-fetch"),
    Step("read", "nats-c", "fetch-ack", label="nats-c-fetch-ack"),
    *_both("", "nats-go"),
    Step("pipelined", "nats-go", "fast", label="nats-go-fast"),
    Step("read", "nats-go", "read"),
    *_both("", "nats-py"),
    Step("read", "nats-py", "read"),
    Step("pipelined-100", "nats-c", "pipelined", 100),
    Step("pipelined-100", "nats-c", "pipelined", 100, 4, "nats-c-4"),
    Step("pipelined-100", "nats-go", "fast", 100, label="nats-go-fast"),
    Step("pipelined-100", "nats-py", "pipelined", 100),
)
_NATS_FSYNC = (
    *_both("-fsync", "nats-c"),
    *_both("-fsync", "nats-go"),
    Step("pipelined-fsync", "nats-go", "fast", label="nats-go-fast"),
    *_both("-fsync", "nats-py"),
)
_KAFKA = (
    *_both("", "kafka-java")[::-1],  # what is pipelined warms its servers up
    Step("read", "kafka-java", "read"),
    *_both("", "kafka-py"),
    Step("read", "kafka-py", "read"),
    Step("pipelined-100", "kafka-java", "pipelined", 100),
    Step("pipelined-100", "kafka-py", "pipelined", 100),
)
_KAFKA_FSYNC = (*_both("-fsync", "kafka-java")[::-1], *_both("-fsync", "kafka-py"))


_RABBITMQ = (
    *_both("", "rabbitmq-java")[::-1],
    Step("read", "rabbitmq-java", "read"),
    Step("pipelined-100", "rabbitmq-java", "pipelined", 100),
)
_RABBITMQ_FSYNC = _both("-fsync", "rabbitmq-java")[::-1]


def _rocketmq(client: str) -> tuple[Step, ...]:
    return (
        Step("pipelined", client, "pipelined"),
        Step("batches", client, "batches"),
        Step("single", client, "single"),
        Step("read", client, "read"),
        Step("pipelined-100", client, "pipelined", 100),
    )


_ROCKETMQ_FSYNC = _both("-fsync", "java-5")[::-1]


def lives(kills: int) -> tuple[Life, ...]:
    """Lives of all systems in a round.

    Fewer leaders of the others are killed: each takes them many seconds.
    """
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
        Life("nats", False, _NATS, few, "nats-c"),
        Life("kafka", False, _KAFKA, few, "kafka-java"),
        Life("rabbitmq", False, _RABBITMQ, few, "rabbitmq-java"),
        Life("ours", True, _ours("-fsync")),
        Life("nats", True, _NATS_FSYNC),
        Life("kafka", True, _KAFKA_FSYNC),
        Life("rabbitmq", True, _RABBITMQ_FSYNC),
        Life("ours", False, (*_JAVA, Step("pipelined-100", "java", "pipelined", 100))),
        Life("rocketmq", False, _rocketmq("java"), few, "java"),
        Life("rocketmq-5", False, _rocketmq("java-5"), few, "java-5"),
        Life("rocketmq-5", True, _ROCKETMQ_FSYNC),
        *_bare("bare-epoll"),
        *_bare("bare-trio"),
    )


def contender(life: Life, step: Step) -> str:
    """Name of a system with its client, as rows of figures have it."""
    if step.label:
        return step.label
    if step.client == "java":
        return f"{life.system}-java"
    return f"rocketmq-{step.client}" if step.client == "java-5" else step.client
