"""Copies the state machine's state, in parts, to a node that can't replay it. Pure.

A log whose head is gone does not have all that led to the state. A node with such a log, and no
snapshot of its own that reaches the log's first entry, asks the leader for the state. It asks for
one part after the other, each with its checksum, and again if no answer came. The node that is
asked takes one picture of its state, and keeps it until all of it was asked for, so that the parts
belong together. If the next part comes from another picture, or another node, the copy begins
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger import limits
from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import FrameError


@dataclass(frozen=True, slots=True)
class Picture:
    """The state after the entry `index`."""

    index: int
    payload: Buffer

    def part(self, offset: int) -> memoryview:
        """The part at `offset`; empty beyond the end."""
        return memoryview(self.payload)[offset : offset + limits.STATE_PART_BYTES]


@dataclass(slots=True)
class Copy:
    """A picture that is being received. `index` 0: none yet."""

    index: int = 0
    received: bytearray = field(default_factory=bytearray)

    @property
    def offset(self) -> int:
        """The offset of the part to ask for next."""
        return len(self.received)

    def take(
        self, index: int, total_bytes: int, offset: int, crc: int, part: memoryview
    ) -> Picture | None:
        """Take a part; returns the picture once it is whole. Raises FrameError."""
        if total_bytes > limits.STATE_BYTES_MAX:
            raise FrameError(
                f"a state of {total_bytes} bytes is above the limit of {limits.STATE_BYTES_MAX}"
            )
        if crc32(part) != crc:
            raise FrameError(f"the state's part at offset {offset} does not match its CRC")
        if index != self.index:
            self.index = index
            self.received = bytearray()
        if offset != self.offset:
            return None
        self.received += part
        if len(self.received) < total_bytes:
            return None
        picture = Picture(index, self.received)
        self.index, self.received = 0, bytearray()
        return picture
