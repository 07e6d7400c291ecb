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

ASIDE_REASONS_KEPT = 16
"""Entries that were set aside, and are shown with the reason."""
ASIDE_INDEXES_KEPT = 65_536

QUEUES_IN_STATE_MAX = 65_536
"""Of one topic: what every version takes out of the log, whatever bound its requests have."""
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
TIME_DIGITS_MAX = 18
"""Of a time that is a property."""

# Consume queues.
UNITS_PER_FILE = 1 << 18
QUEUE_PENDING_BYTES_MAX = 64 * KIB
"""Units of one queue kept in memory before they are written to its file."""
QUEUES_PENDING_BYTES_MAX = 32 * MIB
QUEUE_FILES_OPEN_MAX = 512
SYNCED_ONE_BY_ONE_MAX = 64
"""More files than that are made durable with all of their file system, at once."""

# The key index.
KEYS_PER_FILE = 1 << 18
KEYS_PENDING_MAX = 4096
KEYS_PER_MESSAGE_MAX = 32
"""Words of KEYS that a message is found by, from the first."""
QUERY_MESSAGES_MAX = 64
QUERY_CANDIDATES_MAX = 2048
QUERY_CANDIDATES_BYTES_MAX = 32 * MIB
"""Messages looked at for one query, some 40 ms: those of the wanted time may lie behind newer ones.
Their CRCs are computed, so their size counts, too."""
QUERY_UNITS_MAX = 1024
"""Units of a consume queue shown to a tool at a time."""

# Snapshots of the replicated state: a restart replays what was applied since the last one.
SNAPSHOT_INTERVAL_S = 2.0
SNAPSHOT_LOG_BYTES = 64 * MIB
SNAPSHOT_ENTRIES = 20_000
SNAPSHOT_LOOK_S = 0.25
"""Between two looks at whether the state should be saved, while entries are applied."""
SNAPSHOT_FLUSHES_MAX = 8
"""Rounds in which queues are written before a picture is taken; the rest goes with it."""
STOP_SAVE_S = 4.0
"""How long a stop waits for the state to be saved; what is not saved is replayed."""

# Sends.
MESSAGES_PER_BATCH_MAX = 16_384
RETRY_SPAN_S = 10.0
"""From the first try of a stock client's send to its last: three tries of 3 s each, and some."""
RETRY_PATIENCE_S = 0.5
"""No client gives up waiting sooner and asks again over the same connection."""
UNHEARD_COPIES_MAX = 65_536
"""Copies whose sender was gone when the answer was there, and copies of earlier leaders about which
a sender has been told since: of each so many."""
UNHEARD_COPIES_PER_KEY_MAX = 16
"""A send is held against each of them."""

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
"""A wall clock that is set forward while messages wait is noticed after that."""

# Pulls. Stock clients ask for 32 messages and give no size.
PULL_BYTES_DEFAULT = 256 * KIB
PULL_BYTES_MAX = 6 * MIB
PULL_MESSAGES_MAX = 16_384
PULL_UNITS_SCANNED_MAX = 16_384
PULL_PIECES_MAX = 64
"""More pieces of the log than this are joined: many small buffers cost more than one copy."""
PULL_JOINED_BYTES_MAX = MIB
"""Such a copy is no larger, or it would hold up others: the next pull goes on from there."""
PULL_HOLD_S_MAX = 20.0
"""Clients give up after 30 s; a pull is never held that long."""
PULLS_HELD_MAX = 100_000
SWEEP_PAUSE_S = 0.25
"""Pulls whose time is up within this are run together."""
EARLIEST_ENTRIES_MAX = 256
"""Entries looked at, from the log's head, for its first message."""
SUBSCRIPTION_TAGS_MAX = 1024
SUBSCRIPTION_CHARACTERS_MAX = 32 * KIB
"""Of tags: each character is hashed, with each pull."""

# SQL92 filters.
SQL_CHARACTERS_MAX = 8192
SQL_DEPTH_MAX = 64
SQL_NUMBER_CHARACTERS_MAX = 64
"""A longer property is no number."""
SQL_CHARACTERS_KEPT = 256 * KIB
"""Of expressions that stay compiled: some 32 MiB."""
SQL_MESSAGES_SCANNED_MAX = 512
"""Messages read for one pull."""
SQL_STEPS_MAX = 8192
"""Of work for one pull, at about 1 us each, in which nobody else is answered."""
SQL_STEPS_PER_MESSAGE = 8
SQL_PROPERTIES_BYTES_PER_STEP = 32
"""Of a message's properties, decoded."""
SQL_SEARCHED_BYTES_PER_STEP = 512
"""Of a message's properties, for each CONTAINS."""
SQL_NEEDLE_CHARACTERS_MAX = 8
"""A longer text is searched for in linear time whatever it is, but takes longer to prepare."""

# Consumer offsets: one-way commits are gathered this long into one entry.
COMMIT_GATHER_S = 0.05
COMMITS_PER_ENTRY_MAX = 4096
RETRY_AFTER_MS = 100
"""A hint to who is refused at a bound: gathered commits are on a slow disk by then."""

# Statistics, per topic and per topic and group; see mqbroker.requests.admin.statistics.
RATE_WINDOWS_S = (10, 60, 600)
"""The spans that rates of messages are told for."""
STATISTICS_ROWS_MAX = 20_000
PULL_OFFSETS_MAX = 100_000
"""Queues of groups whose last pull is remembered, for the tools."""

RESETS_PENDING_MAX = 65_536
"""Queues of groups that were reset and have not followed yet."""

# Clients.
DESCRIPTORS_RESERVED = QUEUE_FILES_OPEN_MAX + 192
"""Kept from clients: for the log, its peers, the consume queues, and connections about to close."""
RELAY_S = 10.0
"""A client has that long to answer what a tool asks it through the broker."""
FORWARD_S = 3.0
FORWARDED_MAX = 64
"""Tools' requests that a follower has passed on to the leader."""
CLIENT_EXPIRY_S = 120.0
CLIENT_SCAN_S = 10.0
GROUPS_PER_CLIENT_MAX = 1024
"""That one connection belongs to, whatever it said in which heartbeat."""
SUBSCRIPTIONS_PER_GROUP_MAX = 1024
GROUP_BYTES = 400
SUBSCRIPTION_BYTES = 600
TAG_BYTES = 96
"""About what is kept for a group that a client belongs to, a subscription, and a tag in it, beside
their texts."""
NOTIFY_GATHER_S = 0.05
"""A group that changes again so soon after its members were told is told of a little later: four
hundred clients that come at once would make eighty thousand notices."""

# Members of the group.
MEMBERS_PENDING_S = 2.0
"""An earlier change of the members is waited for: mostly a learner has just become a voter."""
MEMBERS_POLL_S = 0.05

# Name servers.
STOP_S = 2.0
"""How long name servers may take to hear that the broker stops."""
REGISTER_INTERVAL_S = 30.0
HEARTBEAT_TIMEOUT_S = 3.0
"""A name server drops us when it heard nothing for this long."""
REGISTER_TIMEOUT_S = 3.0
REGISTER_REST = 4.0
"""After a registration, times what it took to write down: of 20,000 topics that is 10 ms and more,
and with each topic that is made there is another one due."""
ANNOUNCE_S = 1.0
"""After a topic is made or changed, answers about it wait so long for name servers to hear of it; a
stock producer's send may take 3 s."""
ANNOUNCED_WAITING_MAX = 65_536
"""Answers about one topic; more don't wait."""
RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 2.0

AFTER_FAULT_S = 1.0
"""A loop that met a fault nobody foresaw pauses so long."""
# Routes of topics, asked of name servers for consumers that leave it to the broker to share queues.
ROUTE_S = 1.0
ROUTE_KEPT_S = 2.0
ROUTES_KEPT_MAX = 4096
ROUTES_ASKED_MAX = 16

DISK_LOOK_S = 1.0
"""Between two looks at how full the disk is."""

# Log lines about refused requests: one a second for each kind.
REFUSAL_LOG_INTERVAL_S = 1.0
REFUSAL_KINDS_MAX = 256

assert PULL_BYTES_MAX + ENTRY_BYTES_MAX < FRAME_BYTES_MAX
assert DEDUP_ENTRIES_MAX % DEDUP_CHUNK_ENTRIES == 0
assert PULL_HOLD_S_MAX < 30.0
