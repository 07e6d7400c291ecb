"""The configurations that this node's log holds; the last one is in force.

Invariant: a node acts by the last configuration in its log, from the moment when the entry is
appended until it is cut, over restarts, and also when the log's head is gone. The crash that would
break it: the entry is on the disk, acknowledged and counted. The node restarts and counts
majorities of the old configuration. Then two leaders may be elected by majorities that share no
node.

So the file `members` is durable before such an entry is appended. It holds the last configuration
that is surely committed, the base, and all later ones. At a start the node keeps those that its log
holds, by index and term, and those before the log's head. It removes the others from the file as
well: once the head has passed their index, nothing would show that they were cut.

A configuration that a leader's log lacks is removed from the file before the log is cut or
replaced: once a new head has passed its index, a start would take it for committed. A crash between
the two leaves an entry in the log that this node no longer acts by. That does no harm: what a
majority committed in its place is newer than this whole log, so no majority elects this node,
however it counts.

The base need not be an entry of this log. A node whose log begins anew behind a leader's head gets
the leader's base with it, and a node that was away, or removed, learns the base from the peers that
it asks for votes. The base may be newer than this node's whole log. That makes no election wrong: a
majority of that configuration has committed its entry, and will not vote for a log that lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dledger.errors import CorruptLog
from dledger.failpoints import failpoint
from dledger.log.disk import Disk, Unreadable
from dledger.log.entry import Kind
from dledger.raft.membership.configuration import (
    Configuration,
    Member,
    decode_file,
    decode_members,
    encode_file,
)

if TYPE_CHECKING:
    from dledger.buffers import Buffer
    from dledger.log.store import SegmentedLog

FILE_NAME = "members"


@dataclass(slots=True)
class Members:
    """The base, and the later configurations, which may still be cut. `on_change` is called
    whenever another one comes into force."""

    path: Path
    disk: Disk
    base: Configuration
    later: list[Configuration] = field(default_factory=list)
    on_change: Callable[[], None] = lambda: None

    @property
    def current(self) -> Configuration:
        """The last configuration of the log, which is in force, committed or not."""
        return self.later[-1] if self.later else self.base

    def is_majority(self, node_ids: Collection[str]) -> bool:
        """Whether these are a majority by the configuration in force."""
        return self.current.is_majority(node_ids)

    def changing(self, commit_index: int) -> bool:
        """Whether the configuration in force may still be cut."""
        return self.current.index > commit_index

    # -- as the log changes ----------------------------------------------------------------

    def append(self, index: int, term: int, body: Buffer) -> None:
        """A configuration is about to be appended to the log. Raises FrameError, OSError."""
        configuration = Configuration(decode_members(body), index, term)
        if index > self.base.index:
            self.later.append(configuration)
            failpoint("members.save")
            self._save()
            failpoint("members.saved")
            self.on_change()

    def cut(self, first_index: int) -> None:
        """The log was cut: configurations from `first_index` on no longer hold."""
        kept = [held for held in self.later if held.index < first_index]
        if len(kept) < len(self.later):
            self.later = kept
            self._save()
            self.on_change()

    def committed(self, commit_index: int) -> None:
        """Nothing up to `commit_index` will be cut. The file is updated with the next change."""
        while self.later and self.later[0].index <= commit_index:
            self.base = self.later.pop(0)

    def adopt(self, base: Configuration) -> None:
        """Take a configuration that is committed according to another node."""
        if base.index <= self.base.index:
            return
        self.base = base
        self.later = [held for held in self.later if held.index > base.index]
        failpoint("members.adopt")
        self._save()
        self.on_change()

    def begin_anew(self) -> None:
        """The log is about to be replaced by one whose first entry is committed.

        Configurations behind the base were not committed: the newest that is comes as the leader's
        base.
        """
        if self.later:
            self.cut(self.base.index + 1)

    def _save(self) -> None:
        self.disk.replace(self.path, encode_file([self.base, *self.later]))


def open_members(
    folder: Path, disk: Disk, log: SegmentedLog, initial: dict[str, Member]
) -> Members:
    """The members as of the end of the log; `initial` if the group never changed any.

    Raises CorruptLog, OSError; Rot where the log is damaged in a segment that its start took as a
    checkpoint had it. Invariant: a configuration is dropped only if the log does not hold its
    entry. The fault that would break it: a bit of that entry's header turns, it looks like another
    entry, and this node counts majorities of members that are no longer in force.
    """
    path = folder / FILE_NAME
    try:
        saved = decode_file(disk.read(path))
    except (CorruptLog, Unreadable) as error:
        raise CorruptLog(
            f"{path}: {error}. Without it this node could count the wrong majority. "
            "Remove this replica's folder and let it copy from its peers."
        ) from error
    base, *later = saved or [Configuration(initial)]
    members = Members(path, disk, base)
    for held in later:
        if held.index < log.first_index:
            members.base = held
        elif _holds(log, held):
            members.later.append(held)
    if [members.base, *members.later] != [base, *later]:
        members._save()
    return members


def last_saved(folder: Path, disk: Disk, initial: dict[str, Member]) -> Configuration:
    """The newest configuration that this node has heard of, in force or not. It names the nodes to
    connect to.

    Raises CorruptLog.
    """
    saved = decode_file(disk.read(folder / FILE_NAME))
    return saved[-1] if saved else Configuration(initial)


def note_committed(folder: Path, disk: Disk, configuration: Configuration) -> None:
    """A committed configuration is about to be written into a log that is not open."""
    saved = decode_file(disk.read(folder / FILE_NAME))
    if not saved or saved[0].index < configuration.index:
        later = [held for held in saved[1:] if held.index > configuration.index]
        disk.replace(folder / FILE_NAME, encode_file([configuration, *later]))


def _holds(log: SegmentedLog, configuration: Configuration) -> bool:
    if configuration.index > log.last_index:
        return False
    entry = log.reader.checked_entry(configuration.index)
    return (entry.term, entry.kind) == (configuration.term, Kind.CONFIGURATION)
