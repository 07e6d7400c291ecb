"""Periodic loops of a process wake up at the same moments.

What an idle process costs depends on how often it wakes up. So all loops that look every second
share one wake-up. A look is for what might fail in silence, and may be more seldom in a test's
world; a beat is when something is done.
"""

from __future__ import annotations

import trio

from dledger.world import world


def next_beat(period_s: float) -> float:
    """The next multiple of a period, in trio's time."""
    return (trio.current_time() // period_s + 1) * period_s


async def beat(period_s: float = 1.0) -> None:
    """Sleep until the next multiple of a period: for one period at most."""
    await trio.sleep_until(next_beat(period_s))


def next_look(period_s: float) -> float:
    """When to look again, in trio's time."""
    return next_beat(world().seldom_s(period_s))


async def look(period_s: float = 1.0) -> None:
    """Sleep until `next_look(period_s)`: one period at most, or longer in a test's world."""
    await trio.sleep_until(next_look(period_s))
