"""Names of topics and groups, and permissions: for brokers, clients, tools and audits. Pure.

What a topic or a group may be called is RocketMQ's rule. The client checks a name before it sends,
since a broker's refusal (code 1, as RocketMQ's) does not say whether anything was stored.

Names of topics that are not a user's are RocketMQ's (TopicValidator), and a few of ours. Only a
broker sends to `UNSENDABLE`. Only tools read `UNREADABLE`, whose messages wait for their time, for
the end of a transaction, or are notes of the broker. A pattern of names matches no system topic.
`TRANS_CHECK_MAX_TIME_TOPIC` may be read by its name: messages are found there whose producer could
not say how their transaction ended.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from dledger.errors import BadInput
from dledger.limits import NAME_SHOWN_CHARACTERS_MAX, TOPIC_BYTES_MAX
from dledger.remoting.message import (
    DEFAULT_TOPIC,
    DLQ_PREFIX,
    PARTS_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
)

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

#: The group of the administration tools. It is never made, so that reading leaves no trace.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"

#: The queues of delay levels, and the queue of messages with a timer.
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
#: Messages of transactions that have not ended, and those whose end no producer could tell.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
CHECKED_TOO_OFTEN_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
#: Ours: a broker's notes of what an entry moves.
OP_TOPIC: Final = "RMQ_SYS_MOVE_OP_TOPIC"
#: The topic to which stock clients with message trace on send their traces.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

#: Where messages wait before their own topic has them.
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
UNREADABLE: Final = frozenset((*WAITING_TOPICS, OP_TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC"))
UNSENDABLE: Final = UNREADABLE | {CHECKED_TOO_OFTEN_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
_SYSTEM: Final = UNSENDABLE | {DEFAULT_TOPIC, "BenchmarkTest", "CHECKPOINT_TOPIC"}
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_")

GROUP_BYTES_MAX: Final = TOPIC_BYTES_MAX - len(RETRY_PREFIX)
"""A group's retry topic must have a legal name, too."""
_LEGAL: Final = re.compile(r"[A-Za-z0-9%|_-]+")


def topic_kind(topic: str, owners: Collection[str] = ()) -> str:
    """The kind of a topic: user, parts (ours), retry, dead-letter or system.

    `owners` are the names of clusters and broker groups, which have topics named like them.
    """
    if topic == RETRY_PREFIX + TOOLS_GROUP:
        return "system"
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead-letter"
    if topic.startswith(PARTS_PREFIX):
        return "parts"
    is_system = (
        topic in _SYSTEM
        or topic.startswith(_SYSTEM_PREFIXES)
        or topic in owners
        or topic.endswith(REPLY_SUFFIX)
    )
    return "system" if is_system else "user"


def check_topic_name(topic: str) -> None:
    """Raise BadInput for a name that no topic may have."""
    _check("topic", topic, TOPIC_BYTES_MAX)


def check_group_name(group: str) -> None:
    """Raise BadInput for a name that no group may have."""
    _check("group", group, GROUP_BYTES_MAX)


def check_producer_name(name: str) -> None:
    """Raise BadInput for a name that no producer may have."""
    _check("producer's", name, TOPIC_BYTES_MAX)


def _check(kind: str, name: str, bytes_max: int) -> None:
    if len(name) > bytes_max or not _LEGAL.fullmatch(name):
        raise BadInput(
            f"the {kind} name {name[:NAME_SHOWN_CHARACTERS_MAX]!r} is not 1 to {bytes_max} of the "
            "characters a-z A-Z 0-9 % | _ -"
        )
