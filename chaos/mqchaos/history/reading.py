"""Reads a history, of lines or packed: the events of many files, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from pathlib import Path

from mqchaos.history.events import DECODER, LINES, PARQUET, Event, row_of


def read_history(path: Path) -> Iterator[Event]:
    """The events of one file, or of all of a directory, in the order of time.

    Lines or Parquet. A row of files is in that order by itself, so of each row no more is held than
    a line, or a batch of rows.
    """
    rows: dict[str, list[Path]] = {}
    files = path.iterdir() if path.is_dir() else [path]
    for file in sorted(file for file in files if file.suffix in {LINES, PARQUET}):
        rows.setdefault(row_of(file)[0], []).append(file)
    return merge(*map(_read_row, rows.values()), key=attrgetter("t"))


def _read_row(files: list[Path]) -> Iterator[Event]:
    return chain.from_iterable(map(_read_file, files))


def _read_file(file: Path) -> Iterator[Event]:
    if file.suffix == PARQUET:
        # Much to import, and an extra: for histories that are packed alone.
        from mqchaos.history.packed import read_packed  # noqa: PLC0415

        yield from read_packed(file)
        return
    with file.open("rb") as lines:
        for line in lines:
            yield DECODER.decode(line)
