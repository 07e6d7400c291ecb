"""A file system for one node alone, on a disk that can be broken: two ext4, one in the other.

The inner one holds the replica. Its image is a sparse file in the outer one, which is the disk
below: thin storage, that has room for a block only once it is written. So the inner can be full,
lose its power or find an error in itself; and when the outer is full, the disk fails what the inner
writes to new places, by errors of the kernel's own block layer.

What a harness leaves behind that was killed has its pid in its name: the next one takes it away.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from mqchaos.cluster.ext4 import Ext4
from mqchaos.cluster.processes import ClusterError, Process
from mqchaos.cluster.tools import run_tool

_BALLAST: Final = "ballast"
_IMAGE: Final = "disk.img"
_PREFIX: Final = "mqchaos-disks-"
_STEP_BYTES: Final = 1 << 30
_BLOCK_BYTES: Final = 4096


class OwnDisk:
    """The two file systems of one node, mounted at its store and at `folder`."""

    def __init__(self, folder: Path, store: Path) -> None:
        self._outer = Ext4(folder.with_suffix(".img"), folder)
        self.inner = Ext4(folder / _IMAGE, store)

    @contextmanager
    def made(self) -> Iterator[OwnDisk]:
        """Fresh and mounted; unmounted and detached when the block is left."""
        with ExitStack() as stack:
            for disk in (self._outer, self.inner):
                disk.make()
                stack.callback(disk.unmount)
                disk.mount()
            yield self

    def fill(self) -> None:
        """Leave no room in the node's file system."""
        _fill(self.inner.mount_point / _BALLAST)

    def full(self) -> bool:
        """Whether nothing fits into it."""
        return _is_full(self.inner.mount_point)

    def starve(self) -> None:
        """Leave no room below it: what is written to new places fails."""
        _fill(self._outer.mount_point / _BALLAST)

    def starved(self) -> bool:
        """Whether nothing more fits there."""
        return _is_full(self._outer.mount_point)

    def relieve(self) -> None:
        """Remove the ballast files of `fill` and `starve`."""
        for disk in (self.inner, self._outer):
            with suppress(OSError):  # of a file system that takes nothing the file goes later
                (disk.mount_point / _BALLAST).unlink(missing_ok=True)

    def mount_again(self, *, checked: bool) -> None:
        """Mount the disk again, as after a start of the machine: what was not on it is gone. Nobody
        may use it.

        `checked`: as operators do after errors of a disk. Without that its file system may give
        damaged files to whoever mounts it.
        """
        self.inner.unmount()
        (self._outer.mount_point / _BALLAST).unlink(missing_ok=True)
        if checked:
            self.inner.check()
        self.inner.mount()
        (self.inner.mount_point / _BALLAST).unlink(missing_ok=True)


def _fill(ballast: Path) -> None:
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        at, step = 0, _STEP_BYTES
        while step >= _BLOCK_BYTES:
            try:
                os.posix_fallocate(descriptor, at, step)
                at += step
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise ClusterError(f"{ballast} can't be filled: {error.strerror}") from error
                step //= 2
    finally:
        os.close(descriptor)


def _is_full(folder: Path) -> bool:
    probe = folder / f".{_BALLAST}"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _BLOCK_BYTES)
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        return error.errno == errno.ENOSPC
    return False


@contextmanager
def own_disks(
    directory: Path, stores: Mapping[str, Path], disks: dict[str, OwnDisk]
) -> Iterator[None]:
    """A disk for each store, noted in `disks`; in the end a plain folder has what lies there."""
    remove_leftovers()
    this = Process.of(os.getpid())
    folder = directory / f"{_PREFIX}{this.pid}-{this.started_ticks}"
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(disks.clear)
        for name, store in stores.items():
            stack.callback(_take_over, store, folder / f"{name}.copy")
            disks[name] = stack.enter_context(OwnDisk(folder / name, store).made())
            stack.push(partial(_copy_out, store, folder / f"{name}.copy"))
        yield


def _copy_out(
    store: Path,
    copy: Path,
    _kind: type[BaseException] | None,
    why: BaseException | None,
    _trace: TracebackType | None,
) -> None:
    """Copy whatever can be read out of the file system. Raises ClusterError if that is not all,
    unless the run ended for a reason of its own, which a wrecked file system must not hide."""
    if not store.is_mount():
        return
    try:
        run_tool("cp", "-a", "--sparse=always", str(store), str(copy))
    except ClusterError as error:
        if why is None:
            raise
        why.add_note(f"not all of {store} could be kept: {error}")


def _take_over(store: Path, copy: Path) -> None:
    if copy.is_dir() and not store.is_mount():
        shutil.rmtree(copy / "lost+found", ignore_errors=True)
        shutil.rmtree(store, ignore_errors=True)
        copy.rename(store)


def remove_leftovers() -> list[str]:
    """Unmount the disks of harnesses that live no more; where they were mounted."""
    found = []
    # The last mount is first: the inner before the outer.
    for device, mount_point in reversed(list(_mounts())):
        backing = Path("/sys/block") / Path(device).name / "loop" / "backing_file"
        with suppress(OSError):
            if _is_ownerless(backing.read_text()):
                run_tool("umount", "--lazy", mount_point)
                found.append(mount_point)
    return found


def _mounts() -> Iterable[tuple[str, str]]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount_point, *_ = line.split()
        if device.startswith("/dev/loop"):
            yield device, mount_point.encode().decode("unicode_escape")


def _is_ownerless(image: str) -> bool:
    """Whether an image is one of ours whose harness is gone."""
    for part in Path(image).parts:
        if part.startswith(_PREFIX):
            pid, _, ticks = part.removeprefix(_PREFIX).partition("-")
            try:
                return not Process(int(pid), int(ticks)).alive
            except ValueError:
                return False
    return False
