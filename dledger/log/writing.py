"""Entries that were appended and are not durable yet: staged in memory, or written and not synced.

Invariants: after a failed write or sync the log is fenced. It is no longer known what the disk
holds, so later entries must not be written or vouched for. And when the sync after the one that
made a segment's first entry durable has ended, the segment before says so durably: then a start
misses files that are lost, the newest ones, too, and though no checkpoint is left.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NoReturn

from dledger.buffers import Buffer
from dledger.errors import Fenced
from dledger.failpoints import failpoint
from dledger.log.entry import ALIGNMENT
from dledger.log.segments.contents import Contents
from dledger.log.segments.segment import Segment


class Writing:
    """The end of one log. `fenced` says why it takes nothing more, `unsynced` what to sync."""

    def __init__(self, contents: Contents) -> None:
        self.fenced: str | None = None
        self.unsynced: list[Segment] = []
        #: Entries above this may be in memory only.
        self.written_index = contents.last_index
        self._contents = contents
        self._staged: list[Buffer] = []
        self._staged_at = 0
        #: Segments up to the one that begins with this entry are vouched for by those before them.
        self._vouched_index = 0
        self._vouch_anew()

    @property
    def is_dirty(self) -> bool:
        """Whether there are entries that were not handed out to be synced."""
        return bool(self.unsynced or self._staged)

    def stage(self, offset: int, raw_header: Buffer, body: Buffer) -> None:
        """Stage the next entry, at `offset` of the last segment."""
        if not self._staged:
            self._staged_at = offset
        padding = -(len(raw_header) + len(body)) % ALIGNMENT
        self._staged += (raw_header, body, bytes(padding)) if padding else (raw_header, body)
        failpoint("log.staged")

    def write_out(self) -> None:
        """Hand what is staged to the kernel. Raises Fenced if that fails."""
        if not self._staged:
            return
        segment = self._contents.segments[-1]
        staged, self._staged = self._staged, []
        try:
            segment.write(self._staged_at, staged)
        except OSError as error:
            self.fence(f"writing to {segment.path}", error)
        self.written_index = self._contents.last_index
        if not self.unsynced or self.unsynced[-1] is not segment:
            self.unsynced.append(segment)
        failpoint("log.written")

    def take_unsynced(self, durable_index: int) -> tuple[Segment, ...]:
        """Take the segments that were written to, marked; the caller syncs them. Raises Fenced.

        A segment that now vouches for the beginning of the next one comes with it, before it.
        """
        taken, self.unsynced = tuple(self.unsynced), []
        try:
            for segment in taken:
                segment.mark(min(durable_index, self._vouches_up_to(segment)))
            vouching = self._vouch(durable_index)
        except OSError as error:
            self.fence("writing a watermark", error)
        if not vouching:
            return taken
        return (*(segment for segment in vouching if segment not in taken), *taken)

    def _vouches_up_to(self, segment: Segment) -> int:
        """No mark says more than that the next segment has begun: a later cut looks no further."""
        if segment is self._contents.segments[-1]:
            return self._contents.last_index
        return self._contents.segments_from(segment.first_index)[1].first_index

    def _vouch(self, durable_index: int) -> list[Segment]:
        """Mark the segment before each that is new and has durable entries by now: it says so."""
        vouching = list[Segment]()
        segments = self._contents.segments
        if len(segments) > 1 and segments[-1].first_index > self._vouched_index:
            for before, segment in pairwise(self._contents.segments_from(self._vouched_index)):
                if segment.first_index <= durable_index:
                    before.mark(segment.first_index)
                    vouching.append(before)
                    self._vouched_index = segment.first_index
        return vouching

    def _vouch_anew(self) -> None:
        """Note that nobody may vouch for the last segment."""
        before = self._contents.segments[-2:-1]
        self._vouched_index = before[0].first_index if before else 0

    def was_cut(self, unsynced: list[Segment]) -> None:
        """The log was cut, and all that is left is written; `unsynced` must be synced again."""
        self.written_index = self._contents.last_index
        self.unsynced = unsynced
        self._vouch_anew()

    def was_replaced(self) -> None:
        """Forget all that was appended."""
        self._staged.clear()
        self.was_cut([])

    def check(self) -> None:
        """Raise Fenced if the log takes nothing more."""
        if self.fenced is not None:
            raise Fenced(self.fenced)

    def fence(self, what: str, error: OSError) -> NoReturn:
        """Fence the log, since `what` failed. Raises Fenced."""
        self.fenced = (
            f"{what} failed ({error}); this node takes no more entries. "
            "Mend the disk, then restart the node."
        )
        raise Fenced(self.fenced) from error
