"""When what is looked at now and then is looked at: at the same moments all over a process.

A process that has nothing to do costs about as much as it wakes up. So whoever looks every second
looks when the others do: one wake-up for all of them.
"""

from __future__ import annotations

import trio


def next_beat(period_s: float) -> float:
    """The next multiple of a period, in trio's time."""
    return (trio.current_time() // period_s + 1) * period_s


async def beat(period_s: float = 1.0) -> None:
    """Sleep until then: for a whole period at most."""
    await trio.sleep_until(next_beat(period_s))
