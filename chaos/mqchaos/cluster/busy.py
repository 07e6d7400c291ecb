"""A busy machine: processes beside the servers that always want a processor.

Machines of continuous integration, and those that are shared, have such neighbours. Answers come
late there, and twice; turns last long; what two threads do overlaps otherwise. That is no fault of
its own, and it shows faults that a quiet machine does not: of those that this harness has found,
some came again on a busy machine alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from mqchaos.limits import STOP_TIMEOUT_S

_WANTS_A_PROCESSOR: Final = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
"""Ends with its parent, though that be by SIGKILL."""


@contextmanager
def busy_machine(processes: int) -> Iterator[list[int]]:
    """Run so many processes that want a processor each within the block; yields their pids."""
    with ExitStack() as stack:
        yield [stack.enter_context(_neighbour()) for _ in range(processes)]


def slowdown(processes: int) -> float:
    """How many times as long work may take beside them: more processes share each core."""
    return 1 + processes / (os.cpu_count() or 1)


@contextmanager
def _neighbour() -> Iterator[int]:
    argv = [sys.executable, "-I", "-S", "-c", _WANTS_A_PROCESSOR, str(os.getpid())]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
