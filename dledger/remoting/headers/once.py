"""Headers of producers with a name: registration, writes, and decided batches. All are ours."""

from __future__ import annotations

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64


class RegisterProducerHeader(Header, frozen=True):
    """REGISTER_PRODUCER (9011). The name belongs to this instance from now on.

    A repeat by the same instance gets the answer of the first try; any other instance counts as
    newer.
    """

    producer_name: str
    instance: str


class RegisterProducerResponseHeader(Header, frozen=True):
    """The answer to REGISTER_PRODUCER: the instance's epoch, higher than that of any instance
    before."""

    epoch: Int64


class WriteOnceHeader(Header, frozen=True):
    """WRITE_ONCE (9012): outputs and consumed offsets, in one entry of the log.

    The body is stored records back to back, as in PRODUCE. `parts` are (topic, size in bytes, runs
    of (queue id, record count)), in the order of the body. `moves` are (topic, queue id, offset at
    which the consumer began, offset at which it ended, token of its lock if it has one), for the
    group; `lives` are the lives of the moves' topics, 0 for a life that is not known.
    `sequence` grows within a stream of the instance; a repeat gets the first answer.

    With `batch` the request decides that batch of the name. The last `content_size` bytes of the
    body then list the content of the batch. Neither this batch nor an earlier one can be decided
    again.
    """

    producer_name: str
    epoch: Int64
    stream: Int32
    sequence: Int64
    parts: list[tuple[str, Int32, list[tuple[Int32, Int32]]]]
    group: str
    moves: list[tuple[str, Int32, Int64, Int64, Int64 | None]]
    lives: list[Int64] | None = None
    batch: Int64 | None = None
    content_size: Int32 | None = None


class StageHeader(Header, frozen=True):
    """STAGE (9022): store records of a topic, as in PRODUCE, for a batch of a producer's name.

    No reader sees the records before END_STAGED. `home` is the broker group that decides.
    """

    topic: str
    producer_name: str
    epoch: Int64
    batch: Int64
    home: str
    runs: list[tuple[Int32, Int32]]


class StageResponseHeader(Header, frozen=True):
    """The answer to STAGE: where the staged entry is, among half messages and in the log."""

    offset: Int64
    commit_log_offset: Int64


class EndStagedHeader(Header, frozen=True):
    """END_STAGED (9023): turn staged entries into messages, since their batch is decided.

    The first one is named by two fields, those that follow it by both in a list. They end in this
    order: if one can't, those behind it stay. A staged entry that has ended already is not an
    error, nor is one that the log no longer has.
    """

    offset: Int64
    commit_log_offset: Int64
    following: list[tuple[Int64, Int64]] | None = None


class DecisionOfHeader(Header, frozen=True):
    """DECISION_OF (9021): the last batch that was decided under a producer's name."""

    producer_name: str


class DecisionOfResponseHeader(Header, frozen=True):
    """The answer to DECISION_OF: the epoch of the name, 0 if the name is not known, and its last
    batch, -1 if no batch was decided.

    The body lists the content of that batch. It is empty, and `is_kept` is false, if the log no
    longer has it.
    """

    epoch: Int64
    batch: Int64
    is_kept: bool


class WriteOnceResponseHeader(Header, frozen=True):
    """The answer to WRITE_ONCE: where its outputs went.

    `position` is the position of the first output in the log; the others follow without a gap.
    `offsets` are (queue id, queue offset of the run's first record), run by run, part by part. For
    a `duplicate` whose first copy is no longer in the log, they are empty and the position is -1.
    """

    position: Int64
    offsets: list[tuple[Int32, Int64]]
    store_timestamp: Int64
    duplicate: bool
