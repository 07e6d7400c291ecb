"""Every bound of the audit and its data source, in one place. Units are in the names."""

from __future__ import annotations

from dledger.limits import MIB

BATCH_ROWS_MAX = 16_384
"""Rows in one Arrow batch. 4-20 thousand amortise the hand-over without large buffers."""
BATCH_BYTES_MAX = 32 * MIB
"""Bytes of records behind one Arrow batch: the bound that counts when bodies are read."""

ODD_BYTES_MAX = 4 * MIB
"""The same where entries are odd, and may have many more rows than sound ones."""
ALIKE_GROUPS_MAX = 16
"""Of the records of a batch: each group costs a look at all that are left, and then each record one
of its own."""

TOPIC_BATCH_BYTES_MIN = MIB
"""Answers of brokers are put together up to so much, to make one Arrow batch of."""
SAMPLE_MESSAGES = 32
SAMPLE_BYTES = 64 * 1024
"""What of a queue tells how large its messages are, to keep a batch within its bytes."""
TRUNCATION_CHECKED_S = 2.0
"""A queue that ends before its reader's position is looked at again after this time: as long as a
leader that is cut off may not know it, and more."""
PYSPARK_MIN = (4, 0)
PYSPARK_STREAMS_MIN = (4, 2)
PYSPARK_TOO_NEW = (4, 4)

TASK_BYTES_MIN = MIB
"""Segments smaller than this share a task: a task costs as much as reading some hundred KiB."""

PARTS_MAX = 100_000
"""Of one body: so many of one MiB are far more than a client sends."""
TIME_MS_MAX = 60_000_000_000_000
"""In the year 3871: a record's time that is further from 1970 is none."""

INFLATED_BODY_BYTES_MAX = 64 * MIB
INFLATED_WINDOW_BYTES_MAX = 8 * MIB
"""A compressed body is inflated up to here to be compared with what was sent."""

VIOLATIONS_SHOWN_MAX = 200
"""Violations of one property that a verdict spells out. The count beside them is complete."""
TERMINAL_VIOLATIONS_MAX = 10
"""Violations of one property that the table on the terminal shows."""
REPLICAS_MAX = 62
"""Of one broker: they are the bits of a signed 64-bit mask."""
EXHIBITS_MAX = 20
"""Violations of one property that are shown with history lines and bytes."""
EXHIBIT_LINES_MAX = 30
EXHIBIT_LINE_BYTES_MAX = 2_000
EXHIBIT_POSITIONS_MAX = 4
EXHIBIT_BYTES_MAX = 512
EXHIBIT_PROPERTIES_MAX = 20
EXHIBIT_TEXT_MAX = 200
"""Of the characters of one field of a record."""
POSITION_MAX = 2**61
"""Of a log: no log comes to this."""
LINES_SOUGHT_MAX = 50_000
"""Lines of a history that all violations together may be about."""
IDS_NAMED_MAX = 20
"""Message ids that one violation of a whole entry names."""

PACKED_LINES_MAX = 50_000
"""Lines of a history that are held while it is written as Parquet."""
LINE_BYTES_MAX = 1024 * 1024
"""Of a line of a history; one that is longer is cut, and so proves nothing."""
LINE_BYTES_MEAN = 170
"""Of an event in JSON Lines; in Parquet it takes a tenth of that."""
META_BYTES_MAX = 1024 * 1024
"""The first line of a history file is read up to here, to see if it describes the run."""

PART_BYTES = 32 * MIB
"""Of a history's lines for one task."""
LINES_BYTES_MAX = 8 * MIB
"""Lines that are held, and made columns of, at a time."""
PACKET_ROWS_MAX = 65_536
"""Rows of numbers in one packet: some megabytes."""
DIGEST_HISTORY_BYTES = 128 * MIB
"""Of a history for each task that digests: some 250,000 messages, which take 200 MB there."""
STRETCH_OFFSETS = 2**20
"""Offsets of a queue, or of what a group read of it, that are looked at together: with 64 bytes
each."""

BRIEF_HISTORY_BYTES_MAX = 64 * MIB
"""For a history up to this size, some 400,000 events, the JVM's optimising compiler does not pay:
it takes a third of all processor time, and the audit ends too soon to gain by it."""

FEW_ROWS_MAX = 20_000
"""Tables of up to this many rows, some megabytes, are held by the driver: queries on them are
planned in a tenth of the time."""

CLOCK_FALL_NS_MAX = 1_000_000
"""By how much the times of one file may fall from line to line: threads of a program may write in
another order than they looked at the clock. In no file of 337 of real runs did they fall at all."""
CLOCK_SLACK_MS = 2
CLOCK_SLACK_SHARE = 0.001
"""Brokers count whole milliseconds, by clocks that are set: a message may come so much (and, of its
delay, such a share) before its time by the harness's clock, without being early."""
EXPIRED_S_MAX = 2.0
"""A consumer may stand still for so long between its look at the clock and the note of a delivery.
"""
IN_HAND_MAX = 10_000
"""Messages of a queue that members of a group have in hand; then it has none that is new."""
QUEUES_OF_LIVES_MAX = 1024
"""Queues of a topic that was deleted and made again: as many as brokers allow."""
LEVELS_MAX = 2**31 - 1
"""Queues of a topic."""
RETRIES_MAX = 1_000_000
"""Of a client, of one send."""
DELAY_LATE_S_MAX = 30.0
"""How long after its time a delayed message may come, where nothing was broken meanwhile. A group
whose nodes were all killed takes 10 s to serve again on a slow machine."""
TRANSACTION_S_MAX = 120.0
"""How long after its half message a transaction may stay open, where nothing was broken meanwhile:
a producer that said nothing is asked after 6 s, and then every 60 s."""

SHUFFLE_PARTITIONS = 4
DRIVER_MEMORY_SHARE_MAX = 0.4
"""Of the machine's memory, for the one JVM that does all of the work."""
DRIVER_MEMORY_BYTES_MIN = 1024 * MIB
DRIVER_MEMORY_BYTES_MAX = 4096 * MIB

WORKER_ARRAY_BYTES_MAX = 32 * MIB
"""Of one array that a Python worker takes from memory which it has had before."""
WORKER_FREE_BYTES_MAX = 128 * MIB
"""Such memory that a worker keeps, though nothing is in it."""

JAVA_VERSION_MIN = 17
JAVA_PROBE_S = 20.0
"""For `java -version` to answer."""

CLASSES_BEGUN_S = 600.0
"""A file of classes without a header is left to who writes it for so long."""
CLASSES_ROOM_BYTES_MIN = 1024 * MIB
"""What must be free on the disk before classes are kept; they take some 160 MiB."""

DERIVED_TASKS_MAX = 64
"""That compare replicas' derived files with their logs, one replica after the other."""
DERIVED_UNITS_MAX = 65_536
"""Units of a queue's file that are compared with the log at a time."""
DIFFERENCES_MAX = 1_000
"""Ranges of one replica's files that are told to be unlike its log."""
RUN_CHARACTERS_MAX = 64
"""Of a run of a query, as brokers are told it: Spark's have 36."""
JOB_LINE_S = 5.0
"""A job that takes longer prints a line, and another one each time that so much has passed."""
WATCH_PATIENCE_S = 5.0
"""For a broker to say how far a query is behind: the next batch's progress waits for it."""
