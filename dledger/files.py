"""Files: their kinds, and who may read them.

To read a pipe waits for a writer, and a device may have no end. Keys, secrets and passwords are
their user's alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dledger.errors import ConfigError
from dledger.limits import FILE_MODE, OTHERS


def check_regular(what: object, mode: int, remedy: str, *, or_folder: bool = False) -> None:
    """Raises ConfigError, which names `what`, unless the mode is a file's, or a folder's."""
    if not stat.S_ISREG(mode) and not (or_folder and stat.S_ISDIR(mode)):
        raise ConfigError(f"{what} is {_kind_of(mode)}, not a file: {remedy}")


def check_private(what: object, path: object, mode: int) -> None:
    """Raises ConfigError, which names `what`, if a file is not for its user alone."""
    if stat.S_ISREG(mode) and mode & OTHERS:
        raise ConfigError(
            f"{what} has mode {stat.S_IMODE(mode):04o}: others than its user can read or change "
            f"it; chmod 600 {path}"
        )


def replace(path: Path, data: bytes) -> None:
    """Write `data` to a file that only its user may read: all of it, or nothing."""
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(temporary, flags, FILE_MODE), "wb") as file:
        file.write(data)
    temporary.replace(path)


def _kind_of(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((kind for is_it, kind in kinds if is_it(mode)), "a device")
