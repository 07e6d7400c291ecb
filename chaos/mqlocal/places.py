"""Where a cluster inside a test is: at addresses that nobody else has, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dledger.world import world
from mqlocal.limits import SHARED_MEMORY_BYTES_MIN

HOST = "127.0.0.1"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder that is made there has a random name


@contextmanager
def reserved_addresses(count: int) -> Iterator[list[tuple[str, int]]]:
    """Free addresses of the present world, which are nobody else's while the block lasts.

    Each is held by a socket that is bound to it and never listens. Linux lets a server listen at
    the same port then, again and again, and gives it to nobody who asks for any free one.
    """
    with ExitStack() as held:
        addresses = []
        for _ in range(count):
            holder = held.enter_context(world().socket(socket.AF_INET))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, 0))
            addresses.append((HOST, int(holder.getsockname()[1])))
        yield addresses


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder, removed with all that is in it; in memory if there is much."""
    in_memory = os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and (
        shutil.disk_usage(SHARED_MEMORY).free >= SHARED_MEMORY_BYTES_MIN
    )
    parent = SHARED_MEMORY if in_memory else None
    with tempfile.TemporaryDirectory(prefix=f"mqlocal-{os.getpid()}-", dir=parent) as name:
        yield Path(name)
