"""A log as simple as it can be: a list of entries, and how many of them are durable.

It keeps the promises of :class:`~dledger.log.store.SegmentedLog` without files, so that the real
log can be compared with it after any sequence of operations. It passes the same contract, which
keeps it honest: `tests/contracts/` runs both.
"""

from __future__ import annotations

import errno
import random
from typing import NamedTuple, Self

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import CorruptLog, Fenced, StorageError, TooLarge
from dledger.log.entry import (
    HEADER_BYTES,
    Draft,
    Entry,
    Header,
    body_size,
    chain,
    decode_header,
    make_header,
    padded,
    place_body,
)
from dledger.log.head import LogHead, first_entry_of
from dledger.log.jobs import SyncJob
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.testing.log_store import SEGMENT_BYTES


class _Held(NamedTuple):
    """An entry: its header, and all its bytes, padding included."""

    header: Header
    raw: bytes


class _FailingSync(SyncJob):
    """A sync that the disk does not do."""

    def run(self) -> None:
        raise OSError(errno.EIO, "input/output error, as told")


class _Done:
    """A job without files to work on."""

    def run(self) -> None:
        """Do nothing: a list needs no sync."""


class MemoryLog:
    """A list of entries that behaves as a log on a disk should."""

    entry_bytes_max = min(limits.ENTRY_BYTES_MAX, SEGMENT_BYTES - WATERMARK_BYTES)

    def __init__(self) -> None:
        self.commit_index = self.durable_index = 0
        self.fenced: str | None = None
        self.fail_next_sync = self.full = False
        self._head = LogHead()
        self._entries: list[_Held] = []
        self._generation = 0

    # -- reading ---------------------------------------------------------------------------

    @property
    def reader(self) -> Self:
        """See `LogStore.reader`."""
        return self

    @property
    def first_index(self) -> int:
        """The lowest index that can be read."""
        return self._head.first_index

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._head.first_index + len(self._entries) - 1

    @property
    def first_position(self) -> int:
        """The lowest position that can be read."""
        return self._head.base_position

    @property
    def end_position(self) -> int:
        """The position behind the last entry."""
        return self._entries[-1].header.end if self._entries else self._head.base_position

    @property
    def chain_crc(self) -> int:
        """The chain CRC that the next entry continues."""
        return self._entries[-1].header.chain_crc if self._entries else self._head.chain_crc

    def _held(self, index: int) -> _Held:
        if not self.first_index <= index <= self.last_index:
            raise StorageError(
                f"index {index} is outside of the log ({self.first_index} to {self.last_index})"
            )
        return self._entries[index - self.first_index]

    def header(self, index: int) -> Header:
        """See `Reader.header`."""
        return self._held(index).header

    def entry(self, index: int) -> Entry:
        """See `Reader.entry`."""
        header, raw = self._held(index)
        body = memoryview(raw)[HEADER_BYTES : header.size]
        return Entry(header.index, header.term, header.kind, header.position, body)

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Bytes by position, of one segment."""
        base = position - position % SEGMENT_BYTES
        parts = [held for held in self._entries if 0 <= held.header.position - base < SEGMENT_BYTES]
        raw = b"".join(held.raw for held in parts)
        if position - base + size_bytes > len(raw):
            raise StorageError(f"positions {position} + {size_bytes} are not in one segment")
        return memoryview(raw)[position - base :][:size_bytes]

    def run_of(self, first_index: int, last_index: int) -> memoryview:
        """The raw bytes of consecutive entries."""
        first, last = self.header(first_index), self.header(last_index)
        return self.view(first.position, last.end - first.position)

    # -- appending -------------------------------------------------------------------------

    def _position_for(self, size_bytes: int) -> int:
        end = self.end_position
        if end % SEGMENT_BYTES + size_bytes <= self.entry_bytes_max:
            return end
        return (end // SEGMENT_BYTES + 1) * SEGMENT_BYTES

    def append(self, index: int, term: int, kind: int, body: Buffer | Draft) -> Header:
        """See `SegmentedLog.append`."""
        size = HEADER_BYTES + body_size(body)
        if size > self.entry_bytes_max:
            raise TooLarge(f"an entry of {size} bytes is above {self.entry_bytes_max}")
        position = self._position_for(size)
        content = place_body(body, position + HEADER_BYTES, index, term)
        fields = {"index": index, "term": term, "position": position, "kind": kind}
        _, raw_header = make_header(self.chain_crc, body=content, **fields)
        return self._hold(raw_header, content)

    def append_copy(self, header: Header, raw_header: Buffer, body: Buffer) -> None:
        """An entry that another replica made."""
        continued = chain(self.chain_crc, raw_header, header.body_crc) == header.chain_crc
        if header.position != self._position_for(header.size) or not continued:
            raise CorruptLog(f"entry {header.index} does not continue this log")
        self._hold(raw_header, body)

    def _hold(self, raw_header: Buffer, body: Buffer) -> Header:
        header = decode_header(raw_header)
        if self.fenced is not None:
            raise Fenced(self.fenced)
        if header.index != self.last_index + 1:
            raise StorageError(f"index {header.index} cannot follow {self.last_index}")
        if self.full and header.position % SEGMENT_BYTES == 0:
            self.fenced = "no space left; this node takes no more entries"
            raise Fenced(self.fenced)
        raw = bytes(raw_header) + bytes(body)
        self._entries.append(_Held(header, raw.ljust(padded(header.size), b"\0")))
        return header

    # -- durability ------------------------------------------------------------------------

    def start_sync(self) -> SyncJob | None:
        """The part that has to be made durable."""
        if self.fenced is not None:
            raise Fenced(self.fenced)
        if self.durable_index == self.last_index:
            return None
        kind = _FailingSync if self.fail_next_sync else SyncJob
        self.fail_next_sync = False
        return kind((), self.last_index, self._generation)

    def finish_sync(self, job: SyncJob, error: OSError | None = None) -> None:
        """See `SegmentedLog.finish_sync`."""
        if error is not None:
            self.fenced = f"fdatasync failed ({error}); this node takes no more entries"
            raise Fenced(self.fenced) from error
        if job.generation == self._generation:
            self.durable_index = max(self.durable_index, job.target_index)

    def sync(self) -> None:
        """See `SegmentedLog.sync`."""
        job, failed = self.start_sync(), None
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            failed = error
        self.finish_sync(job, failed)

    # -- what goes -------------------------------------------------------------------------

    def cut(self, first_index: int) -> None:
        """See `SegmentedLog.cut`."""
        if first_index <= self.commit_index:
            raise StorageError(f"entries are committed up to {self.commit_index}: no cut")
        self._generation += 1
        self.durable_index = min(self.durable_index, first_index - 1)
        del self._entries[first_index - self.first_index :]

    def head_before(self, index: int) -> LogHead:
        """Where a log would begin that begins with a segment's first entry."""
        position = self.header(index).position
        if position % SEGMENT_BYTES:
            raise StorageError(f"entry {index} is not the first of a segment")
        if index == self.first_index:
            return self._head
        return LogHead(position, index, self.header(index - 1).chain_crc)

    def trim(self, first_index: int) -> _Done | None:
        """Forget the whole segments before an index."""
        safe_index = min(first_index, self.commit_index, self.durable_index)
        begins = [held.header.index for held in self._entries if not self._offset(held)]
        kept = max((index for index in begins if index <= safe_index), default=self.first_index)
        if kept == self.first_index:
            return None
        head = self.head_before(kept)
        del self._entries[: kept - self.first_index]
        self._head = head
        return _Done()

    def _offset(self, held: _Held) -> int:
        return held.header.position % SEGMENT_BYTES

    def replace_by(self, head: LogHead) -> None:
        """Drop everything and begin anew."""
        if head.first_index <= self.commit_index:
            raise StorageError(f"that would take back entries up to {self.commit_index}")
        if self.fenced is not None:
            raise Fenced(self.fenced)
        _, raw_header, body = first_entry_of(head)
        self._generation += 1
        self._head = LogHead(head.base_position, head.first_index, head.chain_crc)
        self._entries = []
        self._hold(raw_header, body)
        self.durable_index = self.last_index

    def close(self) -> None:
        """See `SegmentedLog.close`."""
        if self.fenced is None:
            self.sync()

    # -- as a crash leaves it --------------------------------------------------------------

    def copy(self) -> MemoryLog:
        """A copy of the log, to go on with separately."""
        other = self.after(self.last_index, self.commit_index)
        other.durable_index = self.durable_index
        return other

    def behind(self, earlier: MemoryLog) -> MemoryLog:
        """A copy of this log with what an earlier one held before it, if it continues that one."""
        other, count = self.copy(), self.first_index - earlier.first_index
        if 0 < count <= len(earlier._entries):
            other._head = earlier._head
            other._entries = earlier._entries[:count] + self._entries
        return other

    def after(self, last_index: int, commit_index: int) -> MemoryLog:
        """The log of the next process, which found the entries up to `last_index`."""
        again = MemoryLog()
        again._head = self._head
        again._entries = self._entries[: last_index - self.first_index + 1]
        again.durable_index, again.commit_index = again.last_index, commit_index
        return again


class InMemory:
    """Where such a log lies."""

    def __init__(self) -> None:
        self._log = MemoryLog()
        self._damaged: int | None = None

    def open(self) -> MemoryLog:
        """Open it; damage to entries that were not durable is cut off, other damage stops the
        start."""
        log, last_index = self._log, self._log.last_index
        if self._damaged is not None:
            if self._damaged <= log.durable_index:
                raise CorruptLog(f"entry {self._damaged} is damaged. Nothing was cut")
            last_index, self._damaged = self._damaged - 1, None
        self._log = log.after(last_index, log.commit_index)
        return self._log

    def another(self) -> InMemory:
        """See `Storage.another`."""
        return InMemory()

    def damage(self, header: Header) -> None:
        """Note a damaged entry for the next start."""
        self._damaged = header.index

    def fail_next_sync(self) -> None:
        """Tell the log that is open."""
        self._log.fail_next_sync = True

    def fill_up(self) -> None:
        """Take no entry more, as on a full disk."""
        self._log.full = True

    def lose_power(self, seed: int, keep: float) -> None:
        """Keep some of the entries that were not durable, without holes."""
        log = self._log
        unsynced = range(log.durable_index, log.last_index)
        rng = random.Random(seed)
        kept = next((at for at in unsynced if rng.random() >= keep), log.last_index)
        self._log = log.after(kept, min(log.commit_index, log.durable_index))
