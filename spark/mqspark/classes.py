"""Keeps the classes that Spark's JVM has loaded: the next one starts in half the time.

Most of what a small audit takes is a JVM that reads, checks and links 15,000 classes of Spark's.
Java can write them to a file when it ends, and map that file at the next start (class data sharing,
JEP 350). The first session of an installation writes it: some seconds at its end, some 160 MB. The
later ones use it. Java checks the file against its own version and each JAR, and does without it
if they differ. It writes the header last, so a JVM that was killed leaves a file without one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import pyspark

from mqspark.limits import CLASSES_BEGUN_S, CLASSES_ROOM_BYTES_MIN

#: Without it, Java would name on stdout each class that can't be kept.
_ERRORS_ONLY = "-Xlog:disable -Xlog:all=error:stderr"
_MAGIC_BYTES = 4


def class_options(home: Path, java_version: str) -> str:
    """Tells Java to use the classes kept in the folder `home`, or to keep them there.

    An empty string if they are not there and it can't be done: the folder is read-only, the disk is
    nearly full, or another session has just begun to.
    """
    archive = home / f"classes-{_installation(java_version)}.jsa"
    if _is_whole(archive):
        return f'{_ERRORS_ONLY} "-XX:SharedArchiveFile={archive}"'
    if _age_s(archive) < CLASSES_BEGUN_S or not os.access(home, os.W_OK):
        return ""
    _make_room(home, archive)
    if shutil.disk_usage(home).free < CLASSES_ROOM_BYTES_MIN:
        return ""
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
