"""Every bound and period of the name server. A broker may ask for a shorter expiry than ours."""

from __future__ import annotations

from dledger.limits import MIB

BROKER_EXPIRY_S = 120.0
"""Seconds of silence after which a broker that names no heartbeat timeout is dropped, as in
RocketMQ."""
BROKER_EXPIRY_MIN_S = 1.0
"""Seconds of silence after which a broker is dropped, at least, whatever timeout it names."""
BROKER_EXPIRY_MAX_S = 3600.0
"""Seconds of silence after which a broker is dropped, at most, whatever timeout it names."""
SCAN_INTERVAL_S = 2.0
"""Seconds between two looks for silent brokers."""
TERM_MEMORY_S = 120.0
"""Seconds for which the term of a group without members is remembered, against older leaders."""

BROKER_GROUPS_MAX = 10_000
"""Broker groups that a name server knows."""
ABSENT_GROUPS_MAX = 256
"""Broker groups without members whose topics are remembered."""
ABSENT_ROWS_MAX = 200_000
"""Topics of all those groups that have proven nothing, together."""
DEPARTURES_LOGGED_MAX = 20
"""Brokers leaving at once that are logged one by one."""
SETTLES_S = 3.0
"""Seconds after its start in which a name server may not know each broker group that serves: ours
notice within 1 s that the one before is gone, and try again each 2 s at least."""
MEMBERS_PER_GROUP_MAX = 64
TOPICS_PER_GROUP_MAX = 40_000
"""Topics of one broker group: twice as many as a broker of ours holds."""
TOPICS_MAX = 100_000
"""Names of topics of all groups together. Brokers that prove find room."""
TOPIC_ROWS_MAX = 1_000_000
"""Topics of all groups, counted for each group; brokers that have proven find room all the same."""
QUEUES_PER_TOPIC_MAX = 65_536
"""Queues of a topic, as many as clients accept in a route: two thousand million would be a list in
their memory."""
PERM_MAX = 15
"""The highest permission, a sum of 8 priority, 4 read, 2 write and 1 inherit."""
TOPIC_CHARACTERS_MAX = 512
TOPIC_TEXT_BYTES_MAX = 64 * 1024
"""The longest text of a topic as a broker lists it, with its attributes, in bytes."""
NAME_CHARACTERS_MAX = 255
"""The longest name of a cluster or a broker."""
TOPIC_SETTINGS_KEPT = 256
"""Different texts of topics' settings that are parsed only once."""
TOPICS_LEFT_OUT_LOGGED_MAX = 5
REGISTRATION_BYTES_MAX = 12 * MIB
"""The largest compressed registration, in bytes after inflating."""
PARTS_AT_ONCE_MAX = 256
"""Broker groups in an answer up to which it is made at once; a longer answer is made in slices."""

KV_KEY_BYTES_MAX = 1024
"""The longest namespace or key of the key-value config, in bytes."""
KV_VALUE_BYTES_MAX = 64 * 1024
"""The longest value of the key-value config, in bytes."""
ABSENT_VALUE_BYTES_MAX = 32 * 1024
"""Bytes of the rows in one entry about a group that is away; less than a value may have."""
KV_NAMESPACE_BYTES_MAX = 2 * MIB
"""The largest answer about one namespace, in bytes; ORDER_TOPIC_CONFIG goes to every broker."""
KV_BYTES_MAX = 16 * MIB
"""Bytes of all namespaces."""
ANSWER_BYTES_MAX = 15 * MIB
"""The largest answer, in bytes: clients take frames of 16 MiB."""
KV_ENTRIES_MAX = 100_000
"""Entries of the key-value config."""
KV_JOURNAL_BYTES_MIN = 64 * 1024
"""The size of the journal from which the table is written anew, in bytes."""

assert BROKER_EXPIRY_MIN_S <= BROKER_EXPIRY_S <= BROKER_EXPIRY_MAX_S
assert 2 * SCAN_INTERVAL_S <= TERM_MEMORY_S

DESCRIPTORS_RESERVED = 128
"""File descriptors kept from clients: for the key-value file, the log, and connections that are
about to close."""
