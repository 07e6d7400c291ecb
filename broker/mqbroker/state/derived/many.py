"""Many records of one topic in an entry's body, taken apart column by column. Pure."""

from __future__ import annotations

import numpy as np

from dledger.errors import RecordError
from dledger.remoting.record.columns import RecordColumns, record_starts
from mqbroker.state.aside import Unusable
from mqbroker.state.derived.entry_index import Copies, EntryIndex, Run
from mqbroker.state.derived.properties import Places, Properties, Said
from mqbroker.state.derived.units import UNIT, lives


def starts_of(body: memoryview) -> Places:
    """Places in `body`, in bytes, at which the records begin. Raises Unusable if records do not
    fill the body."""
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
        self._columns = RecordColumns(body, starts)
        self._positions = starts + position
        if not np.array_equal(self._columns.front["physical_offset"], self._positions):
            raise Unusable(f"the entry at {position} holds records of another position")

    def index(self, store_timestamp_ms: int, copies: Copies | None) -> EntryIndex | None:
        """The units of these records, sent together; or each by itself, so that each may be
        retried, if no `copies` are given for the dedup window.

        None unless all are of the topic, and all lengths are right. Raises Unusable for other
        bytes that no leader writes.
        """
        begins = self._columns.properties_of(self._encoded_topic)
        if begins is None:
            return None
        properties = Properties(self._body, begins, self._columns.ends, self._encoded_topic)
        if copies is None:
            copies = self._copies(properties)
        said = properties.read(self._positions)
        runs = self._runs(store_timestamp_ms, said)
        return EntryIndex(self.topic, store_timestamp_ms, copies, runs, said.keys)

    def _copies(self, properties: Properties) -> Copies:
        """Dedup keys and places of the messages. A message that was sent back keeps its key and is
        a new one."""
        first_tries = (self._columns.back["reconsume_times"] == 0).tolist()
        places = zip(self._positions.tolist(), self._columns.front["size"].tolist(), strict=True)
        return [
            (key, place)
            for key, place, is_first in zip(
                properties.dedup_keys(), places, first_tries, strict=True
            )
            if key is not None and is_first
        ]

    def _runs(self, store_timestamp_ms: int, said: Said) -> list[Run]:
        heads = self._columns.front
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
