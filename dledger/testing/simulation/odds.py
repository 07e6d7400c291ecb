"""Odds of faults in one simulated run: drawn from the run's seed.

Runs that mix all faults evenly all look alike, and some bugs need one fault to be frequent while
others are absent. So each run has its own odds: about half of the faults are switched off, the
others come between a quarter and four times as often as usual. Probabilities are for one step of
simulated time, about 5 ms, unless the name says otherwise. Each is drawn from a stream of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from dledger.testing.simulation.streams import Streams

_Setting = TypeVar("_Setting")


def _drawn(draw: Callable[[random.Random], object]) -> Any:
    return field(metadata={"draw": draw})


def _odds(usual: float, share: float = 0.5) -> float:
    """A field: zero but in a share of the runs; there up to four times more or less than usual."""

    def draw(rng: random.Random) -> float:
        return usual * 4 ** rng.uniform(-1, 1) if rng.random() < share else 0.0

    odds: float = _drawn(draw)
    return odds


def _one_of(*settings: _Setting) -> _Setting:
    """A field that is drawn from these settings."""
    setting: _Setting = _drawn(lambda rng: rng.choice(settings))
    return setting


@dataclass(frozen=True, slots=True)
class Odds:
    """The odds of one run."""

    # The network.
    cut: float = _odds(0.004)
    stall: float = _odds(0.008, 0.7)
    stall_s: float = _one_of(0.3, 1.0, 3.0)
    #: Two nodes don't reach each other, though both reach the others.
    rift: float = _odds(0.003, 0.3)
    partition: float = _odds(0.003)
    isolate_leader: float = _odds(0.001)
    slow: float = _odds(0.015)
    latencies_s: tuple[float, ...] = _one_of(
        (0.001, 0.02, 0.05, 0.2), (0.001, 0.3), (0.001, 0.02, 1.0, 2.0)
    )
    #: A bit flips in a frame on its way.
    garble: float = _odds(0.01, 0.3)
    reconnect: float = _one_of(0.03, 0.3, 1.0)
    # Nodes: `power` of the crashes are power losses, the others kill the process.
    crash: float = _odds(0.003, 0.7)
    crash_in_an_operation: float = _odds(0.002)
    #: While nothing is committed yet.
    crash_at_birth: float = _odds(0.05, 0.3)
    crash_after_commit: float = _odds(0.01)
    crash_while_electing: float = _odds(0.1)
    blackout: float = _odds(0.0005)
    power: float = _one_of(0.0, 0.5, 0.9)
    quick_restart: float = _one_of(0.0, 0.3, 0.9)
    pause: float = _odds(0.002)
    #: A node stands still for longer than anybody waits.
    long_pause: float = _odds(0.0005, 0.2)
    #: A node's clock jumps ahead, as after a machine was suspended.
    clock_jump: float = _odds(0.001, 0.2)
    clock_drift: float = _one_of(0.0, 0.05, 0.2)
    #: The longest wait of a node for a processor, in seconds, between two looks at its clock.
    busy_s: float = _odds(0.002, 0.25)
    # Disks.
    #: A sync ends within the step that has written.
    sync_in_step: float = _odds(0.3, 0.15)
    slow_sync: float = _odds(0.02, 0.7)
    slow_sync_s: float = _one_of(0.05, 0.5, 2.0)
    sync_error: float = _odds(0.0004, 0.3)
    full: float = _odds(0.0004, 0.3)
    bit_flip: float = _odds(0.3, 0.2)
    #: In a sealed segment, while its node runs.
    rot: float = _odds(0.004, 0.2)
    empty: float = _odds(0.2)
    #: An empty disk while nothing is committed yet: all that can be lost is a vote.
    empty_at_birth: float = _odds(0.4)
    trim: float = _odds(0.02)
    # The operator, the client and the settings.
    #: Leadership is handed to somebody.
    transfer: float = _odds(0.01, 0.4)
    #: Whether the first node is the preferred leader.
    preferred: bool = _one_of(True, *[False] * 6)
    #: A member is added, or removed.
    member_change: float = _odds(0.01, 0.4)
    #: A change removes somebody, however few there are.
    shrink: float = _odds(0.5, 0.15)
    append: float = _one_of(0.02, 0.1, 0.3)
    #: A client reads from a node that takes itself for the leader.
    read: float = _odds(0.1, 0.3)
    burst_max: int = _one_of(1, 6, 6, 30)
    body_bytes: tuple[int, ...] = _one_of((0,), (0, 40, 400), (100,), (0, 1500))
    batch_bytes: int = _one_of(1, 300, 4000, 1 << 20)
    segment_bytes: int = _one_of(1 << 12, 1 << 14)

    @property
    def appends_max(self) -> int:
        """How many appends a run has; one entry a message makes many messages."""
        return 300 if self.batch_bytes == 1 else 1500


def draw_odds(streams: Streams) -> Odds:
    """Draw the odds of a run from the streams of its seed."""
    drawn: dict[str, Any] = {
        knob.name: knob.metadata["draw"](streams[f"weather/{knob.name}"]) for knob in fields(Odds)
    }
    odds = Odds(**drawn)
    roll = streams["weather/mood"].random()
    if roll < 0.35:
        return _quarrel(odds, streams)
    return _contest(odds, streams) if roll < 0.5 else odds


#: Odds of faults: a failing run is tried again without each of them.
FAULTS = (
    *("cut", "stall", "partition", "isolate_leader", "slow", "slow_sync", "sync_error", "full"),
    *("crash", "crash_in_an_operation", "crash_after_commit", "crash_while_electing", "blackout"),
    *("pause", "bit_flip", "rot", "clock_drift", "busy_s", "crash_at_birth"),
    *("transfer", "rift", "clock_jump", "long_pause", "member_change", "garble"),
)


def calmer(odds: Odds, without: Collection[str]) -> Odds:
    """The odds, without some faults."""
    names = {field.name for field in fields(odds)}
    none: dict[str, Any] = {name: 0.0 for name in without if name in names}
    return replace(odds, **none)


def _quarrel(odds: Odds, streams: Streams) -> Odds:
    """Leaders are cut off again and again, and little else happens: logs part and are mended."""
    return replace(
        odds,
        cut=0.0,
        stall=odds.stall / 8,
        partition=0.0,
        isolate_leader=streams["mood/isolate_leader"].choice((0.002, 0.005)),
        crash=odds.crash / 8,
        crash_while_electing=streams["mood/crash_while_electing"].choice((0.0, 0.3)),
        blackout=0.0,
        pause=0.0,
        slow_sync=streams["mood/slow_sync"].choice((0.0, 0.005)),
        slow_sync_s=2.0,
        sync_error=0.0,
        full=0.0,
    )


def _contest(odds: Odds, streams: Streams) -> Odds:
    """Elections follow each other, over slow links, and voters die and come back at once."""
    return replace(
        odds,
        stall=0.0,
        partition=0.0,
        slow=0.1,
        latencies_s=(0.001, 0.02, 0.1),
        reconnect=1.0,
        crash=0.01,
        crash_while_electing=0.5,
        blackout=0.0,
        power=streams["mood/power"].choice((0.0, 0.5)),
        quick_restart=1.0,
        pause=0.0,
        sync_error=0.0,
        full=0.0,
    )
