"""Many records read column by column: one field of all of them at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dledger.buffers import Buffer
from dledger.limits import TOPIC_BYTES_MAX


def overlay(buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """`buffer` as an array whose item i is what begins at byte i, aligned or not.

    Indexed by an array of places it gathers one item from each, or scatters one to each.
    """
    layout = np.dtype(dtype)
    return np.ndarray((len(buffer) - layout.itemsize + 1,), layout, buffer, strides=(1,))


@lru_cache(maxsize=TOPIC_BYTES_MAX)
def _tail(topic_bytes: int) -> np.dtype[np.void]:
    return np.dtype([("topic", f"V{1 + topic_bytes}"), ("properties_length", ">u2")])


def tails(buffer: Buffer, body_ends: npt.NDArray[np.int64], topic: bytes) -> npt.NDArray[Any]:
    """The fields between the bodies and the properties of records of one topic.

    Two columns: `topic`, with its length byte (compare with `topic_field`), and
    `properties_length` in bytes. The properties begin `tail_bytes` behind the body.
    """
    return overlay(buffer, _tail(len(topic)))[body_ends]


def topic_field(topic: bytes) -> np.void:
    """The topic as a record has it: with its length in the byte before."""
    return np.void(bytes((len(topic),)) + topic)


def tail_bytes(topic: bytes) -> int:
    """How many bytes lie between a body and the properties."""
    return _tail(len(topic)).itemsize
