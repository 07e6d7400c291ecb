"""Writes replica directories and a history, without a broker: a run as it should have been.

Only for tests and measurements of the audit. It is independent of the broker on purpose: judge
and judged must not share a mistake. The form of a record and of an entry is all it borrows.

Records of one entry have the same size, so that numpy fills them all at once: a million messages
take seconds. Sizes differ between entries.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.limits import SEGMENT_BYTES
from dledger.log.entry import HEADER_BYTES, Kind, make_header, padded
from dledger.log.recovery.tail import WATERMARK_BYTES
from dledger.log.segment import segment_path
from dledger.remoting.message import KEYS, UNIQ_KEY, host_bytes, properties_encode
from dledger.remoting.record import CRC_MASK, encode_record

Bytes = npt.NDArray[np.uint8]

_HOST: Final = host_bytes("127.0.0.1", 10911)
_BORN_MS: Final = 1_767_225_600_000
_ID_DIGITS: Final = 32
_SEND_INTERVAL_NS: Final = 10_000
_ACK_DELAY_NS: Final = 2_000_000
_DELIVERY_DELAY_NS: Final = 5_000_000
_TERM: Final = 1


@dataclass(frozen=True)
class Run:
    """What to write. Sizes in bytes; `batch` is messages per entry."""

    messages: int = 1000
    queues: int = 8
    batch: int = 50
    body_bytes_min: int = 100
    body_bytes_max: int = 200
    segment_bytes: int = SEGMENT_BYTES
    nodes: tuple[str, ...] = ("n0", "n1", "n2")
    broker: str = "broker-a"
    topic: str = "Audited"
    group: str = "audit-group"
    seed: int = 1

    def message_id(self, number: int) -> str:
        """The unique key of message `number`, counted from 0."""
        return f"{self.seed:08X}{number:024X}"


class LogWriter:
    """Writes entries to segment files as the log does; sizes and positions are its business."""

    def __init__(self, directory: Path, segment_bytes: int, chain_crc: int = 0) -> None:
        self._folder = directory / "log"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._segment_bytes = segment_bytes
        self._segment: bytearray | None = None
        self._chain_crc = chain_crc
        self.position = 0
        self.next_index = 1

    def body_position(self, body_bytes: int) -> int:
        """Where the body of the next entry will stand."""
        self._make_room(HEADER_BYTES + body_bytes)
        return self.position + HEADER_BYTES

    def append(self, kind: int, body: bytes, term: int = _TERM) -> None:
        """One entry; it is in the file after :meth:`close`, or when its segment is full."""
        self._make_room(HEADER_BYTES + len(body))
        header, raw_header = make_header(
            self._chain_crc,
            index=self.next_index,
            term=term,
            position=self.position,
            kind=kind,
            body=body,
        )
        self._chain_crc = header.chain_crc
        if self._segment is None:
            self._segment = bytearray(self._segment_bytes)
        offset = self.position % self._segment_bytes
        self._segment[offset : offset + header.size] = raw_header + body
        self.position += padded(HEADER_BYTES + len(body))
        self.next_index += 1

    def close(self) -> None:
        """Write the last segment."""
        if self._segment is not None:
            base = (self.position - 1) // self._segment_bytes * self._segment_bytes
            segment_path(self._folder, base).write_bytes(self._segment)
            self._segment = None

    def _make_room(self, size_bytes: int) -> None:
        offset = self.position % self._segment_bytes
        if offset + size_bytes > self._segment_bytes - WATERMARK_BYTES:
            self.close()
            self.position += self._segment_bytes - offset


def write_run(run: Run, directory: Path) -> tuple[Path, list[Path]]:
    """Write `history/` and one store a node under `directory`; return their paths."""
    history = directory / "history"
    history.mkdir(parents=True)
    stores = [directory / f"{run.broker}-{node}" for node in run.nodes]
    log = LogWriter(stores[0], run.segment_bytes)
    log.append(Kind.NOOP, b"")
    with _Clients(run, history, stores) as clients:
        for first in range(0, run.messages, run.batch):
            count = min(run.batch, run.messages - first)
            body, starts, crcs = _entry_body(run, log, first, count)
            position = log.position + HEADER_BYTES
            log.append(Kind.MESSAGES, body)
            clients.record(first, (starts + position).tolist(), crcs, len(body) // count)
    log.close()
    for node, store in zip(run.nodes, stores, strict=True):
        if store != stores[0]:
            shutil.copytree(stores[0] / "log", store / "log")
        description = {
            "format": 1,
            "broker_name": run.broker,
            "node_id": node,
            "segment_bytes": run.segment_bytes,
        }
        (store / "replica.json").write_text(json.dumps(description))
    return history, stores


def _entry_body(
    run: Run, log: LogWriter, first: int, count: int
) -> tuple[bytes, npt.NDArray[np.int64], list[int]]:
    """The records of messages `first` on; where each starts; the CRCs of their bodies."""
    choose = random.Random(run.seed * 1_000_003 + first)
    length = choose.randint(run.body_bytes_min, run.body_bytes_max)
    properties = properties_encode({KEYS: f"key-{first}", UNIQ_KEY: "0" * _ID_DIGITS})
    template = encode_record(
        topic=run.topic.encode(),
        queue_id=0,
        body=bytes(length),
        properties=properties,
        born_timestamp_ms=_BORN_MS + first,
        born_host=_HOST,
        store_timestamp_ms=_BORN_MS + first + 1,
        store_host=_HOST,
    )
    size = len(template)
    rows: Bytes = np.tile(np.frombuffer(template, np.uint8), (count, 1))
    numbers = np.arange(first, first + count, dtype=np.int64)
    starts = np.arange(count, dtype=np.int64) * size
    bodies = np.frombuffer(choose.randbytes(count * length), np.uint8).reshape(count, length)
    rows[:, 88 : 88 + length] = bodies
    ids = "".join(run.message_id(number) for number in numbers.tolist()).encode()
    rows[:, size - _ID_DIGITS - 1 : size - 1] = np.frombuffer(ids, np.uint8).reshape(count, -1)
    crcs = [crc32(row) for row in np.ascontiguousarray(bodies)]
    position = log.body_position(rows.size)
    _fill(rows, 8, np.array(crcs) & CRC_MASK, ">u4")
    _fill(rows, 12, numbers % run.queues, ">u4")
    _fill(rows, 20, numbers // run.queues, ">u8")
    _fill(rows, 28, starts + position, ">u8")
    return rows.tobytes(), starts, crcs


def _fill(rows: Bytes, at: int, values: npt.NDArray[np.int64], stored: str) -> None:
    column = values.astype(stored)
    rows[:, at : at + column.itemsize] = column.view(np.uint8).reshape(len(values), -1)


class _Clients:
    """Two producers and two consumers, one history file each, and the harness's own."""

    def __init__(self, run: Run, history: Path, stores: list[Path]) -> None:
        self._run = run
        names = ("producer-0", "producer-1", "consumer-0", "consumer-1", "harness")
        self._files = {name: (history / f"{name}.jsonl").open("w") for name in names}
        brokers = {
            run.broker: {node: str(store) for node, store in zip(run.nodes, stores, strict=True)}
        }
        meta = {"seed": run.seed, "scenario": "synthetic", "topic": run.topic, "idempotent": True}
        self._note({"kind": "meta", "t": 0, **meta, "brokers": brokers})
        self._note(
            {"kind": "lead", "t": 1, "broker": run.broker, "node": run.nodes[0], "term": _TERM}
        )

    def __enter__(self) -> _Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._note({"kind": "end", "t": self._sent_at(self._run.messages) + 10**9})
        for file in self._files.values():
            file.close()

    def record(self, first: int, positions: list[int], crcs: list[int], size: int) -> None:
        """Sends, acknowledgements and deliveries of the messages of one entry."""
        run = self._run
        last_sent = self._sent_at(first + len(positions))
        for number, position, crc in zip(
            range(first, first + len(positions)), positions, crcs, strict=True
        ):
            message_id, queue, offset = (
                run.message_id(number),
                number % run.queues,
                number // run.queues,
            )
            producer = f"producer-{queue % 2}"
            consumer = f"consumer-{queue % 2}"
            named = f'"id":"{message_id}","topic":"{run.topic}"'
            slot = f'"broker":"{run.broker}","queue_id":{queue},"offset":{offset}'
            acked = last_sent + _ACK_DELAY_NS + number
            self._files[producer].write(
                f'{{"kind":"send","t":{self._sent_at(number)},"client":"{producer}",{named},'
                f'"key":"key-{number}","crc":{crc},"size":{size}}}\n'
                f'{{"kind":"ack","t":{acked},"client":"{producer}",{named},{slot},'
                f'"position":{position}}}\n'
            )
            self._files[consumer].write(
                f'{{"kind":"deliver","t":{acked + _DELIVERY_DELAY_NS},"client":"{consumer}",'
                f'"group":"{run.group}",{named},{slot},"crc":{crc}}}\n'
            )

    def _sent_at(self, number: int) -> int:
        return 1_000_000 + number * _SEND_INTERVAL_NS

    def _note(self, event: dict[str, object]) -> None:
        self._files["harness"].write(json.dumps(event) + "\n")
