"""Every bound of the broker, in one place, with units in the names. The wire's: dledger.limits.

Everything that grows with a user's data (topics, groups, offsets) is bounded as well. A program
that makes up names in a loop is refused, and the broker does not run out of memory.
"""

from __future__ import annotations

from dledger.limits import ENTRY_BYTES_MAX, FRAME_BYTES_MAX, KIB, MESSAGE_BODY_BYTES_MAX, MIB

# What the replicated state may hold.
MESSAGE_ID_CHARACTERS_MAX = 64
"""Of an original message's id as a consumer names it: an offset id has 56 at most."""
LEFT_OUT_NAMES_BYTES_MAX = 400
LEFT_OUT_BYTES_MAX = 512
"""For the names of properties that a copy has no room for."""
TOPICS_MAX = 20_000
QUEUES_PER_TOPIC_MAX = 1024
QUEUES_MAX = 200_000
"""Of all topics: 20,000 with 8 each, and some."""
GROUPS_MAX = 20_000
"""The group's retry topic must have a legal name, too."""
CONFIGS_PER_REQUEST_MAX = 8192
"""Topics or groups that one request changes. They are checked and stored in one turn of the loop,
so that no other change comes between."""
CONSUMER_OFFSETS_MAX = 1_000_000
DEDUP_ENTRIES_MAX = 131_072
"""Appends that are remembered, so that a repeat is recognised: 13 s of 10,000 single sends/s,
minutes of batches."""
DEDUP_CHUNK_ENTRIES = 4096
DEDUP_KEY_BYTES_MAX = 512
LOCK_S = 60.0
"""A queue lock that is not renewed ends (RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime)."""
LOCK_KEPT_S = 600.0
"""A lock that ended is known for so long, should its client come back, and nobody else have it."""
LOCKS_MAX = 131_072
LOCKS_FORGOTTEN_MAX = 4096
LOCK_OWNERS_FORGOTTEN_MAX = 64
"""Locks that ended and are forgotten at a time, and their clients: each takes an entry."""
CLIENT_ID_BYTES_MAX = 256
"""Stock clients' are address@instance@unit, some 40 bytes; each queue lock has one."""

PRODUCERS_MAX = 16_384
"""Producers with a name: each takes up to 3 KiB of memory, and 600 bytes of every snapshot."""
SETTINGS_MAX = 64
"""Config keys that can be changed while a group runs: there are fewer."""
PRODUCER_KEPT_S = 7 * 86_400
"""A name that is not used for so long is forgotten when room is wanted (Kafka:
transactional.id.expiration.ms)."""
PRODUCER_IDLE_S = 10.0
PRODUCERS_FORGOTTEN_MAX = 64
"""When all names are taken, so many that wrote nothing for so long are forgotten."""
STREAMS_PER_PRODUCER_MAX = 16
INSTANCES_PER_NAME_KEPT = 4
DECIDED_MAX = 65_536
"""Names of which the last batch is known. A name that decides takes a place of a producer for days,
so nobody drives another one's out sooner than in weeks."""
DECISION_BYTES_MAX = MIB
"""What a decision of a batch says: some 40,000 staged entries, of a MiB each."""
STAGED_KEPT_S = 3600.0
"""What was staged for a batch that nobody decides is dropped after this time."""
STAGED_LOOK_S = 3.0
"""Between two looks for staged entries that are due."""
STAGED_MAX = 8192
"""Staged entries of a broker group that wait, a ninth of the room of half messages. A name may have
half of them: 4 GiB of rows, if each is a MiB."""
STAGED_BYTES_MAX = MESSAGE_BODY_BYTES_MAX
"""Of the records in one."""
STAGED_PER_LOOK_MAX = 256
HOME_TIMEOUT_S = 3.0
"""For the group that decides to answer, and name servers that tell where it is."""
PRODUCER_INSTANCE_CHARACTERS_MAX = 64

POP_BITS_BYTES_MAX = 64 * KIB
"""Of one bitmap in an entry."""

ASIDE_REASONS_KEPT = 16
"""Entries set aside that are shown with the reason."""
ASIDE_REASON_CHARACTERS_MAX = 400
ASIDE_INDEXES_KEPT = 65_536

QUEUES_IN_STATE_MAX = 65_536
"""Of one topic, in the log: every version must read this many, whatever its requests allow."""
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
TIME_DIGITS_MAX = 18
"""Of a time in a property."""

EXPORT_DEPTH_MAX = 4
"""Folders below exportDir that a copy of a replica may lie in."""
EXPORTS_MAX = 64
"""Copies below exportDir: each keeps segments on the disk that retention has removed."""

# Consume queues.
UNITS_PER_FILE = 1 << 18
QUEUE_PENDING_BYTES_MAX = 64 * KIB
"""Units of one queue kept in memory before they are written to its file."""
QUEUES_PENDING_BYTES_MAX = 32 * MIB
QUEUE_FILES_OPEN_MAX = 512
SYNCED_ONE_BY_ONE_MAX = 64
"""If there are more files to sync, the whole file system is synced at once."""

LIVES_STEP_MS = 10
"""How exactly it is known when a message expires: in 32 bits, so within 497 days."""

TAGS_ONE_BY_ONE_BYTES_MAX = 4 * KIB
"""Of the different tags of an entry's messages; the codes of more are computed all at once."""

# The key index.
KEYS_PER_FILE = 1 << 18
KEYS_PENDING_MAX = 4096
QUERY_MESSAGES_MAX = 64
QUERY_MESSAGES_OURS_MAX = 1024
QUERY_CANDIDATES_MAX = 2048
QUERY_CANDIDATES_BYTES_MAX = 32 * MIB
"""Messages read for one query, in about 40 ms: those of the wanted time may lie behind newer ones.
The bound is in bytes, since their CRCs are computed."""
QUERY_UNITS_MAX = 1024
"""Units of a consume queue shown to a tool at a time."""

BEHIND_MS_MAX = 100
"""A leader waits for a wall clock that is behind its time by no more than this."""
BEHIND_PACE = 0.5
"""Of real time: so fast a leader's time goes on while its wall clock is behind by more."""

# Snapshots of the replicated state: a restart replays what was applied since the last one.
SNAPSHOT_INTERVAL_S = 2.0
SNAPSHOT_LOG_BYTES = 64 * MIB
SNAPSHOT_ENTRIES = 20_000
SNAPSHOT_APPLY_S = 1.0
"""The state is saved when applying has taken this long since: a replay takes as long again. 64 MiB
may be a quarter of a million messages, and 20,000 entries even more."""
SNAPSHOT_COST_FACTOR = 10.0
"""And when it has taken this many times as long as nothing was applied for the last picture of the
state, which takes long with very many topics."""
SNAPSHOT_PAUSE_S = 1e-5
"""A thread that encodes the state waits so long after each few hundred rows: the loop goes on."""
SNAPSHOT_LOOK_S = 0.25
"""Between two looks at whether the state should be saved, while entries are applied."""
SNAPSHOT_FLUSHES_MAX = 8
"""Rounds in which queues are written before a snapshot is taken; the rest is written with it."""
STOP_SAVE_S = 4.0
"""A stop waits this long for the state to be saved; a restart replays what was not saved."""

# Sends.
MESSAGES_PER_BATCH_MAX = 16_384
KEYS_PER_BATCH_MAX = 147_456
KEYS_PER_MESSAGE_WEIGHT = 8
"""So many words may stand in the KEYS of one request's messages, where each message counts as
eight: 32 for each of 3,686 messages, one for each of 16,384. Each replica indexes all at once."""
BATCH_AT_ONCE_MAX = 1024
"""Messages of a stock client's batch that are taken in one turn of the loop."""
BATCH_STEP = 64
"""So many messages' properties are read at a time: each may have 32 KiB of them."""
SENDS_TOGETHER_FROM = 2
"""So many entries on their way have single sends wait for each other."""
SENDS_TOGETHER_MAX = 256
SENDS_TOGETHER_BYTES = 256 * KIB
"""So many are appended at once, whatever is on its way."""
BATCH_SHARES_UP_TO = 8
"""Messages of a batch that may share an entry: the dedup window keeps each of them, then."""
RETRY_SPAN_S = 10.0
"""From the first try of a stock client's send to its last: three tries of 3 s each, and some."""
RETRY_PATIENCE_S = 0.5
"""No client waits for less time before it retries over the same connection."""
UNHEARD_COPIES_MAX = 65_536
"""Copies whose sender was gone before its answer; and as many copies of earlier leaders that were
given as an answer since."""
UNHEARD_COPIES_PER_KEY_MAX = 16
"""Each send is compared with all of them."""

PARTS_PER_WRITE_MAX = 256
"""Topics in one write of a named producer."""
MOVES_PER_WRITE_MAX = 1024
"""Queues whose consumed offsets go into it."""

# Delayed messages.
DELAY_LEVELS_MAX = 64
TIMER_DELAY_S_MAX = 40 * 86_400
"""RocketMQ's timerMaxDelaySec is 3 days."""
TIMERS_MAX = 3 << 19
"""Timed messages that wait: each takes 44 bytes of memory, and 20 of every snapshot. A topic may
have two thirds of them, 1,048,576."""
REPEAT_EVERY_MS_MIN = 1000
REPEAT_EVERY_MS_MAX = TIMER_DELAY_S_MAX * 1000
REPEATS_MAX = 1_000_000
REPEATED_BODY_BYTES_MAX = 1 * MIB
"""One entry holds what is delivered and what waits again."""
REPEAT_COST_BYTES = 8 * KIB
"""What a repeat costs beside its own bytes: its work."""
REPEATED_BYTES_PER_S_TOPIC_MAX = 2 * MIB
"""Of repeats of one topic: 256 small ones a second, two of 1 MiB."""
REPEATED_BYTES_PER_S_MAX = 8 * MIB
"""Of all topics. Each delivery is stored twice: for its topic, and to come again."""
REPEATED_PROPERTIES_MAX = 8192
"""Each copy has some more."""
RENEWED_AHEAD_MS = 600_000
"""A timed message in an old part of the log that is due within this time is left there."""
RENEW_LOOK_S = 10.0
"""Between two looks for such messages that are due later."""
RECENT_TIMES_MAX = 8192
"""Kept one by one before they are packed; and gaps that are left in what is packed."""
TIMES_LOOKED_AT = 1024
"""At a time, to find the first that still waits."""
TRANSACTIONS_MAX = 73_728
"""Transactions that have not ended. A topic may have eight ninths of them, 65,536, and so may a
producer group."""
PRODUCER_GROUP_CHARACTERS_MAX = 255
"""Of a transactional message (Java: Validators.CHARACTER_MAX_LENGTH): the leader remembers those
that nobody answers for."""
TRANSACTION_CHECKS_PER_TURN_MAX = 256
SCHEDULED_MAX = 1024
"""Waiting messages that a tool is shown at a time."""
DELIVERY_MESSAGES_MAX = 1024
DELIVERY_BYTES_MAX = MIB
"""One entry delivers this much at most, or a single larger message."""
DELIVERY_PAUSE_S = 0.01
"""Between two deliveries when little is due: what becomes due meanwhile shares an entry."""
DELIVERY_SLEEP_S_MAX = 0.25
"""A wall clock that is set forward while messages wait is noticed within this time."""

# Pulls. Stock clients ask for 32 messages and give no size.
PULL_BYTES_DEFAULT = 256 * KIB
PULL_BYTES_MAX = 6 * MIB
PULL_MESSAGES_MAX = 16_384
PULL_UNITS_SCANNED_MAX = 16_384
PULL_UNITS_SAMPLED = 64
"""By so many messages it is guessed how many more fit into an answer."""
PULL_PIECES_MAX = 64
"""More pieces of the log than this are joined: many small buffers cost more than one copy."""
PULL_JOINED_BYTES_MAX = MIB
"""Such a copy is no larger, as it would delay others; the next pull goes on from there."""
PULL_HOLD_S_MAX = 20.0
"""Clients give up after 30 s; a pull is never held that long."""
PULLS_HELD_MAX = 100_000
SWEEP_PAUSE_S = 0.25
"""Pulls whose time is up within this are run together."""
EARLIEST_ENTRIES_MAX = 256
"""Entries read from the log's head on, to find its first message."""

# POP.
POP_MESSAGES_MAX = 32
"""RocketMQ's, for stock clients."""
POP_MESSAGES_OURS_MAX = 1024
POP_IN_FLIGHT_PER_QUEUE_MAX = 10_000
"""RocketMQ: popInflightMessageThreshold."""
POP_IN_FLIGHT_PER_TOPIC_MAX = 100_000
"""Of one group."""
POP_IN_FLIGHT_MAX = 262_144
"""Of all groups: what is in flight is kept in memory, and in every snapshot; 400 bytes for a
message that nobody else was handed out with."""
POP_SPAN_MESSAGES_MAX = 1024
"""From the first to the last message that one POP takes of a queue, if its filter passes few."""
POP_INVISIBLE_S_MAX = 3 * 86_400
POP_QUEUES_MAX = 262_144
"""Queues that groups have popped: each has a cursor, as long as its topic and its group exist."""
POP_ATTEMPT_BYTES_MAX = 128
"""Of an attempt's id: stock clients' is a UUID."""
POPS_HELD_MAX = 100_000
POPS_HELD_PER_QUEUE_MAX = 1024
"""Both are RocketMQ's (maxPopPollingSize, popPollingSize); the second is of one group."""
POP_HOLD_S_MAX = 30.0
POP_LOOK_S_MAX = 0.25
"""A wall clock that is set forward while messages are hidden is noticed within this time."""
POP_PAUSE_S = 0.01
"""Between two looks for what is visible again."""
POP_GATHERED_BYTES_MAX = 2 * MIB
POP_CHANGES_PER_ENTRY_MAX = 512
"""Messages that one entry hides for another time; the next entry has the others."""
POP_ROW_BYTES = 64
"""What acks and the like take in an entry; each about so much beside its names and bits."""
POP_MERGED_MESSAGES = 1024
"""Acks of messages of one run of so many become one row."""
BATCH_ACKS_MAX = 4096
BATCH_ACK_BITS_BYTES_MAX = 8 * KIB
REQUEST_MODES_MAX = 20_000

# SQL92 filters.
SQL_CHARACTERS_MAX = 8192
SQL_DEPTH_MAX = 64
SQL_NUMBER_CHARACTERS_MAX = 64
"""A longer property is not taken as a number."""
SQL_CHARACTERS_KEPT = 256 * KIB
"""Of the expressions that are kept compiled: some 32 MiB of memory."""
SQL_MESSAGES_SCANNED_MAX = 512
"""Messages read for one pull."""
SQL_STEPS_MAX = 8192
"""Of work for one pull or pop, at about 1 us each; no other request is answered meanwhile."""
SELECTION_STEPS = 64
"""For each queue that a filter looks at."""
TAG_UNITS_PER_STEP = 8
"""Messages that a filter by tags looks at."""
SQL_STEPS_PER_MESSAGE = 8
SQL_PROPERTIES_BYTES_PER_STEP = 32
"""Of a message's properties, decoded."""
SQL_SEARCHED_BYTES_PER_STEP = 512
"""Of a message's properties, for each CONTAINS."""
SQL_NEEDLE_CHARACTERS_MAX = 8
"""A longer text is searched with an algorithm that is linear for any text, but slower to set up."""

PRODUCERS_TOLD_MAX = 65_536
"""Producers of all groups in one answer."""
PROGRESS_QUEUES_MAX = 65_536
"""Queues of groups whose progress is told in one answer: with short names they fill a frame."""

# Consumer offsets: one-way commits are gathered this long into one entry.
COMMIT_GATHER_S = 0.05
COMMITS_PER_ENTRY_MAX = 4096
RETRY_AFTER_MS = 100
"""A hint to a client that is refused at a bound: by then even a slow disk has gathered commits."""

# Flow control: the rates that operators set for topics and groups.
FLOW_BURST_S = 1.0
"""So much of a rate's time may pass at once."""
FLOW_GATHER_S = 0.1
"""Who is held back comes again when so much of a rate's time is there."""
FLOW_WAIT_S_MIN = 0.001
"""Floats are not exact: who waits for less might come too early, again and again."""
FLOW_WAIT_MS_MAX = 86_400_000
"""Told to a client that must wait."""
FLOW_GATES_MAX = 40_000

# Statistics, per topic and per topic and group; see mqbroker.flow.statistics.
RATE_WINDOWS_S = (10, 60, 600)
"""Rates of messages are reported for these spans."""
STATISTICS_ROWS_MAX = 20_000
APPEND_WINDOW_S = 60.0
APPEND_BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 3.0, 4.0, 5.0, 10.0),
)
"""Bounds of the histogram of how long entries take."""
PULL_OFFSETS_MAX = 100_000
"""Queues of groups whose last pull is kept for the tools."""

READERS_MAX = 262_144
"""Queues of groups whose last reader is known. Beyond that they are noted anew."""
RESETS_PENDING_MAX = 65_536
"""Queues of groups that were reset and have not been pulled from the new offset yet."""

PULLING_GROUPS_MAX = 100_000
"""Pairs of topic and group whose pulling connections are known. Beyond that they are noted anew."""
PULLING_PER_GROUP_MAX = 1024
"""Connections that are remembered as a group's readers of a topic."""
LEFT_BEHIND_PER_CONNECTION_MAX = 1024
"""Deleted topics of which a connection may hold positions."""

# Clients.
SAFE_TO_STOP_LAG_ENTRIES = 10_000
"""A member that lacks more is not counted upon when another one is to be stopped."""
QUEUES_PER_STEP = 64
"""Queues whose lag is told before others may have the loop."""
DESCRIPTORS_RESERVED = QUEUE_FILES_OPEN_MAX + 192
"""Kept from clients: for the log, its peers, the consume queues, and connections about to close."""
RELAY_S = 10.0
"""A client must answer a tool's question, passed on by the broker, within this time."""
FORWARD_S = 3.0
FORWARDED_MAX = 64
"""Tools' requests that a follower has passed on to the leader."""
CLIENT_EXPIRY_S = 120.0
CLIENT_SCAN_S = 10.0
GROUPS_PER_CLIENT_MAX = 1024
"""Of one connection, over all its heartbeats."""
SUBSCRIPTIONS_PER_GROUP_MAX = 1024
GROUPS_LEFT_MAX = 2_000
"""Groups without members whose topics are remembered, `GROUP_LEFT_TOPICS_MAX` of each."""
GROUP_LEFT_TOPICS_MAX = 32
WANTS_SHOWN_MAX = 400
"""Characters of each of two members' subscriptions, when one is refused since they differ."""
WANTS_BYTES = 2 * WANTS_SHOWN_MAX + 400
"""What is kept to compare a member's subscriptions by, at most."""
USERS_DIGEST_CHARACTERS = 12
"""The part of the users' hash that is shown: enough to compare members by."""
PAUSED_QUEUES_MAX = 256
"""Queues that a member says it has paused: of others it is told that it asks for no messages."""
PAUSED_BYTES = 400
"""Roughly the memory for one."""
ASKS_AGAIN_S = 30.0
"""A member that reads a queue with messages and has been given none for so long does not ask: a
pull is held for half of that at most."""
GROUPS_KEPT_OUT_MAX = 256
"""Groups of which it is remembered whom they kept out last."""
DIFFERING_SHOWN_MAX = 32
"""Clients that are shown with their subscriptions, if those differ."""
GROUP_BYTES = 400
SUBSCRIPTION_BYTES = 600
TAG_BYTES = 96
"""Roughly the memory for a client's membership in a group, for a subscription, and for a tag,
without their texts."""
NOTIFY_GATHER_S = 0.05
"""A group that changes again this soon is notified a little later, once: else four hundred clients
that connect at once would cause eighty thousand notices."""

# Members of the group.
MEMBERS_PENDING_S = 2.0
"""A change of the members waits this long for an earlier one: mostly a learner has just become a
voter."""
MEMBERS_POLL_S = 0.05

# Name servers.
STOP_S = 2.0
"""A stopping broker waits this long for the name servers to be told."""
REGISTER_INTERVAL_S = 30.0
HEARTBEAT_TIMEOUT_INTERVALS = 3
"""A name server drops us when it heard nothing for this many intervals between heartbeats."""
REGISTER_TIMEOUT_S = 3.0
REGISTER_REST = 4.0
"""The pause after a registration, as a multiple of the time to encode it: with 20,000 topics that
is 10 ms and more, and each new topic makes another registration due."""
ANNOUNCE_S = 1.0
"""After a topic is made or changed, answers about it wait this long until the name servers know it;
a stock producer's send may take 3 s."""
ANNOUNCED_WAITING_MAX = 65_536
"""Answers about one topic; more don't wait."""
NEWS_TOPICS_MAX = 1_000
"""Changed topics that are remembered for a name server; after more it is told all topics."""
RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 2.0

AFTER_FAULT_S = 1.0
"""A loop pauses this long after an unexpected exception."""
# Routes of topics, which the broker gets from name servers to share queues out among consumers.
ROUTE_S = 1.0
ROUTE_KEPT_S = 2.0
ROUTES_KEPT_MAX = 4096
ROUTE_QUEUES_KEPT_MAX = 262_144
"""Of all routes that are kept."""
ROUTES_ASKED_MAX = 16

DISK_LOOK_S = 1.0
"""Between two looks at how full the disk is."""

# Log lines about refused requests: one a second for each kind.
REFUSAL_LOG_INTERVAL_S = 1.0
REFUSAL_KINDS_MAX = 256

assert STAGED_BYTES_MAX + 64 * KIB < ENTRY_BYTES_MAX, "a half message's properties, and notes"
assert PULL_BYTES_MAX + ENTRY_BYTES_MAX < FRAME_BYTES_MAX
assert DEDUP_ENTRIES_MAX % DEDUP_CHUNK_ENTRIES == 0
assert PULL_HOLD_S_MAX < 30.0
