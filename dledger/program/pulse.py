"""Periodic loops of a process wake up at the same moments.

What an idle process costs depends on how often it wakes up. So all loops that look every second
share one wake-up.
"""

from __future__ import annotations

import trio


def next_beat(period_s: float) -> float:
    """The next multiple of a period, in trio's time."""
    return (trio.current_time() // period_s + 1) * period_s


async def beat(period_s: float = 1.0) -> None:
    """Sleep until the next multiple of a period: for one period at most."""
    await trio.sleep_until(next_beat(period_s))
