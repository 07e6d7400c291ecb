"""The kinds of files. To read a pipe waits for a writer, and a device may have no end."""

from __future__ import annotations

import stat

from dledger.errors import ConfigError


def check_regular(what: object, mode: int, remedy: str, *, or_folder: bool = False) -> None:
    """Raises ConfigError, which names `what`, unless the mode is a file's, or a folder's."""
    if not stat.S_ISREG(mode) and not (or_folder and stat.S_ISDIR(mode)):
        raise ConfigError(f"{what} is {_kind_of(mode)}, not a file: {remedy}")


def _kind_of(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((kind for is_it, kind in kinds if is_it(mode)), "a device")
