"""A history as Parquet while a run goes on: lines are packed, part by part, and taken away.

Clients write lines, into a row of files of bounded size; each that is closed is given to
`mqaudit pack`, a process of its own, whose file takes its place. So a long run keeps a tenth of the
bytes, nobody under load does more than write lines, and no reader holds more than a batch of rows.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pyarrow.parquet as pq
import trio

from mqchaos.cluster.processes import ClusterError
from mqchaos.history.events import LINES, PARQUET, Event, row_of
from mqchaos.limits import PACK_EVERY_S, PACKED_BATCH_ROWS

_REST = "rest"
_TYPES = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}


def closed_parts(files: Collection[Path]) -> list[Path]:
    """Parts that nobody writes any more: there is a later one of their row."""
    last: dict[str, int] = {}
    for file in files:
        name, number = row_of(file)
        last[name] = max(number, last.get(name, 0))
    return sorted(
        file for file in files if file.suffix == LINES and row_of(file)[1] < last[row_of(file)[0]]
    )


class Packer:
    """Packs the history of one run; `folder` is where a file is made before it takes its place."""

    def __init__(self, history: Path, folder: Path) -> None:
        self._history, self._folder = history, folder

    async def keep_packing(self) -> None:
        """Each part that is closed, until cancelled. Raises ClusterError."""
        while True:
            for file in closed_parts(list(self._history.iterdir())):
                await self._pack(file)
            await trio.sleep(PACK_EVERY_S)

    async def pack_rest(self) -> None:
        """All that is left, when everybody has closed theirs. Raises ClusterError."""
        for file in sorted(self._history.glob(f"*{LINES}")):
            await self._pack(file)

    async def _pack(self, file: Path) -> None:
        target = self._folder / file.stem
        for left in target.glob("*"):  # of one that was cancelled
            left.unlink()
        argv = [sys.executable, "-P", "-m", "mqspark.mqaudit", "pack"]
        argv += ["--history", str(file), "--to", str(target)]
        done = await trio.run_process(
            argv, check=False, capture_stdout=True, stderr=subprocess.STDOUT
        )
        if done.returncode:
            printed = done.stdout.decode(errors="replace").strip()[-500:]
            raise ClusterError(f"{file} can't be packed: {printed}")
        made = target / f"{file.stem}{PARQUET}"
        _replace(file, made)


def _replace(file: Path, made: Path) -> None:
    made.rename(file.with_suffix(PARQUET))
    file.unlink()
    made.parent.rmdir()


def read_packed(file: Path) -> Iterator[Event]:
    """The events of one file. What could not be read as one when it was packed is passed over."""
    with pq.ParquetFile(file) as rows:
        for batch in rows.iter_batches(PACKED_BATCH_ROWS):
            there = [name for name in batch.schema.names if batch[name].null_count < len(batch)]
            for row in batch.select(there).to_pylist():
                if row.get("kind") is not None:
                    yield event_of(row)


def event_of(row: dict[str, object]) -> Event:
    """A row as an event: its columns, and as JSON what has none, nulls among that."""
    rest = row.pop(_REST, None)
    members = {name: value for name, value in row.items() if value is not None}
    if isinstance(rest, str):
        members |= msgspec.json.decode(rest, type=dict[str, object])
    # By its own type: for a union, what it is made of is looked up at each call, which takes 15 us.
    event: Event = msgspec.convert(members, _TYPES.get(str(row["kind"]), Event))
    return event
