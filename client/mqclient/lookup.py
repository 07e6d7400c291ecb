"""A message by its unique key: the request that brokers answer from their index. Pure."""

from __future__ import annotations

from dledger.remoting.headers import QueryMessageHeader

END_OF_TIME_MS = 2**63 - 1
UNIQUE_KEY_COPIES_MAX = 32
"""As many copies of one message as stock clients ask for: retries after an unknown outcome."""


def unique_key_query(topic: str, unique_key: str) -> QueryMessageHeader:
    """Ask for the messages of a topic with this key. The answer may hold others of equal hash."""
    return QueryMessageHeader(
        topic=topic,
        key=unique_key,
        max_num=UNIQUE_KEY_COPIES_MAX,
        begin_timestamp=0,
        end_timestamp=END_OF_TIME_MS,
    )
