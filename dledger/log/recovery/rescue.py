"""Saves what can be read of a segment file of which the disk has lost a part, or all, or its end.

The file gets a new copy, with zeros in the lost places, so that the leader's entries can be written
there: a disk may refuse to write a part of a page that it can't read. Only a node that takes no
part in its group does that, and while it is being repaired: a start by itself changes nothing, as
the next one may be able to read everything.

What was lost may have been acknowledged by this node, beyond the segment's watermark or with it. To
the next start it would look like a torn tail. So the copy's watermark says that everything was
durable. Then a start that has not heard of a leader finds its log too short, whatever it holds; and
after a repair all is demanded that the leader knew to be committed, which is what this node must
have (see `dledger.raft.replication.repair`).

The same is said in a file that is made in the place of a lost one. Else a crash that cuts a repair
short could leave some of the entries that it wrote, and not those before; the next repair would be
through as soon as it came to one of these, and the log could end anywhere behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dledger.log.disk import Disk, Unreadable
from dledger.log.scanning.tail import EVERYTHING, WATERMARK_BYTES, encode_watermark

STEP_BYTES: Final = 1 << 20
"""Bytes that are read at once while all is well."""


def rescue(disk: Disk, path: Path, size_bytes: int) -> int:
    """Give a segment file a durable copy that can be read everywhere, unless it can.

    Returns how many bytes are lost; mostly 0, and nothing has changed. Raises OSError.
    """
    if all(raw is not None for _, raw in pieces(disk, path, size_bytes, STEP_BYTES)):
        return 0
    content, lost_bytes = bytearray(size_bytes), 0
    for offset, raw in pieces(disk, path, size_bytes, disk.page_bytes):
        if raw is None:
            lost_bytes += disk.page_bytes
        else:
            content[offset : offset + len(raw)] = raw
    _replace(disk, path, content)
    return lost_bytes


def make_empty(disk: Disk, path: Path, size_bytes: int) -> None:
    """Make a segment file, durably, in the place of one that is gone. Raises OSError."""
    _replace(disk, path, bytearray(size_bytes))


def _replace(disk: Disk, path: Path, content: bytearray) -> None:
    content[-WATERMARK_BYTES:] = encode_watermark(EVERYTHING).ljust(WATERMARK_BYTES, b"\0")
    disk.replace(path, bytes(content))


def pieces(
    disk: Disk, path: Path, size_bytes: int, piece_bytes: int
) -> Iterator[tuple[int, bytes | None]]:
    """A file's pieces and their offsets; None for one that can't be read, or in which it ends."""
    for offset in range(0, size_bytes, piece_bytes):
        wanted_bytes = min(piece_bytes, size_bytes - offset)
        try:
            raw = disk.read_part(path, offset, wanted_bytes)
        except Unreadable:
            yield offset, None
        else:
            yield offset, raw if len(raw) == wanted_bytes else None
