"""Server processes, known by their pid alone.

A cluster outlives the command that started it (`mqcluster up`), so no object of the starting
program can stand for a process: a pid and the process's start time do, because a pid by itself may
name a stranger later. Each server is the leader of a session of its own: a Ctrl-C at the terminal
reaches the harness only, which then ends its servers in order. What a server prints goes to its
own log file, whose last lines are the first thing to read when it does not come up.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from dledger.errors import DledgerError
from dledger.limits import FILE_MODE
from mqchaos import limits


class ClusterError(DledgerError):
    """A cluster can't be started, reached or changed; the message quotes the node's own log."""


class Process(msgspec.Struct, frozen=True):
    """A process for as long as it lives; `started_ticks` tells it from a later one's pid."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now. Raises ClusterError if there is none."""
        ticks = _started_ticks(pid)
        if ticks is None:
            raise ClusterError(f"there is no process {pid}")
        return cls(pid, ticks)

    @property
    def alive(self) -> bool:
        """Whether the process still runs. A zombie does not."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return _started_ticks(self.pid) == self.started_ticks

    @property
    def stopped(self) -> bool:
        """Whether it runs and stands still, by a SIGSTOP."""
        fields = _stat_fields(self.pid)
        return self.alive and fields is not None and fields[0] == "T"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended is left alone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat_fields(pid: int) -> list[str] | None:
    """/proc/PID/stat from field 3, the state, on: proc(5). None for no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _started_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for no process and for a zombie.

    A killed process that has a thread left, as in an fsync, still holds its ports and files.
    """
    fields = _stat_fields(pid)
    try:
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return None
    if fields is None or fields[0] == "X" or (fields[0] == "Z" and threads <= 1):
        return None
    return int(fields[19])


def start(
    module: str,
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    through: Sequence[str] = (),
) -> Process:
    """Start `python -m module` in a session of its own, its output appended to `log`.

    `environment`: what is set in it besides ours. `through`: a command, by its whole path, that
    becomes the one behind it, as `nsenter` does.
    """
    # -P: a folder named like a package in the current directory must not stand in for it.
    argv = [*through, sys.executable, "-P", "-m", module, *arguments]
    output = (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    pid = os.posix_spawn(
        argv[0],
        argv,
        {**os.environ, **(environment or {})},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            output,
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Process.of(pid)


def stop(processes: Iterable[Process], timeout_s: float = limits.STOP_TIMEOUT_S) -> list[Process]:
    """End all of them: SIGTERM, then SIGKILL at the deadline. Returns those that needed SIGKILL."""
    remaining = [process for process in processes if process.alive]
    for process in remaining:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while remaining and time.monotonic() < deadline:
        time.sleep(limits.POLL_S)
        remaining = [process for process in remaining if process.alive]
    kill(remaining)
    return remaining


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL, and wait until each is gone: the kernel has let go of its ports and files then."""
    remaining = list(processes)
    for process in remaining:
        process.signal(signal.SIGKILL)
    while any(process.alive for process in remaining):
        time.sleep(limits.POLL_S)


def log_tail(log: Path, lines: int = limits.LOG_TAIL_LINES) -> str:
    """The last lines of a server's log, indented, to be quoted in an error."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    quoted = "\n".join(f"  | {line[:400]}" for line in text.splitlines()[-lines:])
    return f"The last lines of {log}:\n{quoted or '  (it is empty)'}"


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Different free loopback ports, from a random place of the range on."""
    first = random.randrange(limits.PORT_FIRST, limits.PORT_LAST)
    span = limits.PORT_LAST - limits.PORT_FIRST
    candidates = (limits.PORT_FIRST + (first + step) % span for step in range(span))
    found = [port for port, _ in zip(filter(port_is_free, candidates), range(count), strict=False)]
    if len(found) < count:
        raise ClusterError(
            f"fewer than {count} ports between {limits.PORT_FIRST} and {limits.PORT_LAST} are free"
        )
    return found
