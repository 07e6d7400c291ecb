"""Room for a log on its disk.

A segment's blocks are reserved when it is made, so what it has room for can always be written. A
full disk shows when the next one is made, which is early: the last one is half full. Then this log
goes on with what it has, and keeps some of it back: first for what is no message (consumers commit
what they have read), at last for what a group can't do without: a new leader's no-op, and the word
that the log's head may go, which makes room. Nothing fails and nothing is fenced; what finds no
room is definitely not taken. Whoever keeps house tries again, and says so when there is room.

A follower without room drops what it is sent, and says that it is alive; the group goes on without
it, and sends again when it asks for it.
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Iterable
from typing import Protocol

from dledger.errors import NoSpace
from dledger.log.entry import Header, Kind

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MESSAGES_KEEP_BACK = 16
"""Messages leave one part in so many of a segment; other entries one part in:"""
OTHERS_KEEP_BACK = 256


class Roomy(Protocol):
    """What a log says of its last segment."""

    segment_bytes: int

    @property
    def last_index(self) -> int:
        """The index of the last entry."""

    @property
    def room_bytes(self) -> int | None:
        """Of the last segment; None if there is no segment."""

    def is_next_segment(self, position: int) -> bool:
        """Whether a position is in the segment behind the last one."""

    def begin_segment(self) -> None:
        """Make the next segment's file, unless it is there. OSError."""


class Space:
    """Whether a log can take more. `lacking`: why it can't begin another segment, if it can't.

    It is a part of its log, and must not keep it: a log that is dropped goes at once, and the
    mappings of its files with it, or its file system could not be unmounted.
    """

    def __init__(self, log: Roomy) -> None:
        self._of = weakref.ref(log)
        self.lacking: str | None = None

    @property
    def _log(self) -> Roomy:
        log = self._of()
        assert log is not None, "a log outlives its parts"
        return log

    def lacks(self, error: OSError) -> bool:
        """The next segment could not be made; whether that was for want of space."""
        if error.errno not in FULL:
            return False
        self.lacking = (
            f"there is no space left on the disk for {error.filename or 'another segment'}; "
            "what is there can be read. Make room there: it goes on by itself"
        )
        return True

    def check(self, size_bytes: int, kind: int, *, urgent: bool = False) -> None:
        """Make sure of room for an entry of this node's own. Raises NoSpace, OSError."""
        room = self._log.room_bytes
        if room is None:
            return
        if size_bytes > room:
            self._begin_segment()
        elif self.lacking is not None and not urgent:
            part = MESSAGES_KEEP_BACK if kind == Kind.MESSAGES else OTHERS_KEEP_BACK
            if room - size_bytes < self._log.segment_bytes // part:
                raise NoSpace(self.lacking)

    def takes(self, headers: Iterable[Header]) -> bool:
        """Whether entries that a leader sent, all of one segment, find room. OSError."""
        new = next((header for header in headers if header.index > self._log.last_index), None)
        if new is None or not self._log.is_next_segment(new.position):
            return True
        try:
            self._begin_segment()
        except NoSpace:
            return False
        return True

    def _begin_segment(self) -> None:
        if self.lacking is not None:
            raise NoSpace(self.lacking)
        try:
            self._log.begin_segment()
        except OSError as error:
            if self.lacks(error):
                raise NoSpace(str(self.lacking)) from error
            raise
