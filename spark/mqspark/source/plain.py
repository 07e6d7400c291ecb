"""The records of many entries at once, where nothing is odd about any of them. Pure.

:mod:`mqspark.source.records` looks at one record after the other, and knows what to say of damage.
Most logs have none, and then few steps need a loop: from each record to the next, and the CRC of
each body. All else is looked at by numpy, a column at a time. Whatever is not as it should be ends
this at once, and the same entries are walked record by record: only there is decided what is wrong.

Neighbours have their unique key at the same place among their properties, mostly. So the first
record's is sought, and then all are taken that have one there; then the next one's, of those left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import COMPRESSED, CRC_MASK, MAGIC
from dledger.remoting.record.columns import RecordColumns as Columns
from dledger.remoting.record.layout import BODY_AT, U32
from mqspark.limits import ALIKE_GROUPS_MAX
from mqspark.source.records import Place, RecordColumns, content_crc, crc_of_parts, unique_key_in

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Spans = list[tuple[int, int]]


_KEY: Final = np.frombuffer(b"UNIQ_KEY\x01", np.uint8)
_BETWEEN: Final = 2
_ASCII_END: Final = 128


def cut(data: Bytes, places: Ints, width: int) -> Bytes:
    """The bytes at each place, a row each; all of them must be there."""
    windows: Bytes = np.lib.stride_tricks.sliding_window_view(data, width)
    return windows[places]


class PlainWalk:
    """Walks entry bodies of one segment, whose first byte has `base_position`."""

    def __init__(self, raw: memoryview, base_position: int, *, verify: bool) -> None:
        self._raw = raw
        self._data = np.frombuffer(raw, np.uint8)
        self._base_position = base_position
        self._verify = verify

    def starts(self, start: int, end: int) -> list[int] | None:
        """Where records begin from `start` to `end`; None if their sizes don't lead there."""
        found, at = [], start
        while at + BODY_AT <= end:
            found.append(at)
            (size,) = U32.unpack_from(self._raw, at)
            if size < BODY_AT:
                return None
            at += size
        return found if at == end else None

    def rows(self, places: Sequence[Place], chains: Sequence[list[int]]) -> RecordColumns | None:
        """A row for each record, entry by entry; None if anything is odd.

        `places` is what the rows of an entry share, `chains` where its records begin.
        """
        starts = [at for chain in chains for at in chain]
        if not starts:
            return RecordColumns()
        at = np.array(starts, np.int64)
        columns = Columns(self._raw, at)
        head, ends = columns.front, columns.ends
        flags = head["sys_flag"].astype(np.int64)
        if np.any(head["magic"] != MAGIC):
            return None
        if np.any(head["physical_offset"] != self._base_position + at):
            return None
        parts = columns.spans
        if not parts.fit.all():
            return None
        body_bytes = parts.body_ends - parts.body_begins
        bodies = list(zip(parts.body_begins.tolist(), body_bytes.tolist(), strict=True))
        properties_bytes = (ends - parts.properties).tolist()
        properties = list(zip(parts.properties.tolist(), properties_bytes, strict=True))
        crcs: list[int | None] = [None] * len(starts)
        if self._verify:
            stored = [crc32(self._raw[place : place + size]) for place, size in bodies]
            if np.any(np.array(stored, np.int64) & CRC_MASK != head["body_crc"]):
                return None
            crcs = self._contents(stored, flags, bodies, properties)
        topics = self._topics(parts.topic_begins, parts.topic_ends)
        return RecordColumns(
            places=[place for place, chain in zip(places, chains, strict=True) for _ in chain],
            starts=starts,
            sizes=head["size"].tolist(),
            bodies=bodies,
            topics=topics,
            properties=properties,
            unique_keys=self._unique_keys(parts.properties, ends),
            content_crcs=crcs,
            moved=_moved(topics, chains) if OP_TOPIC in topics else set(),
            bytes_held=int(head["size"].sum()),
        )

    def _contents(
        self, stored: list[int], flags: Ints, bodies: Spans, properties: Spans
    ) -> list[int | None]:
        """The CRCs of the bodies as they were sent."""
        crcs: list[int | None] = [*stored]
        for k in np.flatnonzero(flags & COMPRESSED).tolist():
            at, size = bodies[k]
            crcs[k] = content_crc(self._raw[at : at + size], int(flags[k]))
        for k in [number for number, (_, size) in enumerate(bodies) if not size]:
            at, size = properties[k]
            if (crc := crcs[k]) is not None:
                crcs[k] = crc_of_parts(bytes(self._raw[at : at + size]), crc)
        return crcs

    def _topics(self, starts: Ints, ends: Ints) -> list[str | None]:
        """The topics: the first one's is read, and all that are the same; and so on."""
        found = np.full(len(starts), None, object)
        left = np.arange(len(starts))
        for _ in range(ALIKE_GROUPS_MAX):
            if not len(left):
                break
            start, end = int(starts[left[0]]), int(ends[left[0]])
            same = left[ends[left] - starts[left] == end - start]
            if start < end:
                rows = cut(self._data, starts[same], end - start)
                same = same[(rows == rows[0]).all(1)]
            found[same] = bytes(self._raw[start:end]).decode("utf-8", "replace")
            left = left[found[left] == None]  # noqa: E711 - each for itself
        for k in left.tolist():
            found[k] = bytes(self._raw[starts[k] : ends[k]]).decode("utf-8", "replace")
        topics: list[str | None] = found.tolist()
        return topics

    def _unique_keys(self, starts: Ints, ends: Ints) -> list[str | None]:
        """The unique key among each record's properties; None where there is none."""
        found = np.full(len(starts), None, object)
        unknown = np.ones(len(starts), np.bool_)
        for _ in range(ALIKE_GROUPS_MAX):
            left = np.flatnonzero(unknown)
            if not len(left):
                break
            first = int(left[0])
            text = bytes(self._raw[starts[first] : ends[first]])
            key = unique_key_in(text)
            unknown[first] = False
            if key is None:
                continue
            begin, end = key
            found[first] = text[begin:end].decode("utf-8", "replace")
            alike = left[self._have_key(starts[left], ends[left], begin, end)]
            if begin < end and len(alike):
                keys = cut(self._data, starts[alike] + begin, end - begin)
                joined, size = keys.tobytes().decode("ascii"), end - begin
                found[alike] = [joined[at : at + size] for at in range(0, len(joined), size)]
                unknown[alike] = False
        for k in np.flatnonzero(unknown).tolist():
            text = bytes(self._raw[starts[k] : ends[k]])
            if (key := unique_key_in(text)) is not None:
                found[k] = text[slice(*key)].decode("utf-8", "replace")
        names: list[str | None] = found.tolist()
        return names

    def _have_key(self, starts: Ints, ends: Ints, begin: int, end: int) -> Flags:
        """Flags of the rows whose properties have their first unique key from `begin` to `end`, in
        ASCII.

        Rows in which it might not be the first, since the end of its name occurs before it, are not
        among them.
        """
        have = starts + end <= ends
        rows = cut(self._data, starts[have], end)
        named = begin - len(_KEY)
        fit = (rows[:, named:begin] == _KEY).all(1)
        before, inside = rows[:, :named], rows[:, begin:]
        if named:
            fit &= before[:, -1] == _BETWEEN
            fit &= ~((before[:, 1:] == ord("_")) & (before[:, :-1] == ord("Q"))).any(1)
        fit &= ((inside != _BETWEEN) & (inside < _ASCII_END)).all(1)
        behind = starts[have] + end
        is_last = behind == ends[have]
        fit &= is_last | (self._data[np.where(is_last, behind - 1, behind)] == _BETWEEN)
        have[have] = fit
        return have


def _moved(topics: Sequence[str | None], chains: Sequence[list[int]]) -> set[int]:
    """The rows of those entries that begin with the broker's note, without that note."""
    moved: set[int] = set()
    first = 0
    for chain in chains:
        if chain and topics[first] == OP_TOPIC:
            moved.update(range(first + 1, first + len(chain)))
        first += len(chain)
    return moved
