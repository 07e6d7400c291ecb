"""Every bound of the foundation, in one place. Units are in the names. Pure.

A bound that a user may set is a default here and a field of a config elsewhere.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# The wire (RocketMQ's NettyDecoder: com.rocketmq.remoting.frameMaxLength).
FRAME_BYTES_MAX = 16 * MIB
"""The largest frame, in bytes: header and body."""
HEADER_BYTES_MAX = 256 * KIB
"""The largest header of a frame, in bytes."""
MESSAGE_BODY_BYTES_MAX = 4 * MIB
"""The largest body of a message, in bytes."""
PROPERTIES_BYTES_MAX = 32_767
"""The largest properties of a stored message, in bytes."""
COPY_ROOM_BYTES = 896
"""Bytes of properties that a broker may add to a message that it stores once more, to be tried
again or given up: names of two topics, an id, times. It adds less than this."""
PROPERTIES_COPIED_BYTES_MAX = PROPERTIES_BYTES_MAX - COPY_ROOM_BYTES
"""The largest properties of a message that a broker stores once more, in bytes."""
PROPERTIES_SENT_BYTES_MAX = PROPERTIES_COPIED_BYTES_MAX - COPY_ROOM_BYTES
"""The largest properties of a message that a client sends, in bytes. Such a message can be given
up, sent again, and given up once more."""
PRIORITY_DIGITS_MAX = 10
SUBSCRIPTION_TAGS_MAX = 1024
"""Tags of one subscription."""
SUBSCRIPTION_CHARACTERS_MAX = 32 * KIB
"""The longest subscription by tags: each character is hashed, with each pull."""
KEYS_PER_MESSAGE_MAX = 32
"""Keys of one message that brokers index; our client refuses more."""
TOPIC_BYTES_MAX = 127
"""The longest name of a topic, in bytes."""

PORT_MAX = 65_535
HOST_CHARACTERS_MAX = 255
PROVEN_NAME_CHARACTERS_MAX = 255
"""The longest name of a cluster or a broker in a hello, which is kept as long as its connection."""
STAGED_ENDED_TOGETHER_MAX = 16
"""Staged entries, of a MiB each, that end by one request: it is answered when all have."""
USERS_MAX = 10_000
"""Users of a cluster; each broker group has all of them."""
USERS_INFLATED_BYTES_MAX = 128 * MIB
"""The largest list of users and their entries that a name server accepts, in bytes after
inflating."""
USER_NAME_BYTES_MAX = 127
PASSWORD_BYTES_MAX = 256
ACL_ENTRIES_MAX = 50_000
"""Entries of all users together; a name server holds them, too."""
ACL_ENTRIES_PER_USER_MAX = 1_000
ACL_NAME_BYTES_MAX = 255
ACL_SOURCES_MAX = 16
"""Addresses and networks of one entry."""
POSITION_DIGITS_MAX = 19
"""Digits of a position that a request names."""
STAMP_CHARACTERS_MAX = 80
"""The longest stamp of a request: a nonce, a number and a time."""
LONG_BODY_BYTES = 16 * KIB
"""The size from which BLAKE3 hashes a body; SHA-256 takes less time for a shorter one."""
STAMP_AGE_S = 60.0
"""Seconds by which the time of a request with a stamp may differ from the server's clock."""
WRONG_SIGNATURES_MAX = 16
"""Wrong signatures on one connection, after which it is closed; the client has to connect again."""
WRONG_PROOFS_AT_ONCE = 256
"""Wrong signatures, or wrong passwords at the port for figures, that are verified for one address
before the rate below applies."""
WRONG_PROOFS_PER_S = 16
"""Further wrong signatures or passwords of one address that are verified each second."""
WRONG_PROOF_BYTES = 64 * KIB
"""Bytes of a wrong request for which it counts once more."""
UNKNOWN_REFUSED_PER_S = 500
"""Requests of one address without the signature of a known user that are refused each second;
beyond that, its connections rest after each request."""
UNKNOWN_REFUSED_AT_ONCE_S = 1.0
"""The burst of such refusals, in seconds of that rate."""
UNKNOWN_REST_S_MAX = 5.0
"""The longest rest of a connection after such a refusal, in seconds."""
WRONG_PROOFS_ORIGINS_MAX = 1024
"""Addresses whose wrong requests are counted one by one; all others are counted together."""
REVOKED_AGAIN_S = 10.0
"""Seconds after a revocation in which a repeat of that request is done, and is not an error."""
OBSERVED_NEEDS_MAX = 10_000
"""Different needs that are noted while rights are only observed."""
STRANGERS_NOTED_MAX = 1024
"""Senders that are counted although no known user signs for them: addresses and claimed names."""
QUEUE_ID_MAX = (1 << 31) - 1
TEXT_WIDTH_BYTES_MAX = 512
"""Properties of all records of a batch up to this length are checked for ASCII at once."""
NAME_SHOWN_CHARACTERS_MAX = 200
"""Characters that an error shows of a topic's or group's name that is not valid."""
EXT_DEPTH_MAX = 4
"""Levels of lists within lists in a MessagePack header."""
HEADER_LISTS_MAX = 32_768
"""Lists in a MessagePack header: a write of 16,384 messages has a list for each run, for each queue
that it was made from, and for each topic."""
JSON_DEPTH_MAX = 32
"""Levels of a JSON body in the dialect that only our own reader reads."""

LOOSE_BODY_BYTES_MAX = 2 * MIB
"""The largest JSON body in the dialect that only our own reader reads, in bytes. It reads a MiB in
some 0.6 s."""
CLIENT_BODY_BYTES_MAX = MIB
"""The largest JSON body that any client may send (heartbeats, locks), in bytes. Hundreds of groups
with ten topics each take half of it, and it is read within 0.1 s."""
CLIENT_LOOSE_BODY_BYTES_MAX = 64 * KIB
"""The largest such body in the dialect that only our own reader reads, in bytes. No stock client
writes that dialect."""
TOOL_BODY_BYTES_MAX = 4 * MIB
"""The largest JSON body by which a tool changes many topics or groups, in bytes: 20,000 topics take
3 MiB."""
REGISTRATION_LOOSE_BODY_BYTES_MAX = 128 * KIB
"""The largest registration in the dialect that only our own reader reads, in bytes; it is read in
0.08 s."""
PROPERTIES_TEXT_BYTES_MAX = 64 * KIB
"""The largest body of a request that changes a server's settings, in bytes."""
ANSWER_BODY_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES_MAX
"""The largest body of an answer, in bytes: a frame with room for any header."""

# A connection that a server accepted.
CONNECTIONS_MAX = 4096
"""Connections that a server accepts, at most."""
CONNECTIONS_MIN = 64
"""The fewest connections that a server starts with: if it could take fewer, it does not start."""
CONNECTIONS_PENDING_MAX = 1024
"""Connections that are not accepted yet: the listening socket's backlog."""
REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1024
"""Requests of one connection that are not answered yet."""
SEND_BUFFER_BYTES_MAX = 64 * MIB
"""Bytes of answers that one connection has not taken yet."""
MEMORY_BYTES_MAX = 512 * MIB
"""Memory for all connections of a server, in bytes, if its config sets no other bound and the
machine has four times as much."""
CONNECTION_BYTES = 32 * KIB
"""Memory charged for each connection, in bytes: its tasks and buffers, and memory that is not
accounted yet."""
CHARGE_STEP_BYTES = 16 * KIB
"""A connection's memory is accounted again when it has changed by this much."""
UNANSWERED_REQUEST_BYTES = 4 * KIB
"""Memory charged for each request that waits for its answer, in bytes: a task or a closure, and the
header."""
FRAME_COMPLETION_S = 30.0
"""A frame once begun must be complete within this time: the slow-loris bound."""
CONNECTION_IDLE_S = 120.0
"""Seconds without activity after which a connection is closed."""
CLIENT_UNACKNOWLEDGED_S = 30.0
"""Seconds after which a connection ends if the client's host acknowledges nothing, or takes
nothing."""
CLIENT_PROBED_AFTER_S = 15.0
"""Seconds without data from a client after which TCP probes it, so that it has something to
acknowledge."""
CLIENT_PROBED_EVERY_S = 5.0
"""Seconds between two probes of such a client."""
CONNECTIONS_LOOK_S = 2.0
"""Seconds between two looks for connections that are idle, or whose frame is not complete in
time."""
ACCEPTS_PER_TURN_MAX = 64
"""Connections accepted in a row before the event loop gets its turn."""
ACCEPT_PAUSE_S = 0.1
"""The pause after an accept that failed because the machine has no descriptor or memory, in
seconds."""
DESCRIPTORS_MAX = 1 << 20
"""File descriptors that a server asks for if the machine sets no bound."""
FAULT_LOG_INTERVAL_S = 0.1
"""Seconds between two logged tracebacks: a client that causes a fault may do so again and again."""

# The event loop of a server.
LOOP_STALL_S = 0.1
"""A turn of the loop that takes longer is logged."""
LOOP_TURN_S = 0.01
"""Seconds of one turn of the loop for requests; connections that are ready later wait for another
turn."""
LOOP_SLICE_S = 0.004
"""Seconds of requests of one connection in a row; then others have their turn."""
LOOP_TURN_MAX_S = 0.02
"""Once a turn has lasted this long, no request that can wait begins."""
LOOP_CHEAP_S = 0.001
"""A connection whose recent requests cost less need not wait, even if the turn is used up."""
LOOP_COST_UNKNOWN_S = 0.02
"""The assumed cost of a newcomer's first turn: connections known to cost less go first."""
LOOP_COST_WEIGHT = 0.25
"""The weight of the last turn in the average cost of a connection's turns."""
LOOP_GONE_MAX = 64
"""Old rows that the lists of waiting connections may hold beyond twice the number of connections
that wait; then the lists are made anew."""
WATCHDOG_LOOK_S = 0.04
WATCHDOG_IDLE_LOOK_S = 1.0
"""A stall that ends before the watchdog's next look is logged without what ran."""
WATCHDOG_BUSY_TURNS = 50
"""A process with this many turns since the watchdog's last look is busy."""

# A connection that this process made.
CONNECT_TIMEOUT_S = 3.0
"""Seconds for a connection to be made."""
LOOKUPS_MAX = 64
"""Names that are looked up at the same time, each in a thread of its own."""
SERVER_UNACKNOWLEDGED_S = 3.0
"""Seconds after which a connection ends if the server's host acknowledges nothing, or takes
nothing."""
REQUESTS_IN_FLIGHT_PER_PEER_MAX = 65_536
"""Requests over one connection that are not answered yet."""

# Both ends of a connection.
RECEIVE_BYTES = 64 * KIB
"""Bytes asked of the socket at once between frames."""
RECEIVE_LARGE_BYTES = MIB
"""Bytes asked of the socket at once while a large frame is on its way."""
PIECES_PER_CALL_MAX = 512
"""Buffers in one system call; Linux refuses more than 1024."""
SENDS_PER_TURN_MAX = 8
"""System calls in a row for one connection. Without a bound a fast reader would keep the loop."""
BUSY_RETRY_S = 0.01
"""A hint to a sender that finds a buffer full."""
REMARK_CHARACTERS_MAX = 4096
"""The longest text of an error in an answer; it may quote data that the client sent."""
LOG_TEXT_CHARACTERS_MAX = 16 * KIB
"""The longest value in a line of the log."""
LOG_LINES_AT_ONCE = 20
"""Log lines about one event and one host before the rate below applies."""
LOG_LINES_OF_ALL = 100
"""Log lines about one event and all hosts together before the rate applies."""
LOG_LINES_PER_S = 0.2
"""The rate of further lines about one event and one host; for all hosts together it is five times
as high."""
LOG_KINDS_MAX = 4096

# The log.
DIGEST_STEPS = (1, 16, 256, 4_096, 65_536)
"""Steps of log digests: a member tells the digest of its log at the last entries whose indices are
multiples of these."""
SEGMENT_BYTES = 128 * MIB
"""Bytes of a log segment, unless the config sets another size."""
ENTRY_BYTES_MAX = 8 * MIB
"""The largest entry of the log, in bytes."""
APPENDS_PENDING_MAX = 4096
"""Appends whose outcome is not known yet."""
APPENDS_PENDING_BYTES_MAX = 64 * MIB
"""Bytes of these appends."""
READS_PENDING_MAX = 65_536
"""Reads of the log's end that wait until a majority has confirmed the leader."""
READ_TIMEOUT_S = 2.0
"""A leader without a majority steps down after a second; stock clients wait for three."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Modes of files and folders that hold messages or settings: for their user alone, whatever the
umask says."""
OTHERS = 0o077
"""Bits of a file's mode that give rights to other users."""
IOV_MAX = 1024
"""Buffers in one gathered write (Linux's UIO_MAXIOV)."""
POSITION_MAX = 2**63 - 1
"""The highest byte position in a log."""
VERIFY_FAULTS_MAX = 1000
"""Faults of a replica that are listed one by one; more are only counted."""

SCRUB_BYTES_PER_S = 8 * MIB
"""The rate at which sealed segments are read again, in search of damage."""
SCRUB_PAUSE_S = 3600.0
"""Seconds between two passes over the log."""
SCRUB_AGAIN_S = 60.0
"""Seconds after which a part that could not be opened is tried again."""

HELD_LOOK_S = 0.01
"""Seconds between two looks of a held thread whether it is still to be held, in a chaos run."""
STEP_PAUSE_S_MIN = 0.001
"""The least time between two steps that are due by the clock, in case two clocks disagree."""
FORGET_PAGES_S = 0.02
"""Seconds between two calls that drop the log's mapped pages from this process's memory."""
FLUSH_INTERVAL_S = 0.5
"""Seconds between two syncs of a node that flushes by interval."""
ASYNC_SYNC_PERIOD_S = 5.0
"""Seconds between two syncs of a node with "async"."""
SYNC_HERE_S = 0.0003
"""A disk whose syncs take no longer is waited for within a step: a thread would take as long by
itself."""
SYNCS_QUICK_MIN = 8
"""Quick syncs in a row before a step waits for one. If a disk is slow now and then, a thread does
most of the slow syncs."""
SLOW_SYNC_S = 0.5
"""A sync that takes longer is logged."""
SYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper ends of the buckets of the histogram of syncs, in seconds."""
NOTHING_TO_SYNC_S = 0.25
"""A task that waits for a sync checks again after this time."""
CHECKPOINT_PERIOD_S = 5.0
"""Seconds between two checkpoints of the log."""
UPKEEP_AGAIN_S = 0.05
"""Upkeep that could not be done is tried again after this time: old segments may still be in
use."""
NO_SPACE_RETRY_S = 1.0
"""Seconds between two attempts to make a segment on a full disk."""
STILL_WAITING_S = 10.0
"""Seconds between two log lines that a damaged log still waits for a leader's repair."""

# Peers of a broker group.
MEMBERS_MAX = 16
"""Members of one broker group, including those that do not vote yet."""
SECRET_CHARACTERS_MIN = 16
"""The shortest secret of a group with a peer port on the network."""
SECRETS_MAX = 2
"""Secrets that are valid at one time: the old one and the new one while a cluster's secret is
replaced."""
PROOFS_MAX = 2 * SECRETS_MAX
"""Secrets for which one proof vouches: the valid ones, and those that will be valid."""
SECRET_LOOK_S = 2.0
"""Seconds between two looks whether the secret's file has changed."""
STRANGERS_MAX = 16
"""Connected nodes that know the group's secret but are not, or no longer, members."""
NODE_ID_BYTES_MAX = 128
HANDSHAKES_MAX = 64
"""Connections to a peer port without a proof. Above this the oldest of the address with most of
them is closed; a member proves within milliseconds."""
NUMBER_MAX = (1 << 63) - 1
"""The highest term, index, position or sequence number that a peer may send."""
TERM_JUMP_MAX = 1 << 32
"""The distance by which a peer's term may be ahead of this node's: see `dledger/raft/claims.py`."""
PEER_FRAME_BYTES_MAX = 2 * ENTRY_BYTES_MAX
"""The largest frame between two members of a broker group, in bytes."""
PEER_SEND_BUFFER_BYTES_MAX = 64 * MIB
"""Bytes of frames that a peer has not taken yet."""
PEER_IN_FLIGHT_BYTES_MAX = 16 * MIB
"""Bytes of entries sent to a peer and not acknowledged. At this bound nothing more is sent to
it."""
CATCH_UP_BYTES_PER_S = 48 * MIB
"""The rate for a peer that is far behind, while appends are under way (RocketMQ's HA: 100 MB/s)."""
STATE_PART_BYTES = MIB
"""Bytes of one part of a state machine's state that a peer asked for; one part is under way at a
time."""
STATE_BYTES_MAX = 1024 * MIB
"""The largest state as a whole, in bytes: a state machine bounds its tables so that it fits."""

# Routes, as name servers tell them: whoever may register a broker may have said them.
ROUTE_GROUPS_MAX = 1024
"""Broker groups in a route."""
ROUTE_MEMBERS_MAX = 64
"""Addresses of one broker group."""
ROUTE_QUEUES_MAX = 65_536
"""Queues of a topic, on all broker groups together."""

# Groups of consumers.
STICKY_PAIRS_MAX = 100_000
"""Pairs of queue and member that sticky allocation compares: a quarter of a second of work."""

# Rates that operators set.
RATE_PER_S_MAX = 10**12
RATE_DIGITS_MAX = 13

# Copies of a replica, made while it serves.
EXPORT_PART_BYTES = MIB
EXPORT_BYTES_PER_S = 200 * MIB
"""The rate of an export where files must be copied: the log's own writes come first."""
EXPORT_SEGMENTS_FREE_MIN = 2
"""Free space that a copy leaves on its disk, in segments."""

# Verdicts, as people see them.
VIOLATIONS_IN_TEXT_MAX = 5
"""Violations of one property in the text of a failed test case for CI."""
VIOLATIONS_OPEN_MAX = 2
"""Violations of one property that a report's page shows at once; further ones open at a click."""
SENTENCE_CHARACTERS_MAX = 160
"""The longest sentence about a violation in the list at the top of a page."""

assert MESSAGE_BODY_BYTES_MAX + PROPERTIES_BYTES_MAX < ENTRY_BYTES_MAX < SEGMENT_BYTES
assert ENTRY_BYTES_MAX < FRAME_BYTES_MAX

# Cron expressions.
CRON_CHARACTERS_MAX = 256
"""The longest cron expression."""
CRON_YEARS_MAX = 48
"""Years that a cron expression is searched for its next day: if it matches no day for this long, it
never does. 29 February on a given day of the week may take 40."""
ZONE_CHARACTERS_MAX = 64

# Encryption.
TLS_FLIGHTS_MAX = 8
"""Rounds of messages of each end in a handshake in memory; three are enough."""
TLS_FILE_BYTES_MAX = MIB
"""The largest file with certificates or a key, in bytes: all authorities of a system take 220
KiB."""
TLS_HANDSHAKE_S = 10.0
"""Seconds for a handshake, from the connection's first byte on."""
TLS_HANDSHAKE_BYTES_MAX = 128 * KIB
"""Bytes that one end sends in a handshake: chains of certificates take some 10 KiB."""
TLS_RECORD_BYTES_MAX = 16 * KIB + 256
"""The largest encrypted record, in bytes (RFC 8446)."""
TLS_SENT_AT_ONCE_BYTES = 128 * KIB
"""Bytes encrypted in a row for one connection, in 0.1 ms; then the socket takes them, or does
not."""
TLS_UNASKED_BYTES_MAX = 64 * KIB
"""Bytes of answers of TLS itself that the other end has not read."""
TLS_CONNECTION_BYTES = 64 * KIB
"""Memory charged for an encrypted connection, in bytes: OpenSSL's state, and the buffers in
between."""
TLS_LOOK_S = 2.0
"""Seconds between two looks whether certificates were replaced."""
DAY_S = 86_400.0
TLS_EXPIRES_SOON_S = 14 * DAY_S
"""Seconds before a certificate ends from which the log warns of it, once a day."""
TLS_AUTHORITY_DAYS = 3650
"""Days that an authority made by `mqcluster up --tls` is valid."""
TLS_CERTIFICATE_DAYS = 825
"""Days that a certificate made by `mqcluster up --tls` is valid."""

# The audit log.
AUDIT_FOLD_S = 60.0
"""Seconds within which a repeated refusal is counted, and not written."""
AUDIT_FOLDED_MAX = 1024
"""Users and addresses whose refusals are counted one by one; all others are counted together."""
AUDIT_BODY_BYTES_MAX = 64 * KIB
"""The largest body of a request whose objects are read for the audit log, beside what its handler
reads."""
AUDIT_OBJECTS_MAX = 20
"""Objects named in a line; the others are counted."""
AUDIT_TEXT_CHARACTERS_MAX = 300
"""The longest value in a line."""
AUDIT_FILE_BYTES = 8 * MIB
"""The size of a file of the audit log, in bytes, from which the next one begins."""
AUDIT_FILES_MAX = 8
"""Files of an audit log: 64 MiB in all; the oldest file goes first."""
AUDIT_PAGE_BYTES = 256 * KIB
"""Bytes of an audit log that are read for one answer."""
AUDIT_LINES_PER_STEP = 64
"""Lines read before others may have the event loop."""
