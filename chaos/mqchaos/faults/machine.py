"""What this machine lacks for a fault: told before a run, and never taken for a fault that held."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

from mqchaos.faults import ext4
from mqchaos.faults.network import NETWORK_FAULTS

_ANY_OF_LOOPBACK = "127.77.0.1"


def machine_lacks(fault: str) -> str | None:
    """Why a kind of fault can't be done here; None if it can."""
    if fault not in {each.kind.name for each in NETWORK_FAULTS}:
        return None if Path("/proc/self/stat").exists() else "it needs Linux's /proc"
    with socket.socket() as probe:
        try:
            probe.bind((_ANY_OF_LOOPBACK, 0))
        except OSError as error:
            return f"only 127.0.0.1 is loopback here ({error.strerror})"
    return None


def no_power_loss() -> str | None:
    """The same for power losses, which have a command of their own. Tries it."""
    with tempfile.TemporaryDirectory(prefix="mqchaos-list-") as folder:
        return ext4.why_not(Path(folder))
