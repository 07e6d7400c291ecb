"""Places for a cluster inside a test: addresses that no other process has, and a folder."""

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
    """Free addresses of the present world, reserved while the block lasts.

    Each address is held by a socket that is bound to it and never listens. Then Linux lets a server
    listen at the same port, again and again, and never gives it to a program that asks for any free
    port.
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
    """A new folder, removed with its content at the end; in memory if there is enough of it."""
    in_memory = os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and (
        shutil.disk_usage(SHARED_MEMORY).free >= SHARED_MEMORY_BYTES_MIN
    )
    parent = SHARED_MEMORY if in_memory else None
    with tempfile.TemporaryDirectory(prefix=f"mqlocal-{os.getpid()}-", dir=parent) as name:
        yield Path(name)
