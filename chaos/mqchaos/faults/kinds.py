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
    """A kind of fault. `name` and `undone` are the history's words, `told` those for people.

    `state`: what a node is from the fault to its end; "" if it stays what it was. `undone` is ""
    for what is over as soon as it has happened.
    """

    name: str
    undone: str
    state: str
    told: str
    told_undone: str
    gap_median_s_max: float = 0.6
    gap_worst_s_max: float = 1.5
    needs: Needs = Needs.NOTHING


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

PARTITION: Final = Kind(
    "partition",
    "joined",
    "isolated",
    "is cut off from the rest of its group",
    _HEARD,
    2.0,
    3.5,
    needs=Needs.LINKS,
)
ISLAND: Final = Kind(
    "island",
    "mainland",
    "isolated",
    "is cut off from everybody",
    _HEARD,
    2.0,
    3.5,
    needs=Needs.LINKS,
)
BRIDGE: Final = Kind(
    "bridge",
    "bridge-over",
    "",
    "has one way only to the rest of its group",
    _HEARD,
    0.6,
    2.5,
    needs=Needs.LINKS,
)
RING: Final = Kind(
    "ring", "ring-over", "", "hears its neighbours only", _HEARD, 0.6, 2.5, needs=Needs.LINKS
)
MUTE: Final = Kind(
    "mute", "speaking", "isolated", "is not heard by its group", _HEARD, 2.0, 3.5, needs=Needs.LINKS
)
DEAF: Final = Kind(
    "deaf",
    "hearing",
    "isolated",
    "hears nothing of its group",
    "hears again",
    2.0,
    3.5,
    needs=Needs.LINKS,
)
CUT_CLIENTS: Final = Kind(
    "cut-clients",
    "clients-back",
    "",
    "can't be reached by clients",
    "can be reached again",
    4.5,
    6,
    needs=Needs.LINKS,
)
CUT_NAMESRV: Final = Kind(
    "cut-namesrv",
    "namesrv-back",
    "",
    "can't reach a name server",
    "reaches them again",
    0.3,
    1,
    needs=Needs.LINKS,
)
SLOW: Final = Kind(
    "slow", "fast", "", "has slow links", "has fast links again", 0.6, 1.5, needs=Needs.LINKS
)
LOSSY: Final = Kind(
    "lossy", "sound", "", "has links that lose", "has sound links again", 1, 2, needs=Needs.LINKS
)
NARROW: Final = Kind(
    "narrow", "wide", "", "has narrow links", "has wide links again", 0.6, 1.5, needs=Needs.LINKS
)
DOUBLED: Final = Kind(
    "doubled",
    "single",
    "",
    "has links that double packets",
    "has sound links again",
    0.6,
    1.5,
    needs=Needs.PACKETS,
)
DISORDERED: Final = Kind(
    "disordered",
    "in-order",
    "",
    "has links that disorder",
    "has links in order again",
    0.6,
    1.5,
    needs=Needs.PACKETS,
)
GARBLED: Final = Kind(
    "garbled",
    "clear",
    "",
    "has links that change bytes",
    "has sound links again",
    1,
    2,
    needs=Needs.PACKETS,
)
RESET: Final = Kind("reset", "", "", "has its connections reset", "", 0.6, 1.5, needs=Needs.LINKS)

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

FAILPOINT_KILL: Final = Kind(
    "failpoint-kill",
    "failpoint-passed",
    "down",
    "ends at a named place",
    _BACK,
    2.0,
    8,
    needs=Needs.PLACE,
)
FAILPOINT_HOLD: Final = Kind(
    "failpoint-hold",
    "failpoint-left",
    "paused",
    "is held at a named place",
    "goes on",
    2.0,
    8,
    needs=Needs.PLACE,
)

SLOW_DISK: Final = Kind(
    "slow-disk",
    "fast-disk",
    "",
    "has a disk that syncs slowly",
    "has a fast disk again",
    1,
    2.5,
    needs=Needs.ORDERS,
)
BAD_SYNC: Final = Kind(
    "bad-sync", "good-sync", "down", "has a disk that can't sync", _BACK, 1, 3, needs=Needs.ORDERS
)
FULL_DISK: Final = Kind(
    "full-disk", "room-again", "", "has a full disk", "has room again", 1, 5, needs=Needs.ORDERS
)
READ_ONLY: Final = Kind(
    "read-only",
    "writable",
    "down",
    "has a disk that can't be written",
    _BACK,
    1,
    3,
    needs=Needs.ORDERS,
)
TORN: Final = Kind(
    "torn-write",
    "torn-read",
    "down",
    "ends in the middle of a write",
    _BACK,
    1,
    3,
    needs=Needs.ORDERS,
)

POWER_LOSS: Final = Kind(
    "power-loss",
    "power-back",
    "down",
    "has a disk that loses its power",
    _BACK,
    1,
    3,
    needs=Needs.OWN_DISK,
)
NO_SPACE: Final = Kind(
    "no-space",
    "space-again",
    "",
    "has a file system without room",
    "has room again",
    1,
    5,
    needs=Needs.OWN_DISK,
)
ABORTED: Final = Kind(
    "aborted",
    "mounted-again",
    "down",
    "has a file system that found an error",
    _BACK,
    2,
    5,
    needs=Needs.OWN_DISK,
)
WRITE_ERRORS: Final = Kind(
    "write-errors",
    "writes-again",
    "down",
    "has a disk whose writes fail",
    _BACK,
    4,
    8,
    needs=Needs.OWN_DISK,
)
LAST_WRITES: Final = Kind(
    "last-writes",
    "first-writes",
    "down",
    "is told to stop while its disk's writes fail",
    _BACK,
    4,
    8,
    needs=Needs.OWN_DISK,
)

CLOCK_AHEAD: Final = Kind(
    "clock-ahead", "clock-fell-back", "", "has a clock ahead", "has not", needs=Needs.CLOCK
)
CLOCK_BEHIND: Final = Kind(
    "clock-behind", "clock-caught-up", "", "has a clock behind", "has not", needs=Needs.CLOCK
)
CLOCK_STROBE: Final = Kind(
    "clock-strobe",
    "clock-still",
    "",
    "has a clock that jumps to and fro",
    "has a steady clock",
    needs=Needs.CLOCK,
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
JOIN: Final = Kind(
    "join", "leave", "", "sees a node come to its group", "sees it go", 0.6, 3, needs=Needs.MEMBERS
)
DISMISS: Final = Kind(
    "dismiss",
    "readmit",
    "",
    "is removed from its group",
    "is a member again",
    0.6,
    3,
    needs=Needs.MEMBERS,
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
"""A step of these names a place."""
ORDERED: Final = _needing(Needs.PLACE, Needs.ORDERS, Needs.CLOCK)
"""For these brokers must take orders."""
OF_NETWORK: Final = _needing(Needs.LINKS, Needs.PACKETS)
"""For these links must pass the proxy, or be the kernel's."""
OF_PACKETS: Final = _needing(Needs.PACKETS)
"""For these they must be the kernel's."""
OF_MEMBERS: Final = _needing(Needs.MEMBERS)
"""For these they must be none of both."""
OF_OWN_DISKS: Final = _needing(Needs.OWN_DISK)
"""For these nodes must have file systems of their own."""
OF_CERTIFICATES: Final = _needing(Needs.CERTIFICATES)
"""For these servers must have certificates."""
OF_CLOCKS: Final = _needing(Needs.CLOCK)
