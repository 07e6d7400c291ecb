"""The history of a run as it should have been: two producers, two consumers, and the harness.

As lines or, for long runs, as columns: the same rows, in the same order, as packed lines have
(`mqspark.history.packing`). Columns are made of tens of thousands of messages at once, and take a
twentieth of the time.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqspark.history.files import LINES, PARQUET, REST
from mqspark.history.packing import SCHEMA, pack
from mqspark.limits import PACKED_LINES_MAX
from mqspark.testing.synthetic.log import TERM
from mqspark.testing.synthetic.run import Bytes, Numbers, Run

_SEND_INTERVAL_NS: Final = 10_000
_ACK_DELAY_NS: Final = 2_000_000
_DELIVERY_DELAY_NS: Final = 5_000_000
Flags = npt.NDArray[np.bool_]
NumberT = TypeVar("NumberT", int, Numbers)
_CLIENTS: Final = 2
"""Producers, and as many consumers; a queue has one of each."""


class Stored(NamedTuple):
    """The messages of one entry: the first one's number, and of each where it is, and its body."""

    first: int
    positions: Numbers
    crcs: Numbers
    body_bytes: int


def _write_notes(run: Run, folder: Path, stores: list[Path]) -> None:
    """The harness's file: what the run was, who led, and its end."""
    nodes = {node: str(store) for node, store in zip(run.nodes, stores, strict=True)}
    meta = {"seed": run.seed, "scenario": "synthetic", "topic": run.topic, "idempotent": True}
    notes: list[dict[str, object]] = [
        {"kind": "meta", "t": 0, **meta, "brokers": {run.broker: nodes}},
        {"kind": "lead", "t": 1, "broker": run.broker, "node": run.nodes[0], "term": TERM},
        {"kind": "end", "t": _sent_at(run.messages) + 10**9},
    ]
    lines = "".join(json.dumps(note) + "\n" for note in notes)
    folder.mkdir(parents=True)
    (folder / f"harness{LINES}").write_text(lines)


class HistoryInLines:
    """Files of JSON Lines, one for each client."""

    def __init__(self, run: Run, folder: Path, stores: list[Path]) -> None:
        self._run = run
        _write_notes(run, folder, stores)
        self._open = ExitStack()
        self._files = {
            name: self._open.enter_context((folder / f"{name}{LINES}").open("w"))
            for name in _names()
        }

    def record(self, stored: Stored) -> None:
        """Sends, acknowledgements and deliveries of the messages of one entry."""
        run, last_sent = self._run, _sent_at(stored.first + len(stored.positions))
        places = zip(stored.positions.tolist(), stored.crcs.tolist(), strict=True)
        for number, (position, crc) in enumerate(places, stored.first):
            queue, offset = number % run.queues, number // run.queues
            producer, consumer = f"producer-{queue % _CLIENTS}", f"consumer-{queue % _CLIENTS}"
            named = f'"id":"{run.message_id(number)}","topic":"{run.topic}"'
            slot = f'"broker":"{run.broker}","queue_id":{queue},"offset":{offset}'
            acked = last_sent + _ACK_DELAY_NS + number
            self._files[producer].write(
                f'{{"kind":"send","t":{_sent_at(number)},"client":"{producer}",{named},'
                f'"key":"key-{number}","crc":{crc},"size":{stored.body_bytes}}}\n'
                f'{{"kind":"ack","t":{acked},"client":"{producer}",{named},{slot},'
                f'"position":{position}}}\n'
            )
            self._files[consumer].write(
                f'{{"kind":"deliver","t":{acked + _DELIVERY_DELAY_NS},"client":"{consumer}",'
                f'"group":"{run.group}",{named},{slot},"crc":{crc}}}\n'
            )

    def close(self) -> None:
        """Close the file, as all was written."""
        self._open.close()


class HistoryInColumns:
    """Parquet files, one for each client."""

    def __init__(self, run: Run, folder: Path, stores: list[Path]) -> None:
        self._run = run
        notes = folder.with_name(f"{folder.name}-notes")
        _write_notes(run, notes, stores)
        pack(notes, folder)
        self._open = ExitStack()
        self._files = {
            name: self._open.enter_context(
                pq.ParquetWriter(folder / f"{name}{PARQUET}", SCHEMA, compression="zstd")
            )
            for name in _names()
        }
        self._stored: list[Stored] = []
        self._messages = 0

    def record(self, stored: Stored) -> None:
        """Sends, acknowledgements and deliveries of the messages of one entry."""
        self._stored.append(stored)
        self._messages += len(stored.positions)
        if self._messages >= PACKED_LINES_MAX // 2:
            self._write()

    def close(self) -> None:
        """Write the rows that are left, and close the file."""
        if self._stored:
            self._write()
        self._open.close()

    def _write(self) -> None:
        counts = [len(each.positions) for each in self._stored]
        ends = np.repeat([each.first + len(each.positions) for each in self._stored], counts)
        sizes = np.repeat([each.body_bytes for each in self._stored], counts)
        positions = np.concatenate([each.positions for each in self._stored])
        crcs = np.concatenate([each.crcs for each in self._stored])
        numbers = np.arange(self._messages) + self._stored[0].first
        acked = _sent_at(ends) + _ACK_DELAY_NS + numbers
        whose = numbers % self._run.queues % _CLIENTS
        for client in range(_CLIENTS):
            its = whose == client
            some = _Some(*(each[its] for each in (numbers, positions, crcs, acked, sizes)))
            self._files[f"producer-{client}"].write_table(self._sent(client, some))
            self._files[f"consumer-{client}"].write_table(self._delivered(client, some))
        self._stored.clear()
        self._messages = 0

    def _sent(self, client: int, some: _Some) -> pa.Table:
        """Each message's send, and behind it its acknowledgement."""
        twice = _Some(*(np.repeat(column, 2) for column in some))
        is_ack = np.tile([False, True], len(some.numbers))
        is_send = ~is_ack
        columns = self._named(f"producer-{client}", twice) | self._slot(twice, without=is_send)
        columns["kind"] = pa.array(["send", "ack"]).take(pa.array(is_ack.astype(np.int32)))
        columns["t"] = pa.array(np.where(is_ack, twice.acked, _sent_at(twice.numbers)))
        columns["crc"] = pa.array(twice.crcs, mask=is_ack)
        columns["position"] = pa.array(twice.positions, mask=is_send)
        columns[REST] = pc.if_else(pa.array(is_ack), None, _rest(twice))
        return _table(columns, len(is_ack))

    def _delivered(self, client: int, some: _Some) -> pa.Table:
        """Deliveries of these messages to a consumer, as rows of events."""
        count = len(some.numbers)
        columns = self._named(f"consumer-{client}", some) | self._slot(some, without=None)
        columns["kind"] = _all("deliver", count)
        columns["t"] = pa.array(some.acked + _DELIVERY_DELAY_NS)
        columns["crc"] = pa.array(some.crcs)
        columns["group"] = _all(self._run.group, count)
        return _table(columns, count)

    def _named(self, client: str, some: _Some) -> dict[str, pa.Array]:
        """The client that says something, and the message that it is about."""
        count = len(some.numbers)
        return {
            "client": _all(client, count),
            "id": _texts(self._run.message_ids(some.numbers)),
            "topic": _all(self._run.topic, count),
        }

    def _slot(self, some: _Some, without: Flags | None) -> dict[str, pa.Array]:
        """Columns of a message's place; `without`: the rows that don't say so."""
        queues = self._run.queues
        broker = np.full(len(some.numbers), self._run.broker, object)
        return {
            "broker": pa.array(broker, pa.string(), mask=without),
            "queue_id": pa.array((some.numbers % queues).astype(np.int32), mask=without),
            "offset": pa.array(some.numbers // queues, mask=without),
        }


class _Some(NamedTuple):
    """Columns of messages: numbers, positions, checksums, times, sizes."""

    numbers: Numbers
    positions: Numbers
    crcs: Numbers
    acked: Numbers
    sizes: Numbers


def _table(columns: dict[str, pa.Array], count: int) -> pa.Table:
    """A table of these columns, and all others empty."""
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _rest(some: _Some) -> pa.Array:
    """The fields of sends that have no column of their own."""
    keys, sizes = (pa.array(column).cast(pa.string()) for column in (some.numbers, some.sizes))
    pieces = '{"key":"key-', keys, '","size":', sizes, "}"
    return pc.binary_join_element_wise(*pieces, "")


def _all(text: str, count: int) -> pa.Array:
    return pa.repeat(text, count)


def _texts(rows: Bytes) -> pa.Array:
    """Each row of ASCII as a text."""
    count, width = rows.shape
    starts = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(starts), pa.py_buffer(rows))


def _names() -> list[str]:
    return [f"{role}-{client}" for role in ("producer", "consumer") for client in range(_CLIENTS)]


def _sent_at(number: NumberT) -> NumberT:
    """When a message is sent."""
    return 1_000_000 + number * _SEND_INTERVAL_NS
