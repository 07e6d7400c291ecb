"""Headers of producers with a name: who writes, and what is written together. Both are ours."""

from __future__ import annotations

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64


class RegisterProducerHeader(Header, frozen=True):
    """REGISTER_PRODUCER (9011). The name is this instance's from now on.

    A repeat of the same instance is answered like the first try; another one is a newer instance.
    """

    producer_name: str
    instance: str


class RegisterProducerResponseHeader(Header, frozen=True):
    """REGISTER_PRODUCER: the instance's epoch, above that of any instance before."""

    epoch: Int64


class WriteOnceHeader(Header, frozen=True):
    """WRITE_ONCE (9012): outputs and consumed offsets, in one entry of the log.

    The body is stored records back to back, as in PRODUCE. `parts` are (topic, size in bytes, runs
    of (queue id, record count)), in the order of the body. `moves` are (topic, queue id, offset at
    which the consumer began, offset at which it ended, token of its lock if it has one), for the
    group; `lives` are those of their topics, 0 for one that is not known.
    `sequence` grows within a stream of the instance; a repeat gets the first answer.

    With `batch` it decides that batch of the name, and the last `content_size` bytes of the body
    are what it consists of: nobody decides it, or an earlier one, again.
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
    """STAGE (9022): keep these records of a topic, as in PRODUCE, for a batch of a producer's name.

    No reader sees them before END_STAGED. `home` is the broker group that decides.
    """

    topic: str
    producer_name: str
    epoch: Int64
    batch: Int64
    home: str
    runs: list[tuple[Int32, Int32]]


class StageResponseHeader(Header, frozen=True):
    """STAGE: where the staged entry is, among half messages and in the log."""

    offset: Int64
    commit_log_offset: Int64


class EndStagedHeader(Header, frozen=True):
    """END_STAGED (9023): let what was staged there become messages, as the batch is decided.

    One that has ended is no fault, and neither is one that the log has no more.
    """

    offset: Int64
    commit_log_offset: Int64


class DecisionOfHeader(Header, frozen=True):
    """DECISION_OF (9021): the last batch that was decided under a producer's name."""

    producer_name: str


class DecisionOfResponseHeader(Header, frozen=True):
    """DECISION_OF: the epoch of the name, 0 if it is not known, and its last batch, -1 if none was
    decided.

    The body is what that consists of. It is empty, and `is_kept` false, if the log has it no more.
    """

    epoch: Int64
    batch: Int64
    is_kept: bool


class WriteOnceResponseHeader(Header, frozen=True):
    """Where the outputs of WRITE_ONCE went.

    `position` is that of the first in the log; the others follow without a gap. `offsets` are
    (queue id, queue offset of the run's first record), run by run, part by part. For a `duplicate`
    they are empty, and the position is -1, if the first copy is no longer in the log.
    """

    position: Int64
    offsets: list[tuple[Int32, Int64]]
    store_timestamp: Int64
    duplicate: bool
