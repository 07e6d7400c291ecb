"""Which topics and queues a read is about, what they have now, and where reading begins and ends.

Brokers are asked anew each time. What they say is turned into positions here; what becomes of
positions is decided in :mod:`mqspark.topics.planning`.
"""

from __future__ import annotations

from collections.abc import Iterable

from dledger.errors import ConfigError
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.record.table import RecordTable
from mqclient import Bounds, NoLeader
from mqclient.blocking import RangeReader
from mqspark.limits import SAMPLE_BYTES, SAMPLE_MESSAGES
from mqspark.topics.options import EARLIEST, LATEST, Options, Place
from mqspark.topics.planning import Known, Range
from mqspark.topics.positions import Position, Positions

_WORDS = {-2: EARLIEST, -1: LATEST}


def reader_for(options: Options) -> RangeReader:
    """A reader of the cluster, as the options' user."""
    return RangeReader(options.cluster.name_server, **options.cluster.access)


def first_messages(reader: RangeReader, of: Range) -> RecordTable | None:
    """The first messages of a range, as a sample of all."""
    piece = reader.read(
        *(of.queue, of.begin, of.end),
        life=of.life,
        messages=SAMPLE_MESSAGES,
        size_bytes=SAMPLE_BYTES,
    )
    return piece.table


def look(
    reader: RangeReader, options: Options, start: Iterable[MessageQueue] = (), *, all_of: bool
) -> Known:
    """The wanted queues as they are now, and those of `start`.

    With `all_of`, raises NoLeader if a broker group can't say what it has.
    """
    brokers: dict[str, set[str]] = {}
    for queue in (*start, *options.queues):
        brokers.setdefault(queue.topic, set()).add(queue.broker_name)
    topics = {*options.topics, *brokers}
    if options.pattern:
        topics |= {topic for topic in reader.topics() if options.wants(topic)}
    bounds: dict[MessageQueue, Bounds] = {}
    answered: set[tuple[str, str]] = set()
    for topic in sorted(topics):
        found = reader.bounds(topic, brokers.get(topic, set()))
        wanted = {queue.broker_name for queue in options.queues if queue.topic == topic}
        silent = sorted(found.silent & wanted if options.queues else found.silent)
        if silent and all_of:
            raise NoLeader(silent[0], (), 0.0)
        bounds |= {
            queue: each
            for queue, each in found.queues.items()
            if not options.queues or queue in options.queues
        }
        answered |= {(topic, name) for name in found.answered}
    return Known(bounds, answered)


def beginning(reader: RangeReader, options: Options, known: Known) -> Positions:
    """Positions at which reading begins, by queue. Raises ConfigError for offsets that the queues
    don't have."""
    return _resolve(reader, options.start, known, "starting", strict=options.strict_times)


def ending(reader: RangeReader, options: Options, known: Known) -> Positions:
    """Where a batch read ends: beyond a time there may be nothing."""
    return _resolve(reader, options.end, known, "ending", strict=False)


def _resolve(
    reader: RangeReader, place: Place, known: Known, side: str, *, strict: bool
) -> Positions:
    if place.offsets is not None:
        _check_named(place.offsets, known, f"{side}Offsets")
    if place.by_queue_ms is not None:
        _check_named(place.by_queue_ms, known, f"{side}OffsetsByTimestamp")
    if place.by_topic_ms is not None:
        topics = {queue.topic for queue in known.bounds}
        if topics != set(place.by_topic_ms):
            raise ConfigError(
                f"option {side}OffsetsByTimestamp names the topics {sorted(place.by_topic_ms)}; "
                f"those read are {sorted(topics)}"
            )
    return {
        queue: Position(_offset(reader, place, queue, bounds, strict=strict), bounds.life)
        for queue, bounds in known.bounds.items()
    }


def _offset(
    reader: RangeReader, place: Place, queue: MessageQueue, bounds: Bounds, *, strict: bool
) -> int:
    word, offset = place.word, -1
    if place.offsets is not None:
        offset = place.offsets[queue]
        word = _WORDS.get(offset, "")
    if word:
        return bounds.begin if word == EARLIEST else bounds.end
    if place.offsets is not None:
        return offset
    time_ms = place.timestamp_ms
    if place.by_topic_ms is not None:
        time_ms = place.by_topic_ms[queue.topic]
    elif place.by_queue_ms is not None:
        time_ms = place.by_queue_ms[queue]
    assert time_ms is not None
    offset = min(max(reader.offset_at(queue, time_ms), bounds.begin), bounds.end)
    if strict and offset == bounds.end:
        raise ConfigError(
            f"{queue} has no message stored at {time_ms} (ms since 1970) or later; with "
            "startingOffsetsByTimestampStrategy=latest reading begins at its end then"
        )
    return offset


def _check_named(named: Iterable[MessageQueue], known: Known, option: str) -> None:
    there, given = set(known.bounds), set(named)
    for queue in sorted(given - there):
        raise ConfigError(f"option {option} names {queue}, which is not read or not there")
    for queue in sorted(there - given):
        raise ConfigError(f"option {option} does not name {queue}; it must name all that is read")
