"""The draft of an entry whose messages come with a note of what else they do.

A mark says what kind of note is next (`mqbroker.state.once`, `mqbroker.state.groups.given_up`); a
move (`mqbroker.state.moves`) is a note by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from dledger.buffers import Buffer
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import place_records
from mqbroker.leader.appending.drafts import NewRecord, PlainDraft
from mqbroker.leader.assignments import Assignments


class NotedDraft:
    """An entry of notes and messages: each part is a draft of its topic's messages.

    The notes are encoded before anything takes an offset. Raises RecordError if they can't be. All
    of it has one store time.
    """

    def __init__(
        self,
        notes: Sequence[bytes],
        parts: Sequence[PlainDraft],
        assignments: Assignments,
        store_host: bytes,
    ) -> None:
        now_ms = assignments.now_ms()
        encoded = [
            NewRecord(body, b"", now_ms, store_host).encode(OP_TOPIC, 0, store_host)
            for body in notes
        ]
        self._notes = bytearray(b"".join(encoded))
        self._notes_at = [0, *accumulate(map(len, encoded[:-1]))]
        self._parts = parts
        self._assignments = assignments
        self.offsets: list[tuple[int, int]] = []
        self.store_timestamp_ms = 0
        self.places = [(OP_TOPIC, 0), *(place for part in parts for place in part.places)]
        #: Where each message begins; or the entry, if there is none.
        self.starts: list[int] = []
        at = len(self._notes)
        for part in parts:
            self.starts += [at + start for start in part.starts]
            at += part.size
        self.size = at

    def body_crcs(self) -> list[int]:
        """The messages' body CRCs, in order."""
        return [crc for part in self._parts for crc in part.body_crcs()]

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Fill in where all of it went."""
        self.store_timestamp_ms = now_ms = self._assignments.now_ms()
        for start in self._notes_at:
            offset = self._assignments.take(OP_TOPIC, 0, 1)
            place_records(self._notes, (start,), offset, body_position, now_ms)
        pieces: list[Buffer] = [self._notes]
        at = len(self._notes)
        for part in self._parts:
            pieces.append(part.fill_in(body_position + at, now_ms))
            self.offsets += part.offsets
            at += part.size
        return b"".join(pieces)
