"""Bounds of the rates that operators set, and of the figures about traffic."""

from __future__ import annotations

# The rates that operators set for topics and groups.
FLOW_BURST_S = 1.0
"""The burst that may pass at once, in seconds of the rate."""
FLOW_GATHER_S = 0.1
"""The part of a rate that must be free again before a client that was held back comes again, in
seconds of the rate."""
FLOW_WAIT_S_MIN = 0.001
"""The shortest wait in seconds. Floats are not exact: after a shorter one a client might come too
early, again and again."""
FLOW_WAIT_MS_MAX = 86_400_000
"""The longest wait that an answer names, in milliseconds."""
FLOW_GATES_MAX = 40_000

# Figures, for each topic, and for each topic and group.
RATE_WINDOWS_S = (10, 60, 600)
"""Spans in seconds for which rates of messages are reported."""
STATISTICS_ROWS_MAX = 20_000
APPEND_WINDOW_S = 60.0
APPEND_BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 3.0, 4.0, 5.0, 10.0),
)
"""Upper ends of the buckets of the histogram of how long entries take, in seconds."""
FINISH_BOUNDS_S = (0.005, 0.025, 0.1, 0.5, 1, 5, 60, 600, 3600, 43_200, 86_400)
"""Upper ends of the buckets of the histogram of how long transactions take, in seconds."""
RPC_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
MAKING_BOUNDS_MS = (10, 100, 1000, 3000, 5000)
COMMIT_BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)
AHEAD_BOUNDS_S = (60, 600, 3600, 43_200, 86_400, 259_200)
TIMER_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""RocketMQ's bounds for requests, the making of topics and groups, commits of transactions, timers,
and what of them is due."""
PULL_OFFSETS_MAX = 100_000
"""Queues of groups whose last pull is kept for the tools."""
