"""The input of bulk encoding, and its output. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from mqclient.connection.identity import UniqueKeys

Column: TypeAlias = Any
"""An Arrow array, or a sequence of Python's values."""


class Columns(NamedTuple):
    """Messages of one topic, a row each. All columns have the same length. A null means no value.

    `body` has bytes and no null. `key` and `tags` have texts, `properties` maps of texts: Arrow's
    or dicts. `born` has the time at which each message was made, as Arrow timestamps or ms since
    1970; the default is now.
    """

    body: Column
    key: Column | None = None
    tags: Column | None = None
    properties: Column | None = None
    born: Column | None = None


class RecordsBatch(NamedTuple):
    """Finished records for one broker group: `runs` are (queue id, count), in order.

    `first_row` is the lowest of its rows, and `first_key` the unique key of its first record.
    """

    topic: str
    broker_name: str
    runs: Sequence[tuple[int, int]]
    records: bytes
    rows: int
    first_row: int
    first_key: str


class Sender(NamedTuple):
    """The sender of rows: the source of its messages' unique keys, its host as records have it, and
    the time."""

    keys: UniqueKeys
    born_host: bytes
    now_ms: int
