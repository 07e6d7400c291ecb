"""What a consumer wants of a topic: everything, or messages with one of some tags. Pure.

The broker filters by the hash of the tag, which may collide, so the client compares the tags
themselves once more. The syntax is RocketMQ's: "*" or "TagA || TagB".
"""

from __future__ import annotations

from dledger.errors import BadInput
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.message import tags_code
from dledger.remoting.names import check_topic_name

ALL = "*"


def parse_subscription(topic: str, expression: str, version_ms: int) -> SubscriptionData:
    """The subscription as brokers want it. `version_ms` tells newer ones from older ones.

    Raises BadInput for a name that no topic may have, and for an expression without a tag in it.
    """
    check_topic_name(topic)
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version_ms)
    tags = [tag.strip() for tag in expression.split("||")]
    if not all(tags):
        raise BadInput(f"subscription {expression!r} to {topic!r}: expected * or TagA || TagB")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=[tags_code(tag) for tag in tags],
        sub_version=version_ms,
    )
