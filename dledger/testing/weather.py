"""What may go wrong in one simulated run, and how often: drawn from the run's seed.

Runs that mix all faults evenly all look alike, and some bugs need one fault to be frequent while
others are absent. So each run has its own weather: about half of the faults are switched off, the
others come between a quarter and four times as often as usual. Probabilities are for one step of
simulated time, about 5 ms, unless the name says otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Weather:
    """The odds of one run."""

    # The network.
    cut: float
    stall: float
    stall_s: float
    partition: float
    isolate_leader: float
    slow: float
    latencies_s: tuple[float, ...]
    reconnect: float
    # Nodes: `power` of the crashes are power losses, the others kill the process.
    crash: float
    crash_in_an_operation: float
    crash_after_commit: float
    crash_while_electing: float
    blackout: float
    power: float
    quick_restart: float
    pause: float
    # Disks.
    slow_sync: float
    slow_sync_s: float
    sync_error: float
    full: float
    bit_flip: float
    empty: float
    trim: float
    # The client and the settings.
    append: float
    appends_max: int
    burst_max: int
    body_bytes: tuple[int, ...]
    batch_bytes: int
    segment_bytes: int
    clock_drift: float


def draw_weather(rng: random.Random) -> Weather:
    """A run's weather."""

    def odds(usual: float, share: float = 0.5) -> float:
        return usual * 4 ** rng.uniform(-1, 1) if rng.random() < share else 0.0

    batch_bytes = rng.choice((1, 300, 4000, 1 << 20))
    weather = Weather(
        cut=odds(0.004),
        stall=odds(0.008, 0.7),
        stall_s=rng.choice((0.3, 1.0, 3.0)),
        partition=odds(0.003),
        isolate_leader=odds(0.001),
        slow=odds(0.015),
        latencies_s=rng.choice(((0.001, 0.02, 0.05, 0.2), (0.001, 0.3), (0.001, 0.02, 1.0, 2.0))),
        reconnect=rng.choice((0.03, 0.3, 1.0)),
        crash=odds(0.003, 0.7),
        crash_in_an_operation=odds(0.002),
        crash_after_commit=odds(0.01),
        crash_while_electing=odds(0.1),
        blackout=odds(0.0005),
        power=rng.choice((0.0, 0.5, 0.9)),
        quick_restart=rng.choice((0.0, 0.3, 0.9)),
        pause=odds(0.002),
        slow_sync=odds(0.02, 0.7),
        slow_sync_s=rng.choice((0.05, 0.5, 2.0)),
        sync_error=odds(0.0004, 0.3),
        full=odds(0.0004, 0.3),
        bit_flip=odds(0.3, 0.2),
        empty=odds(0.2),
        trim=odds(0.02),
        append=rng.choice((0.02, 0.1, 0.3)),
        # One entry a message makes many messages.
        appends_max=300 if batch_bytes == 1 else 1500,
        burst_max=rng.choice((1, 6, 6, 30)),
        body_bytes=rng.choice(((0,), (0, 40, 400), (100,), (0, 1500))),
        batch_bytes=batch_bytes,
        segment_bytes=rng.choice((1 << 12, 1 << 14)),
        clock_drift=rng.choice((0.0, 0.05, 0.2)),
    )
    roll = rng.random()
    if roll < 0.35:
        return _quarrel(weather, rng)
    return _contest(weather, rng) if roll < 0.5 else weather


@dataclass(frozen=True, slots=True)
class Extras:
    """Odds that came later, from a generator of their own: older seeds stay much as they were."""

    #: An operator hands leadership to somebody.
    transfer: float
    #: Whether the first node is the preferred leader.
    preferred: bool
    #: Two nodes don't reach each other, though both reach the others.
    rift: float
    #: A node's clock jumps ahead, as after a machine was suspended.
    clock_jump: float
    #: A node stands still for longer than anybody waits.
    long_pause: float


def draw_extras(rng: random.Random) -> Extras:
    """A run's further weather."""

    def odds(usual: float, share: float) -> float:
        return usual * 4 ** rng.uniform(-1, 1) if rng.random() < share else 0.0

    return Extras(
        transfer=odds(0.01, 0.4),
        preferred=rng.random() < 0.15,
        rift=odds(0.003, 0.3),
        clock_jump=odds(0.001, 0.2),
        long_pause=odds(0.0005, 0.2),
    )


#: What a failing run can be tried without: whatever is a fault by its odds.
FAULTS = (
    *("cut", "stall", "partition", "isolate_leader", "slow", "slow_sync", "sync_error", "full"),
    *("crash", "crash_in_an_operation", "crash_after_commit", "crash_while_electing", "blackout"),
    *("pause", "bit_flip", "clock_drift"),
    *("transfer", "rift", "clock_jump", "long_pause"),
)

_Odds = TypeVar("_Odds", Weather, Extras)


def calmer(odds: _Odds, without: Collection[str]) -> _Odds:
    """The same odds, but for faults that shall not come."""
    names = {field.name for field in fields(odds)}
    none: dict[str, Any] = {name: 0.0 for name in without if name in names}
    return replace(odds, **none)


def _quarrel(weather: Weather, rng: random.Random) -> Weather:
    """Leaders are cut off again and again, and little else happens: logs part and are mended."""
    return replace(
        weather,
        cut=0.0,
        stall=weather.stall / 8,
        partition=0.0,
        isolate_leader=rng.choice((0.002, 0.005)),
        crash=weather.crash / 8,
        crash_while_electing=rng.choice((0.0, 0.3)),
        blackout=0.0,
        pause=0.0,
        slow_sync=rng.choice((0.0, 0.005)),
        slow_sync_s=2.0,
        sync_error=0.0,
        full=0.0,
    )


def _contest(weather: Weather, rng: random.Random) -> Weather:
    """One election after the other, over slow links, and voters that die and come back at once."""
    return replace(
        weather,
        stall=0.0,
        partition=0.0,
        slow=0.1,
        latencies_s=(0.001, 0.02, 0.1),
        reconnect=1.0,
        crash=0.01,
        crash_while_electing=0.5,
        blackout=0.0,
        power=rng.choice((0.0, 0.5)),
        quick_restart=1.0,
        pause=0.0,
        sync_error=0.0,
        full=0.0,
    )
