"""The key-value config on disk: every change is durable before it is visible or acknowledged.

The file is replaced as a whole: written beside its place, synced, renamed, and the folder synced,
so that a crash leaves the old content or the new one.
"""

from __future__ import annotations

from pathlib import Path

import trio

from dledger.errors import ConfigError, StorageError
from dledger.log.disk import Disk
from namesrv.kv import KvTable


class KvStore:
    """The current table, and its file if it has one. Without a path it lives in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = trio.Lock()
        self.table = KvTable() if path is None else _load(path)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. BadInput beyond a bound, StorageError if it could not be made durable."""
        async with self._lock:
            await self._replace(self.table.put(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key; one that does not exist is no error. StorageError as above."""
        async with self._lock:
            await self._replace(self.table.delete(namespace, key))

    async def _replace(self, table: KvTable) -> None:
        if table is self.table:
            return
        if self._path is not None:
            try:
                await trio.to_thread.run_sync(_write, self._path, table.encode())
            except OSError as error:
                raise StorageError(
                    f"kvConfigPath {self._path} can't be written: {error}"
                ) from error
        self.table = table


def _load(path: Path) -> KvTable:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return KvTable()
    except OSError as error:
        raise ConfigError(f"kvConfigPath {path} can't be read: {error.strerror}") from error
    try:
        return KvTable.decode(data)
    except ConfigError as error:
        raise ConfigError(f"kvConfigPath {path}: {error}; repair or move it away") from error


def _write(path: Path, data: bytes) -> None:
    disk = Disk()
    disk.make_folder(path.parent)
    disk.replace(path, data)
