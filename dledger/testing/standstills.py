"""Standstills of a process and all that it started, as on a shared machine.

A test whose result depends on the machine's speed fails sooner or later on a slow one. This finds
it on a fast one: `./dev test --standstills SEED` starts one of these beside each worker. A process
that is stopped already is left alone: a test stopped it. Ends when the worker does.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RUNS_S = (0.05, 0.4)
STANDS_S = (0.1, 0.6)
"""Half a second is what shared machines have been seen to take."""
ALL_SHARE = 0.7
"""How often all stand still, as when the machine itself does; else only the worker, as when others
have the cores."""


@contextmanager
def standing_still(seed: int) -> Iterator[None]:
    """Stop this process now and then, while the block runs."""
    argv = [sys.executable, __file__, str(os.getpid()), str(seed)]
    with subprocess.Popen(argv) as helper:
        try:
            yield
        finally:
            helper.terminate()


def main() -> None:
    """Stop and go on, until the process is gone or this one is told to end."""
    pid, seed = map(int, sys.argv[1:])
    chance = random.Random(seed)
    ends = list[bool]()
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    while not ends and os.getppid() == pid:
        time.sleep(chance.uniform(*RUNS_S))
        started = processes_of(pid) if chance.random() < ALL_SHARE else [pid]
        stopped = [each for each in started if each != os.getpid() and runs(each)]
        try:
            send(signal.SIGSTOP, stopped)
            time.sleep(chance.uniform(*STANDS_S))
        finally:
            send(signal.SIGCONT, stopped)


def send(what: signal.Signals, pids: list[int]) -> None:
    """Signal all that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def processes_of(pid: int) -> list[int]:
    """A process and all that it started, directly and not."""
    children = defaultdict[int, list[int]](list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                children[int(state_of(entry)[1])].append(int(entry.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def runs(pid: int) -> bool:
    """Whether the process exists and is not stopped."""
    with suppress(OSError):
        return state_of(Path("/proc", str(pid)))[0] not in "TtZ"
    return False


def state_of(entry: Path) -> list[str]:
    """State, parent, ...: what the kernel says after a process's name (proc(5))."""
    return (entry / "stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    main()
