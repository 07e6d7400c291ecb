"""A folder with a disk that can't read everything: what lies in it is another folder's, by FUSE.

A page of a file is lost from when its inode and number stand in the list. To read it is an
input/output error, and to look at it in a mapping ends the process, as with a real disk. A new file
of the same name has all its pages.

Run as a program, this file serves the folder until it is unmounted.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from time import sleep
from typing import TextIO

PAGE_BYTES = 4096
MOUNTED_S = 10.0
POLL_S = 0.02


class LossyFolder:
    """A folder that is served now."""

    def __init__(self, path: Path, held: Path, lost: Path) -> None:
        self.path, self._held, self._lost = path, held, lost

    def lose(self, path: Path, offset: int) -> None:
        """Lose the page of one of its files that has a byte."""
        inode = (self._held / path.relative_to(self.path)).stat().st_ino
        with self._lost.open("a") as file:
            file.write(f"{inode} {offset // PAGE_BYTES}\n")


@cache
def why_not() -> str | None:
    """Why no such folder can be had here; None if it can. It is tried, once."""
    if find_spec("mfusepy") is None:
        return "mfusepy is not installed"
    if which("fusermount3") is None:
        return "fuse3 is not installed"
    with TemporaryDirectory() as home:
        folder = Path(home) / "tried"
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
        try:
            with lossy_folder(folder) as tried:
                tried.lose(folder / "file", 0)
                return _reads(folder / "file")
        except OSError as error:
            return str(error)


def _reads(path: Path) -> str | None:
    try:
        path.read_bytes()
    except OSError as error:
        return None if error.errno == errno.EIO else str(error)
    return "a lost page can be read"


@contextmanager
def lossy_folder(path: Path) -> Iterator[LossyFolder]:
    """Put such a disk under a folder that is there, until the end of the block. Raises OSError if
    this machine can't."""
    held, lost = path.with_name(path.name + ".held"), path.with_name(path.name + ".lost")
    path.rename(held)
    path.mkdir()
    lost.write_text("")
    program = [sys.executable, "-m", __name__, str(held), str(path), str(lost)]
    with lost.with_suffix(".said").open("w+") as said:
        server = subprocess.Popen(program, stdout=said, stderr=said)
        try:
            _wait_until_served(path, server, said)
            yield LossyFolder(path, held, lost)
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(path)], check=False, stderr=said)
            server.kill()  # it would wait for files that this process has not closed yet
            server.wait()
            path.rmdir()
            held.rename(path)


def _wait_until_served(path: Path, server: subprocess.Popen[bytes], said: TextIO) -> None:
    for _ in range(int(MOUNTED_S / POLL_S)):
        if path.is_mount():
            return
        if server.poll() is not None:
            break
        sleep(POLL_S)
    said.seek(0)
    reason = said.read().strip().rpartition("\n")[2]
    raise OSError(f"{path} is not served: {reason or 'it takes too long'}")


class _Passing:
    """Operations of FUSE, as its Python library wants them: each is done in another folder."""

    use_ns = True

    def __init__(self, held: Path, lost: Path) -> None:
        self._folder, self._lost = held, lost

    def _held(self, name: str) -> Path:
        return self._folder / name.removeprefix("/")

    def getattr(self, name: str, fh: int | None = None) -> dict[str, int]:
        """Facts about a file, as `stat` tells them; times in nanoseconds (`use_ns`)."""
        found = self._held(name).lstat()
        facts = {key: getattr(found, key) for key in dir(found) if key.startswith("st_")}
        return facts | {time: facts[f"{time}_ns"] for time in ("st_atime", "st_mtime", "st_ctime")}

    def readdir(self, name: str, fh: int) -> list[str]:
        """The names in a folder."""
        return [".", "..", *(each.name for each in self._held(name).iterdir())]

    def open(self, name: str, flags: int) -> int:
        return os.open(self._held(name), flags)

    def create(self, name: str, mode: int, fi: object = None) -> int:
        """A descriptor of a new file."""
        return os.open(self._held(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def read(self, name: str, size: int, offset: int, fh: int) -> bytes:
        """A part of a file, if none of its pages is lost."""
        pages = range(offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES))
        lost, inode = self._lost.read_text().splitlines(), os.fstat(fh).st_ino
        if any(f"{inode} {page}" in lost for page in pages):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(fh, size, offset)

    def write(self, name: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def fallocate(self, name: str, mode: int, offset: int, length: int, fh: int) -> int:
        os.posix_fallocate(fh, offset, length)
        return 0

    def truncate(self, name: str, length: int, fh: int | None = None) -> None:
        os.truncate(self._held(name), length)

    def fsync(self, name: str, datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        self._held(old).rename(self._held(new))

    def unlink(self, name: str) -> None:
        self._held(name).unlink()

    def mkdir(self, name: str, mode: int) -> None:
        self._held(name).mkdir(mode)

    def rmdir(self, name: str) -> None:
        self._held(name).rmdir()

    def release(self, name: str, fh: int) -> int:
        os.close(fh)
        return 0


def serve(held: Path, path: Path, lost: Path) -> None:
    """Mount `path`, and answer for it until it is unmounted."""
    import mfusepy  # noqa: PLC0415 - where it is not, nobody gets here

    operations = type("Operations", (_Passing, mfusepy.Operations), {})(held, lost)
    mfusepy.FUSE(operations, str(path), foreground=True, nothreads=True)


if __name__ == "__main__":
    serve(*map(Path, sys.argv[1:]))
