"""The segment behind the last one: its file is made before the log needs it.

Making a file takes as long as writing all of it, so a thread does it once the last segment is half
full. The log may need the segment before the thread is done, or may be cut meanwhile. Invariant: a
segment's file is never replaced, nor removed, once the log may have written to it. The crash that
would break it: a thread makes the file anew after the log has written there, and a power loss then
takes what was acknowledged in it. So a thread looks where the log ends only once it has the lock,
without which the log can't begin the segment behind the next one.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from dledger.log.disk import Disk
from dledger.log.segments.contents import Contents
from dledger.log.segments.segment import PreparedSegment, segment_path


class NextSegment:
    """The next segment of a log. Only `prepare` may be called in other threads."""

    def __init__(self, folder: Path, contents: Contents, disk: Disk) -> None:
        self._folder = folder
        self._contents = contents
        self._disk = disk
        self._spare: PreparedSegment | None = None
        self._creating = Lock()
        #: The segment's file that was made last, and is durable under its name.
        self._made: Path | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the next segment's file is made, and adopted."""
        return self._spare is not None

    def is_at(self, position: int) -> bool:
        """Whether a position is in the segment behind the last one."""
        segments, size_bytes = self._contents.segments, self._contents.segment_bytes
        ahead = position - segments[-1].base_position if segments else 0
        return size_bytes <= ahead < 2 * size_bytes

    # -- making it -------------------------------------------------------------------------

    def prepare(self) -> PreparedSegment:
        """Create the next segment's file, durable. Slow, so it may run in a thread."""
        contents = self._contents
        with self._creating:
            generation = contents.generation
            base = contents.segments[-1].base_position + contents.segment_bytes
            descriptor = self._create(segment_path(self._folder, base))
        return PreparedSegment(base, descriptor, generation)

    def _create(self, path: Path) -> int:
        # The log may need a segment while a thread is still preparing it. The second of the two
        # takes the file that the first one made, and never replaces it. But a file that an attempt
        # has left which failed is replaced: its name may not be durable, and with the power went
        # whatever was acknowledged in it.
        if self._made == path and self._disk.size(path) is not None:
            return self._disk.open(path)
        self._made = None
        descriptor = self._disk.create(path, self._contents.segment_bytes)
        self._made = path
        return descriptor

    def adopt(self, prepared: PreparedSegment) -> None:
        """Keep a prepared segment for when it is needed.

        Not if the log was cut meanwhile: the cut may have removed this file, and what is written to
        a removed file is gone after a restart.
        """
        fits = self.is_at(prepared.base_position)
        if fits and self._spare is not None:
            self._disk.close(prepared.descriptor)  # the log could not wait for it
        elif fits and prepared.generation == self._contents.generation:
            self._spare = prepared
        else:
            self._discard(prepared)

    # -- using it --------------------------------------------------------------------------

    def take(self, base_position: int) -> int:
        """The descriptor of the segment that begins there, made now unless it is ready. Raises
        OSError."""
        if self._spare is not None and self._spare.base_position == base_position:
            descriptor = self._spare.descriptor
        else:
            with self._creating:
                descriptor = self._create(segment_path(self._folder, base_position))
        self._spare = None
        return descriptor

    def discard(self) -> bool:
        """Remove the file that is ready; False if none is."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._discard(spare)
        return spare is not None

    def _discard(self, prepared: PreparedSegment) -> None:
        self._disk.close(prepared.descriptor)
        if prepared.base_position > self._contents.segments[-1].base_position:
            self._disk.remove(segment_path(self._folder, prepared.base_position))

    def close(self) -> None:
        """Close the file that is ready, which a start finds empty and removes."""
        if self._spare is not None:
            self._disk.close(self._spare.descriptor)
            self._spare = None
