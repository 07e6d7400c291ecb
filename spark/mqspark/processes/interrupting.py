"""Ctrl-C during an audit: no Java and no file is left, and no traceback is printed.

Spark's own handler asks Java to cancel its jobs, over the very connection on which the audit waits
for an answer; the bridge to Java logs tracebacks of that. A Java that is just starting would not
notice that its Python is gone, and would live for ever.
"""

from __future__ import annotations

import logging
import os
import signal
import socketserver
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_interrupted = False


@contextmanager
def own_temporary_files() -> Iterator[None]:
    """Keep temporary files, also those of Java, in one folder, and remove it at the end.

    A Java that is killed removes nothing.
    """
    with tempfile.TemporaryDirectory(prefix="mqaudit-", ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def was_interrupted() -> bool:
    """Whether Ctrl-C came by now. Errors that are raised after it are consequences of it."""
    return _interrupted


def end_on_interrupt() -> None:
    """Make Ctrl-C end this process's Java, and raise KeyboardInterrupt, from now on.

    Call it again when Spark has started: it sets a handler of its own. Main thread only.
    """
    signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    global _interrupted  # noqa: PLW0603 - a process has one handler
    # A second one must not break the clean-up of the first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _interrupted = True
    logging.disable()
    # Spark's server of counters, in a thread, would print that its connection has broken.
    type.__setattr__(socketserver.BaseServer, "handle_error", lambda *_: None)
    for child in _children():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    raise KeyboardInterrupt


def _children() -> list[int]:
    """The processes that this one has started, as Linux tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in brackets, may hold anything; behind it are the state and the parent.
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(stat.parent.name))
    return found
