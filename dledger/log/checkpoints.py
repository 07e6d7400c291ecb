"""Checkpoints of a log: when one is due, and its content. The file is described in
:mod:`dledger.log.scanning.checkpoint`.

A checkpoint shortens restarts; for that, one every few seconds is enough. It also shows that a file
is lost. Invariant: a start notices a missing segment if entries in it were committed. Segments
before the last one are missed by what follows them, and the last one only by the commit index in
the checkpoint. The fault that would break it: a log's newest segment is lost before any checkpoint
knows of it, so the log seems to end before, and its node votes and acknowledges without entries
that it acknowledged. So a checkpoint is due at once when the first entry in a segment is committed.
"""

from __future__ import annotations

import contextlib
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from dledger.errors import Rot
from dledger.log.disk import Disk
from dledger.log.scanning.checkpoint import Checkpoint, encode_checkpoint
from dledger.log.segments.contents import Contents


class Durable(Protocol):
    """The part of a log that its checkpoints must know."""

    folder: Path
    durable_index: int

    @property
    def kept_index(self) -> int:
        """Up to here all entries are committed and durable."""


class Checkpoints:
    """The checkpoints of one log. They hold no strong reference to it: when it is dropped its
    mappings must go at once, or its file system could not be unmounted."""

    def __init__(self, log: Durable, contents: Contents, disk: Disk) -> None:
        self._of = weakref.ref(log)
        self._contents = contents
        self._disk = disk
        self._distrusted: set[int] = set()
        self._noted_index = 0

    @property
    def _log(self) -> Durable:
        log = self._of()
        assert log is not None, "its log was dropped"
        return log

    @property
    def is_due(self) -> bool:
        """Whether entries in the last segment are committed, and no checkpoint was taken since."""
        segments = self._contents.segments
        if not segments:
            return False
        return self._noted_index < segments[-1].first_index <= self._log.kept_index

    def distrust(self, base_position: int) -> None:
        """Leave that segment out of checkpoints: the next start reads it."""
        self._distrusted.add(base_position)

    def doubt(self, rot: Rot) -> None:
        """Damage was found: have the next start read that segment, and find it."""
        self.distrust(rot.base_position)
        self.save(self.take())

    def take(self) -> bytes:
        """A checkpoint of what is durable now: the bytes for the file `checkpoint`."""
        sealed, log = [], self._log
        for segment, following in pairwise(self._contents.segments):
            if following.first_index - 1 > log.durable_index:
                break
            if segment.base_position not in self._distrusted:
                sealed.append(segment.summary(following.first_index - 1))
        self._noted_index = log.kept_index
        return encode_checkpoint(Checkpoint(self._noted_index, tuple(sealed)))

    def save(self, content: bytes) -> None:
        """Write a checkpoint; a failure is ignored, as the next one comes within seconds."""
        with contextlib.suppress(OSError):
            self._disk.replace(self._log.folder / "checkpoint", content)
