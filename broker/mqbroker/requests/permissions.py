"""Permissions of topics, groups and the broker group itself at this moment. Pure.

A permission is judged on the leader, by the replicated state, when the act happens: when messages
are appended, and when messages are handed out, also to a request that has waited for them. A client
whose route is old learns it there.

Messages that the broker has taken are delivered, whatever becomes of permissions meanwhile: one
that is delayed arrives, a transaction can be committed, and a message that a consumer can't handle
goes to the group's retries and dead letters even if the broker group takes no new ones. Who has
messages may always acknowledge them, and say how far it is.

RocketMQ checks less: the permission of a topic only where consumers read and send back, and
`brokerPermission` only for topics of ordered messages; its clients' routes do the rest.
"""

from __future__ import annotations

from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from dledger.remoting.message import DLQ_PREFIX, RETRY_PREFIX
from dledger.remoting.names import PERM_READ, PERM_WRITE
from mqbroker.refusal import no_permission


def check_writable(topic: TopicConfig, broker: int) -> None:
    """Refuse messages to a topic that takes none, or at a broker group with this permission."""
    if not topic.perm & PERM_WRITE:
        raise no_permission(f"the topic {topic.topic_name!r} is not writable (perm {topic.perm})")
    if not broker & PERM_WRITE and not topic.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise no_permission(
            "this broker group takes no messages: its write permission was taken "
            "(brokerPermission, or `mqadmin wipeWritePerm`)"
        )


def check_readable(topic: TopicConfig, broker: int) -> None:
    """Refuse to read a topic that may not be read, or at a broker group with this permission."""
    if not topic.perm & PERM_READ:
        raise no_permission(f"the topic {topic.topic_name!r} is not readable")
    if not broker & PERM_READ:
        raise no_permission(
            f"this broker group gives no messages: its brokerPermission is {broker}"
        )


def may_be_read(topic: TopicConfig | None) -> bool:
    """Whether a topic is there, and readable."""
    return topic is not None and bool(topic.perm & PERM_READ)


def may_read(group: SubscriptionGroupConfig | None) -> bool:
    """Whether a group is there, and may have messages in every way."""
    return group is not None and group.consume_enable and group.consume_broadcast_enable


def check_enabled(group: SubscriptionGroupConfig) -> None:
    """Refuse to give messages to a group that may not have any."""
    if not group.consume_enable:
        raise no_permission(f"the group {group.group_name!r} is disabled")


def check_broadcast(group: SubscriptionGroupConfig, message_model: str) -> None:
    """Refuse to give a group all messages for each of its members, if it may not have them so."""
    if message_model == "BROADCASTING" and not group.consume_broadcast_enable:
        raise no_permission(
            f"the group {group.group_name!r} may not consume by broadcasting "
            "(consumeBroadcastEnable is false)"
        )
