"""Replicas and the history of a run, written to files.

Records of one entry have the same size, so that numpy fills them all at once: a million messages
take seconds. Sizes differ between entries.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from dledger.checksum import crc32
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.remoting.message import KEYS, UNIQ_KEY, host_bytes, properties_encode
from dledger.remoting.record import CRC_MASK, encode_record
from mqspark.testing.synthetic.history import HistoryInColumns, HistoryInLines, Stored
from mqspark.testing.synthetic.log import LogWriter
from mqspark.testing.synthetic.run import ID_DIGITS, Bytes, Numbers, Run

_HOST: Final = host_bytes("127.0.0.1", 10911)
_BORN_MS: Final = 1_767_225_600_000


def write_run(
    run: Run, directory: Path, *, packed: bool = False, linked: bool = False
) -> tuple[Path, list[Path]]:
    """Write `history/` and one store a node under `directory`; return their paths.

    `packed`: the history as Parquet. `linked`: the replicas share one log's files, which saves the
    disk the room of the others.
    """
    stores = [directory / f"{run.broker}-{node}" for node in run.nodes]
    log = LogWriter(stores[0], run.segment_bytes)
    log.append(Kind.NOOP, b"")
    form: type[HistoryInColumns | HistoryInLines] = HistoryInColumns if packed else HistoryInLines
    with closing(form(run, directory / "history", stores)) as history:
        for first in range(0, run.messages, run.batch):
            count = min(run.batch, run.messages - first)
            body, starts, crcs = _entry_body(run, log, first, count)
            position = log.position + HEADER_BYTES
            log.append(Kind.MESSAGES, body)
            history.record(Stored(first, starts + position, crcs, len(body) // count))
    log.close()
    for node, store in zip(run.nodes, stores, strict=True):
        if store != stores[0]:
            copy = os.link if linked else shutil.copy2
            shutil.copytree(stores[0] / "log", store / "log", copy_function=copy)
        description = {
            "format": 1,
            "broker_name": run.broker,
            "node_id": node,
            "segment_bytes": run.segment_bytes,
        }
        (store / "replica.json").write_text(json.dumps(description))
    return directory / "history", stores


def _entry_body(run: Run, log: LogWriter, first: int, count: int) -> tuple[bytes, Numbers, Numbers]:
    """The records of messages `first` on; where each starts; the CRCs of their bodies."""
    choose = random.Random(run.seed * 1_000_003 + first)
    length = choose.randint(run.body_bytes_min, run.body_bytes_max)
    properties = properties_encode({KEYS: f"key-{first}", UNIQ_KEY: "0" * ID_DIGITS})
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
    rows[:, size - ID_DIGITS - 1 : size - 1] = run.message_ids(numbers)
    crcs = np.array([crc32(row) for row in bodies])
    position = log.body_position(rows.size)
    _fill(rows, 8, crcs & CRC_MASK, ">u4")
    _fill(rows, 12, numbers % run.queues, ">u4")
    _fill(rows, 20, numbers // run.queues, ">u8")
    _fill(rows, 28, starts + position, ">u8")
    return rows.tobytes(), starts, crcs


def _fill(rows: Bytes, at: int, values: Numbers, stored: str) -> None:
    column = values.astype(stored)
    rows[:, at : at + column.itemsize] = column.view(np.uint8).reshape(len(values), -1)
