"""The file operations that durability depends on, in one small class that tests can replace.

Everything that the log writes goes through a :class:`Disk`. So tests can use a disk that loses what
was not synced, tears a write, or fails. The callers keep these rules:

- a file is made durable under a temporary name, renamed, and then its folder is synced: a crash
  leaves either no file or a whole one;
- a failed fsync is never repeated and then trusted: the kernel may have dropped the pages;
- old bytes are read by `read_part` or `read_at` before a mapping is looked into: what the disk
  can't read is an error there, and in a mapping the end of the process (SIGBUS).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from dledger.buffers import Buffer
from dledger.failpoints import failpoint
from dledger.limits import EXPORT_PART_BYTES, FILE_MODE, FOLDER_MODE, IOV_MAX, OTHERS
from dledger.observe import get_logger

log = get_logger(__name__)

_NEW: Final = os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_LOST: Final = {
    getattr(errno, name, errno.EIO)
    for name in ("EIO", "EBADMSG", "EUCLEAN", "ENODATA", "EREMOTEIO")
}
"""A sector is gone, or a file system's checksum of it does not fit. Not all systems have all."""


class Unreadable(OSError):
    """The disk has lost a part of a file. Other errors say nothing about what is on it."""


def is_loss(error: OSError) -> bool:
    """Whether an error of a read says that the disk has lost what was to be read."""
    return error.errno in _LOST


class Disk:
    """File operations of the real disk. Errors are OSErrors; the caller decides what they mean."""

    page_bytes = 4096
    """Bytes that are read at least, and so are lost at least where a sector is lost."""

    def make_folder(self, path: Path) -> None:
        """Create a folder, and those above it."""
        make_folder(path)

    def names(self, folder: Path) -> list[str]:
        """The names of a folder's files, sorted."""
        return sorted(path.name for path in folder.iterdir())

    def size(self, path: Path) -> int | None:
        """A file's length in bytes; None if it does not exist."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def modified_s(self, path: Path) -> float:
        """When a file was written to last, in Unix time; 0 if it does not exist."""
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def open(self, path: Path) -> int:
        """A descriptor for reading and writing an existing file."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        """Close a descriptor; what was not synced may be lost with the power."""
        os.close(descriptor)

    def create(self, path: Path, size_bytes: int) -> int:
        """A new file of zeros whose blocks are reserved, durable under its name. OSError if it may
        not be, though it may be there."""
        failpoint("disk.create")
        temporary = path.with_suffix(".new")
        descriptor, left = os.open(temporary, _NEW | os.O_RDWR, FILE_MODE), temporary
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
            os.fsync(descriptor)
            failpoint("disk.created")
            left = temporary.rename(path)
            failpoint("disk.named")
            self.sync_folder(path.parent)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                # On a full disk other files wait for these blocks.
                self.remove(left)
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        return descriptor

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all the buffers, one after another, from `offset`."""
        if failpoint("disk.write"):
            self._write_torn(descriptor, b"".join(buffers), offset)
            return
        while buffers:
            part, buffers = buffers[:IOV_MAX], buffers[IOV_MAX:]
            wanted = sum(map(len, part))
            written = os.pwritev(descriptor, part, offset)
            if written != wanted:
                self._write_rest(descriptor, b"".join(part)[written:], offset + written)
            offset += wanted

    def _write_rest(self, descriptor: int, rest: bytes, offset: int) -> None:
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written

    def _write_torn(self, descriptor: int, raw: bytes, offset: int) -> None:
        """Write like a write that did not come to its end, at the failpoint in its middle."""
        half = len(raw) // 2
        self._write_rest(descriptor, raw[:half], offset)
        failpoint("disk.torn-write")
        self._write_rest(descriptor, raw[half:], offset + half)

    def sync_data(self, descriptor: int) -> None:
        """Return when the bytes written before are durable."""
        failpoint("disk.sync")
        os.fdatasync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Return when the folder's names are durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def map(self, descriptor: int, size_bytes: int) -> memoryview:
        """A read-only view of the file; it shows what is written later, too."""
        return memoryview(mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ))

    def forget_pages(self, view: memoryview) -> None:
        """Take a mapping's pages out of this process; they are mapped again when they are read."""
        if isinstance(view.obj, mmap.mmap):
            view.obj.madvise(mmap.MADV_DONTNEED)

    def replace(self, path: Path, *content: bytes) -> None:
        """Give `path` new content: after a crash it holds the old or the new, never a mixture."""
        failpoint("disk.replace")
        temporary = path.with_suffix(path.suffix + ".new")
        descriptor = os.open(temporary, _NEW | os.O_WRONLY, FILE_MODE)
        try:
            self.write(descriptor, content, 0)
            self.sync_data(descriptor)
        finally:
            os.close(descriptor)
        failpoint("disk.replacing")
        temporary.rename(path)
        failpoint("disk.replaced")
        self.sync_folder(path.parent)

    def read(self, path: Path) -> bytes:
        """The whole of a small file; empty if it does not exist. Raises Unreadable, OSError."""
        try:
            if stat.S_ISFIFO(path.stat().st_mode):  # To open it waits for another process.
                raise OSError(errno.EINVAL, "it is a pipe, not a file", str(path))
            return path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            if is_loss(error):
                raise Unreadable(
                    error.errno, f"the disk can't read it ({error.strerror})"
                ) from error
            raise

    def read_part(self, path: Path, offset: int, size_bytes: int) -> bytes:
        """A part of a file, less at its end. Raises OSError; Unreadable if the disk lost it."""
        with path.open("rb", buffering=0) as file:
            return self.read_at(file.fileno(), offset, size_bytes)

    def read_at(self, descriptor: int, offset: int, size_bytes: int) -> bytes:
        """A part of an open file, less at its end. Raises OSError; Unreadable if the disk lost it.

        A read that meets a lost sector behind good ones ends before it, and says nothing: so what
        is missing is asked for by itself.
        """
        try:
            raw = os.pread(descriptor, size_bytes, offset)
            while len(raw) < size_bytes:
                more = os.pread(descriptor, size_bytes - len(raw), offset + len(raw))
                if not more:
                    break
                raw += more
        except OSError as error:
            if is_loss(error):
                raise Unreadable(error.errno, error.strerror) from error
            raise
        return raw

    def remove(self, path: Path) -> None:
        """Remove a file; durable once the folder is synced."""
        failpoint("disk.remove")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[memoryview | None]:
    """A file's bytes, for reading only; None if there is no such file.

    The mapping is left to the garbage collector, since numpy arrays may still look into it.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            yield memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b"")
    except FileNotFoundError:
        yield None


def make_folder(path: Path) -> None:
    """Create a folder, and those above it; whatever is new is its user's alone."""
    for folder in (*reversed(path.parents), path):
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def new_file(path: Path, flags: int = os.O_TRUNC) -> BinaryIO:
    """A file for writing that is its user's alone; with O_EXCL only if there is none."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, FILE_MODE), "wb")


def copy_whole(source: BinaryIO, target: Path) -> int:
    """Copy an open file to a new one; durable, but for its name. Returns its bytes. Blocks."""
    with new_file(target, os.O_EXCL) as written:
        while data := source.read(EXPORT_PART_BYTES):
            written.write(data)
        written.flush()
        os.fsync(written.fileno())
        return written.tell()


def close_to_others(path: Path) -> None:
    """Keep other users of the machine out of a folder or a file that an earlier version, or its
    user, has left open. Both are logged: what was closed, and what can't be, with the remedy."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & OTHERS:
        return
    found = {"path": str(path), "mode": f"{mode:04o}"}
    try:
        path.chmod(mode & ~OTHERS)
    except OSError as error:
        remedy = f"chmod {mode & ~OTHERS:04o} {path}"
        log.warning("open to others", **found, reason=str(error), remedy=remedy)
    else:
        log.warning("closed to others", **found)
