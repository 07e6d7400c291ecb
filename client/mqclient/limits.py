"""Every bound of the client, in one place. What a user may set is a parameter's default here."""

from __future__ import annotations

from dledger import limits as foundation
from dledger.remoting.names import TOOLS_GROUP

# Defaults.
NAMESRV_ADDR = "127.0.0.1:9876"
PRODUCER_GROUP = "DEFAULT_PRODUCER"
READERS_GROUP = TOOLS_GROUP
"""Whose name pulls bear that belong to no group: RocketMQ's tools read so, and leave nothing."""
NEW_TOPIC_QUEUES = 8
"""As many as RocketMQ's mqadmin gives a topic."""
AUDIT_LINES_SHOWN = 100
LINGER_S = 0.0
"""A batch leaves as soon as it can."""

# Connections.
PEERS_MAX = 256
CONNECT_TIMEOUT_S = 1.0
REQUEST_TIMEOUT_S = 3.0

# Routes (RocketMQ: poll every 30 s; a changed topic shows sooner here).
ROUTE_REFRESH_S = 5.0
ROUTE_RETRY_S = 0.05
"""While name servers or brokers are about to start."""
ROUTE_SETTLES_S = 3.0
"""After that, for brokers that register one after the other: ours try each 2 s at least."""
ROUTE_PAUSE_S = 0.25
"""Between two looks, however many brokers decline what routes allow, and while a name server that
has just begun may not know all brokers."""
TOPICS_MAX = 4096
NAME_SERVERS_MAX = 16

METRIC_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Upper ends of a histogram's buckets."""
METRIC_SAMPLES_WAITING_MAX = 1024
"""Of a histogram, until they are put into its buckets together."""
METRIC_SERIES_MAX = 10_000
"""Of one figure of one client; what has other labels is counted together."""
VALUE_CHARACTERS_MAX = 80
"""Of an argument that an error shows."""

# What servers may say.
GROUPS_MAX = foundation.ROUTE_GROUPS_MAX
"""Broker groups, in one answer and of all routes together."""
MEMBERS_MAX = foundation.ROUTE_MEMBERS_MAX
QUEUES_PER_TOPIC_MAX = foundation.ROUTE_QUEUES_MAX
CONSUMERS_PER_GROUP_MAX = 65_536
OFFSET_MAX = 2**63 - 1

# Heartbeats go to every replica of every broker group in use, so that membership outlives a leader.
HEARTBEAT_S = 1.0
"""How often to look who lacks one, and whether a leader has fallen silent."""
HEARTBEAT_REPEAT_S = 10.0
"""To a broker that has it (RocketMQ: 30 s; brokers forget after 120 s of silence)."""
HEARTBEAT_TIMEOUT_S = 1.0

# Finding the leader of a broker group.
FIND_BACKOFF_MIN_S = 0.005
FIND_BACKOFF_MAX_S = 0.05
FIND_REQUEST_TIMEOUT_S = 0.5
SUSPECT_AFTER_S = 0.4
"""A request unanswered for this long makes the client ask who leads, while it waits on."""

# Producer.
SEND_TIMEOUT_S = 3.0
MOVE_AFTER_S = 0.25
"""A message without a chosen queue moves to another group if this one has not taken it for this
long."""
UNSURE_AFTER_S = 1.0
"""With `at_least_once`, one that may be stored moves if its group has had no leader for this
long."""
MESSAGE_TYPES_MAX = 1024
"""Combinations of the types of a message's fields that are known to be right."""
MOVES_MAX = 2
"""How often a message moves (RocketMQ: retryTimesWhenSendFailed)."""
COMPRESS_FROM_BYTES = 4096
"""The size from which a body is compressed, if the producer names an algorithm (RocketMQ:
compressMsgBodyOverHowmuch)."""
ZLIB_LEVEL = 5
ZSTD_LEVEL = 3
BATCH_BYTES_MAX = 2 * foundation.MIB
"""A batch holds what has come while the one before it was under way, and so grows with the load.
What an entry costs a broker by itself is half of what 512 KiB of messages cost."""
BATCH_RECORDS_MAX = 4096
STOCK_BATCH_BYTES_MAX = 64 * foundation.KIB
"""Of a batch for RocketMQ's brokers. In DLedger mode they make an entry of each message in it."""
STRETCH_BYTES_MIN = 512 * foundation.KIB
"""The messages of one call are cut into batches of so much, which go side by side; and of more,
up to a batch's bound, while more is under way than that."""
ENCODED_TOGETHER_MIN = 16
"""Fewer messages are encoded one by one: what a table costs by itself is more."""
GATHER_FOR_S = 0.05
"""Messages of `send_soon` that come within this time share a deadline: the last one's."""
BATCHES_IN_FLIGHT_PER_GROUP_MAX = 4
WAITING_IN_FLIGHT_PER_GROUP_MAX = 128
"""Delayed and half messages are sent one by one, so more of them are under way."""
PENDING_MESSAGES_MAX = 65_536
PENDING_BYTES_MAX = 64 * foundation.MIB
PRODUCER_TICK_S = 0.05
HANDLE_AGAIN_S = 5.0
"""If no broker takes a message back, the handler gets it again after this time, as in RocketMQ."""

LARGE_BODY_BYTES_MAX = 256 * foundation.MIB
"""Of a body that is sent in parts: it is in memory as a whole, at its sender and its reader."""
LARGE_PART_BYTES = foundation.MIB
LARGE_PARTS_MAX = LARGE_BODY_BYTES_MAX // LARGE_PART_BYTES
LARGE_SEND_TIMEOUT_S = 60.0
LARGE_FETCH_S = 10.0
"""So long a body's parts are asked for before the message is taken for one without a body."""
LARGE_GROUPS_WAITED_MAX = 2
"""Groups that are not known and don't serve: so many are waited for one by one, further ones as
one."""
LARGE_PATIENCE_AGAIN_S = 60.0
"""A group that no message has named for so long is waited for anew."""
LARGE_TURN_S = 1.0
"""A message whose group is away is waited for so long; then other queues have their turn."""
LARGE_PULL_BYTES_MAX = 4 * foundation.MIB
LARGE_MANIFEST_CHARACTERS_MAX = 8192
OFFSET_DIGITS_MAX = 19
TTL_S_MAX = 365 * 86_400
"""Brokers know it exactly for 497 days."""
REPEAT_S_MIN = 1.0
REPEATS_MAX = 1_000_000
RETRY_DELAY_S_MAX = 40 * 86_400
"""Brokers keep messages with a timer for so long at most."""
RETRY_DELAYS_MAX = 1024
SUSPEND_S = 1.0
"""Until a handler gets a message again in its place (RocketMQ: suspendCurrentQueueTimeMillis)."""
DELAY_LEVEL_MAX = 64
"""No broker has more levels; a level above its last means the last, as with stock clients."""
REPLIES_AWAITED_MAX = 65_536
TRANSACTION_CHECKS_MAX = 256
QUEUES_WANTED_MAX = 2**16
"""The queues wanted for a topic that a send makes; the broker gives its own maximum."""
BULK_BATCH_BYTES_MAX = foundation.MIB
"""Of the records of columns: one entry, which other senders wait for no longer than for theirs."""
BULK_PENDING_BYTES_MAX = 32 * foundation.MIB
BULK_TIMEOUT_S = 60.0
"""For a batch of rows, over failovers: a program that writes a table rather waits than begins
again."""
STAGED_SIDE_BY_SIDE = 4
STAGED_BODY_BYTES_MAX = foundation.MESSAGE_BODY_BYTES_MAX - 64 * foundation.KIB
"""Of one row: its record is the body of another message by then."""
STREAMS_PER_PRODUCER_MAX = 16
"""Of one name in one broker group: one for each batch under way, the others for consumers."""
TRANSACTION_S = 15.0
"""How long the end of a transaction is asked for again, over changes of leaders."""
TRANSACTION_BYTES_MAX = 6 * foundation.MIB
TRANSACTION_RECORDS_MAX = 16_384
TRANSACTION_TOPICS_MAX = 256
SEND_BATCH_BYTES_MAX = 4 * foundation.MIB

# Consumer.
PULL_RECORDS_MAX = 4096
PULL_BYTES_MAX = 2 * foundation.MIB
PULL_BYTES_MIN = 64 * foundation.KIB
PULLS_BYTES_MAX = foundation.SEND_BUFFER_BYTES_MAX // 2
"""A consumer's pulls ask for so much together: they may all be answered at once, and brokers close
a connection that has twice as much to take."""
PULL_SUSPEND_S = 15.0
"""RocketMQ: BROKER_SUSPEND_MAX_TIME_MILLIS. That a leader has fallen silent is seen before."""
POLL_MANY_MESSAGES = 8192
READ_TOGETHER_MIN = 16
"""Fewer messages of an answer are read one by one: what a table costs by itself is more."""
PREFETCH_RECORDS_MAX = 262_144
PREFETCH_BYTES_MAX = 256 * foundation.MIB
"""Of all queues of a consumer together; what a queue has is little more than its share."""
PREFETCH_RECORDS_PER_QUEUE_MAX = 16_384
PREFETCH_BYTES_PER_QUEUE_MAX = 4 * foundation.MIB
HANDLED_BATCH_MESSAGES = 32
HANDLED_AT_A_STRETCH = 32
"""Messages for a handler that never waits, before others in the event loop have a turn."""
TURN_RECORDS_MAX = 1024
"""Messages of a queue that a loop is given before it is the next queue's turn."""
UNDER_WAY_BYTES_MAX = 64 * foundation.MIB
"""Of the messages that handlers have at a time, whatever their number; one always may be."""
UNFINISHED_SPAN_PER_QUEUE_MAX = 8192
"""From the oldest message that a handler is not through with to the newest that one was given: a
crash delivers so many again at most (RocketMQ: consumeConcurrentlyMaxSpan, 2000)."""
UNFINISHED_RUNS_PER_QUEUE_MAX = 65_536
WAITING_FOR_LANES_PER_QUEUE_MAX = 1024
"""Messages of a queue taken ahead of their turn, to find some whose key is not under way."""
ABANDONED_HANDLERS_MAX = 64
"""Threads that go on with a message after its time; beyond that, others wait for one to end."""
INFLATED_BODY_BYTES_MAX = foundation.MESSAGE_BODY_BYTES_MAX
ZSTD_WINDOW_BYTES_MAX = 8 * foundation.MIB
"""Memory that a Zstandard frame may ask for to be read."""
AUTO_COMMIT_S = 1.0
REBALANCE_POLL_S = 2.0
LOCK_TRUSTED_S = 30.0
"""A queue's lock is relied on for so long after it was asked for; brokers keep it for 60 s. Both
are RocketMQ's (ProcessQueue, RebalanceLockManager)."""
LOCK_RENEW_S = 5.0
LOCK_RETRY_S = 0.2
"""Until another member's queue is asked for again. What is refused costs the broker no entry."""
LOCK_ATTEMPTS_SILENT = 25
"""So often without a word in the log."""
DRAIN_S = 30.0
"""For handlers to finish what they have when their consumer stops in order."""
SIGNAL_NOTICED_S = 0.5
"""A signal that a blocking call has missed is noticed after this time."""
REVOKE_S = 5.0
"""For the application to finish with queues that another member is to read."""
HANDOVER_HELD_S = 2.0
"""For so long a broker may hold the question for a queue that another member has to give up."""
HANDOVER_LOOK_S = 0.05
"""Between two such questions, where brokers don't hold them."""
HANDOVER_S = 2.0
"""For that, beyond the time that members have to finish: to hear of it, and to commit."""
VIRTUAL_NODES_MAX = 1024
OFFSETS_FILE_BYTES_MAX = 64 * foundation.MIB
PATTERN_POLL_S = 2.0
"""How often name servers are asked for new topics, if topics are wanted by a pattern."""

RANGE_PATIENCE_S = 60.0
"""A range of a queue that is read waits for its broker group for so long."""

RANGE_TRUNCATED_S = 2.0
"""A queue that seems to end within a range is asked again for so long: a leader that is cut off may
not know it yet."""

# POP.
POP_INVISIBLE_S = 60.0
"""RocketMQ: popInvisibleTime."""
POP_INVISIBLE_S_MIN = 0.1
POP_SUSPEND_S = 5.0
POP_LAST_ANSWERS_S = 1.0
"""How long a leaving member waits for pops at brokers: ours answer at once, RocketMQ's don't."""
POP_MESSAGES_MAX = 1024
"""Of one pop; brokers of ours give as many."""
POP_ACKS_MAX = 4096
"""Messages acknowledged in one request."""
POP_UNSETTLED_MAX = 16_384
"""Handled messages whose acks are not sent yet; with more, no further ones are popped."""
POP_AHEAD_S = 0.25
POP_AHEAD_MESSAGES_MAX = 8192
"""What is popped before a handler asks for it: as much as it handles in that time."""
POP_READY_BYTES_MAX = 64 * foundation.MIB
"""Of records that are here and nobody has; with more, no further ones are popped."""
POP_HAND_BYTES_MAX = 256 * foundation.MIB
"""Of messages in handlers' hands, or given by one poll, with their bodies as they become: inflated,
or fetched in parts. One message is given out however large it is."""
POP_RATE_S = 0.05
"""How fast handlers are is measured over so long."""
POP_HOLD_S = 600.0
"""For so long a message is kept from others while its handler works."""
POP_HOLD_S_MIN = 0.02
POP_PROLONG_SHARE = 0.5
POP_LOOKS_PER_TIME = 6
"""A message's time is prolonged when less than this share is left of it; looked at so often."""
POP_RECONSUME_TIMES = 16
"""Where the broker does not say how many its group has."""
POP_RETRY_DELAYS_S = (
    *(10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0),
    *(1200.0, 1800.0, 3600.0, 7200.0),
)
"""As stock consumers give popped messages back."""
DELAY_LEVELS_S = (
    *(1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0),
    *(1200.0, 1800.0, 3600.0, 7200.0),
)
"""RocketMQ's levels by default (messageDelayLevel)."""

REBALANCE_RETRY_S = 0.5
REFUSED_RETRY_S = 1.0
FAULT_RETRY_S = 0.5
"""After an answer that the server failed: it has closed the connection, too."""
TURN_S_MAX = 30.0
"""A broker that says when to come again for more messages is asked no later than this."""
EMPTY_PULL_PAUSE_S = 0.01
"""The pause after an empty pull, for brokers that do not hold pulls."""

# The administration.
CATCH_UP_S = 300.0
"""For a new node to copy the log, or for a removed one to be no longer counted."""
EXPORT_S = 3_600.0
"""For a copy of a replica; where files can be linked it takes a second."""
EXPORT_POLL_S = 0.2
DEAD_LETTERS_AT_ONCE = 1024
"""Told of or sent again by a call that names no count: they are held in memory."""
SCHEDULED_AT_ONCE = 64
"""Delayed messages shown by a call that names no count."""
SCHEDULED_MAX = 1024
"""As many delayed messages as a broker shows at once."""
DOCTOR_LAG_ENTRIES = 10_000
"""A member that lacks more is behind; the alert of that name has the same number."""
DOCTOR_UNSAVED_ENTRIES = 200_000
"""A broker saves its state each 20,000 entries, or at most ten times as long after that as saving
takes."""
DOCTOR_CLOCKS_MS = 500.0
DOCTOR_DEAD_LETTERS_S = 3_600.0
"""Dead letters grow if the last one is younger."""
DOCTOR_NAMES_MAX = 2_000
"""Consumer groups, and dead-letter topics, that are asked about in each broker group."""
DOCTOR_AT_ONCE = 32
"""Questions about them that are under way."""
DOCTOR_ROUNDS_MAX = 5
"""Times that members are asked for their states, until those are of the same entry."""
HISTORY_PAGES_MAX = 12
"""Of a server's figures of an hour; ours tell six."""
CURVE_COLUMNS = 30
DOCTOR_ROUND_S = 0.1
"""Between two of those: a follower hears soon what is committed."""
BUNDLE_BYTES_MAX = 64 * foundation.MIB
"""Of an archive once it is unpacked: more is not read."""
BUNDLE_FILES_MAX = 512
BUNDLE_TIME_MS_MAX = 253_402_300_799_000
"""The end of the year 9999."""
BUNDLE_LOG_BYTES = foundation.MIB
"""Of the end of each log."""
TIME_DIGITS_MAX = 18
"""Of a time in a server's answer."""
READ_RECORDS_MAX = 32
"""Messages asked for at a time when a queue is read without a consumer."""
PRINTED_AT_ONCE_MAX = 1024
"""Messages held at a time while searching for the wanted ones."""
UNIQUE_KEY_COPIES_MAX = 32
"""As many copies of one message as stock clients ask for: retries after an unknown outcome."""
END_OF_TIME_MS = 2**63 - 1
REASONS_SHOWN_MAX = 20
"""Queues of which a table says why they lag."""
TABLE_COLUMNS_MAX = 1_000_000
"""Wider than any row: nothing is folded where programs read."""
TERMINAL_COLUMNS_MIN = 40

assert BATCH_BYTES_MAX <= SEND_BATCH_BYTES_MAX <= foundation.ENTRY_BYTES_MAX
assert FIND_BACKOFF_MIN_S <= FIND_BACKOFF_MAX_S
