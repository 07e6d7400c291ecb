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
    """

    producer_name: str
    epoch: Int64
    stream: Int32
    sequence: Int64
    parts: list[tuple[str, Int32, list[tuple[Int32, Int32]]]]
    group: str
    moves: list[tuple[str, Int32, Int64, Int64, Int64 | None]]
    lives: list[Int64] | None = None


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
