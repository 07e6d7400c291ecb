"""The bound on the keys of one request's messages. Pure.

Each replica puts all keys of an entry into its index at once, and nothing else is done meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dledger.remoting.record import Record
from dledger.remoting.record.batch import RecordBatch
from dledger.remoting.record.lone import LoneRecord
from mqbroker import limits
from mqbroker.refusal import illegal_message
from mqbroker.state.derived.properties import KEYS_NAME, Properties, value_in


def keys_allowed(messages: int) -> int:
    """How many words the KEYS of so many messages of one request may have."""
    return limits.KEYS_PER_BATCH_MAX - limits.KEYS_PER_MESSAGE_WEIGHT * messages


def check_keys(messages: int, words: int) -> None:
    """Refuse a request whose messages have too many keys."""
    if words > keys_allowed(messages):
        raise illegal_message(
            f"{messages} messages with {words} keys; beside so many messages at most "
            f"{keys_allowed(messages)} are taken: send fewer at a time"
        )


def check_batch(batch: RecordBatch | LoneRecord) -> None:
    """Refuse a batch whose messages have too many keys."""
    if isinstance(batch, RecordBatch):
        begins, ends = batch.properties_places
        if int((ends - begins).sum()) > keys_allowed(batch.count):
            check_keys(batch.count, words_in_batch(batch))


def check_properties(properties: Sequence[bytes]) -> None:
    """Refuse messages with these properties, if they have too many keys."""
    text = b"".join(properties)
    if len(text) > keys_allowed(len(properties)):
        widths = np.fromiter(map(len, properties), np.int64, len(properties))
        ends = np.cumsum(widths)
        words = Properties(memoryview(text), ends - widths, ends, b"").words_of_keys()
        check_keys(len(properties), words)


def words_in_batch(batch: RecordBatch | LoneRecord) -> int:
    """How many words there are in the KEYS of all its messages."""
    buffer = memoryview(batch.buffer)
    if isinstance(batch, LoneRecord):
        value = value_in(bytes(Record(buffer).properties), KEYS_NAME)
        return 0 if value is None else value.count(b" ") + 1
    return Properties(buffer, *batch.properties_places, b"").words_of_keys()
