"""Keeps the classes that Spark's JVM has loaded, so that the next one starts sooner.

Most of what a small audit takes is a JVM that reads, checks and links 15,000 classes of Spark's.
Java can write them to a file when it ends, and map that file at the next start (class data sharing,
JEP 350). Writing takes some 25 seconds of a processor and 160 MB, so it is done when asked for.
Java checks the file against its own version and each JAR, and does without it if they differ. It
writes the header last, so a JVM that was killed leaves a file without one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import pyspark

from dledger.errors import ConfigError
from dledger.limits import MIB
from mqspark.limits import CLASSES_BEGUN_S, CLASSES_ROOM_BYTES_MIN

#: Without it, Java would name on stdout each class that can't be kept.
_ERRORS_ONLY = "-Xlog:disable -Xlog:all=error:stderr"
_MAGIC_BYTES = 4


def class_options(home: Path, java_version: str, *, keep: bool) -> str:
    """Tells Java to use the classes kept in the folder `home`, or if asked to keep them there.

    An empty string if there are none, and none are to be kept, or another session has just begun
    to. Raises ConfigError if they can't be kept: the folder is read-only, or the disk nearly full.
    """
    archive = home / f"classes-{_installation(java_version)}.jsa"
    if _is_whole(archive):
        return f'{_ERRORS_ONLY} "-XX:SharedArchiveFile={archive}"'
    if not keep or _age_s(archive) < CLASSES_BEGUN_S:
        return ""
    if not os.access(home, os.W_OK):
        raise ConfigError(f"can't keep Java's classes in {home}: it may not be written to")
    _make_room(home, archive)
    free = shutil.disk_usage(home).free
    if free < CLASSES_ROOM_BYTES_MIN:
        raise ConfigError(
            f"can't keep Java's classes in {home}: {free // MIB} MiB are free there, and at least "
            f"{CLASSES_ROOM_BYTES_MIN // MIB} shall be"
        )
    return f'{_ERRORS_ONLY} "-XX:ArchiveClassesAtExit={archive}"'


def _make_room(home: Path, archive: Path) -> None:
    """Beside `archive` the latest other one may stay, so that two Javas can be used in turn."""
    others = [other for other in home.glob("classes-*.jsa") if other != archive]
    for other in [archive, *sorted(others, key=_age_s)[1:]]:
        other.unlink(missing_ok=True)


def _installation(java_version: str) -> str:
    """Differs as soon as another Java, or another Spark, is installed."""
    jars = Path(pyspark.__file__).parent / "jars"
    named = f"{java_version}\n{pyspark.__version__}\n{jars}\n{jars.stat().st_mtime_ns}"
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return any(file.read(_MAGIC_BYTES))
    except OSError:
        return False


def _age_s(archive: Path) -> float:
    try:
        return time.time() - archive.stat().st_mtime
    except OSError:
        return float("inf")
