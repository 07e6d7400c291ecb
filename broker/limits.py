"""Every bound of the broker, in one place, with units in the names. The wire's: dledger.limits.

What grows with a user's data (topics, groups, offsets) is bounded as well: a program that makes up
names in a loop gets refusals, and the broker keeps its memory.
"""

from __future__ import annotations

from dledger.limits import ENTRY_BYTES_MAX, FRAME_BYTES_MAX, KIB, MIB

# What the replicated state may hold.
TOPICS_MAX = 20_000
QUEUES_PER_TOPIC_MAX = 1024
GROUPS_MAX = 20_000
"""The group's retry topic must have a legal name, too."""
CONSUMER_OFFSETS_MAX = 1_000_000
DEDUP_ENTRIES_MAX = 131_072
"""Appends remembered to answer a repeat: 13 s of 10,000 single sends/s, minutes of batches."""
DEDUP_CHUNK_ENTRIES = 4096
DEDUP_KEY_BYTES_MAX = 512
LOCK_S = 60.0
"""A queue lock that is not renewed ends (RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime)."""

# Consume queues.
UNITS_PER_FILE = 1 << 18
QUEUE_PENDING_BYTES_MAX = 64 * KIB
"""Units of one queue kept in memory before they are written to its file."""
QUEUES_PENDING_BYTES_MAX = 32 * MIB
QUEUE_FILES_OPEN_MAX = 512

# The key index.
KEYS_PER_FILE = 1 << 18
KEYS_PENDING_MAX = 4096
KEYS_PER_MESSAGE_MAX = 32
"""Words of KEYS that a message is found by, from the first."""
QUERY_MESSAGES_MAX = 64
QUERY_CANDIDATES_MAX = 8192
"""Messages looked at for one query: those of the wanted time may lie behind newer ones."""
QUERY_UNITS_MAX = 1024
"""Units of a consume queue shown to a tool at a time."""

# Snapshots of the replicated state: a restart replays what was applied since the last one.
SNAPSHOT_INTERVAL_S = 2.0
SNAPSHOT_LOG_BYTES = 64 * MIB
SNAPSHOT_ENTRIES = 20_000

# Sends.
MESSAGES_PER_BATCH_MAX = 16_384

# Delayed messages.
DELAY_LEVELS_MAX = 64
TIMER_DELAY_S_MAX = 3 * 86_400
"""RocketMQ: timerMaxDelaySec."""
TIMERS_MAX = 262_144
"""Timed messages that wait: their times are kept in memory, and in every snapshot."""
TRANSACTIONS_MAX = 65_536
"""Transactions that have not ended."""
TRANSACTION_CHECKS_PER_TURN_MAX = 256
DELIVERY_MESSAGES_MAX = 1024
DELIVERY_BYTES_MAX = MIB
"""One entry delivers that much at most, or a single larger message."""
DELIVERY_PAUSE_S = 0.01
"""Between two deliveries when little is due: what becomes due meanwhile shares an entry."""
DELIVERY_SLEEP_S_MAX = 0.25
"""A wall clock that is set forward is noticed after that."""

# Pulls. Stock clients ask for 32 messages and give no size.
PULL_BYTES_DEFAULT = 256 * KIB
PULL_BYTES_MAX = 6 * MIB
PULL_MESSAGES_MAX = 16_384
PULL_UNITS_SCANNED_MAX = 16_384
PULL_PIECES_MAX = 64
"""More pieces of the log than this are joined: many small buffers cost more than one copy."""
PULL_HOLD_S_MAX = 20.0
"""Clients give up after 30 s; a pull is never held that long."""
PULLS_HELD_MAX = 100_000
SUBSCRIPTION_TAGS_MAX = 1024

# SQL92 filters.
SQL_CHARACTERS_MAX = 8192
SQL_DEPTH_MAX = 64
SQL_NUMBER_CHARACTERS_MAX = 64
"""A longer property is no number."""
SQL_EXPRESSIONS_KEPT = 1024
"""Compiled expressions."""
SQL_MESSAGES_SCANNED_MAX = 512
"""Messages read for one pull: some 10 ms, in which nobody else is answered."""

# Consumer offsets: one-way commits are gathered this long into one entry.
COMMIT_GATHER_S = 0.05
COMMITS_PER_ENTRY_MAX = 4096

# Statistics, per topic and per topic and group; see broker.requests.statistics.
STATISTICS_ROWS_MAX = 20_000
PULL_OFFSETS_MAX = 100_000
"""Queues of groups whose last pull is remembered, for the tools."""

RESETS_PENDING_MAX = 65_536
"""Queues of groups that were reset and have not followed yet."""

# Clients.
RELAY_S = 10.0
"""A client has that long to answer what a tool asks it through the broker."""
FORWARD_S = 3.0
FORWARDED_MAX = 64
"""Tools' requests that a follower has passed on to the leader."""
CLIENT_EXPIRY_S = 120.0
CLIENT_SCAN_S = 10.0
GROUPS_PER_HEARTBEAT_MAX = 1024
SUBSCRIPTIONS_PER_GROUP_MAX = 1024

# Name servers.
REGISTER_INTERVAL_S = 30.0
HEARTBEAT_TIMEOUT_S = 3.0
"""A name server drops us when it heard nothing for this long."""
REGISTER_TIMEOUT_S = 3.0
ANNOUNCE_S = 1.0
"""After a topic is made or changed, answers about it wait so long for name servers to hear of it; a
stock producer's send may take 3 s."""
ANNOUNCED_WAITING_MAX = 65_536
"""Answers about one topic; more don't wait."""
RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 2.0

DISK_LOOK_S = 1.0
"""Between two looks at how full the disk is."""

# Log lines about refused requests: one a second for each kind.
REFUSAL_LOG_INTERVAL_S = 1.0
REFUSAL_KINDS_MAX = 256

assert PULL_BYTES_MAX + ENTRY_BYTES_MAX < FRAME_BYTES_MAX
assert DEDUP_ENTRIES_MAX % DEDUP_CHUNK_ENTRIES == 0
assert PULL_HOLD_S_MAX < 30.0
