"""Standard output for commands whose reader may leave early.

After a reader has left, as in `mqcluster up | head`, the rest of the output is dropped silently,
and the exit status stays the same: the command goes on with its work. (The signal SIGPIPE could end
the process instead, but it would do so for sockets, too, and in the middle of starting a cluster.)
"""

from __future__ import annotations

import io
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Output(io.FileIO):
    """A file descriptor whose reader may be gone."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            return memoryview(data).nbytes


def let_reader_leave() -> None:
    """Tolerate from now on that the reader of standard output or error leaves. Call it in
    `main`."""
    sys.stdout = _unless_replaced(sys.stdout, sys.__stdout__)
    sys.stderr = _unless_replaced(sys.stderr, sys.__stderr__)


def _unless_replaced(stream: IO[str], original: IO[str] | None) -> IO[str]:
    """The stream, made tolerant; a stream that a test or a tool has put there is kept."""
    if stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
