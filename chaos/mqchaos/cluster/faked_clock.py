"""A clock that a whole process sees, by libfaketime: all of its code and its libraries'.

It stands between a process and the C library's clocks, and asks a file once a second by how much it
is to be off; to ask at each look costs a broker as much as all else that it does. Clocks that never
jump are left alone, as every kernel leaves them. It is loaded at the start, so a cluster has it or
not. Python's own `time.sleep` fails in such a process while the clock is off (libfaketime 0.9.10
takes its deadline for one that was faked): a broker sleeps so only while it copies a replica.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from mqchaos.limits import FAKED_TRIAL_S, TOOL_TIMEOUT_S

_CLOCK: Final = "clock"
_PLACES: Final = ("lib/*/faketime", "lib/faketime", "lib64/faketime", "local/lib/faketime")
_LOOK: Final = "import time; print(time.time(), time.monotonic())"


def library() -> Path | None:
    """Where libfaketime is, the one for processes with threads."""
    root = Path("/usr")
    found = [path for place in _PLACES for path in root.glob(f"{place}/libfaketimeMT.so.1")]
    return found[0] if found else None


def environment(folder: Path) -> dict[str, str]:
    """Environment of a process whose clock the file in its folder moves."""
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(folder / _CLOCK),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_CACHE_DURATION": "0",
        # Without it threads that wait for Python's interpreter do so for up to seconds.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "NO_FAKE_STAT": "1",
    }


def put_ahead(folder: Path, seconds: float) -> None:
    """Move the clock of who was started with this folder; less than 0 is behind."""
    new = folder / f".{_CLOCK}"
    new.write_text(f"{seconds:+.3f}\n")
    new.replace(folder / _CLOCK)


def ahead_s(folder: Path, pid: int) -> float | None:
    """How much a process's clock is off; None for one that was started without."""
    try:
        loaded = "libfaketime" in Path(f"/proc/{pid}/maps").read_text()
        return float((folder / _CLOCK).read_text()) if loaded else None
    except OSError:
        return None


@cache
def no_faked_clocks() -> str | None:
    """Why processes can't have clocks of their own here; None if they can. Tries it."""
    found = library()
    if found is None:
        return "libfaketime is not installed (Debian: faketime)"
    environment = {
        "LD_PRELOAD": str(found),
        "FAKETIME": f"+{FAKED_TRIAL_S}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    try:
        wall, steady = (_look(more) for more in ({}, environment))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"{found} does not work here: {error}"
    if (
        abs(steady[0] - wall[0] - FAKED_TRIAL_S) > FAKED_TRIAL_S / 2
        or abs(steady[1] - wall[1]) > FAKED_TRIAL_S / 2
    ):
        return f"{found} does not move the clock that it should, or moves the other, too"
    return None


def _look(more: dict[str, str]) -> tuple[float, float]:
    argv = [sys.executable, "-c", _LOOK]
    printed = subprocess.check_output(
        argv, text=True, env={**os.environ, **more}, timeout=TOOL_TIMEOUT_S
    )
    wall, steady = map(float, printed.split())
    return wall, steady
