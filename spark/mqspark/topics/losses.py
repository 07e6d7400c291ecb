"""Messages that a read lacks: an error, or rows of a table.

The table is a folder of Parquet files, at a path or an address that every executor reaches, to be
read by `spark.read.parquet`. A file is named by the range that was read, so a batch that is
repeated writes the same file again, and no loss is counted twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs as filesystems
from pyarrow import parquet

from dledger.errors import DledgerError
from dledger.observe import get_logger
from dledger.remoting.json_dialect import MessageQueue
from mqspark.topics.options import Options
from mqspark.topics.planning import Loss

log = get_logger(__name__)

_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queue", pa.int32()),
        ("life", pa.int64()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("why", pa.string()),
        ("noticed", pa.timestamp("us", tz="UTC")),
    ]
)


class DataLoss(DledgerError):
    """Messages that were to be read are not there any more."""


class Since(NamedTuple):
    """The first message that a queue has now, and when it was stored (ms)."""

    offset: int
    stored_ms: int


def report(options: Options, name: str, losses: Sequence[Loss], since: Since | None = None) -> None:
    """Raise DataLoss, or note the losses as those of the range `name`, as the options say."""
    if not losses:
        return
    if options.fail_on_data_loss:
        raise DataLoss("; ".join(_sentence(each, since) for each in losses) + _ADVICE)
    for each in losses:
        log.warning("messages missing", reason=_sentence(each, since))
    if options.loss_table:
        _write(options.loss_table, name, losses)


_ADVICE = (
    ". With failOnDataLoss=false reading goes on without them, and lossTable=FOLDER keeps a list; "
    "a new checkpoint with startingOffsets=earliest begins anew"
)


def _sentence(loss: Loss, since: Since | None) -> str:
    upto = "on" if loss.end is None else f"to {loss.end - 1}"
    text = f"messages from {loss.begin} {upto} of {loss.queue} are missing: {loss.why}"
    if since is not None and since.stored_ms >= 0:
        stored = datetime.fromtimestamp(since.stored_ms / 1000, UTC)
        text += f" (the queue begins at {since.offset} now, stored {stored:%Y-%m-%d %H:%M:%S} UTC)"
    return text


def named(queue: MessageQueue) -> tuple[str, str, int]:
    """The parts of a queue's name."""
    return queue.topic, queue.broker_name, queue.queue_id


def _write(table: str, name: str, losses: Sequence[Loss]) -> None:
    now = datetime.now(UTC)
    rows = [
        (*named(each.queue), each.life, each.begin, each.end, each.why, now)
        for each in sorted(set(losses), key=lambda each: (each.queue, each.begin))
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    batch = pa.table(columns, schema=_SCHEMA)
    files, folder = _opened(table)
    files.create_dir(folder, recursive=True)
    file = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    # A reader of the folder passes over names that begin so, until the file is whole.
    hidden, whole = f"{folder}/.{file}", f"{folder}/{file}.parquet"
    parquet.write_table(batch, hidden, filesystem=files)
    files.move(hidden, whole)


def _opened(table: str) -> tuple[filesystems.FileSystem, str]:
    if "://" in table:
        files, folder = filesystems.FileSystem.from_uri(table)
        return files, folder
    return filesystems.LocalFileSystem(), table.removeprefix("file:")
