"""Files that are their user's alone: keys, secrets, passwords."""

from __future__ import annotations

import os
from pathlib import Path

from dledger.limits import FILE_MODE


def replace(path: Path, data: bytes) -> None:
    """Write `data` to a file that only its user may read: all of it, or nothing."""
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(temporary, flags, FILE_MODE), "wb") as file:
        file.write(data)
    temporary.replace(path)
