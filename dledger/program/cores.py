"""A tool's memory is its user's alone: a crash leaves no core dump, which would hold secrets."""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def leave_no_core(*, mark: bool = True) -> None:
    """Make a crash of this process leave no core dump. On Linux what collects dumps need not ask
    for the limit, so the process is marked, too, unless it needs its own files in /proc. Processes
    that it starts inherit the limit alone."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if mark and sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
