"""Segment files, written as the log writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dledger.log.entry import HEADER_BYTES, make_header, padded
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.log.segments.segment import segment_path

TERM: Final = 1


class LogWriter:
    """A log in the making: sizes and positions are its business."""

    def __init__(self, directory: Path, segment_bytes: int, chain_crc: int = 0) -> None:
        self._folder = directory / "log"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._segment_bytes = segment_bytes
        self._segment: bytearray | None = None
        self.chain_crc = chain_crc
        self.position = 0
        self.next_index = 1

    def body_position(self, body_bytes: int) -> int:
        """Where the body of the next entry will stand."""
        self._make_room(HEADER_BYTES + body_bytes)
        return self.position + HEADER_BYTES

    def append(self, kind: int, body: bytes, term: int = TERM) -> None:
        """Append an entry; it is in the file after :meth:`close`, or when its segment is full."""
        self._make_room(HEADER_BYTES + len(body))
        header, raw_header = make_header(
            self.chain_crc,
            index=self.next_index,
            term=term,
            position=self.position,
            kind=kind,
            body=body,
        )
        self.chain_crc = header.chain_crc
        if self._segment is None:
            self._segment = bytearray(self._segment_bytes)
        offset = self.position % self._segment_bytes
        self._segment[offset : offset + header.size] = raw_header + body
        self.position += padded(HEADER_BYTES + len(body))
        self.next_index += 1

    def close(self) -> None:
        """Write the last segment, if it was begun."""
        if self._segment is not None:
            base = (self.position - 1) // self._segment_bytes * self._segment_bytes
            segment_path(self._folder, base).write_bytes(self._segment)
            self._segment = None

    def _make_room(self, size_bytes: int) -> None:
        offset = self.position % self._segment_bytes
        if offset + size_bytes > self._segment_bytes - WATERMARK_BYTES:
            self.close()
            self.position += self._segment_bytes - offset
