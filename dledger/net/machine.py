"""The memory and descriptors that the machine gives this process."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import suppress
from pathlib import Path

from dledger.errors import ConfigError
from dledger.limits import CONNECTIONS_MIN, DESCRIPTORS_MAX
from dledger.net.quota import ConnectionQuota, memory_for_connections, places_for

_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
_COLLECTOR_THRESHOLDS = (10_000, 10, 20)


def quota_on_machine(
    memory_bytes_max: int, per_address_max: int, reserved_descriptors: int
) -> ConnectionQuota:
    """The quota of connections that this machine allows; 0 stands for a default.

    Raises this process's limit of descriptors as far as it may. `reserved_descriptors` are left for
    the log and everything else, since a server that can't open its next segment can't go on. Raises
    ConfigError if too few remain.
    """
    descriptors = raise_descriptor_limit()
    places = places_for(descriptors, reserved_descriptors)
    if places < CONNECTIONS_MIN:
        raise ConfigError(
            f"this process may have {descriptors} open files and sockets, and needs "
            f"{reserved_descriptors} besides those of its clients: raise the hard limit to "
            f"{reserved_descriptors + CONNECTIONS_MIN} or more (ulimit -Hn)"
        )
    bytes_max = memory_bytes_max or memory_for_connections(_memory_bytes())
    return ConnectionQuota(places, bytes_max, per_address_max)


def raise_descriptor_limit() -> int:
    """Raise the limit of open descriptors to the hard one; how many there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    # Some systems refuse a number that they name as their limit.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def calm_collector() -> None:
    """Run full garbage collections less often, since the event loop waits for them.

    A broker of 20,000 topics has half a million objects that live long, and reference counts free
    almost all garbage. Objects that a start has loaded are left out.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def _memory_bytes() -> int:
    """The machine's memory, or its container's if that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(machine, int(_CGROUP_MEMORY.read_text()))
    return machine


def memory_bytes() -> int:
    """How much memory this process has in use; 0 where nobody tells."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
