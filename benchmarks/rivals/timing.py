"""Timing of sends, the same for each client's program.

Only the standard library is here, as nats-py has an interpreter of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

WARM_UP = 100
PRINTED_EACH_S = 0.05
PACE_PER_S = 10_000
PACED = 100


async def one_outstanding(
    send: Callable[[], Awaitable[object]], seconds: float
) -> dict[str, float]:
    """The next send begins when the last has returned."""
    for _ in range(WARM_UP):
        await send()
    took = []
    began, cpu = time.monotonic(), time.process_time()
    while time.monotonic() < began + seconds:
        at = time.monotonic()
        await send()
        took.append(time.monotonic() - at)
    spent = time.process_time() - cpu
    took.sort()
    return {
        "count": len(took),
        "median_ms": 1e3 * took[len(took) // 2],
        "p99_ms": 1e3 * took[len(took) * 99 // 100],
        "cpu_s": spent,
        "sent": len(took) + WARM_UP,
    }


async def tell_gaps(send: Callable[[], Awaitable[bool]]) -> None:
    """Print the longest gaps of one outstanding send, tried again until it succeeds.

    `send` says whether it did. Ends when the input is closed.
    """
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    last = told = time.monotonic()
    longest = 0.0
    while not over.is_set():
        if not await send():
            continue
        at = time.monotonic()
        longest, last = max(longest, at - last), at
        if at - told > PRINTED_EACH_S:
            print(f"{at:.6f} {longest:.6f}", flush=True)
            told, longest = at, 0.0


def paced(seconds: float) -> Iterator[float]:
    """How long to wait before each group of PACED messages, so that a second has PACE_PER_S."""
    began = time.monotonic()
    for number in range(int(seconds * PACE_PER_S / PACED)):
        yield max(0.0, began + number * PACED / PACE_PER_S - time.monotonic())
