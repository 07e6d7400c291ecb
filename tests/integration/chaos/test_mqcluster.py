"""mqcluster as a person types it: a cluster comes up, breaks, is mended, and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def mqcluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mqchaos.mqcluster", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def status(directory: Path) -> dict[str, dict[str, Any]]:
    """The servers by name, as `status -o json` shows them."""
    shown = mqcluster("status", "--dir", str(directory), "-o", "json")
    return {server["name"]: server for server in json.loads(shown.stdout)["servers"]}


def processes_of(directory: Path) -> list[str]:
    """Command lines of running processes that name this directory."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(directory) in line]


@contextmanager
def cluster_in(directory: Path, *sizes: str) -> Iterator[Path]:
    """Run a cluster in a directory, of which nothing is left in the end."""
    where = ("--dir", str(directory))
    try:
        up = mqcluster("up", *where, *sizes)
        assert up.returncode == 0, up.stderr
        assert "mqadmin sendMessage -n " in up.stdout
        yield directory
    finally:
        mqcluster("down", *where, "--remove")
    assert processes_of(directory) == []
    assert not directory.exists()


@pytest.fixture(scope="module")
def one_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A group of three nodes, as the test before left it."""
    with cluster_in(tmp_path_factory.mktemp("one") / "cluster") as directory:
        yield directory


@pytest.fixture(scope="module")
def two_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two groups of one node at two name servers, which no test changes."""
    sizes = ("--nodes", "1", "--groups", "2", "--namesrvs", "2")
    with cluster_in(tmp_path_factory.mktemp("two") / "cluster", *sizes) as directory:
        yield directory


def test_a_cluster_lives_through_everything_that_mqcluster_does(one_group: Path) -> None:
    """A cluster goes through up again, kill, status, restart, down, and up."""
    where = ("--dir", str(one_group))
    first = status(one_group)
    assert [server["role"] for server in first.values()].count("leader") == 1

    again = mqcluster("up", *where)
    assert again.returncode == 0, again.stderr
    pids = {name: server["pid"] for name, server in status(one_group).items()}
    assert pids == {name: server["pid"] for name, server in first.items()}

    (leader,) = [name for name, server in first.items() if server["role"] == "leader"]
    killed = mqcluster("kill", "leader", *where)
    assert killed.stdout.startswith(f"{leader} (process {first[leader]['pid']}) is killed")
    assert status(one_group)[leader]["role"] == "down"
    assert mqcluster("status", *where).returncode == 1

    assert mqcluster("kill", "leader", *where).returncode == 0
    none = mqcluster("kill", "leader", *where)
    assert none.returncode == 2
    assert "broker-a has no leader, and can't elect one: broker-a-n" in none.stderr
    assert "of its 3 nodes don't run" in none.stderr
    assert "by itself" not in none.stderr

    assert mqcluster("restart", leader, *where).returncode == 0
    assert mqcluster("up", *where).returncode == 0
    roles = [server["role"] for server in status(one_group).values()]
    assert sorted(roles) == ["follower", "follower", "leader", "name server"]

    assert mqcluster("down", *where).returncode == 0
    assert processes_of(one_group) == []
    none = mqcluster("kill", "leader", *where)
    assert none.returncode == 2
    assert none.stderr == (
        f"no server of {one_group} runs: mqcluster up --dir {one_group} starts them\n"
    )

    assert mqcluster("up", *where).returncode == 0
    terms = [server["term"] for server in status(one_group).values() if server["term"]]
    assert min(terms) > first[leader]["term"]


def test_a_group_grows_and_shrinks(one_group: Path) -> None:
    """A fourth node votes, the leader goes, and after a restart the cluster is what it was made."""
    where = ("--dir", str(one_group))
    added = mqcluster("add-node", *where)
    assert added.returncode == 0, added.stderr
    assert added.stdout == "broker-a-n3 is added; broker-a has the members n0, n1, n2, n3\n"
    roles = {name: server["role"] for name, server in status(one_group).items()}
    assert roles["broker-a-n3"] == "follower"

    (leader,) = [name for name, role in roles.items() if role == "leader"]
    removed = mqcluster("remove-node", leader, *where)
    assert removed.returncode == 0, removed.stderr
    assert leader not in status(one_group)
    assert (one_group / leader / "store").exists()

    assert mqcluster("down", *where).returncode == 0
    assert mqcluster("up", *where).returncode == 0
    roles = {name: server["role"] for name, server in status(one_group).items()}
    assert sorted(roles.values()) == ["follower", "follower", "leader", "name server"]

    again = mqcluster("add-node", *where)
    assert "broker-a-n4 is added" in again.stdout, again.stderr
    unknown = mqcluster("remove-node", leader, *where)
    assert unknown.returncode == 2
    assert f"there is no node '{leader}'" in unknown.stderr


def test_several_groups_and_name_servers_find_each_other(two_groups: Path) -> None:
    """Two groups of one node at two name servers: every group leads and is routed to."""
    roles = {name: server["role"] for name, server in status(two_groups).items()}
    assert roles == {
        "namesrv-0": "name server",
        "namesrv-1": "name server",
        "broker-a-n0": "leader",
        "broker-b-n0": "leader",
    }
    other = mqcluster("up", "--dir", str(two_groups), "--nodes", "3")
    assert other.returncode == 2
    assert "holds a cluster of --nodes 1 --groups 2 --namesrvs 2" in other.stderr


def test_an_unknown_server_is_refused_by_name(two_groups: Path) -> None:
    """A typing error kills nothing, and the message lists the names."""
    done = mqcluster("kill", "broker-a-n7", "--dir", str(two_groups))

    assert done.returncode == 2
    assert "there are namesrv-0, namesrv-1, broker-a-n0, broker-b-n0" in done.stderr


def test_a_directory_without_a_cluster_is_named(tmp_path: Path) -> None:
    """The message says what to do, and the status is that of a wrong command."""
    done = mqcluster("status", "--dir", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr == f"{tmp_path} holds no cluster: `mqcluster up` makes one\n"


def test_a_directory_that_can_hold_no_cluster_is_named(tmp_path: Path) -> None:
    """A file in place of a directory is an error in one line."""
    (tmp_path / "file").touch()

    done = mqcluster("up", "--dir", str(tmp_path / "file"))

    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}/file/namesrv-0: Not a directory; name a directory")
