"""Every bound and rate of the chaos harness, with units in the names."""

from __future__ import annotations

# Processes.
START_TIMEOUT_S = 60.0
"""Seconds from the start of a process until it serves. Recovery of 1 GiB takes under 2 s, but three
nodes that start at once on two slow cores take 8 s."""
STOP_TIMEOUT_S = 10.0
"""Seconds from SIGTERM to SIGKILL for a process that does not end by itself."""
CATCH_UP_TIMEOUT_S = 60.0
LEADER_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 0.05
POLL_S = 0.01
"""Seconds between two looks at a process that is about to start, stop or end."""
LOG_TAIL_LINES = 8
BUSY_MAX = 64
"""Processes beside the servers that compete for a processor."""

# Ports are taken below Linux's ephemeral range (32768-60999): a port in that range may be in use by
# a connection when a killed server wants it back.
PORT_FIRST = 12_000
PORT_LAST = 32_000

# Sizes.
NODES_MAX = 7
GROUPS_MAX = 16
NAMESRVS_MAX = 5
SHORT_SEGMENT_BYTES = 2 << 20
SEGMENT_BYTES = 16 << 20
"""Bytes of a log segment: small, so that even a short run fills several segments."""

# Stock clients.
STOCK_SENDERS = 4
STOCK_POLL_MS = 1_000
"""Milliseconds between two looks of a stock client for the route; its default is 30 s."""
STOCK_AGAIN_MS = 100
"""Milliseconds after an exception until the application sends the same message again."""

# Histories and workers.
HISTORY_BUFFER_BYTES = 256 << 10
HISTORY_FLUSH_S = 0.5
HISTORY_PART_BYTES = 32 << 20
"""Bytes of lines of a history until they are packed."""
PACK_EVERY_S = 1.0
"""Seconds between two looks for lines that can be packed."""
PACKED_BATCH_ROWS = 10_000
"""Rows of a packed file that a reader holds at a time."""
PROGRESS_INTERVAL_S = 0.1
COMMIT_INTERVAL_S = 0.5
MEDDLE_EVERY_S = 3.0
"""Seconds between two changes by tools."""
RESET_BACK_S = 2.0
"""Seconds by which offsets are set back."""
RESET_SETTLES_S = 2.0
"""Seconds after a reset in which a member may still commit messages that it had read before."""
WIDENED_QUEUES_MAX = 32
"""Queues of a topic that gets one queue more each time."""
AWAY_ROUND_S = 5.0
READING_S = 2.5
"""Seconds of each round in which the members of a group read; then all of them are away."""
DEPLOYED_AFTER_S = 1.0
"""Seconds that a consumer has handled messages when its replacement joins."""
HANDLING_S = (0.0, 0.0, 0.005, 0.05)
"""Seconds that handlers take, in turn."""
HANDLED_AT_ONCE = 8
HANDED_OVER_WITHIN_S = 1.0
"""Seconds for which a queue with messages may have no reader when its reader is deployed anew. A
lock that nobody gives up, and a popped message that nobody gives back, last a minute."""
HELD_BY_TWO_S = 10.0
"""Seconds for which two members that share queues without locks may have one at once, while they
hear of each other."""
EQUAL_IN_A_ROW = 50
"""Equal messages in a row that have one key; then another queue may follow."""
ACT_EVERY_S = (1.0, 3.0)
"""Seconds from one act of an operator to the next."""
ACT_LASTS_S = (0.5, 3.0)
"""Seconds for which a permission is taken, or a group disabled or away."""
ACT_AGAIN_S = 0.2
ACT_TIMEOUT_S = 60.0
"""Seconds of refusals after which a tool ends the run."""
GROUP_STAYS_S = (2.0, 5.0)
SENT_AGAIN_S = 0.3
"""Seconds from a refusal until the application sends the message again."""
FEW_KEYS = 64
"""Keys that come again and again where a key must keep its queue."""
FOLLOWED_S = 3.0
"""Seconds from a reset until members have gone back; they are notified at once."""
SILENT_S = 1.0
"""A broker group that has acknowledged no send for this long, between two that it has, was away."""
LAG_EVERY_S = 0.5
MEDDLED_MAX = 4
"""Topics and groups that tools make, and delete again."""
NS_PER_S = 1_000_000_000
CLOCK_STEP_NS = 1_000
"""Nanoseconds by which seconds as a float may be wrong, at most, weeks after a machine's start."""
DELAY_LEVEL_1_S = 1.0
"""The delay of RocketMQ's first level, in seconds."""
DELAYS_S = (0.5, 1.5, 2.5, 3.5)
"""Delays in seconds of messages that wait by a timer, in turn."""
LIFETIMES_S = (0.5, 2.0)
"""Lifetimes in seconds of messages that expire, in turn."""
PARTS_EVERY = 100
"""Number of messages from one that is sent in parts to the next."""
PARTS_BODY_BYTES = 5 << 20
"""Bytes of a body that is sent in parts: more than a record can hold."""
POP_MEMBERS = 5
"""Members in each process of a group that pops; together there are more members than queues."""
POP_INVISIBLE_S = 1.0
POP_AT_ONCE_MAX = 32
POP_AGAIN_S = 0.3
PRIORITIES = 10
"""Priorities that messages have in turn: more than their topic has queues."""
PRIORITY_ROUND_S = 3.0
PRIORITY_NAP_S = 1.5
"""Seconds of each round in which no member pops, so that messages of all priorities wait."""
PRIORITY_AT_ONCE_MAX = 8
"""Messages of one pop of a backlog; the pops follow each other."""
DELAY_MARGIN_S = 2.0
"""Seconds after the last delayed message is due until its producer stops."""
ASKED_FOR_S = 12.0
"""Seconds that a producer of transactions stays to be asked: brokers ask after 6 s."""
ASK_INTERVAL_S = 0.5
"""Seconds between two questions to every node for the ends of queues."""
ASK_TIMEOUT_S = 5.0
"""Seconds for such an answer; a node that stands still may answer late."""
WORKER_LINE_BYTES_MAX = 1 << 20
SENDS_IN_FLIGHT_MAX = 2_000
PACE_S = 0.005
"""Seconds between two looks of a producer at how many sends are due."""
SEND_TIMEOUT_S = 10.0
"""Seconds for a send, far above the longest accepted gap of 1.5 s: a send that takes longer is a
finding."""
BACK_TIMEOUT_S = 20.0
"""Seconds after a group is level until its producers are acknowledged again; TCP may wait 8 s after
a cut of 4 s."""
DRAIN_TIMEOUT_S = 90.0
"""Seconds for consumers to read the rest. A queue's lock lasts 60 s after its member has left
unseen, and longer by how long a group was away."""
KILLS_MAX = 1_000
SEED_MAX = (1 << 53) - 1
"""The largest seed; a larger one would not be the same number in every reader of JSON."""
MESSAGES_MAX = 10_000_000

# The demo's load lasts this long, at a pace between one that shows the kills and one that fits.
DEMO_LOAD_S = 25.0
DEMO_RATE_PER_S_MIN = 500.0
DEMO_RATE_PER_S_MAX = 10_000.0
DEMO_DISK_BYTES_MIN = 1 << 30

RENEWING_S = (0.0, 2.5)
"""Seconds from new files to the leader's death: servers look every 2 s."""
RENEWED_TIMEOUT_S = 30.0
"""Seconds until all servers have the renewed files; a step takes a server 2 s on a quiet
machine."""
EFFECT_S = 5.0
"""Seconds within which a fault must show; if it takes longer, it had no effect."""

# How slow the machine is.
LOOK_EVERY_S = 1.0
LOOK_WORK = 100_000
"""Additions that are timed at each look."""
LOOK_WORK_S = 0.004
"""Seconds that these additions take on the reference machine, where the bounds on pauses are kept
easily."""
SLOWNESS_MAX = 8.0
"""The largest slowness, as a factor, that excuses pauses."""
SLOWNESS_SHOWN_MIN = 1.1
"""The slowness, as a factor, from which the report mentions it."""

# Plans: steady sends before a fault, and how long a node is away. A node that stands still or
# is cut off is away long enough for another to be elected. Each pause is drawn from its range.
STEADY_S = (1.0, 2.0)
AWAY_S = (0.5, 2.0)
STILL_S = (2.0, 4.0)
CALM_S = 5.0
BREATH_S = (0.05, 0.5)
"""Seconds from one change of leader to the next."""

# Failpoints.
HELD_S_MAX = 600.0
"""Seconds after which a held process goes on, even if nobody released it."""
PROVOKED_S = 40.0
"""Seconds within which a node must reach a place to which it was provoked; after them the place
counts as not reached."""
PROVOKED_AMID_S = 8.0
"""Seconds within which a node must reach a place while another fault lasts: that fault may keep the
node from it, and would last as long."""
PROVOKED_BYTES = 64 << 10
"""Bytes of a message that is sent to fill segments."""
ELECTED_S = 2.0
"""Seconds within which another node leads, if the leader stands still or is cut off."""

# Faults of disks, clocks and resources.
SLOW_SYNC_S = 0.1
STALE_S = 6.0
"""Age in seconds of a file that comes back; checkpoints are 5 s apart at most."""
CLOCK_JUMP_S = 60.0
SIGNED_CLOCK_JUMP_S = 55.0
"""The jump where requests are signed: a signature is good for `STAMP_AGE_S`, 60 s, and takes some
of it to arrive. Nothing may be refused then."""
STROBE_JUMP_S = 2.0
STROBE_EVERY_S = 0.05
FAKED_TRIAL_S = 1000
"""Seconds by which a clock is moved to see whether that is possible."""
FAKED_SEEN_S = 1.1
"""Seconds until a process has noticed that its clock jumped."""
SPARE_DESCRIPTORS = 1
FILE_BYTES_MAX = 64 << 10
SPARE_MEMORY_BYTES = 4 << 20
CYCLE_STANDS_S = 0.09
"""Seconds of each cycle in which a slowed process is stopped."""
CYCLE_GOES_S = 0.01
"""Seconds of each cycle in which it runs: it gets a tenth of a processor."""
STILL_LOOK_S = 1.0
"""Seconds in which a process that stood still at every look counts as stopped for good, and not as
slow."""
CHANGE_AGAIN_S = 0.5
CHANGE_TIMEOUT_S = 30.0
"""Seconds for a change of the members, which is requested again and again."""

# Power losses.
IMAGE_BYTES = 16 << 30
"""Bytes of one replica's file system; the file is sparse. A hundred power losses under load write
some 4 GiB to each replica."""
UNMOUNT_TIMEOUT_S = 10.0
UNROOMED_S = 3.0
"""Seconds for which segments are filled that find no room."""
POWER_LOSS_SEND_TIMEOUT_S = 20.0
POWER_LOSS_PATIENCE_S = 60.0
"""Seconds until a leader must be there again in these runs. They look for loss; a busy machine may
take its time."""

# Pages and lines that people see.
REFRESH_S = 0.2
LINE_S = 5.0
"""Seconds between two lines of progress where the output is not a terminal."""
BUCKETS_MAX = 400
"""Buckets of the throughput in a chart, and of the figures that are kept of a history."""
SLOT_WIDTH_MIN_S = 0.1
UNANSWERED_MAX = 1_000_000
"""Sends whose answer is awaited, in a reader of a history; no latency is taken of further sends."""
FAILURES_KEPT_MAX = 100
"""Failed sends whose error texts are kept, from the first on; all are counted."""
SILENT_S = 1.0
"""Seconds without an acknowledgement after which the line of latencies breaks."""
GAP_WIDTH_MIN = 1.5
"""The width in pixels from which a gap is drawn as a band."""
FAULTS_NAMED_MAX = 6
"""Faults in a chart up to which their texts are shown; with more, the texts are tooltips only."""
JVM_END_S = 5.0
"""Seconds for Spark's JVM to end after the Python that started it; it removes its files then."""

STORM_KILLED_AFTER_S = (0.15, 0.3, 0.6)
"""Moments of a broker's start, in seconds: in its imports, in its recovery, as it joins. A start
takes half a second to a whole one."""

# The proxy. A lane is one direction of one connection.
LANE_BYTES_MAX = 1 << 20
PROXY_CHUNK_BYTES = 256 << 10
LINK_CONNECTIONS_MAX = 256
CONTROL_LINE_BYTES_MAX = 1 << 20
CONTROL_TIMEOUT_S = 5.0
RETRANSMISSION_S = 0.2
"""Linux's shortest time in seconds until a packet is sent again; it doubles each time."""
RETRANSMISSIONS_MAX = 5

# Networks of the harness's own, and other things that tools of the machine make.
TOOL_TIMEOUT_S = 30.0
PACKETS_WAITING_MAX = 100_000
"""Packets that wait on a link which delays them."""
CUT_AGAIN = 2.0
"""The factor by which pauses of sends may be longer over a cut: the kernel sends data again after
at most as long as the cut lasted."""
LINE_BITS_PER_S = 10_000_000_000
"""Bits per second of a link that nothing narrows."""

# Clusters of others.
HOOKS_BYTES_MAX = 1 << 20
HOOK_TIMEOUT_S = 60.0
READBACK_SHOWN_MAX = 50
"""Violations of one property that are described one by one where only the history is judged."""
TOPIC_TIMEOUT_S = 5.0
SETTLE_S = 2.0
"""Seconds from when sends go on until the next fault."""
QUEUES_MAX = 1024

# Random plans, and what runs them one after the other.
DURATION_S_MAX = 3_600.0
PROXIED_SHARE = 0.7
"""The share of random runs whose links pass the proxy: in the others members come and go."""
OVERLAP_SHARE = 0.35
"""The share of faults that a second fault joins while they last."""
RANDOM_SEND_TIMEOUT_S = 60.0
"""Seconds for a send. Faults that overlap keep a group away for seconds; a send that waits a minute
has found a bug."""
RANDOM_LEADER_S = 3.0
"""Seconds without a leader after which a step that needs one is left out."""
RANDOM_RATE_PER_S = 1_000.0
READ_BACK_QUIET_S = 3.0
"""Seconds without a message after which a topic counts as read to its end."""
QUIET_S = (0.5, 2.0)
"""Seconds between faults that don't overlap."""
SHORT_S = (0.1, 6.0)
"""Seconds that a fault lasts if it names no other time."""
SHRINK_RUNS_MAX = 200
HALVINGS_MAX = 4
"""Halvings of a load, and of the times that faults last, on the way to a smaller plan."""
RATE_PER_S_MIN = 50.0
"""The lowest rate of sends of a smaller plan."""
SOAK_DISK_BYTES_MIN = 2 << 30
SOAK_HOURS_MAX = 1_000.0
RUNS_SHOWN_MAX = 500
"""Runs that the page of a soak shows."""
SOAK_LINE_BYTES_MAX = 1 << 20
"""The longest line of a run in soak.jsonl, in bytes; most have less than a thousand."""
SOAK_COUNT_MAX = (1 << 63) - 1
"""The highest count in the line of a run."""
PAGE_WIDTH_MAX = 120
"""Characters of a row on the page of `mqchaos coverage`; a wider table is cut into several."""
SUMMARY_CHARACTERS_MAX = 400
"""Characters of the description of a failed run, where many runs are summed up."""
COVERAGE_PAGE_BYTES_MAX = 4 << 20
"""The largest page into which tables are written, in bytes."""

assert PORT_FIRST < PORT_LAST < 32_768
assert STILL_LOOK_S > 5 * (CYCLE_STANDS_S + CYCLE_GOES_S)
assert PROBE_INTERVAL_S < PROBE_TIMEOUT_S < START_TIMEOUT_S
