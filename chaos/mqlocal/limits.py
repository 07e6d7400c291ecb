"""Every bound of a cluster inside a test. What a user may set is a parameter's default."""

from __future__ import annotations

from dledger.limits import ENTRY_BYTES_MAX, GIB, MIB

REPLICAS = 3
REPLICAS_MAX = 7
GROUPS_MAX = 8
SEGMENT_BYTES = 12 * MIB
"""Bytes of a log segment, reserved when a broker starts: a test's messages need few."""
SHARED_MEMORY_BYTES_MIN = 2 * GIB
"""Bytes of shared memory that must be free for the replicas' files to be kept there; else they are
on the disk."""
PATIENCE_S = 30.0
"""Seconds for a leader to be there, or for a server to stop. Both take milliseconds."""
LOOK_S = 0.02
"""Seconds between two looks for the leader."""
CLIENT_MEMORY_BYTES_MAX = 256 * MIB

IDLE_TURNS = 2
"""Turns without a task that runs after which trio counts as idle: it hands on in one turn data that
it read in another."""
THREADS_LOOK_S = 0.002
"""Seconds between two looks at whether a thread is through, for which virtual time stands still."""

assert ENTRY_BYTES_MAX < SEGMENT_BYTES
