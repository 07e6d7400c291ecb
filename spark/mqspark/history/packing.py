"""A history as Parquet: a tenth of the bytes, and columns that are read alone.

Each file of JSON Lines becomes one of Parquet with a row for each line, in the same order. What the
judges read has a column of its own; all other fields of a line are in `rest`, as JSON, so that
nothing is lost. A line that can't be read, such as one torn by a kill or with a value of another
type than its column's, is a row without a kind, which proves nothing. It is in `rest` as it is.

Some thousand lines are held at a time. A file has its name only once it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dledger.errors import ConfigError, StorageError
from mqspark.history.events import EVENT, event_of, fitting
from mqspark.history.files import PARQUET, REST, find_history
from mqspark.limits import LINE_BYTES_MAX, PACKED_LINES_MAX

#: The columns of a packed history.
SCHEMA: Final = EVENT.append(pa.field(REST, pa.string()))


def pack(history: Path, target: Path) -> tuple[int, int]:
    """Write a history as Parquet files into a directory that has none; rows and bytes.

    Raises ConfigError, StorageError.
    """
    files = find_history(history)
    if files[0].suffix == PARQUET:
        raise ConfigError(f"{history} is Parquet already")
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise ConfigError(f"{target} is not empty: a packed history needs a directory of its own")
    rows = sum(_pack_file(file, target / f"{file.stem}{PARQUET}") for file in files)
    return rows, sum(file.stat().st_size for file in target.iterdir())


def _pack_file(source: Path, target: Path) -> int:
    partial, rows = target.with_suffix(".partial"), 0
    try:
        with (
            source.open("rb") as lines,
            pq.ParquetWriter(partial, SCHEMA, compression="zstd") as writer,
        ):
            while some := list(islice(_lines(lines), PACKED_LINES_MAX)):
                writer.write_table(_table(some))
                rows += len(some)
        partial.rename(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(f"{target} can't be written: {error}") from error
    return rows


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Each line, of which no more is held than a line may have."""
    while line := file.readline(LINE_BYTES_MAX):
        whole = line.endswith(b"\n")
        yield line
        while not whole and (more := file.readline(LINE_BYTES_MAX)):
            whole = more.endswith(b"\n")


def _table(lines: Sequence[bytes]) -> pa.Table:
    return pa.Table.from_pylist([_row(line) for line in lines], SCHEMA)


def _row(line: bytes) -> dict[str, Any]:
    """A line's values by column; those of no column are in `rest`."""
    event = event_of(line) or {}
    row = fitting(event)
    if not row:
        return {REST: line.decode("utf-8", "replace")}
    rest = {name: value for name, value in event.items() if name not in row}
    if rest:
        row[REST] = msgspec.json.encode(rest).decode()
    return row
