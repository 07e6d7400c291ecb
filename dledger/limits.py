"""Every bound of the foundation, in one place. Units are in the names.

A bound that a user may set is a default here and a field of a config elsewhere.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# The wire (RocketMQ's NettyDecoder: com.rocketmq.remoting.frameMaxLength).
FRAME_BYTES_MAX = 16 * MIB
HEADER_BYTES_MAX = 256 * KIB
MESSAGE_BODY_BYTES_MAX = 4 * MIB
PROPERTIES_BYTES_MAX = 32_767
TOPIC_BYTES_MAX = 127

LOOSE_BODY_BYTES_MAX = 2 * MIB
"""Of a JSON body in the dialect that only our own reader reads, at some 0.6 s a MiB."""

# A connection that a server accepted.
CONNECTIONS_MAX = 4096
CONNECTIONS_PENDING_MAX = 1024
"""Made by clients, not yet accepted: the listening socket's backlog."""
REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1024
SEND_BUFFER_BYTES_MAX = 64 * MIB
FRAME_COMPLETION_S = 30.0
"""A frame once begun must be complete within this time: the slow-loris bound."""
CONNECTION_IDLE_S = 120.0

# A connection that this process made.
REQUESTS_IN_FLIGHT_PER_PEER_MAX = 65_536

# The log.
SEGMENT_BYTES = 128 * MIB
ENTRY_BYTES_MAX = 8 * MIB
APPENDS_PENDING_MAX = 4096
APPENDS_PENDING_BYTES_MAX = 64 * MIB
READS_PENDING_MAX = 65_536
"""Reads of the log's end that wait until a majority has confirmed the leader."""
READ_TIMEOUT_S = 2.0
"""A leader that no majority answers says so after a second; stock clients wait for three."""

SCRUB_BYTES_PER_S = 8 * MIB
"""How fast sealed segments are read again, for damage."""
SCRUB_PAUSE_S = 3600.0
"""Between two passes over the log."""

# Peers of a broker group.
MEMBERS_MAX = 16
"""Of one group, those that do not vote yet among them."""
STRANGERS_MAX = 16
"""Nodes that know the group's secret, are no members (any more, or yet), and are connected."""
NODE_ID_BYTES_MAX = 128
HANDSHAKES_MAX = 64
"""Connections to a peer port that have not proven yet. Above it the oldest of the address with the
most goes: a member's takes milliseconds."""
NUMBER_MAX = (1 << 63) - 1
"""Of terms, indexes, positions and sequence numbers that a peer tells."""
TERM_JUMP_MAX = 1 << 32
"""How far a peer's term may be ahead of this node's: see `dledger/raft/claims.py`."""
PEER_FRAME_BYTES_MAX = 2 * ENTRY_BYTES_MAX
PEER_SEND_BUFFER_BYTES_MAX = 64 * MIB
PEER_IN_FLIGHT_BYTES_MAX = 16 * MIB
"""Entries sent to a peer and not acknowledged. Above it, and one more message, nothing is sent."""
CATCH_UP_BYTES_PER_S = 48 * MIB
"""For a peer that is far behind, while appends are under way (RocketMQ's HA: 100 MB/s)."""
STATE_PART_BYTES = MIB
"""Of a state machine's state that a peer asked for: one part is under way at a time."""
STATE_BYTES_MAX = 512 * MIB

assert MESSAGE_BODY_BYTES_MAX + PROPERTIES_BYTES_MAX < ENTRY_BYTES_MAX < SEGMENT_BYTES
assert ENTRY_BYTES_MAX < FRAME_BYTES_MAX
