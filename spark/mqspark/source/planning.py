"""From directories to replicas, and from replicas to segments and the tasks that read them.

A replica is a directory with `replica.json` and `log/<first position>.seg` files. Directories
whose `replica.json` has the same broker name are replicas of each other. Segment k of a log
starts at position k * segment_bytes. A log begins at 0, or where its `head` says since retention
has removed what was before; what still stands before that is left over. Files that are missing
behind it get a partition too, so that their absence is a row in the result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from dledger.errors import ConfigError, CorruptLog
from dledger.log.disk import Disk, Unreadable
from dledger.log.head import decode_head
from dledger.log.replica import Manifest, describe_replica
from dledger.log.segments.segment import segment_path
from mqspark.limits import TASK_BYTES_MIN

PATH_SEPARATOR = ";"


@dataclass(frozen=True)
class Replica:
    """The directory of one replica. `segments` are the first positions of its segment files.

    A `manifest` says that it is a copy that a broker made of itself. The log begins at `begin`,
    with entry `first_index` (0 if that is not known); `damage` says why, where it can't be known.
    """

    broker: str
    node: str
    directory: str
    segment_bytes: int
    segments: tuple[int, ...]
    manifest: Manifest | None = None
    begin: int = 0
    first_index: int = 1
    damage: str | None = None


@dataclass(frozen=True)
class SegmentPartition(InputPartition):
    """A segment to read: the unit of parallelism.

    `directories` are those of all replicas of the broker, by node id; `number` is this one's place.
    So many files from here on are `missing`.
    """

    broker: str
    replica: str
    directories: tuple[str, ...]
    number: int
    position: int
    segment_bytes: int
    missing: int = 0

    @property
    def path(self) -> Path:
        """Path of the segment's file, in its replica's folder."""
        return self.path_of(self.number)

    @property
    def previous_path(self) -> Path | None:
        """The file of the segment before; None at the start of the log."""
        if self.position == 0:
            return None
        folder = Path(self.directories[self.number]) / "log"
        return segment_path(folder, self.position - self.segment_bytes)

    def path_of(self, number: int) -> Path:
        """The file of the same segment on the broker's replica `number`."""
        return segment_path(Path(self.directories[number]) / "log", self.position)


@dataclass(frozen=True)
class Task(InputPartition):
    """The segments that one task reads: a large one, or some small ones."""

    segments: tuple[SegmentPartition, ...]


def tasks(segments: Sequence[SegmentPartition]) -> list[Task]:
    """All segments, in their order; small ones share a task."""
    shared: list[list[SegmentPartition]] = []
    room_bytes = 0
    for segment in segments:
        if room_bytes < segment.segment_bytes:
            shared.append([])
            room_bytes = TASK_BYTES_MIN
        shared[-1].append(segment)
        room_bytes -= segment.segment_bytes
    return [Task(tuple(some)) for some in shared]


def split_paths(value: str) -> list[str]:
    """The directories of a `path` option: separated by semicolons, or Spark's list as JSON."""
    if value.startswith("["):
        return [str(path) for path in json.loads(value)]
    return [path for path in value.split(PATH_SEPARATOR) if path]


def find_replicas(directories: Sequence[str]) -> list[Replica]:
    """The replicas in these directories, in order of broker name and node id.

    Raises ConfigError if one is no replica's directory, or if two are the same replica.
    """
    replicas = sorted(
        (_open_replica(Path(directory)) for directory in directories),
        key=lambda replica: (replica.broker, replica.node),
    )
    for left, right in pairwise(replicas):
        if (left.broker, left.node) == (right.broker, right.node):
            raise ConfigError(
                f"{left.directory} and {right.directory} both hold node {left.node} of "
                f"{left.broker}: give each replica once"
            )
    return replicas


def plan(replicas: Sequence[Replica]) -> list[SegmentPartition]:
    """A partition for each segment, and for each range of missing ones, in log order.

    Segments of the same position stand together, so tasks that run at the same time read
    the replicas side by side.
    """
    partitions = []
    for broker in {replica.broker for replica in replicas}:
        members = [replica for replica in replicas if replica.broker == broker]
        directories = tuple(replica.directory for replica in members)
        for number, replica in enumerate(members):
            step, expected = replica.segment_bytes, replica.begin
            for position in replica.segments:
                places = [(position, 0)]
                if position > expected:
                    places.insert(0, (expected, (position - expected) // step))
                partitions += [
                    SegmentPartition(broker, replica.node, directories, number, at, step, missing)
                    for at, missing in places
                ]
                expected = position + step
    return sorted(partitions, key=lambda segment: (segment.broker, segment.position))


def _open_replica(directory: Path) -> Replica:
    found = describe_replica(directory)
    begin, first_index, damage = found.segments[0] if found.segments else 0, 0, None
    try:
        head = decode_head(Disk().read(directory / "log" / "head"))
    except (CorruptLog, Unreadable) as error:
        damage = str(error)
    else:
        if head.base_position % found.segment_bytes:
            damage = f"the file `head` has the log begin at {head.base_position}, within a segment"
        elif not head.replacing:
            begin, first_index = head.base_position, head.first_index
    return Replica(
        found.group,
        found.node_id,
        str(directory),
        found.segment_bytes,
        tuple(position for position in found.segments if position >= begin),
        found.manifest,
        begin,
        first_index,
        damage,
    )
