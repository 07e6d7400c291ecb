"""The kinds of faults, as data: their names in a history, what a node is meanwhile. Pure.

`gap_median_s_max` and `gap_worst_s_max` are how long sends may pause for it. A leader whose process
is gone is missed at once, by its closed connections; one that stands still only when its
heartbeats have failed to come for an election timeout (0.9 to 1.2 s). While a majority is gone
nobody is answered: such a pause is as long as the plan leaves them away, and then a start and an
election.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
    "partition", "joined", "isolated", "is cut off from the rest of its group", _HEARD, 2.0, 3.5
)
ISLAND: Final = Kind(
    "island", "mainland", "isolated", "is cut off from everybody", _HEARD, 2.0, 3.5
)
BRIDGE: Final = Kind(
    "bridge", "bridge-over", "", "has one way only to the rest of its group", _HEARD, 0.6, 2.5
)
RING: Final = Kind("ring", "ring-over", "", "hears its neighbours only", _HEARD, 0.6, 2.5)
MUTE: Final = Kind("mute", "speaking", "isolated", "is not heard by its group", _HEARD, 2.0, 3.5)
DEAF: Final = Kind(
    "deaf", "hearing", "isolated", "hears nothing of its group", "hears again", 2.0, 3.5
)
CUT_CLIENTS: Final = Kind(
    "cut-clients", "clients-back", "", "can't be reached by clients", "can be reached again", 4.5, 6
)
CUT_NAMESRV: Final = Kind(
    "cut-namesrv", "namesrv-back", "", "can't reach a name server", "reaches them again", 0.3, 1
)
SLOW: Final = Kind("slow", "fast", "", "has slow links", "has fast links again", 0.6, 1.5)
LOSSY: Final = Kind("lossy", "sound", "", "has links that lose", "has sound links again", 1, 2)
NARROW: Final = Kind("narrow", "wide", "", "has narrow links", "has wide links again", 0.6, 1.5)
DOUBLED: Final = Kind(
    "doubled", "single", "", "has links that double packets", "has sound links again", 0.6, 1.5
)
DISORDERED: Final = Kind(
    "disordered", "in-order", "", "has links that disorder", "has links in order again", 0.6, 1.5
)
GARBLED: Final = Kind(
    "garbled", "clear", "", "has links that change bytes", "has sound links again", 1, 2
)
RESET: Final = Kind("reset", "", "", "has its connections reset", "", 0.6, 1.5)

WIPE: Final = Kind("wipe", "new-disk", "down", "is killed and loses its disk", _BACK)
ROT: Final = Kind("rot", "rot-read", "down", "is killed, and a bit of its log turns", _BACK)
LOST_FILE: Final = Kind(
    "lost-file", "file-missed", "down", "is killed and loses a file of its log", _BACK
)
SHORT_FILE: Final = Kind(
    "short-file", "short-read", "down", "is killed and loses the end of a file of its log", _BACK
)

FAILPOINT_KILL: Final = Kind(
    "failpoint-kill", "failpoint-passed", "down", "ends at a named place", _BACK, 2.0, 8
)
FAILPOINT_HOLD: Final = Kind(
    "failpoint-hold", "failpoint-left", "paused", "is held at a named place", "goes on", 2.0, 8
)

SLOW_DISK: Final = Kind(
    "slow-disk", "fast-disk", "", "has a disk that syncs slowly", "has a fast disk again", 1, 2.5
)
BAD_SYNC: Final = Kind("bad-sync", "good-sync", "down", "has a disk that can't sync", _BACK, 1, 3)
FULL_DISK: Final = Kind("full-disk", "room-again", "", "has a full disk", "has room again", 1, 5)
READ_ONLY: Final = Kind(
    "read-only", "writable", "down", "has a disk that can't be written", _BACK, 1, 3
)
TORN: Final = Kind("torn-write", "torn-read", "down", "ends in the middle of a write", _BACK, 1, 3)
STALE: Final = Kind(
    "stale-file", "stale-read", "down", "is killed and gets an old file of its log back", _BACK
)

POWER_LOSS: Final = Kind(
    "power-loss", "power-back", "down", "has a disk that loses its power", _BACK, 1, 3
)
NO_SPACE: Final = Kind(
    "no-space", "space-again", "", "has a file system without room", "has room again", 1, 5
)
ABORTED: Final = Kind(
    "aborted", "mounted-again", "down", "has a file system that found an error", _BACK, 2, 5
)
WRITE_ERRORS: Final = Kind(
    "write-errors", "writes-again", "down", "has a disk whose writes fail", _BACK, 4, 8
)
LAST_WRITES: Final = Kind(
    "last-writes",
    "first-writes",
    "down",
    "is told to stop while its disk's writes fail",
    _BACK,
    4,
    8,
)

CLOCK_AHEAD: Final = Kind("clock-ahead", "clock-fell-back", "", "has a clock ahead", "has not")
CLOCK_BEHIND: Final = Kind("clock-behind", "clock-caught-up", "", "has a clock behind", "has not")
CLOCK_STROBE: Final = Kind(
    "clock-strobe", "clock-still", "", "has a clock that jumps to and fro", "has a steady clock"
)
FEW_FILES: Final = Kind(
    "few-files", "enough-files", "", "may open a few files more only", "may open files", 1, 3
)
LOW_MEMORY: Final = Kind(
    "low-memory", "enough-memory", "", "may have a little more memory only", "may have more", 2, 5
)
SMALL_FILES: Final = Kind(
    "small-files", "any-files", "", "may write to the beginnings of files only", "may write", 1, 3
)
SLOW_CPU: Final = Kind(
    "slow-cpu", "fast-cpu", "", "gets a tenth of a processor", "gets a processor again", 2.5, 5
)
JOIN: Final = Kind("join", "leave", "", "sees a node come to its group", "sees it go", 0.6, 3)
DISMISS: Final = Kind(
    "dismiss", "readmit", "", "is removed from its group", "is a member again", 0.6, 3
)
BLANK_NAMESRV: Final = Kind(
    "blank-namesrv", "namesrv-told", "", "knows nothing", "is told by brokers again", 0.3, 1.5
)

KINDS: Final = {
    kind.name: kind
    for kind in (
        *(KILL, STOP, PAUSE, KILL_MAJORITY, KILL_ALL, STORM, TRANSFER, KILL_NAMESRV),
        *(PARTITION, ISLAND, BRIDGE, RING, MUTE, DEAF, CUT_CLIENTS, CUT_NAMESRV),
        *(SLOW, LOSSY, NARROW, DOUBLED, DISORDERED, GARBLED, RESET),
        *(WIPE, ROT, LOST_FILE, SHORT_FILE, STALE),
        *(FAILPOINT_KILL, FAILPOINT_HOLD),
        *(SLOW_DISK, BAD_SYNC, FULL_DISK, READ_ONLY, TORN),
        *(POWER_LOSS, NO_SPACE, ABORTED, WRITE_ERRORS, LAST_WRITES),
        *(CLOCK_AHEAD, CLOCK_BEHIND, CLOCK_STROBE),
        *(FEW_FILES, SMALL_FILES, LOW_MEMORY, SLOW_CPU),
        *(JOIN, DISMISS, BLANK_NAMESRV),
    )
}
UNDONE: Final = {kind.undone: kind for kind in KINDS.values() if kind.undone}
AT_PLACES: Final = frozenset({FAILPOINT_KILL.name, FAILPOINT_HOLD.name})
"""A step of these names a place."""
ORDERED: Final = AT_PLACES | {
    kind.name
    for kind in (
        *(SLOW_DISK, BAD_SYNC, FULL_DISK, READ_ONLY, TORN),
        *(CLOCK_AHEAD, CLOCK_BEHIND, CLOCK_STROBE),
    )
}
"""For these brokers must take orders."""
OF_NETWORK: Final = frozenset(
    kind.name
    for kind in (
        *(PARTITION, ISLAND, BRIDGE, RING, MUTE, DEAF, CUT_CLIENTS, CUT_NAMESRV),
        *(SLOW, LOSSY, NARROW, DOUBLED, DISORDERED, GARBLED, RESET),
    )
)
"""For these links must pass the proxy, or be the kernel's."""
OF_PACKETS: Final = frozenset({DOUBLED.name, DISORDERED.name, GARBLED.name})
"""For these they must be the kernel's."""
OF_MEMBERS: Final = frozenset({JOIN.name, DISMISS.name})
"""For these they must be none of both."""
OF_OWN_DISKS: Final = frozenset(
    kind.name for kind in (POWER_LOSS, NO_SPACE, ABORTED, WRITE_ERRORS, LAST_WRITES)
)
"""For these nodes must have file systems of their own."""
OF_CLOCKS: Final = frozenset({CLOCK_AHEAD.name, CLOCK_BEHIND.name, CLOCK_STROBE.name})
