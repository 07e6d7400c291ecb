"""An audit log on disk: JSON lines in a folder, whose size is bounded.

Lines go to `audit.jsonl`. When that is full it becomes `audit-<its last line's time>.jsonl`, and
the oldest such file goes as soon as there are too many. Files are their user's alone. A disk
that takes no line keeps nobody from being served: the reason is logged once, and lines that were
lost are counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from dledger.limits import (
    AUDIT_FILE_BYTES,
    AUDIT_FILES_MAX,
    FILE_MODE,
    FOLDER_MODE,
)
from dledger.observe import get_logger
from dledger.trust.audit import AuditLine

_log = get_logger(__name__)
_NAME = "audit.jsonl"


class AuditLog:
    """The files in a folder; without one, nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        #: Lines that the disk has not taken since the start.
        self.lost = 0
        self._descriptor: int | None = None
        self._size = 0
        self._problem = ""

    @property
    def folder(self) -> Path | None:
        """The folder of the log's files."""
        return self._folder

    def write(self, lines: Iterable[AuditLine]) -> None:
        """Append lines to the log."""
        if self._folder is None:
            return
        for line in lines:
            try:
                self._append(self._folder, msgspec.json.encode(line) + b"\n", line.time_ms)
                self._problem = ""
            except OSError as error:
                self.lost += 1
                self.close()
                if str(error) != self._problem:
                    self._problem = str(error)
                    _log.error(
                        "audit log not written",
                        reason=self._problem,
                        remedy=f"make room for {self._folder}; what was not written is lost",
                    )

    def _append(self, folder: Path, data: bytes, time_ms: int) -> None:
        if self._descriptor is not None and self._size + len(data) > AUDIT_FILE_BYTES:
            self.close()
            (folder / _NAME).rename(folder / f"audit-{time_ms:015}.jsonl")
            for old in _full(folder)[: -AUDIT_FILES_MAX + 1]:
                old.unlink(missing_ok=True)
        if self._descriptor is None:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._descriptor = os.open(folder / _NAME, flags, FILE_MODE)
            self._size = os.fstat(self._descriptor).st_size
            if self._size:
                data = b"\n" + data if not _ends_whole(folder / _NAME) else data
        self._size += os.write(self._descriptor, data)

    def close(self) -> None:
        """Close the file; the next line opens it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self, since_ms: int) -> list[AuditLine]:
        """The lines since a time, oldest first; what is damaged is passed over."""
        if self._folder is None:
            return []
        return [
            line
            for path in files_of(self._folder)
            for line in _lines(path)
            if line.time_ms >= since_ms
        ]


def files_of(folder: Path) -> list[Path]:
    """The files of an audit log, the oldest first; the last one may not be there."""
    return [*_full(folder), folder / _NAME]


def _full(folder: Path) -> list[Path]:
    """The files that were full, the oldest first."""
    return sorted(folder.glob("audit-*.jsonl"))


def _ends_whole(path: Path) -> bool:
    """Whether a file's last line is whole: else a crash has cut it."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lines(path: Path) -> Iterator[AuditLine]:
    """The lines of a file that is there, and no larger than one of ours."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * AUDIT_FILE_BYTES)
    except OSError:
        return
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=AuditLine)
        except (msgspec.DecodeError, ValueError):
            continue
