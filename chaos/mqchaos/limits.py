"""Every bound and pace of the chaos harness, with units in the names."""

from __future__ import annotations

# Processes.
START_TIMEOUT_S = 60.0
"""From the start of a process until it serves. Recovery of 1 GiB takes under 2 s, but three nodes
that start at once on two slow cores take 8 s."""
STOP_TIMEOUT_S = 10.0
"""From SIGTERM to SIGKILL for a process that does not end by itself."""
CATCH_UP_TIMEOUT_S = 60.0
LEADER_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 0.05
POLL_S = 0.01
"""Between two looks at a process that is about to start, stop or end."""
LOG_TAIL_LINES = 8
BUSY_MAX = 64
"""Processes beside the servers that want a processor."""

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
"""Small segments, so that even a short run fills several of them."""

# Stock clients.
STOCK_SENDERS = 4
STOCK_POLL_MS = 1_000
"""Between two looks of a stock client for the route; it would be 30 s."""
STOCK_AGAIN_MS = 100
"""After an exception, until the application sends the same message again."""

# Histories and workers.
HISTORY_BUFFER_BYTES = 256 << 10
HISTORY_FLUSH_S = 0.5
HISTORY_PART_BYTES = 32 << 20
"""Of lines, until they are packed."""
PACK_EVERY_S = 1.0
"""Between two looks for what can be packed."""
PACKED_BATCH_ROWS = 10_000
"""Of a packed file, held at a time by who reads it."""
PROGRESS_INTERVAL_S = 0.1
COMMIT_INTERVAL_S = 0.5
MEDDLE_EVERY_S = 3.0
"""Between two changes by tools."""
RESET_BACK_S = 2.0
"""By so much offsets are set back."""
RESET_SETTLES_S = 2.0
"""So long after a reset a member may still commit what it had read before."""
WIDENED_QUEUES_MAX = 32
"""Of a topic that gets one queue more each time."""
AWAY_ROUND_S = 5.0
READING_S = 2.5
"""In each round the members of a group read so long, and are all away then."""
DEPLOYED_AFTER_S = 1.0
"""So long a consumer has handled messages when the one that replaces it joins."""
HANDLING_S = (0.0, 0.0, 0.005, 0.05)
"""So long handlers take, in turn."""
HANDLED_AT_ONCE = 8
HANDED_OVER_WITHIN_S = 1.0
"""For so long a queue with messages may be read by nobody when its reader is deployed anew. A lock
that nobody gives up, and a popped message that nobody gives back, last a minute."""
HELD_BY_TWO_S = 10.0
"""Members that share queues without locks may have one at once while they hear of each other."""
EQUAL_IN_A_ROW = 50
"""So many equal messages have one key; then comes another queue's turn, perhaps."""
ACT_EVERY_S = (1.0, 3.0)
"""From one thing that an operator does to the next."""
ACT_LASTS_S = (0.5, 3.0)
"""So long a permission is taken, a group disabled or away."""
ACT_AGAIN_S = 0.2
ACT_TIMEOUT_S = 60.0
"""A tool that is refused so long ends the run."""
GROUP_STAYS_S = (2.0, 5.0)
SENT_AGAIN_S = 0.3
"""From a refusal until its application sends a message again."""
FEW_KEYS = 64
"""So many keys come again and again where a key must keep its queue."""
FOLLOWED_S = 3.0
"""From a reset until members have gone back; they are told at once."""
LAG_EVERY_S = 0.5
MEDDLED_MAX = 4
"""Topics and groups that tools make, and delete again."""
NS_PER_S = 1_000_000_000
CLOCK_STEP_NS = 1_000
"""Seconds as a float may be wrong by less than that, weeks after a machine's start."""
DELAY_LEVEL_1_S = 1.0
"""RocketMQ's first level."""
DELAYS_S = (0.5, 1.5, 2.5, 3.5)
"""Of messages that wait by a timer, in turn."""
LIFETIMES_S = (0.5, 2.0)
"""Of messages that have an end of their own, in turn."""
PARTS_EVERY = 100
"""So manieth messages are sent in parts."""
PARTS_BODY_BYTES = 5 << 20
"""Of a body that is sent in parts: more than a record can hold."""
POP_MEMBERS = 5
"""In each process of a group that pops; together they are more than there are queues."""
POP_INVISIBLE_S = 1.0
POP_AT_ONCE_MAX = 32
POP_AGAIN_S = 0.3
PRIORITIES = 10
"""So many priorities messages have in turn: more than their topic has queues."""
PRIORITY_ROUND_S = 3.0
PRIORITY_NAP_S = 1.5
"""For so much of each round no member pops, so that messages of all priorities wait."""
PRIORITY_AT_ONCE_MAX = 8
"""A backlog is taken by pops of so many, one after the other."""
DELAY_MARGIN_S = 2.0
"""So long after the last delayed message is due its producer is through."""
ASKED_FOR_S = 12.0
"""So long a producer of transactions stays to be asked: brokers ask after 6 s."""
ASK_INTERVAL_S = 0.5
ASK_TIMEOUT_S = 5.0
"""Queue ends are asked of every node so often; one that stands still may answer so late."""
WORKER_LINE_BYTES_MAX = 1 << 20
SENDS_IN_FLIGHT_MAX = 2_000
PACE_S = 0.005
"""Between two looks of a producer at how many sends are due."""
SEND_TIMEOUT_S = 10.0
"""Far above the longest accepted gap of 1.5 s: a send that takes longer is a finding."""
BACK_TIMEOUT_S = 20.0
"""Once a group is level, until its producers are acknowledged again; TCP may wait 8 s after a cut
of 4 s."""
DRAIN_TIMEOUT_S = 90.0
"""A queue's lock lasts 60 s after its member has left unseen, and longer by how long a group was
away."""
KILLS_MAX = 1_000
SEED_MAX = (1 << 53) - 1
"""A larger one would not be the same number in every reader of JSON."""
MESSAGES_MAX = 10_000_000

# The demo's load lasts this long, at a pace between one that shows the kills and one that fits.
DEMO_LOAD_S = 25.0
DEMO_RATE_PER_S_MIN = 500.0
DEMO_RATE_PER_S_MAX = 10_000.0
DEMO_DISK_BYTES_MIN = 1 << 30

RENEWING_S = (0.0, 2.5)
"""From new files to the leader's death: servers look every 2 s."""
RENEWED_TIMEOUT_S = 30.0
"""Until all servers have what was renewed; a step takes a server 2 s on a quiet machine."""
EFFECT_S = 5.0
"""A fault that takes longer to show than this had no effect."""

# How slow the machine is.
LOOK_EVERY_S = 1.0
LOOK_WORK = 100_000
"""Additions, timed at each look."""
LOOK_WORK_S = 0.004
"""So long they take where the bounds on pauses are kept easily."""
SLOWNESS_MAX = 8.0
"""No machine excuses more."""
SLOWNESS_TOLD = 1.1
"""From here on the report says it."""

# Plans: steady sends before a fault, and how long a node is away. A node that stands still or
# is cut off is away long enough for another to be elected. Each pause is drawn from its range.
STEADY_S = (1.0, 2.0)
AWAY_S = (0.5, 2.0)
STILL_S = (2.0, 4.0)
CALM_S = 5.0
BREATH_S = (0.05, 0.5)
"""From one change of leader to the next."""

# Failpoints.
HELD_S_MAX = 600.0
"""A process that is held goes on after this, whatever became of who held it."""
PROVOKED_S = 40.0
"""A node that was not made to come by a place for so long does not come by."""
PROVOKED_AMID_S = 8.0
"""The same while another fault lasts, which may keep it from that, and would last as long."""
PROVOKED_BYTES = 64 << 10
"""Of a message that is sent to fill segments."""
ELECTED_S = 2.0
"""Within this another leads, if the leader stands still or is cut off."""

# Faults of disks, clocks and resources.
SLOW_SYNC_S = 0.1
STALE_S = 6.0
"""So old is a file that comes back; checkpoints are 5 s apart at most."""
CLOCK_JUMP_S = 60.0
STROBE_JUMP_S = 2.0
STROBE_EVERY_S = 0.05
FAKED_TRIAL_S = 1000
"""By so much a clock is moved to see whether it can be."""
FAKED_SEEN_S = 1.1
"""Until a process has seen that its clock jumped."""
SPARE_DESCRIPTORS = 1
FILE_BYTES_MAX = 64 << 10
SPARE_MEMORY_BYTES = 4 << 20
CYCLE_STANDS_S = 0.09
CYCLE_GOES_S = 0.01
"""A process that is stopped and let go on so long each gets a tenth of a processor."""
STILL_LOOK_S = 1.0
"""A process that stood still at every look for so long is stopped for good, not slow."""
CHANGE_AGAIN_S = 0.5
CHANGE_TIMEOUT_S = 30.0
"""Of a change of the members that is asked for again and again."""

# Power losses.
IMAGE_BYTES = 16 << 30
"""Of one replica's file system; the file is sparse. A hundred power losses under load write some
4 GiB to each replica."""
UNMOUNT_TIMEOUT_S = 10.0
UNROOMED_S = 3.0
"""So long segments are filled that find no room."""
POWER_LOSS_SEND_TIMEOUT_S = 20.0
POWER_LOSS_PATIENCE_S = 60.0
"""These runs look for loss; a busy machine may take its time."""

# What people see.
REFRESH_S = 0.2
LINE_S = 5.0
"""Between two lines of progress where the output is no terminal."""
BUCKETS_MAX = 400
"""Of the throughput in a chart, and of what is kept of a history."""
SLOT_WIDTH_MIN_S = 0.1
UNANSWERED_MAX = 1_000_000
"""Sends whose answer is awaited, in a reader of a history: of further ones no latency is taken."""
FAILURES_KEPT_MAX = 100
"""Of sends that failed, the words of the first; all are counted."""
SILENT_S = 1.0
"""Without an acknowledgement for so long, the line of latencies breaks."""
GAP_WIDTH_MIN = 1.5
"""In pixels: a shorter gap is not drawn as a band."""
FAULTS_TOLD_MAX = 6
"""A chart with more faults than this shows their texts as tooltips only."""
JVM_END_S = 5.0
"""Spark's JVM ends a moment after the Python that started it; it removes its files then."""

STORM_KILLED_AFTER_S = (0.15, 0.3, 0.6)
"""Moments of a broker's start, which takes half a second to a whole one: in its imports, in its
recovery, as it joins."""

# The proxy. A lane is one direction of one connection.
LANE_BYTES_MAX = 1 << 20
PROXY_CHUNK_BYTES = 256 << 10
LINK_CONNECTIONS_MAX = 256
CONTROL_LINE_BYTES_MAX = 1 << 20
CONTROL_TIMEOUT_S = 5.0
RETRANSMISSION_S = 0.2
"""Linux's shortest time until a packet is sent again; it doubles each time."""
RETRANSMISSIONS_MAX = 5

# Networks of the harness's own, and other things that tools of the machine make.
TOOL_TIMEOUT_S = 30.0
PACKETS_WAITING_MAX = 100_000
"""Of a link whose packets are delayed."""
CUT_AGAIN = 2.0
"""What was sent over a cut the kernel sends again after as long as it lasted, at most: so much
longer may sends pause."""
LINE_BITS_PER_S = 10_000_000_000
"""A link that nothing narrows."""

# Clusters of others.
HOOKS_BYTES_MAX = 1 << 20
HOOK_TIMEOUT_S = 60.0
READBACK_SHOWN_MAX = 50
"""Violations of one property that are spelled out where only the history is judged."""
TOPIC_TIMEOUT_S = 5.0
SETTLE_S = 2.0
"""After sends go on, until the next fault."""
QUEUES_MAX = 1024

# Random plans, and what runs them one after the other.
DURATION_S_MAX = 3_600.0
PROXIED_SHARE = 0.7
"""Of random runs whose links pass the proxy: in the others members come and go."""
OVERLAP_SHARE = 0.35
"""Of faults that a second one joins while they last."""
RANDOM_SEND_TIMEOUT_S = 60.0
"""Faults that overlap keep a group away for seconds; who waits a minute has found a bug."""
RANDOM_LEADER_S = 3.0
"""A step that needs a leader is left out if there is none for so long."""
RANDOM_RATE_PER_S = 1_000.0
READ_BACK_QUIET_S = 3.0
"""A topic was read to its end if nothing more comes for so long."""
QUIET_S = (0.5, 2.0)
"""Between faults that don't overlap."""
SHORT_S = (0.1, 6.0)
"""How long a fault lasts that says no other time."""
SHRINK_RUNS_MAX = 200
HALVINGS_MAX = 4
"""Of a load, and of how long faults last, on the way to a smaller plan."""
RATE_PER_S_MIN = 50.0
"""A smaller plan sends no slower than this."""
SOAK_DISK_BYTES_MIN = 2 << 30
SOAK_HOURS_MAX = 1_000.0
RUNS_SHOWN_MAX = 500
"""On the page of a soak."""
SOAK_LINE_BYTES_MAX = 1 << 20
"""A run's line in soak.jsonl; most have less than a thousand bytes."""
SOAK_COUNT_MAX = (1 << 63) - 1
"""Of anything that a run counts."""
PAGE_WIDTH_MAX = 120
"""Characters of a row on the page of `mqchaos coverage`; a wider table is cut into several."""
TOLD_CHARACTERS_MAX = 400
"""Of what was wrong with a run, where many runs are summed up."""
COVERAGE_PAGE_BYTES_MAX = 4 << 20
"""A page into which tables are written."""

assert PORT_FIRST < PORT_LAST < 32_768
assert STILL_LOOK_S > 5 * (CYCLE_STANDS_S + CYCLE_GOES_S)
assert PROBE_INTERVAL_S < PROBE_TIMEOUT_S < START_TIMEOUT_S
