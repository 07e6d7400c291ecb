"""The bound of every table of the replicated state. Pure.

A table grows by what clients ask for. So each has a bound on its rows and on a row's bytes, in a
snapshot; where an owner may have only a part of it, that is said, and what takes rows away again.
The leader holds the bounds, before it appends (`mqbroker.state.shares`); what entries do never
depends on them. A field that is added to the snapshot is added here, and to
docs/reference/broker.md: a test compares the three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dledger.limits import (
    ACL_ENTRIES_MAX,
    ACL_NAME_BYTES_MAX,
    ACL_SOURCES_MAX,
    KIB,
    TOPIC_BYTES_MAX,
    USER_NAME_BYTES_MAX,
    USERS_MAX,
)
from mqbroker import limits

_GROUP = TOPIC_BYTES_MAX
_NUMBER = 9
"""Bytes of a number, at most."""


class Table(NamedTuple):
    """A field of the snapshot. An `owner` has only a share of the rows."""

    rows_max: int
    row_bytes_max: int
    freed_by: str
    owner: str = ""

    @property
    def bytes_max(self) -> int:
        """The most bytes that the table takes in a snapshot."""
        return self.rows_max * self.row_bytes_max


_QUEUE: Final = _GROUP + TOPIC_BYTES_MAX + 2 * _NUMBER
_TOPIC_GONE: Final = "deleteTopic"
_GROUP_GONE: Final = "deleteSubGroup -r true, deleteTopic"

TABLES: Final[Mapping[str, Table]] = {
    "topics": Table(limits.TOPICS_MAX, KIB, _TOPIC_GONE, "connection"),
    "births": Table(
        limits.TOPICS_MAX + limits.QUEUES_MAX, TOPIC_BYTES_MAX + 5 * _NUMBER, _TOPIC_GONE
    ),
    "queues": Table(limits.QUEUES_MAX, TOPIC_BYTES_MAX + 3 * _NUMBER, _TOPIC_GONE, "topic"),
    "begins": Table(limits.QUEUES_MAX, TOPIC_BYTES_MAX + 2 * _NUMBER, _TOPIC_GONE, "topic"),
    "groups": Table(limits.GROUPS_MAX, KIB, "deleteSubGroup", "connection"),
    "begun": Table(limits.GROUPS_MAX, _GROUP + 3 * _NUMBER, "deleteSubGroup", "connection"),
    "offsets": Table(limits.CONSUMER_OFFSETS_MAX, _QUEUE + _NUMBER, _GROUP_GONE, "group"),
    "locks": Table(
        limits.LOCKS_MAX,
        _QUEUE + limits.CLIENT_ID_BYTES_MAX + 2 * _NUMBER,
        "10 minutes after their end; deleteSubGroup, deleteTopic",
        "group",
    ),
    "lock_tokens": Table(limits.LOCKS_MAX, _NUMBER, "as locks", "group"),
    "popped": Table(
        limits.POP_IN_FLIGHT_MAX + limits.POP_QUEUES_MAX,
        max(
            _QUEUE + 3 * _NUMBER,
            limits.POP_SPAN_MESSAGES_MAX // 8 + limits.POP_ATTEMPT_BYTES_MAX + 7 * _NUMBER,
        ),
        "acks, retention, resetOffsetByTime, deleteSubGroup, deleteTopic",
        "group",
    ),
    "modes": Table(
        limits.REQUEST_MODES_MAX, _QUEUE + _NUMBER, "deleteSubGroup, deleteTopic", "administrators"
    ),
    "timers": Table(limits.TIMERS_MAX, 16, "delivery, recall, deleteTopic", "topic"),
    "timer_owners": Table(limits.TIMERS_MAX, 8, "as timers", "topic"),
    "halves": Table(
        limits.TRANSACTIONS_MAX, 16, "their end; transactionCheckMax intervals", "topic, producer"
    ),
    "half_owners": Table(
        limits.TRANSACTIONS_MAX, 2 * TOPIC_BYTES_MAX + 2 * _NUMBER, "as halves", "topic, producer"
    ),
    "delays": Table(limits.DELAY_LEVELS_MAX, 2 * _NUMBER, "one for each level"),
    "producers": Table(
        limits.PRODUCERS_MAX,
        TOPIC_BYTES_MAX
        + limits.INSTANCES_PER_NAME_KEPT * (4 * limits.PRODUCER_INSTANCE_CHARACTERS_MAX + 2)
        + limits.STREAMS_PER_PRODUCER_MAX * 5 * _NUMBER
        + 3 * _NUMBER,
        "7 days without use; 10 s if nothing was written, when room is wanted",
        "connection",
    ),
    "decided": Table(
        limits.DECIDED_MAX, TOPIC_BYTES_MAX + 4 * _NUMBER, "the next ones", "connection"
    ),
    "dedup": Table(
        limits.DEDUP_ENTRIES_MAX + limits.DEDUP_CHUNK_ENTRIES,
        2 * (limits.DEDUP_KEY_BYTES_MAX + 3 * _NUMBER),
        "the next ones",
    ),
    "settings": Table(limits.SETTINGS_MAX, KIB, "an empty value", "administrators"),
    "producer_owners": Table(
        limits.PRODUCERS_MAX,
        TOPIC_BYTES_MAX + USER_NAME_BYTES_MAX + 4,
        "as producers",
        "connection",
    ),
    "users": Table(
        USERS_MAX + ACL_ENTRIES_MAX,
        ACL_NAME_BYTES_MAX + 46 * ACL_SOURCES_MAX + 128,
        "deleteUser, deleteAcl",
        "administrators",
    ),
    "aside": Table(limits.ASIDE_INDEXES_KEPT, _NUMBER + 1, "the next ones"),
}
"""The tables by the fields of `mqbroker.state.saved.snapshot.State`; the other fields are single
numbers."""
