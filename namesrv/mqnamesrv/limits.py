"""Every bound and period of the name server. A broker may ask for a shorter expiry than ours."""

from __future__ import annotations

from dledger.limits import MIB

BROKER_EXPIRY_S = 120.0
"""A broker that names no heartbeat timeout is dropped after this silence, as in RocketMQ."""
BROKER_EXPIRY_MIN_S = 1.0
BROKER_EXPIRY_MAX_S = 3600.0
SCAN_INTERVAL_S = 2.0
TERM_MEMORY_S = 120.0
"""The term of a group that has no members left is remembered for this long, against older
leaders."""

BROKER_GROUPS_MAX = 10_000
ABSENT_GROUPS_MAX = 256
"""Of so many groups without members the topics are remembered."""
ABSENT_ROWS_MAX = 200_000
"""Topics of those among them that have proven nothing, all together."""
DEPARTURES_TOLD = 20
"""Brokers that leave at once are logged one by one, up to so many."""
SETTLES_S = 3.0
"""After its start a name server may not know each broker group that serves: ours notice within 1 s
that the one before is gone, and try again each 2 s at least."""
MEMBERS_PER_GROUP_MAX = 64
TOPICS_PER_GROUP_MAX = 40_000
"""Twice what a broker of ours holds."""
TOPICS_MAX = 100_000
"""Names of all groups together. Brokers that prove find room."""
TOPIC_ROWS_MAX = 1_000_000
"""Of all groups; brokers that have proven find room all the same."""
QUEUES_PER_TOPIC_MAX = 65_536
"""As clients take of a route: two thousand million would be a list in their memory."""
PERM_MAX = 15
"""8 priority, 4 read, 2 write, 1 inherit."""
TOPIC_CHARACTERS_MAX = 512
TOPIC_TEXT_BYTES_MAX = 64 * 1024
"""Of a topic as a broker lists it, with its attributes."""
NAME_CHARACTERS_MAX = 255
"""Of a cluster's and a broker's name."""
TOPIC_SETTINGS_KEPT = 256
"""Different texts of topics' settings that are parsed once."""
TOPICS_LEFT_OUT_TOLD = 5
REGISTRATION_BYTES_MAX = 12 * MIB
"""Of a compressed registration, after inflating."""
PARTS_AT_ONCE_MAX = 256
"""An answer about more broker groups is made in slices."""

KV_KEY_BYTES_MAX = 1024
KV_VALUE_BYTES_MAX = 64 * 1024
ABSENT_VALUE_BYTES_MAX = 32 * 1024
"""Of the rows of a group that is away in one entry; less than a value may have."""
KV_NAMESPACE_BYTES_MAX = 2 * MIB
"""Of a namespace as it is answered, in one body; ORDER_TOPIC_CONFIG goes to every broker."""
KV_BYTES_MAX = 16 * MIB
"""Of all namespaces."""
ANSWER_BYTES_MAX = 15 * MIB
"""What an answer may have: clients take frames of 16 MiB."""
KV_ENTRIES_MAX = 100_000
KV_JOURNAL_BYTES_MIN = 64 * 1024
"""For a shorter journal the table is not written anew."""

assert BROKER_EXPIRY_MIN_S <= BROKER_EXPIRY_S <= BROKER_EXPIRY_MAX_S
assert 2 * SCAN_INTERVAL_S <= TERM_MEMORY_S

DESCRIPTORS_RESERVED = 128
"""Kept from clients: for the key-value file, the log, and connections that are about to close."""
