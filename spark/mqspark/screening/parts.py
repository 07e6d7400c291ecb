"""The part that one task reads: a range of a history file, or segments of the logs.

A line belongs to the part in which it begins; in Parquet a part is some row groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mqspark.history.events import EVENT, columns, with_all
from mqspark.history.files import PARQUET, find_history
from mqspark.limits import LINE_BYTES_MAX, LINE_BYTES_MEAN, LINES_BYTES_MAX, PART_BYTES


@dataclass(frozen=True)
class HistoryPart:
    """A range of a file: of bytes, or of a Parquet file's row groups. `is_last`: the file ends
    with it."""

    file: Path
    start: int
    end: int
    is_last: bool = True

    def events(self) -> Iterator[pa.Table]:
        """Events of the part, some at a time."""
        if self.file.suffix == PARQUET:
            packed = pq.ParquetFile(self.file)
            for group in range(self.start, self.end):
                yield with_all(packed.read_row_group(group, columns=EVENT.names))
        else:
            for lines in self._lines():
                yield columns(lines)

    def _lines(self) -> Iterator[bytes]:
        """Lines of the part, some whole ones at a time."""
        with self.file.open("rb") as file:
            at = self.start
            if at:
                file.seek(at - 1)
                _rest_of_line(file)
                at = file.tell()
            while at < self.end:
                lines = file.read(min(LINES_BYTES_MAX, self.end - at))
                if not lines.endswith(b"\n"):
                    lines += _rest_of_line(file)
                yield lines
                at = file.tell()


def history_parts(path: Path) -> list[HistoryPart]:
    """Parts of all files of a history. Raises ConfigError if there is none."""
    return [part for file in find_history(path) for part in _parts_of(file)]


def _parts_of(file: Path) -> list[HistoryPart]:
    if file.suffix != PARQUET:
        end, step = file.stat().st_size, PART_BYTES
    else:
        about = pq.read_metadata(file)
        end = about.num_row_groups
        rows = max(1, about.num_rows // max(1, end))
        step = max(1, PART_BYTES // LINE_BYTES_MEAN // rows)
    return [
        HistoryPart(file, at, min(at + step, end), at + step >= end) for at in range(0, end, step)
    ]


def _rest_of_line(file: BinaryIO) -> bytes:
    """The rest of a line; only the beginning if the line is too long."""
    rest = file.readline(LINE_BYTES_MAX)
    while len(rest) >= LINE_BYTES_MAX and not rest.endswith(b"\n"):
        more = file.readline(LINE_BYTES_MAX)
        if not more or more.endswith(b"\n"):
            return rest + b"\n"
    return rest
