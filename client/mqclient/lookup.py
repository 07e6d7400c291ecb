"""A message by its unique key: the request that brokers answer from their index. Pure."""

from __future__ import annotations

from dledger.remoting.headers import QueryMessageHeader
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
