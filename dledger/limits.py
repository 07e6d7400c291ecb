"""Every bound of the foundation, in one place. Units are in the names. Pure.

A bound that a user may set is a default here and a field of a config elsewhere.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# The wire (RocketMQ's NettyDecoder: com.rocketmq.remoting.frameMaxLength).
FRAME_BYTES_MAX = 16 * MIB
HEADER_BYTES_MAX = 256 * KIB
MESSAGE_BODY_BYTES_MAX = 4 * MIB
PROPERTIES_BYTES_MAX = 32_767
COPY_ROOM_BYTES = 896
"""More than a broker adds to the properties of a message that it stores once more, to be tried
again or given up: names of two topics, an id, times."""
PROPERTIES_COPIED_BYTES_MAX = PROPERTIES_BYTES_MAX - COPY_ROOM_BYTES
PROPERTIES_SENT_BYTES_MAX = PROPERTIES_COPIED_BYTES_MAX - COPY_ROOM_BYTES
"""Of a message that is sent first: then it can be given up, sent again, and given up once more."""
PRIORITY_DIGITS_MAX = 10
SUBSCRIPTION_TAGS_MAX = 1024
SUBSCRIPTION_CHARACTERS_MAX = 32 * KIB
"""Of tags: each character is hashed, with each pull."""
KEYS_PER_MESSAGE_MAX = 32
"""Brokers index the first ones; our client refuses more."""
TOPIC_BYTES_MAX = 127

PORT_MAX = 65_535
HOST_CHARACTERS_MAX = 255
PROVEN_NAME_CHARACTERS_MAX = 255
"""Of a cluster's and a broker's name in a hello, which is kept as long as its connection."""
USERS_MAX = 10_000
"""Of a cluster; each broker group has all of them."""
USERS_TOLD_BYTES_MAX = 128 * MIB
"""Of users and their entries, inflated, as a name server is told them."""
USER_NAME_BYTES_MAX = 127
PASSWORD_BYTES_MAX = 256
ACL_ENTRIES_MAX = 50_000
"""Of all users together; a name server holds them, too."""
ACL_ENTRIES_PER_USER_MAX = 1_000
ACL_NAME_BYTES_MAX = 255
ACL_SOURCES_MAX = 16
"""Addresses and networks of one entry."""
POSITION_DIGITS_MAX = 19
"""Of a position that a request names."""
STAMP_CHARACTERS_MAX = 80
"""Of a nonce, a number and a time."""
LONG_BODY_BYTES = 16 * KIB
"""From here on BLAKE3 hashes bytes in less time than SHA-256."""
STAMP_AGE_S = 60.0
"""How far the time of a request with a stamp may be from the server's."""
WRONG_SIGNATURES_MAX = 16
"""On one connection; then it is closed, and whoever sends them has to dial again."""
WRONG_PROOFS_AT_ONCE = 256
"""Wrong signatures, or wrong passwords at the port for figures, that are verified for one address;
then nothing more of it is, but at this pace:"""
WRONG_PROOFS_PER_S = 16
WRONG_PROOF_BYTES = 64 * KIB
"""A larger wrong request counts as one more for each of these."""
UNKNOWN_REFUSED_PER_S = 500
"""Requests of one address that are refused as nobody that is known has signed them; beyond that its
connections rest after each one."""
UNKNOWN_REFUSED_AT_ONCE_S = 1.0
"""The refusals of so long a time may come at once."""
UNKNOWN_REST_S_MAX = 5.0
WRONG_PROOFS_ORIGINS_MAX = 1024
"""Addresses whose wrong ones are counted one by one; all others are counted together."""
REVOKED_AGAIN_S = 10.0
"""For how long a repeat of what was just revoked is done, and not an error."""
OBSERVED_NEEDS_MAX = 10_000
"""Different needs that are noted while rights are only observed."""
QUEUE_ID_MAX = (1 << 31) - 1
TEXT_WIDTH_BYTES_MAX = 512
"""Properties of all records of a batch up to this length are checked for ASCII at once."""
NAME_SHOWN_CHARACTERS_MAX = 200
"""Of a topic or group that is refused for its name."""
EXT_DEPTH_MAX = 4
"""Of lists within lists in a MessagePack header."""
HEADER_LISTS_MAX = 32_768
"""In a MessagePack header: a write of 16,384 messages has a list for each run, for each queue that
it was made from, and for each topic."""
JSON_DEPTH_MAX = 32
"""Of a JSON body in the dialect that only our own reader reads."""

LOOSE_BODY_BYTES_MAX = 2 * MIB
"""Of a JSON body in the dialect that only our own reader reads, at some 0.6 s a MiB."""
CLIENT_BODY_BYTES_MAX = MIB
"""Of a JSON body that any client may send: heartbeats, locks. Hundreds of groups with ten topics
each take half of it, and it is read within 0.1 s."""
CLIENT_LOOSE_BODY_BYTES_MAX = 64 * KIB
"""The same, in the dialect that only our own reader reads. No stock client writes it so."""
TOOL_BODY_BYTES_MAX = 4 * MIB
"""Of a JSON body by which a tool changes many topics or groups: 20,000 topics take 3 MiB."""
REGISTRATION_LOOSE_BODY_BYTES_MAX = 128 * KIB
"""Of a registration in the dialect that only our own reader reads, in 0.08 s."""
PROPERTIES_TEXT_BYTES_MAX = 64 * KIB
"""Of a request that changes a server's settings."""
ANSWER_BODY_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES_MAX

# A connection that a server accepted.
CONNECTIONS_MAX = 4096
CONNECTIONS_MIN = 64
"""A server that could take fewer does not start."""
CONNECTIONS_PENDING_MAX = 1024
"""Connections that are not accepted yet: the listening socket's backlog."""
REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1024
SEND_BUFFER_BYTES_MAX = 64 * MIB
MEMORY_BYTES_MAX = 512 * MIB
"""Memory for all connections of a server, if its config sets no other bound and the machine has
four times as much."""
CONNECTION_BYTES = 32 * KIB
"""Charged for each connection: its tasks and buffers, and memory that is not accounted yet."""
CHARGE_STEP_BYTES = 16 * KIB
"""A connection's memory is accounted again when it has changed by this much."""
UNANSWERED_REQUEST_BYTES = 4 * KIB
"""Charged for each request that waits for its answer: a task or a closure, and the header."""
FRAME_COMPLETION_S = 30.0
"""A frame once begun must be complete within this time: the slow-loris bound."""
CONNECTION_IDLE_S = 120.0
CLIENT_UNACKNOWLEDGED_S = 30.0
"""A connection ends whose client's host acknowledges nothing, or takes nothing, for so long."""
CLIENT_PROBED_AFTER_S = 15.0
CLIENT_PROBED_EVERY_S = 5.0
"""A client on whose connection nothing comes is probed, so that it has something to acknowledge."""
CONNECTIONS_LOOK_S = 2.0
"""Between two looks for connections that are idle, or whose frame is not complete in time."""
ACCEPTS_PER_TURN_MAX = 64
"""Accepted in a row before the event loop gets its turn."""
ACCEPT_PAUSE_S = 0.1
"""After an accept that failed because the machine has no descriptor or memory for it."""
DESCRIPTORS_MAX = 1 << 20
"""Asked for if the machine sets no bound."""
FAULT_LOG_INTERVAL_S = 0.1
"""Between two tracebacks: a client that causes a fault may do so again and again."""

# The event loop of a server.
LOOP_STALL_S = 0.1
"""A turn of the loop that takes longer is logged."""
LOOP_TURN_S = 0.01
"""The requests of one turn may use this; connections that are ready later wait for another turn."""
LOOP_SLICE_S = 0.004
"""One connection's requests in a row; then others have their turn."""
LOOP_TURN_MAX_S = 0.02
"""Once a turn has lasted this long, no request that can wait begins."""
LOOP_CHEAP_S = 0.001
"""A connection whose recent requests cost less need not wait, even if the turn is used up."""
LOOP_COST_UNKNOWN_S = 0.02
"""The assumed cost of a newcomer's first turn: connections known to cost less go first."""
LOOP_COST_WEIGHT = 0.25
"""The weight of the last turn in the average cost of a connection's turns."""
LOOP_GONE_MAX = 64
"""So many connections more than wait are in the lists of those that wait, beside twice as many."""
WATCHDOG_LOOK_S = 0.04
WATCHDOG_IDLE_LOOK_S = 1.0
"""A stall that ends before the watchdog's next look is logged without what ran."""
WATCHDOG_BUSY_TURNS = 50
"""A process with this many turns since the watchdog's last look is busy."""

# A connection that this process made.
CONNECT_TIMEOUT_S = 3.0
LOOKUPS_MAX = 64
"""Names that are looked up at the same time, each in a thread of its own."""
SERVER_UNACKNOWLEDGED_S = 3.0
"""It ends when the server's host acknowledges nothing, or takes nothing, for so long."""
REQUESTS_IN_FLIGHT_PER_PEER_MAX = 65_536

# Both ends of a connection.
RECEIVE_BYTES = 64 * KIB
RECEIVE_LARGE_BYTES = MIB
"""Asked of the socket at once: between frames, and while a large frame is on its way."""
PIECES_PER_CALL_MAX = 512
"""In one system call; Linux refuses more than 1024."""
SENDS_PER_TURN_MAX = 8
"""System calls in a row for one connection. Without a bound a fast reader would keep the loop."""
BUSY_RETRY_S = 0.01
"""A hint to a sender that finds a buffer full."""
REMARK_CHARACTERS_MAX = 4096
"""Of an error's text: it may quote what the client sent."""
LOG_TEXT_CHARACTERS_MAX = 16 * KIB
"""Of one value in a line of the log."""
LOG_LINES_AT_ONCE = 20
"""About one event and one host; more come at the pace below."""
LOG_LINES_OF_ALL = 100
"""The same of all hosts together."""
LOG_LINES_PER_S = 0.2
LOG_KINDS_MAX = 4096

# The log.
DIGEST_STEPS = (1, 16, 256, 4_096, 65_536)
"""A member tells the digest of its log at the last entries whose indices are multiples of these."""
SEGMENT_BYTES = 128 * MIB
ENTRY_BYTES_MAX = 8 * MIB
APPENDS_PENDING_MAX = 4096
APPENDS_PENDING_BYTES_MAX = 64 * MIB
READS_PENDING_MAX = 65_536
"""Reads of the log's end that wait until a majority has confirmed the leader."""
READ_TIMEOUT_S = 2.0
"""A leader without a majority steps down after a second; stock clients wait for three."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Of whatever holds messages or settings: its user's alone, whatever the umask says."""
OTHERS = 0o077
"""What others may do with a file."""
IOV_MAX = 1024
"""Buffers in one gathered write (Linux's UIO_MAXIOV)."""
POSITION_MAX = 2**63 - 1
"""Of a byte of a log."""
VERIFY_FAULTS_MAX = 1000
"""Faults of a replica that are told one by one; more are only counted."""

SCRUB_BYTES_PER_S = 8 * MIB
"""How fast sealed segments are read again, for damage."""
SCRUB_PAUSE_S = 3600.0
"""Between two passes over the log."""
SCRUB_AGAIN_S = 60.0
"""Until a part is tried again that could not be opened."""

HELD_LOOK_S = 0.01
"""In a chaos run: between two looks of a thread that is held whether it still is."""
STEP_PAUSE_S_MIN = 0.001
"""The least time between two steps that are due by the clock, in case two clocks disagree."""
FORGET_PAGES_S = 0.02
"""Between two calls that drop the log's mapped pages from this process's memory."""
FLUSH_INTERVAL_S = 0.5
"""Between two syncs of a node that flushes by interval."""
ASYNC_SYNC_PERIOD_S = 5.0
"""Between syncs of a node with "async"."""
SLOW_SYNC_S = 0.5
"""A sync that takes longer is logged."""
SYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Of the histogram that is told of them."""
NOTHING_TO_SYNC_S = 0.25
"""A task that waits for a sync checks again after this time."""
CHECKPOINT_PERIOD_S = 5.0
UPKEEP_AGAIN_S = 0.05
"""Upkeep that could not be done is tried again after this time: old segments may still be in
use."""
NO_SPACE_RETRY_S = 1.0
"""Between two attempts to make a segment on a full disk."""
STILL_WAITING_S = 10.0
"""Between two log lines that a damaged log still waits for a leader's repair."""

# Peers of a broker group.
MEMBERS_MAX = 16
"""Of one group, with those that do not vote yet."""
SECRET_CHARACTERS_MIN = 16
"""Of the secret that a group with a peer port on the network must have."""
SECRETS_MAX = 2
"""Valid at one time: the old one and the new one while a cluster's secret is replaced."""
PROOFS_MAX = 2 * SECRETS_MAX
"""In one proof: by the secrets that are valid, and those that shall be."""
SECRET_LOOK_S = 2.0
"""Between two looks whether the secret's file has changed."""
STRANGERS_MAX = 16
"""Connected nodes that know the group's secret but are not, or no longer, members."""
NODE_ID_BYTES_MAX = 128
HANDSHAKES_MAX = 64
"""Connections to a peer port without a proof. Above this the oldest of the address with most of
them is closed; a member proves within milliseconds."""
NUMBER_MAX = (1 << 63) - 1
"""Of terms, indexes, positions and sequence numbers that a peer tells."""
TERM_JUMP_MAX = 1 << 32
"""How far a peer's term may be ahead of this node's: see `dledger/raft/claims.py`."""
PEER_FRAME_BYTES_MAX = 2 * ENTRY_BYTES_MAX
PEER_SEND_BUFFER_BYTES_MAX = 64 * MIB
PEER_IN_FLIGHT_BYTES_MAX = 16 * MIB
"""Entries sent to a peer and not acknowledged. At this bound nothing more is sent to it."""
CATCH_UP_BYTES_PER_S = 48 * MIB
"""For a peer that is far behind, while appends are under way (RocketMQ's HA: 100 MB/s)."""
STATE_PART_BYTES = MIB
"""Of a state machine's state that a peer asked for: one part is under way at a time."""
STATE_BYTES_MAX = 1024 * MIB
"""Of a whole state: a state machine bounds its tables so that it fits."""

# Routes, as name servers tell them: whoever may register a broker may have said them.
ROUTE_GROUPS_MAX = 1024
ROUTE_MEMBERS_MAX = 64
"""Addresses of one broker group."""
ROUTE_QUEUES_MAX = 65_536
"""Of a topic, on all broker groups together."""

# Groups of consumers.
STICKY_PAIRS_MAX = 100_000
"""Pairs of queue and member that sticky allocation compares: a quarter of a second of work."""

# Rates that operators set.
RATE_PER_S_MAX = 10**12
RATE_DIGITS_MAX = 13

# Copies of a replica, made while it serves.
EXPORT_PART_BYTES = MIB
EXPORT_BYTES_PER_S = 200 * MIB
"""Where files must be copied: the log's own writes come first."""
EXPORT_SEGMENTS_FREE_MIN = 2
"""Segments for which a copy leaves room on its disk."""

# Verdicts, as people see them.
VIOLATIONS_TOLD_MAX = 5
"""Of one property, in the text of a failed test case for CI."""
VIOLATIONS_OPEN_MAX = 2
"""Of one property, on a report's page: further ones open at a click."""
SENTENCE_CHARACTERS_MAX = 160
"""Of a violation's sentence, in the list at the top of a page."""

assert MESSAGE_BODY_BYTES_MAX + PROPERTIES_BYTES_MAX < ENTRY_BYTES_MAX < SEGMENT_BYTES
assert ENTRY_BYTES_MAX < FRAME_BYTES_MAX

# Cron expressions.
CRON_CHARACTERS_MAX = 256
CRON_YEARS_MAX = 48
"""An expression that means no day for so long never comes; 29 February on a given day of the week
may take 40."""
ZONE_CHARACTERS_MAX = 64

# Encryption.
TLS_FLIGHTS_MAX = 8
"""Messages of each end in a handshake in memory; three are enough."""
TLS_FILE_BYTES_MAX = MIB
"""Of a file with certificates or a key: all authorities of a system take 220 KiB."""
TLS_HANDSHAKE_S = 10.0
"""From a connection's first byte on."""
TLS_HANDSHAKE_BYTES_MAX = 128 * KIB
"""Of one end's part of a handshake: chains of certificates take some 10 KiB."""
TLS_RECORD_BYTES_MAX = 16 * KIB + 256
"""An encrypted record, at most (RFC 8446)."""
TLS_SENT_AT_ONCE_BYTES = 128 * KIB
"""Encrypted in a row for one connection, in 0.1 ms; then the socket takes it, or does not."""
TLS_UNASKED_BYTES_MAX = 64 * KIB
"""Answers of TLS itself that the other end has not read."""
TLS_CONNECTION_BYTES = 64 * KIB
"""Charged for an encrypted connection: OpenSSL's state, and the buffers in between."""
TLS_LOOK_S = 2.0
"""Between two looks whether certificates were replaced."""
DAY_S = 86_400.0
TLS_EXPIRES_SOON_S = 14 * DAY_S
"""So long before it ends, a certificate is warned of, once a day."""
TLS_AUTHORITY_DAYS = 3650
TLS_CERTIFICATE_DAYS = 825
"""How long certificates are valid that `mqcluster up --tls` makes."""

# The audit log.
AUDIT_FOLD_S = 60.0
"""What is refused again within this time is counted, and not written."""
AUDIT_FOLDED_MAX = 1024
"""Users and addresses whose refusals are counted one by one; all others are counted together."""
AUDIT_BODY_BYTES_MAX = 64 * KIB
"""Of a request whose objects are read for the audit log, beside what its handler reads."""
AUDIT_OBJECTS_MAX = 20
"""Named in a line; the others are counted."""
AUDIT_TEXT_CHARACTERS_MAX = 300
"""Of one value in a line."""
AUDIT_FILE_BYTES = 8 * MIB
AUDIT_FILES_MAX = 8
AUDIT_PAGE_BYTES = 256 * KIB
"""So much of an audit log is read for one answer."""
AUDIT_LINES_PER_STEP = 64
"""64 MiB in all; the oldest file goes first."""
