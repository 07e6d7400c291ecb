"""Classes that Java has loaded are kept by one session and used by later ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from mqspark.limits import CLASSES_BEGUN_S
from mqspark.processes import classes

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
HEADER = b"\xa8\xab\x0b\xf0"


def options(home: Path, version: str = JAVA_17) -> str:
    """Java's options for keeping its classes."""
    return classes.class_options(home, version, keep=True)


def kept_by(options: str) -> Path:
    """The file that Java is told to write."""
    return Path(options.split("-XX:ArchiveClassesAtExit=")[1].rstrip('"'))


def test_the_first_session_keeps_and_the_next_one_uses(tmp_path: Path) -> None:
    """The file is the same one, as soon as it has its header."""
    archive = kept_by(options(tmp_path))
    assert archive.parent == tmp_path
    archive.write_bytes(HEADER)
    assert f'"-XX:SharedArchiveFile={archive}"' in options(tmp_path)


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    """A file with an empty header is being written, and is neither used nor replaced."""
    archive = kept_by(options(tmp_path))
    archive.write_bytes(bytes(1000))
    assert options(tmp_path) == ""
    assert archive.exists()


def test_what_a_killed_session_left_is_written_anew(tmp_path: Path) -> None:
    """A file without a header that is ten minutes old is written anew."""
    archive = kept_by(options(tmp_path))
    archive.write_bytes(bytes(1000))
    begun = time.time() - CLASSES_BEGUN_S - 1
    os.utime(archive, (begun, begun))
    assert kept_by(options(tmp_path)) == archive
    assert not archive.exists()


def test_two_javas_in_turn_keep_a_file_each_and_a_third_replaces_the_oldest(
    tmp_path: Path,
) -> None:
    """However often Java is renewed, an installation has two such files at most."""
    files = []
    for age_s, version in [(20, "17.0.15"), (10, "17.0.16"), (0, "21.0.8")]:
        file = kept_by(options(tmp_path, JAVA_17.replace("17.0.15", version)))
        file.write_bytes(HEADER)
        os.utime(file, (time.time() - age_s, time.time() - age_s))
        files.append(file)
    assert [file.exists() for file in files] == [False, True, True]


def test_nothing_is_kept_unless_asked_for_and_what_there_is_is_used(tmp_path: Path) -> None:
    """Classes are kept if asked for, as that takes time and 160 MB, and used if they exist."""
    assert classes.class_options(tmp_path, JAVA_17, keep=False) == ""
    kept_by(options(tmp_path)).write_bytes(HEADER)
    used = classes.class_options(tmp_path, JAVA_17, keep=False)
    assert "-XX:SharedArchiveFile=" in used


def test_a_disk_that_is_nearly_full_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full is an error with the bytes free and needed."""
    monkeypatch.setattr(classes, "CLASSES_ROOM_BYTES_MIN", 1 << 62)
    with pytest.raises(ConfigError, match=r"\d+ MiB are free there, and at least \d+"):
        options(tmp_path)


def test_a_folder_that_others_own_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation for everybody is read-only to its users."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="may not be written to"):
        options(tmp_path)
