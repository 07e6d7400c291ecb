"""Messages by their unique key, which brokers answer from their index, or by their place. Pure."""

from __future__ import annotations

from dledger.remoting.headers import PullMessageHeader, QueryMessageHeader
from dledger.remoting.headers.consume import PULL_SUBSCRIPTION
from mqclient import limits


def unique_key_query(topic: str, unique_key: str) -> QueryMessageHeader:
    """Ask for the messages of a topic with this key. The answer may hold others of equal hash."""
    return QueryMessageHeader(
        topic=topic,
        key=unique_key,
        max_num=limits.UNIQUE_KEY_COPIES_MAX,
        begin_timestamp=0,
        end_timestamp=limits.END_OF_TIME_MS,
    )


def look(
    group: str, topic: str, queue_id: int, offset: int, count: int, bytes_max: int | None = None
) -> PullMessageHeader:
    """Ask for what a queue has from `offset` on: it is not waited for, and nothing is committed."""
    return PullMessageHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        max_msg_bytes=bytes_max,
    )
