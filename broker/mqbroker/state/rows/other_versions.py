"""Reads topics and groups from the log or a snapshot, which any version may have written. Pure.

Requests are bounded before they become an entry (`dledger.remoting.numbers`). Older versions did
not do so: their log may hold a topic with a permission of 2^40. An integer that is too large or
small for its field is read as the nearest one that fits: on every replica, and from the log as from
a snapshot.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from dledger.buffers import Buffer
from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from dledger.remoting.numbers import INT32_MAX, INT32_MIN

T = TypeVar("T")

_NUMBERS: Final = frozenset(
    field.encode_name
    for config in (TopicConfig, SubscriptionGroupConfig)
    for field in msgspec.structs.fields(config)
    if type(field.default) is int
)


def decode(data: Buffer, wanted: type[T]) -> T:
    """Decode a value of a type from msgpack. Raises msgspec.MsgspecError if it is of another
    type."""
    try:
        return msgspec.msgpack.decode(data, type=wanted)
    except msgspec.ValidationError:
        return msgspec.convert(_fitting(msgspec.msgpack.decode(data)), wanted)


def _fitting(value: object) -> object:
    if isinstance(value, list):
        return [_fitting(item) for item in value]
    if isinstance(value, dict):
        return {
            name: min(max(item, INT32_MIN), INT32_MAX)
            if name in _NUMBERS and type(item) is int
            else _fitting(item)
            for name, item in value.items()
        }
    return value
