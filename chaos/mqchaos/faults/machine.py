"""Means that this machine lacks for a fault: named before a run, and never taken for a fault that
held."""

from __future__ import annotations

import socket
import tempfile
from functools import cache
from pathlib import Path

from mqchaos.cluster import ext4
from mqchaos.faults.kinds import KINDS, OF_OWN_DISKS, OF_PACKETS
from mqchaos.faults.network import NETWORK_FAULTS
from mqchaos.network.needs import kernel_lacks, no_namespaces

_ANY_OF_LOOPBACK = "127.77.0.1"
_RULES = {each.kind.name: each.rule for each in NETWORK_FAULTS}


def machine_lacks(fault: str, *, namespaces: bool = False) -> str | None:
    """Why a kind of fault can't be done here, by the proxy or in `namespaces`; None if it can."""
    if fault in OF_OWN_DISKS:
        return no_own_disks() or (no_namespaces() if namespaces else None)
    if namespaces:
        return kernel_lacks(_RULES[fault]) if fault in _RULES else no_namespaces()
    if fault not in _RULES:
        return None if Path("/proc/self/stat").exists() else "it needs Linux's /proc"
    if fault in OF_PACKETS:
        return "the proxy forwards bytes, and no packets; --network namespaces may"
    with socket.socket() as probe:
        try:
            probe.bind((_ANY_OF_LOOPBACK, 0))
        except OSError as error:
            return f"only 127.0.0.1 is loopback here ({error.strerror})"
    return None


def all_lacking(*, namespaces: bool = False) -> dict[str, str]:
    """Fault -> why it can't be done here, for each that can't."""
    why = {name: machine_lacks(name, namespaces=namespaces) for name in KINDS}
    return {name: words for name, words in why.items() if words is not None}


@cache
def no_own_disks() -> str | None:
    """Why nodes can't have file systems of their own. Tries it."""
    with tempfile.TemporaryDirectory(prefix="mqchaos-list-") as folder:
        return ext4.why_not(Path(folder))
