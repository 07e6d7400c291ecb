"""Room for a log on its disk.

A segment's blocks are reserved when it is made, so a write to it never lacks space. The next
segment is made when the last one is half full, so a full disk shows early. Then the log goes on
with the room that it has, and keeps some of it back: one part for entries that are no messages
(such as the offsets that consumers commit), the last part for what a group can't do without: a new
leader's no-op, and the entry that lets old segments be removed, which makes room. Nothing fails and
nothing is fenced; an append that finds no room is definitely not taken. Housekeeping tries again,
and says when there is room.

A follower without room drops the entries that it is sent, but shows that it is alive. The group
goes on without it, and sends the entries again when it asks for them.
"""

from __future__ import annotations

import errno

from dledger.errors import NoSpace
from dledger.log.entry import OF_MESSAGES, Header
from dledger.log.segments.contents import Contents
from dledger.log.segments.next_segment import NextSegment

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MESSAGES_KEEP_BACK = 16
"""Messages leave one part in this many of a segment free; for other entries it is one part in:"""
OTHERS_KEEP_BACK = 256


class Space:
    """Whether a log can take more entries. `lacking`: why it can't begin another segment."""

    def __init__(self, contents: Contents, next_segment: NextSegment) -> None:
        self._contents = contents
        self._next = next_segment
        self.lacking: str | None = None

    def lacks(self, error: OSError) -> bool:
        """The next segment could not be made; returns whether the disk is full."""
        if error.errno not in FULL:
            return False
        self.lacking = (
            f"there is no space left on the disk for {error.filename or 'another segment'}; "
            "stored messages can be read. Make room there: writing goes on by itself"
        )
        return True

    def check(
        self, size_bytes: int, kind: int, *, urgent: bool = False, elsewhere: str | None = None
    ) -> None:
        """Make sure that there is room for an entry that this node makes. Raises NoSpace, OSError.

        `elsewhere`: why other nodes, without which nothing is committed, can't begin another
        segment.
        """
        room, lacking = self._contents.room_bytes, self.lacking or elsewhere
        if room is None:
            return
        if size_bytes > room:
            if lacking is not None:
                raise NoSpace(lacking)
            self._begin_segment()
        elif lacking is not None and not urgent:
            part = MESSAGES_KEEP_BACK if kind in OF_MESSAGES else OTHERS_KEEP_BACK
            if room - size_bytes < self._contents.segment_bytes // part:
                raise NoSpace(lacking)

    def takes(self, new: Header) -> bool:
        """Whether there is room for entries that a leader sent, all of one segment, of which this
        is the first that is not held yet. Raises OSError."""
        if not self._next.is_at(new.position):
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
            if not self._next.is_ready:
                self._next.adopt(self._next.prepare())
        except OSError as error:
            if self.lacks(error):
                raise NoSpace(str(self.lacking)) from error
            raise
