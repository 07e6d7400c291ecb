"""The kinds of faults, as data: their names in a history, what a node is meanwhile. Pure.

`gap_median_s_max` and `gap_worst_s_max` are how long sends may pause for it. A leader whose process
is gone is missed at once, by its closed connections; one that stands still only when its
heartbeats have failed to come for an election timeout (0.9 to 1.2 s). While a majority is gone
nobody is answered: such a pause is as long as the plan leaves them away, and then a start and an
election.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final


class Needs(Enum):
    """The parts that a cluster must have for a fault."""

    NOTHING = "nothing"
    LINKS = "links that pass the proxy, or are the kernel's"
    PACKETS = "links that are the kernel's"
    MEMBERS = "links of neither kind"
    ORDERS = "brokers that take orders"
    PLACE = "brokers that take orders, and a place in our code"
    CLOCK = "brokers that take orders of their clock"
    OWN_DISK = "nodes with file systems of their own"
    CERTIFICATES = "servers with certificates"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, in words. `name` and `undone` are the history's words, `words` those for
    people.

    `state`: what a node is from the fault to its end; "" if it stays what it was. `undone` is ""
    for what is over as soon as it has happened.
    """

    name: str
    undone: str
    state: str
    words: str
    words_undone: str
    gap_median_s_max: float = 0.6
    gap_worst_s_max: float = 1.5
    needs: Needs = Needs.NOTHING


_on_links = partial(Kind, needs=Needs.LINKS)
_on_packets = partial(Kind, needs=Needs.PACKETS)
_at_place = partial(Kind, needs=Needs.PLACE)
_ordered = partial(Kind, needs=Needs.ORDERS)
_on_own_disk = partial(Kind, needs=Needs.OWN_DISK)
_on_clock = partial(Kind, needs=Needs.CLOCK)
_of_members = partial(Kind, needs=Needs.MEMBERS)

_KILLED, _BACK = "is killed with SIGKILL", "is started again"

KILL: Final = Kind("kill", "restart", "down", _KILLED, _BACK)
STOP: Final = Kind("stop", "start", "down", "is told to stop with SIGTERM", _BACK)
PAUSE: Final = Kind(
    "pause", "resume", "paused", "stands still (SIGSTOP)", "goes on (SIGCONT)", 2.0, 3.5
)
KILL_MAJORITY: Final = Kind(
    "kill-majority", "restart-majority", "down", f"{_KILLED}, and a majority with it", _BACK, 4, 7
)
KILL_ALL: Final = Kind(
    "kill-all", "restart-all", "down", f"{_KILLED}, and all of its group with it", _BACK, 5, 10
)
STORM: Final = Kind(
    "restart-storm", "storm-over", "down", f"{_KILLED}, and again while it starts", _BACK, 7, 12
)
TRANSFER: Final = Kind("transfer", "", "", "hands its leadership over", "", 0.15, 1.0)
KILL_NAMESRV: Final = Kind("kill-namesrv", "restart-namesrv", "down", _KILLED, _BACK, 0.3, 1.0)

_HEARD = "is heard again"

PARTITION: Final = _on_links(
    "partition", "joined", "isolated", "is cut off from the rest of its group", _HEARD, 2.0, 3.5
)
ISLAND: Final = _on_links(
    "island", "mainland", "isolated", "is cut off from everybody", _HEARD, 2.0, 3.5
)
BRIDGE: Final = _on_links(
    "bridge", "bridge-over", "", "has one way only to the rest of its group", _HEARD, 0.6, 2.5
)
RING: Final = _on_links("ring", "ring-over", "", "hears its neighbours only", _HEARD, 0.6, 2.5)
MUTE: Final = _on_links(
    "mute", "speaking", "isolated", "is not heard by its group", _HEARD, 2.0, 3.5
)
DEAF: Final = _on_links(
    "deaf", "hearing", "isolated", "hears nothing of its group", "hears again", 2.0, 3.5
)
CUT_CLIENTS: Final = _on_links(
    "cut-clients", "clients-back", "", "can't be reached by clients", "can be reached again", 4.5, 6
)
CUT_NAMESRV: Final = _on_links(
    "cut-namesrv", "namesrv-back", "", "can't reach a name server", "reaches them again", 0.3, 1
)
SLOW: Final = _on_links("slow", "fast", "", "has slow links", "has fast links again", 0.6, 1.5)
LOSSY: Final = _on_links("lossy", "sound", "", "has links that lose", "has sound links again", 1, 2)
NARROW: Final = _on_links(
    "narrow", "wide", "", "has narrow links", "has wide links again", 0.6, 1.5
)
DOUBLED: Final = _on_packets(
    "doubled", "single", "", "has links that double packets", "has sound links again", 0.6, 1.5
)
DISORDERED: Final = _on_packets(
    "disordered", "in-order", "", "has links that disorder", "has links in order again", 0.6, 1.5
)
GARBLED: Final = _on_packets(
    "garbled", "clear", "", "has links that change bytes", "has sound links again", 1, 2
)
RESET: Final = _on_links("reset", "", "", "has its connections reset", "", 0.6, 1.5)

WIPE: Final = Kind("wipe", "new-disk", "down", "is killed and loses its disk", _BACK)
ROT: Final = Kind("rot", "rot-read", "down", "is killed, and a bit of its log turns", _BACK)
LOST_FILE: Final = Kind(
    "lost-file", "file-missed", "down", "is killed and loses a file of its log", _BACK
)
SHORT_FILE: Final = Kind(
    "short-file", "short-read", "down", "is killed and loses the end of a file of its log", _BACK
)
STALE: Final = Kind(
    "stale-file", "stale-read", "down", "is killed and gets an old file of its log back", _BACK
)

FAILPOINT_KILL: Final = _at_place(
    "failpoint-kill", "failpoint-passed", "down", "ends at a named place", _BACK, 2.0, 8
)
FAILPOINT_HOLD: Final = _at_place(
    "failpoint-hold", "failpoint-left", "paused", "is held at a named place", "goes on", 2.0, 8
)

SLOW_DISK: Final = _ordered(
    "slow-disk", "fast-disk", "", "has a disk that syncs slowly", "has a fast disk again", 1, 2.5
)
BAD_SYNC: Final = _ordered(
    "bad-sync", "good-sync", "down", "has a disk that can't sync", _BACK, 1, 3
)
FULL_DISK: Final = _ordered(
    "full-disk", "room-again", "", "has a full disk", "has room again", 1, 5
)
READ_ONLY: Final = _ordered(
    "read-only", "writable", "down", "has a disk that can't be written", _BACK, 1, 3
)
TORN: Final = _ordered(
    "torn-write", "torn-read", "down", "ends in the middle of a write", _BACK, 1, 3
)

POWER_LOSS: Final = _on_own_disk(
    "power-loss", "power-back", "down", "has a disk that loses its power", _BACK, 1, 3
)
NO_SPACE: Final = _on_own_disk(
    "no-space", "space-again", "", "has a file system without room", "has room again", 1, 5
)
ABORTED: Final = _on_own_disk(
    "aborted", "mounted-again", "down", "has a file system that found an error", _BACK, 2, 5
)
WRITE_ERRORS: Final = _on_own_disk(
    "write-errors", "writes-again", "down", "has a disk whose writes fail", _BACK, 4, 8
)
LAST_WRITES: Final = _on_own_disk(
    "last-writes",
    "first-writes",
    "down",
    "is told to stop while its disk's writes fail",
    _BACK,
    4,
    8,
)

CLOCK_AHEAD: Final = _on_clock("clock-ahead", "clock-fell-back", "", "has a clock ahead", "has not")
CLOCK_BEHIND: Final = _on_clock(
    "clock-behind", "clock-caught-up", "", "has a clock behind", "has not"
)
CLOCK_STROBE: Final = _on_clock(
    "clock-strobe", "clock-still", "", "has a clock that jumps to and fro", "has a steady clock"
)
FEW_FILES: Final = Kind(
    "few-files", "enough-files", "", "may open a few files more only", "may open files", 1, 3
)
SMALL_FILES: Final = Kind(
    "small-files", "any-files", "", "may write to the beginnings of files only", "may write", 1, 3
)
LOW_MEMORY: Final = Kind(
    "low-memory", "enough-memory", "", "may have a little more memory only", "may have more", 2, 5
)
SLOW_CPU: Final = Kind(
    "slow-cpu", "fast-cpu", "", "gets a tenth of a processor", "gets a processor again", 2.5, 5
)
JOIN: Final = _of_members(
    "join", "leave", "", "sees a node come to its group", "sees it go", 0.6, 3
)
DISMISS: Final = _of_members(
    "dismiss", "readmit", "", "is removed from its group", "is a member again", 0.6, 3
)
BLANK_NAMESRV: Final = Kind(
    "blank-namesrv", "namesrv-told", "", "knows nothing", "is told by brokers again", 0.3, 1.5
)
RENEW_CERTIFICATES: Final = Kind(
    "renew-certificates",
    "certificates-renewed",
    "",
    "is given a certificate of a new authority",
    "trusts the new authority alone",
    needs=Needs.CERTIFICATES,
)
RENEW_SECRET: Final = Kind(
    "renew-secret", "secret-renewed", "", "is given a new secret", "has the new secret alone"
)

KINDS: Final = {kind.name: kind for kind in [*globals().values()] if isinstance(kind, Kind)}
UNDONE: Final = {kind.undone: kind for kind in KINDS.values() if kind.undone}


def _needing(*needs: Needs) -> frozenset[str]:
    return frozenset(kind.name for kind in KINDS.values() if kind.needs in needs)


AT_PLACES: Final = _needing(Needs.PLACE)
"""Faults at a place of our code: a step names it."""
ORDERED: Final = _needing(Needs.PLACE, Needs.ORDERS, Needs.CLOCK)
"""Faults for which brokers must take orders."""
OF_NETWORK: Final = _needing(Needs.LINKS, Needs.PACKETS)
"""Faults for which links must pass the proxy, or be the kernel's."""
OF_PACKETS: Final = _needing(Needs.PACKETS)
"""Faults for which links must be the kernel's."""
OF_MEMBERS: Final = _needing(Needs.MEMBERS)
"""Faults for which links must not pass the proxy, nor be the kernel's."""
OF_OWN_DISKS: Final = _needing(Needs.OWN_DISK)
"""Faults for which nodes must have file systems of their own."""
OF_CERTIFICATES: Final = _needing(Needs.CERTIFICATES)
"""Faults for which servers must have certificates."""
OF_CLOCKS: Final = _needing(Needs.CLOCK)
