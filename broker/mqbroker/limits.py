"""Every bound of the broker, in one place, with units in the names. The wire's: dledger.limits.

Everything that grows with a user's data (topics, groups, offsets) is bounded as well. A program
that makes up names in a loop is refused, and the broker does not run out of memory.
"""

from __future__ import annotations

from dledger.limits import ENTRY_BYTES_MAX, FRAME_BYTES_MAX, KIB, MESSAGE_BODY_BYTES_MAX, MIB

# Bounds of the replicated state.
MESSAGE_ID_CHARACTERS_MAX = 64
"""The longest id of an original message that a consumer may name: an offset id has 56 characters at
most."""
LEFT_OUT_NAMES_BYTES_MAX = 400
"""Bytes for the names of properties that a copy has no room for."""
LEFT_OUT_BYTES_MAX = 512
"""Room kept in a copy's properties for those names and their note, in bytes."""
TOPICS_MAX = 20_000
"""Topics of a broker group."""
QUEUES_PER_TOPIC_MAX = 1024
"""Queues of one topic on a broker group."""
QUEUES_MAX = 200_000
"""Queues of all topics together: 20,000 topics with 8 queues each, and some."""
GROUPS_MAX = 20_000
"""Consumer groups of a broker group. A group's retry topic must have a legal name, too."""
CONFIGS_PER_REQUEST_MAX = 8192
"""Topics or groups that one request changes. They are checked and stored in one turn of the loop,
so that no other change comes between."""
CONSUMER_OFFSETS_MAX = 1_000_000
"""Offsets that groups have committed: one for each group and queue."""
DEDUP_ENTRIES_MAX = 131_072
"""Appends that are remembered, so that a repeat is recognised: 13 s of 10,000 single sends/s,
minutes of batches."""
DEDUP_CHUNK_ENTRIES = 4096
DEDUP_KEY_BYTES_MAX = 512
LOCK_S = 60.0
"""Seconds for which a queue lock lasts without being renewed (RocketMQ:
rocketmq.broker.rebalance.lockMaxLiveTime)."""
LOCK_KEPT_S = 600.0
"""Seconds for which a lock that ended is remembered, in case its client comes back and no other
client has the lock."""
LOCKS_MAX = 131_072
LOCKS_FORGOTTEN_MAX = 4096
"""Locks that ended and are forgotten at a time."""
LOCK_OWNERS_FORGOTTEN_MAX = 64
"""Clients whose locks are forgotten at a time: each takes an entry."""
CLIENT_ID_BYTES_MAX = 256
"""The longest client id, in bytes. Ids of stock clients are address@instance@unit, some 40 bytes;
each queue lock has one."""

PRODUCERS_MAX = 16_384
"""Producers with a name: each takes up to 3 KiB of memory, and 600 bytes of every snapshot."""
SETTINGS_MAX = 64
"""Config keys that the state can hold of those that change while a group runs; there are fewer such
keys."""
PRODUCER_KEPT_S = 7 * 86_400
"""Seconds without use after which a producer's name may be forgotten when room is wanted (Kafka:
transactional.id.expiration.ms)."""
PRODUCER_IDLE_S = 10.0
"""Seconds without a use after which a name that wrote nothing is forgotten when all names are
taken."""
PRODUCERS_FORGOTTEN_MAX = 64
"""Names that are forgotten at a time."""
STREAMS_PER_PRODUCER_MAX = 16
INSTANCES_PER_NAME_KEPT = 4
DECIDED_MAX = 65_536
"""Names whose last batch is known. A name that decides takes a place of a producer for days,
so displacing other names takes weeks."""
DECISION_BYTES_MAX = MIB
"""The largest decision of a batch, in bytes: it lists some 40,000 staged entries, of a MiB each."""
STAGED_KEPT_S = 3600.0
"""Seconds after which entries staged for a batch that nobody decides are dropped."""
STAGED_ENDS_UNDER_WAY_MAX = 4
"""Staged entries of a request that are on their way to messages at a time."""
STAGED_LOOK_S = 3.0
"""Seconds between two looks for staged entries that are due."""
STAGED_MAX = 8192
"""Staged entries of a broker group that wait: a ninth of the room for half messages. A name may
have half of them: 4 GiB of rows, if each is a MiB."""
STAGED_BYTES_MAX = MESSAGE_BODY_BYTES_MAX
"""The most bytes of records in one staged entry."""
STAGED_PER_LOOK_MAX = 256
"""Staged entries that one look covers."""
HOME_TIMEOUT_S = 3.0
"""Seconds for the broker group that decides to answer, and for name servers to say where it is."""
PRODUCER_INSTANCE_CHARACTERS_MAX = 64

POP_BITS_BYTES_MAX = 64 * KIB
"""The largest bitmap in an entry, in bytes."""

ASIDE_REASONS_KEPT = 16
"""Entries set aside that are shown with the reason."""
ASIDE_REASON_CHARACTERS_MAX = 400
ASIDE_INDEXES_KEPT = 65_536

QUEUES_IN_STATE_MAX = 65_536
"""Queues of one topic in the log: every version must read this many, whatever its requests
allow."""
TIME_MS_MAX = 253_402_300_799_999
"""The latest time that is accepted, in ms since 1970: the end of the year 9999."""
TIME_DIGITS_MAX = 18
"""Digits of a time in a property."""

EXPORT_DEPTH_MAX = 4
"""Levels of folders below exportDir at which a copy of a replica may lie."""
EXPORTS_MAX = 64
"""Copies below exportDir: each keeps segments on the disk that retention has removed."""

# Consume queues.
UNITS_PER_FILE = 1 << 18
QUEUE_PENDING_BYTES_MAX = 64 * KIB
"""Bytes of one queue's units that are kept in memory before they are written to its file."""
QUEUES_PENDING_BYTES_MAX = 32 * MIB
QUEUE_FILES_OPEN_MAX = 512
SYNCED_ONE_BY_ONE_MAX = 64
"""Files that are synced one by one; if there are more, the whole file system is synced at once."""

LIVES_STEP_MS = 10
"""Milliseconds to which the expiry of a message is known: in 32 bits, so within 497 days."""

TAGS_ONE_BY_ONE_BYTES_MAX = 4 * KIB
"""Bytes of the different tags of an entry's messages up to which their codes are computed one by
one; the codes of more are computed all at once."""

# The key index.
KEYS_PER_FILE = 1 << 18
KEYS_PENDING_MAX = 4096
QUERY_MESSAGES_MAX = 64
QUERY_MESSAGES_OURS_MAX = 1024
QUERY_CANDIDATES_MAX = 2048
QUERY_CANDIDATES_BYTES_MAX = 32 * MIB
"""Bytes of messages read for one query, in about 40 ms: messages of the wanted time may lie behind
newer ones. The bound is in bytes, since their CRCs are computed."""
QUERY_UNITS_MAX = 1024
"""Units of a consume queue shown to a tool at a time."""

BEHIND_MS_MAX = 100
"""Milliseconds by which a wall clock may be behind its leader's time for the leader to wait for
it."""
BEHIND_PACE = 0.5
"""The pace of a leader's time, as a share of real time, while its wall clock is behind by more than
that."""

# Snapshots of the replicated state: a restart replays what was applied since the last one.
SNAPSHOT_INTERVAL_S = 2.0
SNAPSHOT_LOG_BYTES = 64 * MIB
SNAPSHOT_ENTRIES = 20_000
SNAPSHOT_APPLY_S = 1.0
"""Seconds of applying since the last snapshot after which the state is saved: a replay takes as
long again. 64 MiB may be a quarter of a million messages, and 20,000 entries even more."""
SNAPSHOT_COST_FACTOR = 10.0
"""Multiple of the time for which nothing was applied while the last picture of the state was taken,
after which the state is saved: a picture takes long with very many topics."""
SNAPSHOT_PAUSE_S = 1e-5
"""The pause of a thread that encodes the state, after each few hundred rows, in seconds: the loop
goes on meanwhile."""
SNAPSHOT_LOOK_S = 0.25
"""Seconds between two looks at whether the state should be saved, while entries are applied."""
SNAPSHOT_FLUSHES_MAX = 8
"""Rounds in which queues are written before a snapshot is taken; the rest is written with it."""
STOP_SAVE_S = 4.0
"""Seconds that a stop waits for the state to be saved; a restart replays entries that were not
saved."""

# Sends.
MESSAGES_PER_BATCH_MAX = 16_384
"""Messages in one request."""
KEYS_PER_BATCH_MAX = 147_456
"""Words in the KEYS of one request's messages, where each message counts as eight more: 32 for each
of 3,686 messages, one for each of 16,384. Each replica indexes all at once."""
KEYS_PER_MESSAGE_WEIGHT = 8
"""Words that each message counts for by itself."""
BATCH_AT_ONCE_MAX = 1024
"""Messages of a stock client's batch that are taken in one turn of the loop."""
BATCH_STEP = 64
"""Messages whose properties are read at a time: each may have 32 KiB of them."""
SENDS_TOGETHER_FROM = 2
"""Entries on their way from which single sends wait for each other."""
SENDS_TOGETHER_MAX = 256
"""Waiting sends that are appended at once, whatever is on its way."""
SENDS_TOGETHER_BYTES = 256 * KIB
"""Bytes of waiting sends that are appended at once, whatever is on its way."""
BATCH_SHARES_UP_TO = 8
"""Messages of a batch that may share an entry with other sends: the dedup window then keeps each
message of it."""
RETRY_SPAN_S = 10.0
"""Seconds from the first try of a stock client's send to its last: three tries of 3 s each, and
some."""
RETRY_PATIENCE_S = 0.5
"""The shortest time in seconds that a client waits before it retries over the same connection."""
UNHEARD_COPIES_MAX = 65_536
"""Copies whose sender was gone before its answer; and as many copies of earlier leaders that were
given as an answer since."""
UNHEARD_COPIES_PER_KEY_MAX = 16
"""Copies with the same key whose sender was gone: each send is compared with all of them."""

PARTS_PER_WRITE_MAX = 256
"""Topics in one write of a named producer."""
MOVES_PER_WRITE_MAX = 1024
"""Queues whose consumed offsets are stored by one write."""

# Delayed messages.
DELAY_LEVELS_MAX = 64
TIMER_DELAY_S_MAX = 40 * 86_400
"""The longest delay by a timer, in seconds: 40 days (RocketMQ's timerMaxDelaySec is 3 days)."""
TIMERS_MAX = 3 << 19
"""Timed messages that wait: each takes 44 bytes of memory, and 20 of every snapshot. A topic may
have two thirds of them, 1,048,576."""
REPEAT_EVERY_MS_MIN = 1000
REPEAT_EVERY_MS_MAX = TIMER_DELAY_S_MAX * 1000
REPEATS_MAX = 1_000_000
REPEATED_BODY_BYTES_MAX = 1 * MIB
"""The largest body of a repeated message, in bytes: one entry holds the delivered copy and the
waiting one."""
REPEAT_COST_BYTES = 8 * KIB
"""Bytes that a repeat costs beside its own, for its work."""
REPEATED_BYTES_PER_S_TOPIC_MAX = 2 * MIB
"""The rate of repeats of one topic: 256 small ones a second, or two of 1 MiB."""
REPEATED_BYTES_PER_S_MAX = 8 * MIB
"""The rate of repeats of all topics together. Each delivery is stored twice: for its topic, and to
come again."""
REPEATED_PROPERTIES_MAX = 8192
"""Characters of a repeated message's properties: each copy has some more."""
RENEWED_AHEAD_MS = 600_000
"""Milliseconds before its time from which a timed message in an old part of the log is left
there."""
RENEW_LOOK_S = 10.0
"""Seconds between two looks for such messages that are due later."""
RECENT_TIMES_MAX = 8192
"""Times kept one by one before they are packed; and gaps that are left among the packed ones."""
TIMES_LOOKED_AT = 1024
"""Times looked at in one step, to find the first that still waits."""
TRANSACTIONS_MAX = 73_728
"""Transactions that have not ended. A topic may have eight ninths of them, 65,536, and so may a
producer group."""
PRODUCER_GROUP_CHARACTERS_MAX = 255
"""The longest producer group of a transactional message (Java: Validators.CHARACTER_MAX_LENGTH):
the leader remembers groups that nobody answers for."""
TRANSACTION_CHECKS_PER_TURN_MAX = 256
SCHEDULED_MAX = 1024
"""Waiting messages that a tool is shown at a time."""
DELIVERY_MESSAGES_MAX = 1024
DELIVERY_BYTES_MAX = MIB
"""The most bytes that one entry delivers, unless a single message is larger."""
DELIVERY_PAUSE_S = 0.01
"""Seconds between two deliveries when little is due: messages that become due meanwhile share an
entry."""
DELIVERY_SLEEP_S_MAX = 0.25
"""Seconds within which it is noticed that a wall clock was set forward while messages wait."""

# Pulls. Stock clients ask for 32 messages and give no size.
PULL_BYTES_DEFAULT = 256 * KIB
"""Bytes of messages in the answer to a pull that names no size."""
PULL_BYTES_MAX = 6 * MIB
PULL_MESSAGES_MAX = 16_384
PULL_UNITS_SCANNED_MAX = 16_384
PULL_UNITS_SAMPLED = 64
"""Messages from whose sizes it is estimated how many more fit into an answer."""
PULL_PIECES_MAX = 64
"""Pieces of the log in an answer; more are joined, since many small buffers cost more than one
copy."""
PULL_JOINED_BYTES_MAX = MIB
"""The largest such copy, in bytes: a larger one would delay others. The next pull goes on there."""
PULL_HOLD_S_MAX = 20.0
"""The longest time in seconds that a pull is held: clients give up after 30 s."""
PULLS_HELD_MAX = 100_000
TAKERS_HELD_MAX = 4096
"""Held questions of members that take queues over: a garbage collection walks through each."""
SWEEP_PAUSE_S = 0.25
"""Seconds between two looks for held pulls whose time is up; these are run together."""
EARLIEST_ENTRIES_MAX = 256
"""Entries read from the log's head on, to find its first message."""

# POP.
POP_MESSAGES_MAX = 32
"""Messages in one pop of a stock client, as in RocketMQ."""
POP_MESSAGES_OURS_MAX = 1024
POP_IN_FLIGHT_PER_QUEUE_MAX = 10_000
"""Messages of a queue and a group that are in flight (RocketMQ: popInflightMessageThreshold)."""
POP_IN_FLIGHT_PER_TOPIC_MAX = 100_000
"""Messages of a topic and one group that are in flight."""
POP_IN_FLIGHT_MAX = 262_144
"""Messages of all groups that are in flight. They are kept in memory, and in every snapshot: 400
bytes for a message that shares its row with no other."""
POP_SPAN_MESSAGES_MAX = 1024
"""Offsets from the first to the last message that one POP takes of a queue, if its filter passes
few."""
POP_INVISIBLE_S_MAX = 3 * 86_400
"""The longest time in seconds that a popped message may be hidden."""
POP_QUEUES_MAX = 262_144
"""Queues that groups have popped: each has a cursor, as long as its topic and its group exist."""
POP_ATTEMPT_BYTES_MAX = 128
"""The longest id of an attempt, in bytes; a stock client's is a UUID."""
POPS_HELD_MAX = 100_000
"""Pops held at a time (RocketMQ: maxPopPollingSize)."""
POPS_HELD_PER_QUEUE_MAX = 1024
"""Pops of one group held for one queue (RocketMQ: popPollingSize)."""
POP_HOLD_S_MAX = 30.0
POP_LOOK_S_MAX = 0.25
"""Seconds within which it is noticed that a wall clock was set forward while messages are
hidden."""
POP_PAUSE_S = 0.01
"""Seconds between two looks for messages that are visible again."""
POP_GATHERED_BYTES_MAX = 2 * MIB
POP_CHANGES_PER_ENTRY_MAX = 512
"""Messages that one entry hides for another time; the next entry has the others."""
POP_ROW_BYTES = 64
"""Bytes that an ack or the like takes in an entry beside its names and bits, roughly."""
POP_MERGED_MESSAGES = 1024
"""Messages of one run whose acks become one row."""
BATCH_ACKS_MAX = 4096
BATCH_ACK_BITS_BYTES_MAX = 8 * KIB
REQUEST_MODES_MAX = 20_000

# SQL92 filters.
SQL_CHARACTERS_MAX = 8192
SQL_DEPTH_MAX = 64
SQL_NUMBER_CHARACTERS_MAX = 64
"""The longest property that is read as a number."""
SQL_CHARACTERS_KEPT = 256 * KIB
"""Characters of the expressions that are kept compiled: some 32 MiB of memory."""
SQL_MESSAGES_SCANNED_MAX = 512
"""Messages read for one pull."""
SQL_STEPS_MAX = 8192
"""Steps of work for one pull or pop, at about 1 us each; no other request is answered meanwhile."""
SELECTION_STEPS = 64
"""Steps for each queue that a filter looks at."""
TAG_UNITS_PER_STEP = 8
"""Messages that a filter by tags looks at in one step."""
SQL_STEPS_PER_MESSAGE = 8
"""Steps for each message that a filter by SQL looks at."""
SQL_PROPERTIES_BYTES_PER_STEP = 32
"""Bytes of a message's properties that are decoded in one step."""
SQL_SEARCHED_BYTES_PER_STEP = 512
"""Bytes of a message's properties that each CONTAINS searches in one step."""
SQL_NEEDLE_CHARACTERS_MAX = 8
"""The longest text that is searched for as it is; a longer one is searched with an algorithm that
is linear for any text, but slower to set up."""

PRODUCERS_SHOWN_MAX = 65_536
"""Producers of all groups in one answer."""
PROGRESS_QUEUES_MAX = 65_536
"""Queues of groups whose progress is reported in one answer: with short names they fill a frame."""

# Consumer offsets: one-way commits are gathered this long into one entry.
COMMIT_GATHER_S = 0.05
"""Seconds for which one-way commits are gathered into one entry."""
COMMITS_PER_ENTRY_MAX = 4096
RETRY_AFTER_MS = 100
"""Milliseconds until a client that is refused at a bound should try again: by then even a slow disk
has gathered commits."""

# Queues, groups and connections that are remembered for tools.
READERS_MAX = 262_144
"""Queues of groups whose last reader is known. Beyond that they are noted anew."""
RESETS_PENDING_MAX = 65_536
"""Queues of groups that were reset and have not been pulled from the new offset yet."""

PULLING_GROUPS_MAX = 100_000
"""Pairs of topic and group whose pulling connections are known. Beyond that they are noted anew."""
PULLING_PER_GROUP_MAX = 1024
"""Connections that are remembered as a group's readers of a topic."""
LEFT_BEHIND_PER_CONNECTION_MAX = 1024
"""Deleted topics whose positions a connection may hold."""

# Clients.
FOLLOWING_SAMPLES_MAX = 1200
"""Times at which a leader has noted the end of its log, while a follower is behind."""
SNAPSHOT_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60)
"""Upper ends of the buckets of the histogram of how long a snapshot takes, in seconds."""
SAFE_TO_STOP_LAG_ENTRIES = 10_000
"""Entries that a member may lack and still be counted upon when another one is to be stopped."""
QUEUES_PER_STEP = 64
"""Queues whose lag is reported before others may have the loop."""
DESCRIPTORS_RESERVED = QUEUE_FILES_OPEN_MAX + 192
"""File descriptors kept from clients: for the log, its peers, the consume queues, and connections
about to close."""
RELAY_S = 10.0
"""Seconds within which a client must answer a tool's question that the broker passed on."""
FORWARD_S = 3.0
FORWARDED_MAX = 64
"""Tools' requests that a follower has passed on to the leader."""
CLIENT_EXPIRY_S = 120.0
"""Seconds without a heartbeat after which a client counts as gone."""
CLIENT_SCAN_S = 10.0
GROUPS_PER_CLIENT_MAX = 1024
"""Groups of one connection, over all its heartbeats."""
SUBSCRIPTIONS_PER_GROUP_MAX = 1024
GROUPS_LEFT_MAX = 2_000
"""Groups without members whose topics are remembered, `GROUP_LEFT_TOPICS_MAX` of each."""
GROUP_LEFT_TOPICS_MAX = 32
WANTS_SHOWN_MAX = 400
"""Characters of each of two members' subscriptions, when one is refused since they differ."""
WANTS_BYTES = 2 * WANTS_SHOWN_MAX + 400
"""The most bytes that are kept to compare a member's subscriptions by."""
USERS_DIGEST_CHARACTERS = 12
"""Characters of the users' hash that are shown: enough to compare members by."""
PAUSED_QUEUES_MAX = 256
"""Paused queues that a member may list; any others are reported as queues for which it asks for no
messages."""
PAUSED_BYTES = 400
"""Memory for one paused queue, in bytes, roughly."""
ASKS_AGAIN_S = 30.0
"""Seconds without a pull after which a member counts as not asking, if it reads a queue with
messages and has been given none: a pull is held for half of that at most."""
GROUPS_KEPT_OUT_MAX = 256
"""Groups for which the member that they last kept out is remembered."""
DIFFERING_SHOWN_MAX = 32
"""Clients that are shown with their subscriptions, if these differ."""
GROUP_BYTES = 400
"""Memory for a client's membership in a group, in bytes, roughly and without texts."""
SUBSCRIPTION_BYTES = 600
"""Memory for a subscription, in bytes, roughly and without texts."""
TAG_BYTES = 96
"""Memory for a tag of a subscription, in bytes, roughly and without texts."""
NOTIFY_GATHER_S = 0.05
"""Seconds within which further changes of a group are notified together, a little later: otherwise
four hundred clients that connect at once would cause eighty thousand notices."""

# Members of the group.
MEMBERS_PENDING_S = 2.0
"""Seconds that a change of the members waits for an earlier one: mostly a learner has just become a
voter."""
MEMBERS_POLL_S = 0.05

# Name servers.
STOP_S = 2.0
"""Seconds that a stopping broker waits for the name servers to be told."""
REGISTER_INTERVAL_S = 30.0
HEARTBEAT_TIMEOUT_INTERVALS = 3
"""Intervals between heartbeats without any after which a name server drops this broker."""
REGISTER_TIMEOUT_S = 3.0
REGISTER_REST = 4.0
"""The pause after a registration, as a multiple of the time to encode it: with 20,000 topics that
is 10 ms and more, and each new topic makes another registration due."""
ANNOUNCE_S = 1.0
"""Seconds that answers about a new or changed topic wait until the name servers know it; a stock
producer's send may take 3 s."""
ANNOUNCED_WAITING_MAX = 65_536
"""Answers about one topic that wait; further ones don't."""
NEWS_TOPICS_MAX = 1_000
"""Changed topics that are remembered for a name server; after more changes it is told all
topics."""
RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 2.0

AFTER_FAULT_S = 1.0
"""The pause of a loop after an unexpected exception, in seconds."""
# Routes of topics, which the broker gets from name servers to share queues out among consumers.
ROUTE_S = 1.0
ROUTE_KEPT_S = 2.0
ROUTES_KEPT_MAX = 4096
ROUTE_QUEUES_KEPT_MAX = 262_144
"""Queues of all routes that are kept."""
ROUTES_ASKED_MAX = 16

DISK_LOOK_S = 1.0
"""Seconds between two looks at how full the disk is."""

# Log lines about refused requests: one a second for each kind.
REFUSAL_LOG_INTERVAL_S = 1.0
REFUSAL_KINDS_MAX = 256

assert STAGED_BYTES_MAX + 64 * KIB < ENTRY_BYTES_MAX, "a half message's properties, and notes"
assert PULL_BYTES_MAX + ENTRY_BYTES_MAX < FRAME_BYTES_MAX
assert DEDUP_ENTRIES_MAX % DEDUP_CHUNK_ENTRIES == 0
assert PULL_HOLD_S_MAX < 30.0
