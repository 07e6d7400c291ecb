"""Every bound of a cluster inside a test. What a user may set is a parameter's default."""

from __future__ import annotations

from dledger.limits import ENTRY_BYTES_MAX, GIB, MIB

REPLICAS = 3
REPLICAS_MAX = 7
GROUPS_MAX = 8
SEGMENT_BYTES = 12 * MIB
"""Of the log, reserved when a broker starts: a test's messages need few."""
SHARED_MEMORY_BYTES_MIN = 2 * GIB
"""The replicas' files are kept in memory where so much of it is free, else on the disk."""
PATIENCE_S = 30.0
"""For a leader, or for a server to stop. It takes milliseconds."""
LOOK_S = 0.02
"""Between two looks for the leader."""
CLIENT_MEMORY_BYTES_MAX = 256 * MIB

IDLE_TURNS = 2
"""Without a task that runs, until trio is idle: it hands on in one turn what it read in another."""
THREADS_LOOK_S = 0.002
"""Between two looks at whether a thread is through, for which virtual time stands still."""

assert ENTRY_BYTES_MAX < SEGMENT_BYTES
