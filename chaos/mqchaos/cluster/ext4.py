"""A file system that can lose its power: ext4 in an image file, mounted through a loop device.

`EXT4_IOC_SHUTDOWN` without a flush of the journal stops the file system where it stands: nothing
that is not on the disk yet gets there any more, neither pages nor the journal's transactions in
memory, and every later operation fails. What is found at the next mount is what a machine finds
whose power was cut at that moment. What a disk does inside itself, behind the kernel's back, is
not part of it: the image's own file does not forget.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqchaos.cluster.processes import ClusterError
from mqchaos.cluster.tools import run_tool
from mqchaos.limits import IMAGE_BYTES, UNMOUNT_TIMEOUT_S

_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = 2
_MENDED: Final = (0, 1)
"""Exit statuses of e2fsck if nothing was wrong, or if all was mended."""


class Ext4:
    """An image and where it is mounted. `image` is sparse: it takes what is written, no more."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point

    def make(self) -> None:
        """Make an empty file system."""
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run_tool("mkfs.ext4", "-q", "-F", str(self.image))

    def mount(self) -> None:
        """Mount it; after a power loss the kernel replays its journal."""
        self.mount_point.mkdir(parents=True, exist_ok=True)
        run_tool("mount", "-t", "ext4", "-o", "loop", str(self.image), str(self.mount_point))

    def check(self) -> None:
        """Replay its journal and mend it. What can't be mended is gone, files too."""
        run_tool("e2fsck", "-f", "-y", str(self.image), good=_MENDED)

    def cut_power(self) -> None:
        """Cut the file system's power, now."""
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def abort(self) -> None:
        """Make the file system find an error in itself: it is read-only from now on."""
        run_tool("mount", "-o", "remount,abort", str(self.mount_point))

    def unmount(self) -> None:
        """Unmount it, when nobody uses it any more; the loop device goes with it."""
        give_up_at = time.monotonic() + UNMOUNT_TIMEOUT_S
        while self.mount_point.is_mount():
            try:
                run_tool("umount", str(self.mount_point))
            except ClusterError:
                if time.monotonic() > give_up_at:
                    # Somebody still maps a file of it: it goes when they do.
                    run_tool("umount", "--lazy", str(self.mount_point))
                    raise
                time.sleep(0.1)


@contextmanager
def mounted(image: Path, mount_point: Path) -> Iterator[Ext4]:
    """A fresh file system, unmounted and detached when the block is left, however it is left."""
    disk = Ext4(image, mount_point)
    disk.make()
    try:
        disk.mount()
        yield disk
    finally:
        disk.unmount()
        image.unlink(missing_ok=True)


def why_not(folder: Path) -> str | None:
    """Why such disks can't be had here; None if they can. Tries it, in `folder`."""
    if os.geteuid() != 0:
        return "only root may mount file systems"
    try:
        with mounted(folder / "probe.img", folder / "probe") as disk:
            disk.cut_power()
    except (ClusterError, OSError) as error:
        return f"no ext4 can be mounted through a loop device and shut down here: {error}"
    return None
