"""Values of labels, as RocketMQ 5 writes them. Pure."""

from __future__ import annotations

from typing import Final

from dledger.remoting.codes import VERSION_ANY_DELAY
from dledger.remoting.names import TOOLS_GROUP, topic_kind
from mqbroker.requests.groups.membership import POPS

STORE: Final = {"storage_type": "local", "storage_medium": "disk"}
"""The labels of what is about the store."""
_SYSTEM_GROUPS: Final = frozenset(
    {
        TOOLS_GROUP,
        *("DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER"),
        *("SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
        *("CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS"),
    }
)
_CONSUME_MODES: Final = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    POPS: "pop",
}
_VERSIONS_AFTER: Final = (5, 0, 0)
"""The one with the number `VERSION_ANY_DELAY`; each release has two numbers, its snapshot first."""


def flag(value: object) -> str:
    """Label value of a truth value: `true` or `false`."""
    return "true" if value else "false"


def is_system_topic(topic: str, named_like: tuple[str, str]) -> bool:
    """Whether a topic is RocketMQ's own."""
    return topic_kind(topic, named_like) == "system"


def is_system_group(group: str) -> bool:
    """Whether a consumer group is RocketMQ's own."""
    return group in _SYSTEM_GROUPS or group.startswith("CID_RMQ_SYS_")


def consume_mode(consume_type: str) -> str:
    """How a group's members read."""
    return _CONSUME_MODES.get(consume_type, "push")


def version(number: int) -> str:
    """A client's version, for example v5_3_3."""
    releases, snapshot = divmod(number - VERSION_ANY_DELAY + 1, 2)
    major, minor, patch = _VERSIONS_AFTER
    at = major * 100 + minor * 10 + patch + releases
    text = f"v{at // 100}_{at // 10 % 10}_{at % 10}"
    return f"{text}_snapshot" if not snapshot else text
