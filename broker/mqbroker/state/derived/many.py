"""Many records of one topic in an entry's body, taken apart column by column. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dledger.errors import RecordError
from dledger.remoting.record import BORN_HOST_IPV6, RECORD_OVERHEAD_BYTES, STORE_HOST_IPV6
from dledger.remoting.record.batch import record_starts
from dledger.remoting.record.columns import overlay, tail_bytes, tails, topic_field
from dledger.remoting.record.layout import (
    BACK_BYTES,
    BODY_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    HOST_IPV6_EXTRA_BYTES,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from mqbroker.state.aside import Unusable
from mqbroker.state.derived.entry_index import EntryIndex, Run
from mqbroker.state.derived.properties import Places, Properties, Said
from mqbroker.state.derived.units import UNIT, Units, lives

_HEAD: Final = np.dtype(
    {
        "names": ["size", "queue_id", "queue_offset", "physical_offset", "sys_flag"],
        "formats": [">u4", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT],
        "itemsize": BORN_HOST_AT,
    }
)
_U32: Final = np.dtype(">u4")
_RECONSUME_TIMES_AT: Final = BODY_AT - BACK_BYTES


def starts_of(body: memoryview) -> Places:
    """Where each record begins. Raises Unusable if records do not fill the body."""
    try:
        return record_starts(body)
    except RecordError as error:
        raise Unusable(str(error)) from error


class Many:
    """Records of one topic, which begin at `starts`. `position` is that of the first in the log."""

    def __init__(self, body: memoryview, starts: Places, position: int, topic: str) -> None:
        """Raises Unusable for records that are not of that place."""
        self.topic = topic
        self._body = body
        self._encoded_topic = topic.encode()
        self._starts = starts
        self._heads: Units = overlay(body, _HEAD)[self._starts]
        self._sizes = self._heads["size"].astype(np.int64)
        self._positions = self._starts + position
        if not np.array_equal(self._heads["physical_offset"], self._positions):
            raise Unusable(f"the entry at {position} holds records of another position")
        flags = self._heads["sys_flag"]
        self._extra = np.where(flags & BORN_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)
        self._extra += np.where(flags & STORE_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)

    def index(
        self, store_timestamp_ms: int, copy: tuple[bytes, tuple[int, int]] | None
    ) -> EntryIndex | None:
        """What they add, sent all together; `copy` is for the dedup window.

        None unless all are of the topic, and all lengths are right. Raises Unusable for other
        bytes that no leader writes.
        """
        properties = self._properties()
        if properties is None:
            return None
        copies = () if copy is None else (copy,)
        return self._index(store_timestamp_ms, properties, copies)

    def index_sends(self, store_timestamp_ms: int) -> EntryIndex | None:
        """The same where each may have been sent by itself, so that each may be retried."""
        properties = self._properties()
        if properties is None:
            return None
        return self._index(store_timestamp_ms, properties, self._copies(properties))

    def _index(
        self,
        store_timestamp_ms: int,
        properties: Properties,
        copies: Sequence[tuple[bytes, tuple[int, int]]],
    ) -> EntryIndex:
        said = properties.read(self._positions)
        runs = self._runs(store_timestamp_ms, said)
        return EntryIndex(self.topic, store_timestamp_ms, copies, runs, said.keys)

    def _copies(self, properties: Properties) -> list[tuple[bytes, tuple[int, int]]]:
        """For the dedup window. A message that was sent back keeps its key, and is a new one."""
        times = overlay(self._body, "V4")[self._starts + self._extra + _RECONSUME_TIMES_AT]
        first_tries = (times == np.void(bytes(4))).tolist()
        places = zip(self._positions.tolist(), self._sizes.tolist(), strict=True)
        return [
            (key, place)
            for key, place, is_first in zip(
                properties.dedup_keys(), places, first_tries, strict=True
            )
            if key is not None and is_first
        ]

    def _runs(self, store_timestamp_ms: int, said: Said) -> list[Run]:
        heads = self._heads
        units = np.zeros(len(heads), UNIT)
        units["position"] = self._positions
        units["size"] = heads["size"]
        units["tags_code"] = said.tags_codes
        units["store_timestamp_ms"] = store_timestamp_ms
        if said.ends_ms:
            numbers = [number for number, _ in said.ends_ms]
            units["lives"][numbers] = [lives(end, store_timestamp_ms) for _, end in said.ends_ms]
        queue_ids = heads["queue_id"]
        offsets = heads["queue_offset"].astype(np.int64)
        same_queue = queue_ids[1:] == queue_ids[:-1]
        if (queue_ids < 0).any() or not (offsets[1:] - offsets[:-1] == 1)[same_queue].all():
            raise Unusable(
                f"the entry at {self._positions[0]} skips queue offsets, or is for no queue"
            )
        begins = [0, *(np.flatnonzero(~same_queue) + 1).tolist()]
        return [
            Run(int(queue_ids[begin]), int(offsets[begin]), units[begin:end].tobytes())
            for begin, end in zip(begins, [*begins[1:], len(units)], strict=True)
        ]

    def _properties(self) -> Properties | None:
        """Their properties, if all are of the topic, and all lengths are right."""
        topic, starts = self._encoded_topic, self._starts + self._extra
        room = self._sizes - (RECORD_OVERHEAD_BYTES + len(topic)) - self._extra
        if not (room >= 0).all():
            return None
        body_lengths = overlay(self._body, _U32)[starts + BODY_LENGTH_AT].astype(np.int64)
        room -= body_lengths
        if not (room >= 0).all():
            return None
        body_ends = starts + BODY_AT + body_lengths
        fields = tails(self._body, body_ends, topic)
        if not (fields["topic"] == topic_field(topic)).all():
            return None
        if not (fields["properties_length"] == room).all():
            return None
        begins, ends = body_ends + tail_bytes(topic), self._starts + self._sizes
        return Properties(self._body, begins, ends, topic)
