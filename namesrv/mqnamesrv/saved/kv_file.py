"""The key-value config on disk: every change is durable before it is visible or acknowledged.

The table is a file that is replaced as a whole, so that a crash leaves the old content or the new
one; a journal beside it, `<file>.journal`, has the changes since, one line each. So a change only
writes its own line. When the journal is longer than the table (and than `KV_JOURNAL_BYTES_MIN`),
and at a start, the table is written anew and the journal emptied. A crash in between is harmless:
the same changes, made again in their order, give the same table.

A last line that a crash tore was not acknowledged. After a failed write it is not known what the
journal holds; the next change writes the table, and begins another journal.
"""

from __future__ import annotations

import os
from pathlib import Path

import trio

from dledger.errors import ConfigError, StorageError
from dledger.limits import FILE_MODE
from dledger.log.disk import Disk, close_to_others
from dledger.world import world
from mqnamesrv import limits
from mqnamesrv.saved.kv import KvTable, encode_change

IN_MEMORY_ONLY = (
    "kept until this name server ends, and lost then: its config has no kvConfigPath to keep it in"
)


class KvStore:
    """The current table, and its files if it has some. Without a path it lives in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._lock = trio.Lock()
        self._files = None if path is None else _Files(path)
        self.table = KvTable() if self._files is None else self._files.load()

    async def put(self, namespace: str, key: str, value: str) -> str | None:
        """Set the value of a key, durably. Returns what is to be said if it will be lost. BadInput
        beyond a bound, StorageError if it could not be made durable."""
        async with self._lock:
            table = self.table.put(namespace, key, value)
            await self._replace(table, encode_change(namespace, key, value))
        return IN_MEMORY_ONLY if self._files is None else None

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key; one that does not exist is no error. StorageError as above."""
        async with self._lock:
            table = self.table.delete(namespace, key)
            if table is not self.table:
                await self._replace(table, encode_change(namespace, key, None))

    async def _replace(self, table: KvTable, change: bytes) -> None:
        if self._files is not None:
            try:
                await world().in_thread(self._files.change, table, change)
            except OSError as error:
                raise StorageError(
                    f"kvConfigPath {self._files.path} can't be written: {error}"
                ) from error
        self.table = table


class _Files:
    """The table's file and its journal. Blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = path.with_name(path.name + ".journal")
        self._table_bytes = self._journal_bytes = 0
        self._is_known = True

    def load(self) -> KvTable:
        """Read what was acknowledged. Raises ConfigError if the files are damaged."""
        disk = Disk()
        try:
            data, journal = disk.read(self.path), disk.read(self._journal)
        except OSError as error:
            reason = error.strerror
            raise ConfigError(f"kvConfigPath {self.path} can't be read: {reason}") from error
        try:
            table = KvTable.decode(data) if data or self.path.exists() else KvTable()
            table = table.with_changes(journal)
        except ConfigError as error:
            remedy = "repair or move it away"
            raise ConfigError(f"kvConfigPath {self.path}: {error}; {remedy}") from error
        for path in (self.path, self._journal):  # which are a table's, it has turned out
            if path.exists():
                close_to_others(path)
        self._table_bytes = len(data)
        self._is_known = not journal and self.path.exists()
        return table

    def change(self, table: KvTable, change: bytes) -> None:
        """Make a change durable, after which the table is `table`. Raises OSError."""
        bytes_max = max(self._table_bytes, limits.KV_JOURNAL_BYTES_MIN)
        if not self._is_known or self._journal_bytes + len(change) > bytes_max:
            self._write_table(table)
            return
        self._is_known = False
        descriptor = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            disk = Disk()
            try:
                disk.write(descriptor, [change], self._journal_bytes)
            except OSError:
                os.ftruncate(descriptor, self._journal_bytes)
                raise
            disk.sync_data(descriptor)
            if not self._journal_bytes:
                disk.sync_folder(self.path.parent)
        finally:
            os.close(descriptor)
        self._journal_bytes += len(change)
        self._is_known = True

    def _write_table(self, table: KvTable) -> None:
        disk, content = Disk(), table.encode()
        disk.make_folder(self.path.parent)
        disk.replace(self.path, content)
        disk.remove(self._journal)
        disk.sync_folder(self.path.parent)
        self._table_bytes, self._journal_bytes, self._is_known = len(content), 0, True
