"""The places that an audit is given, looked at before it starts: Spark takes half a minute.

An audit reads files more than once. A pipe gives its bytes once, and opening it waits for a writer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError
from dledger.log.replica import check_files

#: The files of a report.
REPORT: Final = ("verdict.json", "report.html", "junit.xml")


def check_inputs(paths: Iterable[Path]) -> None:
    """Refuse what can't be read as a file. Raises ConfigError, or OSError for a place that is not
    there and for a loop of links."""
    for path in paths:
        path.stat()
        check_files(_below(path))


def check_report(directory: Path) -> None:
    """Make the directory of a report. Raises ConfigError or OSError if none can be written."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in REPORT:
        target = directory / name
        if os.path.lexists(target) and not target.is_file():
            raise ConfigError(f"{target} is not a file, so the report can't be written there")
        if target.exists() and not os.access(target, os.W_OK):
            raise ConfigError(f"{target} may not be written to, so no report can be written there")
    with tempfile.TemporaryFile(dir=directory):
        pass


def _below(path: Path) -> Iterator[Path]:
    """A place, and all that is in it. Links to directories are not followed any further."""
    yield path
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            yield Path(folder) / name
