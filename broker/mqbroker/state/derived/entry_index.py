"""The units that an entry of messages of one topic adds to queues, key index and dedup window.
Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from mqbroker.state.derived.keys import Keys
from mqbroker.state.derived.units import UNIT, UNIT_FIELDS, Units

#: A unit of a queue without its check: position, size, the end of its life, tags code, store time.
PACKED_UNIT: Final = struct.Struct(
    ">" + "".join("4x" if name == "check" else kind for name, kind in UNIT_FIELDS.items())
)


Copies: TypeAlias = Sequence[tuple[bytes, tuple[int, int]]]
"""For the dedup window: the key of each send, and where what was sent lies: position, size."""


class Run(NamedTuple):
    """Consecutive messages of one queue: the first one's offset, and their units as bytes."""

    queue_id: int
    first_offset: int
    units: bytes

    def decoded(self) -> Units:
        """The units as an array."""
        return np.frombuffer(self.units, UNIT)

    @property
    def messages(self) -> int:
        """Number of the messages, one for each unit."""
        return len(self.units) // PACKED_UNIT.size

    @property
    def size_bytes(self) -> int:
        """The size of their records, which lie back to back."""
        first, *_ = PACKED_UNIT.unpack_from(self.units)
        last, size, *_ = PACKED_UNIT.unpack_from(self.units, len(self.units) - PACKED_UNIT.size)
        return int(last) + int(size) - int(first)


class EntryIndex(NamedTuple):
    """An entry of messages, taken apart."""

    topic: str
    store_timestamp_ms: int
    copies: Copies
    runs: Sequence[Run]
    keys: Keys = ()
    """The keys for the key index."""
