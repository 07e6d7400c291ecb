"""Subscriptions to a topic: all messages, or messages by their tags or properties. Pure.

The broker filters by the hash of the tag, which may collide, so the client compares the tags
themselves once more. The syntax is RocketMQ's: "*" or "TagA || TagB". A SQL92 expression is read by
the broker alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.errors import BadInput
from dledger.limits import SUBSCRIPTION_CHARACTERS_MAX, SUBSCRIPTION_TAGS_MAX
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.message import tags_code
from dledger.remoting.names import UNREADABLE, check_topic_name
from mqclient.signatures import checked

ALL = "*"


@checked
@dataclass(frozen=True, slots=True)
class Sql:
    """A filter by properties, in SQL92: `Sql("amount > 10 AND region = 'north'")`."""

    expression: str


def check_readable(topic: str, group: str | None) -> None:
    """Raise BadInput for a topic of brokers, which no group may read; tools have none."""
    if group is not None and topic in UNREADABLE:
        raise BadInput(
            f"the topic {topic!r} belongs to the brokers: its messages wait for their time or "
            "their transaction; subscribe to their own topics"
        )


def parse_subscription(topic: str, expression: str | Sql, version_ms: int) -> SubscriptionData:
    """The subscription as brokers want it. `version_ms` tells newer ones from older ones.

    Raises BadInput for a name that no topic may have, and for an expression without a tag in it.
    """
    check_topic_name(topic)
    if isinstance(expression, Sql):
        return SubscriptionData(
            topic=topic,
            sub_string=expression.expression,
            sub_version=version_ms,
            expression_type="SQL92",
        )
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version_ms)
    tags = [tag.strip() for tag in expression.split("||")]
    if not all(tags) or any("|" in tag for tag in tags):
        raise BadInput(f"subscription {expression!r:.200} to {topic!r}: expected * or TagA || TagB")
    if len(set(tags)) > SUBSCRIPTION_TAGS_MAX or len(expression) > SUBSCRIPTION_CHARACTERS_MAX:
        raise BadInput(
            f"a subscription to {topic!r} of {len(set(tags))} tags, {len(expression)} characters: "
            f"brokers take {SUBSCRIPTION_TAGS_MAX} and {SUBSCRIPTION_CHARACTERS_MAX} at most"
        )
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tuple(tags),
        code_set=tuple(tags_code(tag) for tag in tags),
        sub_version=version_ms,
    )
