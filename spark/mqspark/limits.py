"""Every bound of the audit and its data source, in one place. Units are in the names."""

from __future__ import annotations

from dledger.limits import MIB

BATCH_ROWS_MAX = 16_384
"""Rows in one Arrow batch. 4-20 thousand amortise the hand-over without large buffers."""
BATCH_BYTES_MAX = 32 * MIB
"""Bytes of records behind one Arrow batch: the bound that counts when bodies are read."""

ODD_BYTES_MAX = 4 * MIB
"""Bytes of records behind one Arrow batch of odd entries, which may have many more rows than sound
ones."""
ALIKE_GROUPS_MAX = 16
"""Groups of records with the same topic, or with their keys in the same place, that are read
together in a batch: each group costs a look at all records that are left. Then each record costs
one of its own."""

TOPIC_BATCH_BYTES_MIN = MIB
"""Bytes up to which answers of brokers are put together, to make one Arrow batch."""
FETCHED_BYTES_MAX = 8 * MIB
"""Bytes of bodies that were compressed, or lay in parts, in one Arrow batch; the body that passes
this is the last one of its batch."""
TASK_MESSAGES = 8_192
"""Messages for each task of a batch; no queue is cut for it. A task by itself costs as much as
reading some thousand messages."""
SAMPLE_MESSAGES = 32
"""Messages of a queue that show how large its messages are, to keep a batch within its bytes."""
SAMPLE_BYTES = 64 * 1024
"""Bytes that are read for them."""
TRUNCATION_CHECKED_S = 2.0
"""Seconds after which a queue that ends before its reader's position is looked at again: longer
than a leader that is cut off may not know it."""
PYSPARK_MIN = (4, 0)
PYSPARK_STREAMS_MIN = (4, 2)
PYSPARK_TOO_NEW = (4, 4)

TASK_BYTES_MIN = MIB
"""Segments smaller than this share a task: a task costs as much as reading some hundred KiB."""

PARTS_MAX = 100_000
"""Parts of one body: 100,000 of one MiB are far more than a client sends."""
TIME_MS_MAX = 60_000_000_000_000
"""The latest time of a record, in ms since 1970: in the year 3871. A time that is further from 1970
counts as none."""

INFLATED_BODY_BYTES_MAX = 64 * MIB
"""Bytes up to which a compressed body is inflated to be compared with the sent body."""
INFLATED_WINDOW_BYTES_MAX = 8 * MIB
"""Memory in bytes that its decompressor may use."""

VIOLATIONS_SHOWN_MAX = 200
"""Violations of one property that a verdict spells out. The count beside them is complete."""
TERMINAL_VIOLATIONS_MAX = 10
"""Violations of one property that the table on the terminal shows."""
REPLICAS_MAX = 62
"""Replicas of one broker: they are the bits of a signed 64-bit mask."""
EXHIBITS_MAX = 20
"""Violations of one property that are shown with history lines and bytes."""
EXHIBIT_LINES_MAX = 30
EXHIBIT_LINE_BYTES_MAX = 2_000
EXHIBIT_POSITIONS_MAX = 4
EXHIBIT_BYTES_MAX = 512
EXHIBIT_PROPERTIES_MAX = 20
EXHIBIT_TEXT_MAX = 200
"""Characters shown of one field of a record."""
POSITION_MAX = 2**61
"""The highest position in a log: no log comes to this."""
LINES_SOUGHT_MAX = 50_000
"""Lines of a history that all violations together may be about."""
IDS_NAMED_MAX = 20
"""Message ids that one violation of a whole entry names."""

PACKED_LINES_MAX = 50_000
"""Lines of a history that are held while it is written as Parquet."""
LINE_BYTES_MAX = 1024 * 1024
"""The longest line of a history, in bytes; a longer line is cut, and so proves nothing."""
LINE_BYTES_MEAN = 170
"""Bytes of an event in JSON Lines, on average; in Parquet it takes a tenth of that."""
META_BYTES_MAX = 1024 * 1024
"""Bytes up to which the first line of a history file is read, to see if it describes the run."""

PART_BYTES = 32 * MIB
"""Bytes of a history's lines for one task."""
LINES_BYTES_MAX = 8 * MIB
"""Bytes of lines that are held, and made columns of, at a time."""
PACKET_ROWS_MAX = 65_536
"""Rows of numbers in one packet: some megabytes."""
DIGEST_HISTORY_BYTES = 128 * MIB
"""Bytes of a history for each task that digests: some 250,000 messages, which take 200 MB there."""
RANGE_OFFSETS = 2**20
"""Offsets of a queue, or of the messages of it that a group read, that are looked at together: with
64 bytes each."""

BRIEF_HISTORY_BYTES_MAX = 64 * MIB
"""The size of a history up to which the JVM's optimising compiler does not pay, some 400,000
events: it takes a third of all processor time, and the audit ends too soon to gain by it."""

BRIEF_PAGE_BYTES = MIB
"""Memory, in bytes, that each sort, aggregation and broadcast table of a brief audit takes at a
time. Spark would take 64 MiB of a JVM that may have 4 GiB, and fill it with pages of a few rows."""
BRIEF_CLASSES_BYTES = 192 * MIB
"""Bytes of classes up to which the JVM does not look for unused ones: Spark uses them all."""

FEW_ROWS_MAX = 20_000
"""Tables of up to this many rows, some megabytes, are held by the driver: queries on them are
planned in a tenth of the time."""

CLOCK_FALL_NS_MAX = 1_000_000
"""Nanoseconds by which the times of one file may fall from line to line: threads of a program may
write in another order than they looked at the clock. In no file of 337 of real runs did they fall
at all."""
CLOCK_SLACK_MS = 2
"""Milliseconds by which a message may come before its time by the harness's clock, without being
early: brokers count whole milliseconds, by clocks that are set."""
CLOCK_SLACK_SHARE = 0.001
"""The share of its delay by which it may come earlier still."""
EXPIRED_S_MAX = 2.0
"""Seconds that a consumer may stand still between its look at the clock and the note of a
delivery."""
IN_HAND_MAX = 10_000
"""Messages of a queue that members of a group have in hand; beyond that, a queue gives no new
message."""
QUEUES_OF_LIVES_MAX = 1024
"""Queues of a topic that was deleted and made again: as many as brokers allow."""
LEVELS_MAX = 2**31 - 1
"""Queues of a topic."""
RETRIES_MAX = 1_000_000
"""Retries of one send by a client."""
DELAY_LATE_S_MAX = 30.0
"""Seconds after its time that a delayed message may come, where nothing was broken meanwhile. A
group whose nodes were all killed takes 10 s to serve again on a slow machine."""
TRANSACTION_S_MAX = 120.0
"""Seconds after its half message that a transaction may stay open, where nothing was broken
meanwhile: a silent producer is asked after 6 s, and then every 60 s."""

SHUFFLE_PARTITIONS = 4
DRIVER_MEMORY_SHARE_MAX = 0.4
"""The share of the machine's memory for the one JVM that does all of the work."""
DRIVER_MEMORY_BYTES_MIN = 1024 * MIB
DRIVER_MEMORY_BYTES_MAX = 4096 * MIB

WORKER_ARRAY_BYTES_MAX = 32 * MIB
"""The largest array, in bytes, that a Python worker takes from memory which it has had before."""
WORKER_FREE_BYTES_MAX = 128 * MIB
"""Bytes of such memory that a worker keeps, though nothing is in it."""

JAVA_VERSION_MIN = 17
JAVA_PROBE_S = 20.0
"""Seconds for `java -version` to answer."""

CLASSES_BEGUN_S = 600.0
"""Seconds for which a file of classes without a header is left to the process that writes it."""
CLASSES_ROOM_BYTES_MIN = 1024 * MIB
"""Bytes that must be free on the disk before classes are kept; they take some 160 MiB."""

DERIVED_TASKS_MAX = 64
"""Tasks that compare replicas' derived files with their logs, one replica after the other."""
DERIVED_UNITS_MAX = 65_536
"""Units of a queue's file that are compared with the log at a time."""
DIFFERENCES_MAX = 1_000
"""Ranges of one replica's files that are listed as unlike its log."""
RUN_CHARACTERS_MAX = 64
"""The longest id of a run of a query, as brokers get it: Spark's have 36 characters."""
JOB_LINE_S = 5.0
"""Seconds after which a job prints a line, and then again each time."""
WATCH_PATIENCE_S = 5.0
"""Seconds for a broker to say how far a query is behind: the next batch's progress waits for it."""
