"""Every bound of the client, in one place. What a user may set is a parameter's default here."""

from __future__ import annotations

from dledger import limits as foundation
from dledger.remoting.names import TOOLS_GROUP

# Defaults.
NAMESRV_ADDR = "127.0.0.1:9876"
"""The name server of a client that names none."""
PRODUCER_GROUP = "DEFAULT_PRODUCER"
"""The group of a producer that names none."""
READERS_GROUP = TOOLS_GROUP
"""The group of pulls that belong to no consumer group: RocketMQ's tools read so, and leave nothing
behind."""
NEW_TOPIC_QUEUES = 8
"""Queues of a new topic: as many as RocketMQ's mqadmin gives."""
AUDIT_LINES_SHOWN = 100
"""Lines of an audit log that a call gets which names no count."""
LINGER_S = 0.0
"""Seconds that a batch waits for more messages: it leaves as soon as it can."""

# Connections.
PEERS_MAX = 256
CONNECT_TIMEOUT_S = 1.0
"""Seconds for a connection to be made."""
REQUEST_TIMEOUT_S = 3.0
"""Seconds for a request to be answered."""

# Routes (RocketMQ: poll every 30 s; a changed topic shows sooner here).
ROUTE_REFRESH_S = 5.0
"""Seconds after which a route in use is fetched again."""
ROUTE_RETRY_S = 0.05
"""Seconds between two look-ups of a route while name servers or brokers are about to start."""
ROUTE_SETTLES_S = 3.0
"""Further seconds for brokers that register one after the other: ours try every 2 s at least."""
ROUTE_PAUSE_S = 0.25
"""Seconds between two look-ups, however many brokers decline a request that routes allow, and while
a name server that has just begun may not know all brokers."""
TOPICS_MAX = 4096
NAME_SERVERS_MAX = 16

METRIC_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Upper ends of a histogram's buckets."""
METRIC_SAMPLES_WAITING_MAX = 1024
"""Samples of a histogram that wait until they are put into its buckets together."""
METRIC_SERIES_MAX = 10_000
"""Series of one figure of one client; further labels are counted together."""
VALUE_CHARACTERS_MAX = 80
"""Characters of a wrong argument that an error shows."""

# Answers of servers.
GROUPS_MAX = foundation.ROUTE_GROUPS_MAX
"""Broker groups, in one answer and of all routes together."""
MEMBERS_MAX = foundation.ROUTE_MEMBERS_MAX
QUEUES_PER_TOPIC_MAX = foundation.ROUTE_QUEUES_MAX
CONSUMERS_PER_GROUP_MAX = 65_536
OFFSET_MAX = 2**63 - 1

# Heartbeats go to every replica of every broker group in use, so that membership outlives a leader.
HEARTBEAT_S = 1.0
"""Seconds between two looks which broker lacks a heartbeat, and whether a leader has fallen
silent."""
HEARTBEAT_REPEAT_S = 10.0
"""Seconds between two heartbeats to a broker that has the first (RocketMQ: 30 s; brokers forget
after 120 s of silence)."""
HEARTBEAT_TIMEOUT_S = 1.0

# Finding the leader of a broker group.
FIND_BACKOFF_MIN_S = 0.005
FIND_BACKOFF_MAX_S = 0.05
FIND_REQUEST_TIMEOUT_S = 0.5
SUSPECT_AFTER_S = 0.4
"""Seconds without an answer after which the client asks who leads, while it waits on."""

# Producer.
SEND_TIMEOUT_S = 3.0
"""Seconds until the deadline of a send."""
MOVE_AFTER_S = 0.25
"""Seconds after which a message without a chosen queue moves to another broker group, if its group
has not taken it."""
UNSURE_AFTER_S = 1.0
"""Seconds without a leader of its group after which a message that may be stored moves, with
`at_least_once`."""
MESSAGE_TYPES_MAX = 1024
"""Combinations of the types of a message's fields that are remembered as right."""
MOVES_MAX = 2
"""Times that a message moves (RocketMQ: retryTimesWhenSendFailed)."""
COMPRESS_FROM_BYTES = 4096
"""The size from which a body is compressed, if the producer names an algorithm (RocketMQ:
compressMsgBodyOverHowmuch)."""
ZLIB_LEVEL = 5
ZSTD_LEVEL = 3
BATCH_BYTES_MAX = 2 * foundation.MIB
"""The largest batch, in bytes. A batch has the messages that came while the one before it was under
way, and so grows with the load. An entry costs a broker by itself half of the cost of 512 KiB of
messages."""
BATCH_RECORDS_MAX = 4096
"""Messages in one batch."""
STOCK_BATCH_BYTES_MAX = 64 * foundation.KIB
"""The largest batch for RocketMQ's brokers, in bytes. In DLedger mode they make an entry of each
message in it."""
CHUNK_BYTES_MIN = 512 * foundation.KIB
"""The least size in bytes of the batches into which the messages of one call are cut. Batches go
side by side; they are larger, up to a batch's bound, while more is under way."""
ENCODED_TOGETHER_MIN = 16
"""The fewest messages that are encoded together; fewer cost less one by one than the table costs by
itself."""
GATHER_FOR_S = 0.05
"""Seconds within which messages of `send_soon` share a deadline: that of the last message."""
BATCHES_IN_FLIGHT_PER_GROUP_MAX = 4
"""Batches under way to one broker group."""
WAITING_IN_FLIGHT_PER_GROUP_MAX = 128
"""Delayed and half messages under way to one broker group: they are sent one by one, so there are
more of them than batches."""
PENDING_MESSAGES_MAX = 65_536
"""Messages that a producer holds until they are acknowledged."""
PENDING_BYTES_MAX = 64 * foundation.MIB
"""Bytes of these messages."""
PRODUCER_TICK_S = 0.05
HANDLE_AGAIN_S = 5.0
"""Seconds after which the handler gets a message again if no broker takes it back, as in
RocketMQ."""

LARGE_BODY_BYTES_MAX = 256 * foundation.MIB
"""The largest body that is sent in parts, in bytes: its sender and its reader hold all of it in
memory."""
LARGE_PART_BYTES = foundation.MIB
"""Bytes of one part of a large body."""
LARGE_PARTS_MAX = LARGE_BODY_BYTES_MAX // LARGE_PART_BYTES
LARGE_SEND_TIMEOUT_S = 60.0
"""Seconds for a message whose body is sent in parts."""
LARGE_FETCH_S = 10.0
"""Seconds for which a body's parts are asked for before the message counts as one without a
body."""
LARGE_GROUPS_WAITED_MAX = 2
"""Broker groups that don't serve and are waited for one by one; all further ones are waited for as
one."""
LARGE_PATIENCE_AGAIN_S = 60.0
"""Seconds without a message that names a broker group, after which the group is waited for anew."""
LARGE_TURN_S = 1.0
"""Seconds that a message waits for its broker group when that is away; then other queues have their
turn."""
LARGE_PULL_BYTES_MAX = 4 * foundation.MIB
LARGE_MANIFEST_CHARACTERS_MAX = 8192
OFFSET_DIGITS_MAX = 19
TTL_S_MAX = 365 * 86_400
"""The longest lifetime of a message, in seconds: a year. Brokers know it exactly for 497 days."""
REPEAT_S_MIN = 1.0
"""The shortest interval of a repeated message, in seconds."""
REPEATS_MAX = 1_000_000
"""Repeats of one message, unless it repeats without end."""
RETRY_DELAY_S_MAX = 40 * 86_400
"""The longest delay before a retry, in seconds: 40 days, the longest timer of a broker."""
RETRY_DELAYS_MAX = 1024
SUSPEND_S = 1.0
"""Seconds until a handler gets a message again in its place (RocketMQ:
suspendCurrentQueueTimeMillis)."""
DELAY_LEVEL_MAX = 64
"""The highest delay level; no broker has more. A level above the broker's last means the last, as
with stock clients."""
REPLIES_AWAITED_MAX = 65_536
"""Requests of a producer that wait for their replies."""
TRANSACTION_CHECKS_MAX = 256
QUEUES_WANTED_MAX = 2**16
"""Queues that a send may ask for when it makes a topic; the broker gives its own maximum."""
PASSWORD_LINE_BYTES_MAX = 4 * foundation.KIB
"""Bytes that are read of a password's file: servers take far shorter passwords."""
BULK_BATCH_BYTES_MAX = foundation.MIB
"""Bytes of records in one batch of columns: one entry, which other senders wait for no longer than
for theirs."""
BULK_PENDING_BYTES_MAX = 32 * foundation.MIB
"""Bytes of rows that a bulk writer has under way."""
BULK_TIMEOUT_S = 60.0
"""Seconds for a batch of rows, over failovers: a program that writes a table rather waits than
begins again."""
STAGED_SIDE_BY_SIDE = 4
STAGED_BODY_BYTES_MAX = foundation.MESSAGE_BODY_BYTES_MAX - 64 * foundation.KIB
"""The largest row of a staged batch, in bytes: its record is the body of another message by
then."""
STREAMS_PER_PRODUCER_MAX = 16
"""Streams of one producer's name in one broker group: one for each batch under way, the others for
consumers."""
TRANSACTION_S = 15.0
"""Seconds for which the end of a transaction is asked for again, over changes of leaders."""
TRANSACTION_BYTES_MAX = 6 * foundation.MIB
"""Bytes of outputs in one transaction of a consumer."""
TRANSACTION_RECORDS_MAX = 16_384
"""Outputs in one transaction of a consumer."""
TRANSACTION_TOPICS_MAX = 256
"""Topics of the outputs in one transaction of a consumer."""
SEND_BATCH_BYTES_MAX = 4 * foundation.MIB
"""Bytes of messages in one `send_batch`."""

# Consumer.
PULL_RECORDS_MAX = 4096
"""Messages that one pull asks for, at most."""
PULL_BYTES_MAX = 2 * foundation.MIB
"""Bytes that one pull asks for, at most."""
PULL_BYTES_MIN = 64 * foundation.KIB
"""Bytes that one pull asks for, at least."""
PULLS_BYTES_MAX = foundation.SEND_BUFFER_BYTES_MAX // 2
"""Bytes that all pulls of a consumer ask for together: they may all be answered at once, and
brokers close a connection that has twice as much to take."""
PULL_SUSPEND_S = 15.0
"""Seconds that a pull waits at a broker for messages (RocketMQ: BROKER_SUSPEND_MAX_TIME_MILLIS). A
leader that falls silent is noticed earlier."""
POLL_MANY_MESSAGES = 8192
"""Messages of a `poll_many` that names no count."""
READ_TOGETHER_MIN = 16
"""The fewest messages of an answer that are read together; fewer cost less one by one than the
table costs by itself."""
PREFETCH_RECORDS_MAX = 262_144
"""Messages fetched ahead of all queues of a consumer together."""
PREFETCH_BYTES_MAX = 256 * foundation.MIB
"""Bytes fetched ahead of all queues of a consumer together; one queue has little more than its
share."""
PREFETCH_RECORDS_PER_QUEUE_MAX = 16_384
"""Messages fetched ahead of one queue."""
PREFETCH_BYTES_PER_QUEUE_MAX = 4 * foundation.MIB
"""Bytes fetched ahead of one queue."""
HANDLED_BATCH_MESSAGES = 32
"""Messages in a batch of `run_batches` that names no count."""
HANDLED_IN_A_ROW = 32
"""Messages for a handler that never waits, before others in the event loop have a turn."""
TURN_RECORDS_MAX = 1024
"""Messages of a queue that a loop is given before it is the next queue's turn."""
UNDER_WAY_BYTES_MAX = 64 * foundation.MIB
"""Bytes of the messages that handlers have at a time, whatever their number; a single message may
be larger."""
UNFINISHED_SPAN_PER_QUEUE_MAX = 8192
"""Offsets from the oldest unfinished message of a queue to the newest that a handler was given: a
crash delivers this many again at most (RocketMQ: consumeConcurrentlyMaxSpan, 2000)."""
UNFINISHED_RUNS_PER_QUEUE_MAX = 65_536
WAITING_FOR_LANES_PER_QUEUE_MAX = 1024
"""Messages of a queue taken ahead of their turn, to find some whose key is not under way."""
ABANDONED_HANDLERS_MAX = 64
"""Threads that go on with a message after its time; beyond that, other messages wait for one to
end."""
INFLATED_BODY_BYTES_MAX = foundation.MESSAGE_BODY_BYTES_MAX
ZSTD_WINDOW_BYTES_MAX = 8 * foundation.MIB
"""Memory that a Zstandard frame may ask for to be read."""
AUTO_COMMIT_S = 1.0
"""Seconds between two commits of a consumer."""
REBALANCE_POLL_S = 2.0
"""Seconds between two looks at the members of a group."""
LOCK_TRUSTED_S = 30.0
"""Seconds for which a queue's lock is relied on after it was asked for; brokers keep it for 60 s.
Both are RocketMQ's (ProcessQueue, RebalanceLockManager)."""
LOCK_RENEW_S = 5.0
"""Seconds between two renewals of a queue's lock."""
LOCK_RETRY_S = 0.2
"""Seconds between two requests for another member's queue, where brokers don't hold them. A refusal
costs the broker no entry."""
LOCK_SILENT_S = 5.0
"""Seconds of waiting for a lock until the log says so."""
DRAIN_S = 30.0
"""Seconds for handlers to finish their messages when their consumer stops in order."""
SIGNAL_NOTICED_S = 0.5
"""Seconds within which a signal that a blocking call has missed is noticed."""
REVOKE_S = 5.0
"""Seconds for the application to finish with queues that another member is to read."""
HANDOVER_HELD_S = 2.0
"""Seconds that a broker may hold the question for a queue that another member has to give up."""
HANDOVER_LOOK_S = 0.05
"""Seconds between two such questions, where brokers don't hold them."""
HANDOVER_S = 2.0
"""Seconds for a member to hear that it must give up a queue and to commit, beyond the time that
members have to finish."""
VIRTUAL_NODES_MAX = 1024
OFFSETS_FILE_BYTES_MAX = 64 * foundation.MIB
PATTERN_POLL_S = 2.0
"""Seconds between two questions to name servers for new topics, if topics are wanted by a
pattern."""

RANGE_PATIENCE_S = 60.0
"""Seconds that the read of a range of a queue waits for its broker group."""

RANGE_TRUNCATED_S = 2.0
"""Seconds for which a queue that seems to end within a range is asked again: a leader that is cut
off may not know it yet."""

# POP.
POP_INVISIBLE_S = 60.0
"""Seconds that a popped message is hidden from other members (RocketMQ: popInvisibleTime)."""
POP_INVISIBLE_S_MIN = 0.1
POP_SUSPEND_S = 5.0
POP_LAST_ANSWERS_S = 1.0
"""Seconds that a leaving member waits for pops at brokers: ours answer at once, RocketMQ's
don't."""
POP_MESSAGES_MAX = 1024
"""Messages of one pop; brokers of ours give as many."""
POP_ACKS_MAX = 4096
"""Messages acknowledged in one request."""
POP_UNSETTLED_MAX = 16_384
"""Handled messages whose acks are not sent yet; with more, no further messages are popped."""
POP_AHEAD_S = 0.25
"""Seconds of a handler's work that are popped before it asks for them."""
POP_AHEAD_MESSAGES_MAX = 8192
"""The most messages popped before a handler asks for them."""
POP_READY_BYTES_MAX = 64 * foundation.MIB
"""Bytes of popped records that no handler or caller has; with more, no further messages are
popped."""
POP_HAND_BYTES_MAX = 256 * foundation.MIB
"""Bytes of messages in handlers' hands, or given by one poll, with their bodies as they become:
inflated, or fetched in parts. A single message is given out however large it is."""
POP_RATE_S = 0.05
"""Seconds over which the speed of handlers is measured."""
POP_HOLD_S = 600.0
"""Seconds for which a message is kept from others while its handler works."""
POP_HOLD_S_MIN = 0.02
POP_PROLONG_SHARE = 0.5
"""The share of a message's time below which the time is prolonged."""
POP_LOOKS_PER_TIME = 6
"""Looks at that share within the time of a message."""
POP_RECONSUME_TIMES = 16
"""Tries of a message where the broker does not say how many its group has."""
POP_RETRY_DELAYS_S = (
    *(10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0),
    *(1200.0, 1800.0, 3600.0, 7200.0),
)
"""Delays in seconds by which stock consumers give popped messages back."""
DELAY_LEVELS_S = (
    *(1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0),
    *(1200.0, 1800.0, 3600.0, 7200.0),
)
"""Delays in seconds of RocketMQ's levels by default (messageDelayLevel)."""

REBALANCE_RETRY_S = 0.5
REFUSED_RETRY_S = 1.0
FAULT_RETRY_S = 0.5
"""The pause after an answer that the server failed, in seconds: it has closed the connection,
too."""
TURN_S_MAX = 30.0
"""The longest wait in seconds before a busy broker is asked for more messages again, whatever time
it gives."""
EMPTY_PULL_PAUSE_S = 0.01
"""The pause after an empty pull, in seconds, for brokers that do not hold pulls."""

# The administration.
CATCH_UP_S = 300.0
"""Seconds for a new node to copy the log, or for a removed one to be no longer counted."""
EXPORT_S = 3_600.0
"""Seconds for a copy of a replica; where files can be linked it takes a second."""
EXPORT_POLL_S = 0.2
DEAD_LETTERS_AT_ONCE = 1024
"""Dead letters that a call lists or sends again if it names no count: they are held in memory."""
SCHEDULED_AT_ONCE = 64
"""Delayed messages shown by a call that names no count."""
SCHEDULED_MAX = 1024
"""Delayed messages shown at once, at most: as many as a broker shows."""
DOCTOR_LAG_ENTRIES = 10_000
"""Entries that a member may lack before it counts as behind; the alert of that name has the same
number."""
DOCTOR_UNSAVED_ENTRIES = 200_000
"""Entries that a broker may have applied and not saved. It saves its state each 20,000 entries, or
at most ten times as long after that as saving takes."""
DOCTOR_CLOCKS_MS = 500.0
"""Milliseconds by which clocks of a broker group may differ."""
DOCTOR_DEAD_LETTERS_S = 3_600.0
"""The age in seconds of the last dead letter of a group below which its dead letters count as
growing."""
DOCTOR_NAMES_MAX = 2_000
"""Consumer groups, and dead-letter topics, that are asked about in each broker group."""
DOCTOR_AT_ONCE = 32
"""Questions about these that are under way at a time."""
DOCTOR_ROUNDS_MAX = 5
"""Times that members are asked for their states, until all the states are of the same entry."""
HISTORY_PAGES_MAX = 12
"""Pages of a server's figures of an hour; ours have six."""
CURVE_COLUMNS = 30
DOCTOR_ROUND_S = 0.1
"""Seconds between two of those rounds: a follower soon hears what is committed."""
BUNDLE_BYTES_MAX = 64 * foundation.MIB
"""The most bytes that are read of an archive, once it is unpacked."""
BUNDLE_FILES_MAX = 512
BUNDLE_TIME_MS_MAX = 253_402_300_799_000
"""The latest time in a bundle, in ms since 1970: the end of the year 9999."""
BUNDLE_LOG_BYTES = foundation.MIB
"""Bytes of the end of each log that a bundle has."""
TIME_DIGITS_MAX = 18
"""Digits of a time in a server's answer."""
READ_RECORDS_MAX = 32
"""Messages asked for at a time when a queue is read without a consumer."""
PRINTED_AT_ONCE_MAX = 1024
"""Messages held at a time while searching for the wanted ones."""
UNIQUE_KEY_COPIES_MAX = 32
"""Copies of one message that are asked for, as by stock clients: retries after an unknown
outcome."""
END_OF_TIME_MS = 2**63 - 1
REASONS_SHOWN_MAX = 20
"""Queues for which a table says why they lag."""
TABLE_COLUMNS_MAX = 1_000_000
"""The width of a table where programs read it: wider than any row, so nothing is folded."""
TERMINAL_COLUMNS_MIN = 40

assert BATCH_BYTES_MAX <= SEND_BATCH_BYTES_MAX <= foundation.ENTRY_BYTES_MAX
assert FIND_BACKOFF_MIN_S <= FIND_BACKOFF_MAX_S
