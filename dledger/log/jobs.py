"""Slow work that a log hands out, so that its caller need not wait for the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dledger.failpoints import failpoint
from dledger.log.head import LogHead
from dledger.log.segments.segment import Segment


class SyncJob(NamedTuple):
    """A sync: everything up to `target_index` will be durable when `run` has returned."""

    segments: tuple[Segment, ...]
    target_index: int
    generation: int

    def run(self) -> None:
        """Sync the files of the job's segments. May run in a thread; raises OSError."""
        failpoint("log.marked")
        for segment in self.segments:
            segment.sync()
        failpoint("log.durable")


@dataclass(frozen=True, slots=True)
class TrimJob:
    """The removal of old segments from the disk. Slow, so `run` may be called in a thread."""

    remove: Callable[[TrimJob], None]
    head: LogHead
    paths: tuple[Path, ...]
    replacements: int

    def run(self) -> None:
        """Say durably where the log begins, then remove. OSError leaves a log that can be read."""
        failpoint("log.trim")
        self.remove(self)
