"""Every bound and pace of the chaos harness, with units in the names."""

from __future__ import annotations

# Processes.
START_TIMEOUT_S = 20.0
"""From the start of a process until it serves; recovery of 1 GiB takes under 2 s."""
STOP_TIMEOUT_S = 10.0
"""From SIGTERM to SIGKILL for a process that does not end by itself."""
CATCH_UP_TIMEOUT_S = 60.0
LEADER_TIMEOUT_S = 15.0
PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 0.05
LOG_TAIL_LINES = 8

# Ports are taken below Linux's ephemeral range (32768-60999): a port of the range might be some
# connection's own end at the moment when a killed server wants it back.
PORT_FIRST = 12_000
PORT_LAST = 32_000

# Sizes.
NODES_MAX = 7
GROUPS_MAX = 16
NAMESRVS_MAX = 5
SEGMENT_BYTES = 16 << 20
"""Small segments, so that even a short run goes over several of them."""

# Histories and workers.
HISTORY_BUFFER_BYTES = 256 << 10
HISTORY_FLUSH_S = 0.5
PROGRESS_INTERVAL_S = 0.1
COMMIT_INTERVAL_S = 0.5
WORKER_LINE_BYTES_MAX = 1 << 20
SENDS_IN_FLIGHT_MAX = 2_000
SEND_TIMEOUT_S = 10.0
"""Far above the longest accepted gap of 1.5 s: a send that runs out of it is a finding."""
DRAIN_TIMEOUT_S = 60.0
KILLS_MAX = 1_000
MESSAGES_MAX = 10_000_000

# The demo's load lasts this long, at a pace between one that shows the kills and one that fits.
DEMO_LOAD_S = 25.0
DEMO_RATE_PER_S_MIN = 500.0
DEMO_RATE_PER_S_MAX = 10_000.0
DEMO_DISK_BYTES_MIN = 1 << 30

assert PORT_FIRST < PORT_LAST < 32_768
assert PROBE_INTERVAL_S < PROBE_TIMEOUT_S < START_TIMEOUT_S

EFFECT_S = 5.0
"""A fault that takes longer to show than this had no effect."""
