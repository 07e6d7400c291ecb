"""Attached clusters: the hooks file, the running of hooks, and the judge of what is read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from dledger.verdict.form import NUMBERS
from mqchaos.attach.attached import run_hook
from mqchaos.attach.hooks import read_hooks
from mqchaos.attach.readback import judge
from mqchaos.cluster.processes import ClusterError
from mqchaos.history.events import Ack, Deliver, Event, Fail, Send

HEAD = 'broker = "b"\n[nodes.n0]\naddress = "h:1"\n'
KILL = 'faults.kill = { inject = "x", heal = "y" }\n'


def hooks_file(text: str | bytes, tmp_path: Path) -> Path:
    path = tmp_path / "hooks.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_hooks_file_names_nodes_and_commands(tmp_path: Path) -> None:
    """A hooks file has addresses that lead to nodes; its faults are those that all nodes have."""
    second = '[nodes.n1]\naddress = "h:2"\nfaults.kill.inject = "a"\nfaults.kill.heal = "b"\n'
    pause = 'faults.pause = { inject = "p", heal = "q", timeout_s = 5 }\n'

    hooks = read_hooks(hooks_file(HEAD + KILL + pause + second, tmp_path))

    assert hooks.faults() == ["kill"]
    assert (hooks.node_at("h:2"), hooks.node_at("h:3"), hooks.node_at(None)) == ("n1", None, None)
    assert hooks.nodes["n0"].faults["pause"].timeout_s == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("broker = ", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
        ("x = " + "[" * 50_000, "is not valid TOML"),
        ("", "missing required field `broker`"),
        ('broker = "b"\nnodes = {}', "nodes names 0 nodes; there may be 1 to 7"),
        ('broker = ""\n' + HEAD.split("\n", 1)[1] + KILL, "broker is empty"),
        (HEAD.replace("h:1", "h") + KILL, "nodes.n0.address is not a host:port"),
        (HEAD, "missing required field `faults` - at `$.nodes"),
        (HEAD + "faults = {}", "nodes.n0.faults is empty"),
        (HEAD + 'faults.kill = { inject = "x" }', "missing required field `heal`"),
        (
            HEAD + 'faults.kill = { inject = " ", heal = "y" }',
            "faults.kill.inject is not a command",
        ),
        (HEAD + 'faults.kill = { inject = 5, heal = "y" }', "Expected `str`, got `int` - at"),
        (
            HEAD + 'faults.eat = { inject = "x", heal = "y" }',
            "faults.eat is not a known fault",
        ),
        (HEAD + KILL.replace("}", ", timeout_s = 0 }"), "faults.kill.timeout_s is 0"),
        (HEAD + KILL.replace("}", ", timeout_s = nan }"), "faults.kill.timeout_s is nan"),
        (HEAD + KILL + 'colour = "red"', "unknown field `colour` - at `$.nodes"),
        (
            HEAD + KILL + '[nodes.n1]\naddress = "h:1"\n' + KILL,
            "nodes.n1.address is that of n0, too",
        ),
        (
            HEAD + KILL + '[nodes.n1]\naddress = "h:2"\n' + KILL.replace("kill", "pause"),
            "nodes have no fault in common",
        ),
        (HEAD + KILL + '[workload]\ncommand = " "', "workload.command is empty"),
        ("#" * (1 << 20) + "\n" + HEAD, "it is not a hooks file"),
    ],
)
def test_a_bad_hooks_file_is_refused_by_the_field(
    text: str | bytes, says: str, tmp_path: Path
) -> None:
    """A wrong hooks file is refused with the field and the path before any fault."""
    path = hooks_file(text, tmp_path)
    with pytest.raises(ConfigError) as refused:
        read_hooks(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_hooks_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    """A missing hooks file, or a folder in its place, is refused."""
    with pytest.raises(ConfigError, match="No such file"):
        read_hooks(tmp_path / "none")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_hooks(tmp_path)


async def test_a_hook_that_fails_or_hangs_ends_the_run(tmp_path: Path) -> None:
    """A hook that fails or hangs ends the run with its name, words and output.

    One that starts a server does not hang.
    """
    log = tmp_path / "log"
    with pytest.raises(ClusterError, match=r"(?s)f ended with status 3: echo no.*\| no"):
        await run_hook("echo no; exit 3", 10, "f", log)
    with pytest.raises(ClusterError, match=r"f did not end within 0.1 s: sleep 60"):
        await run_hook("sleep 60", 0.1, "f", log)
    await run_hook("sleep 2 &", 30, "f", log)


def send(name: str, crc: int = 1) -> Send:
    return Send(1, "p", name, "T", "", crc, 1)


def ack(name: str, offset: int) -> Ack:
    return Ack(2, "p", name, "T", "b", 0, offset, 8)


def deliver(name: str, offset: int, crc: int = 1, group: str = "g") -> Deliver:
    return Deliver(3, "c", group, "T", "b", 0, offset, name, crc)


def good(count: int) -> list[Event]:
    names = [f"m{number}" for number in range(count)]
    return [
        *map(send, names),
        *(ack(name, offset) for offset, name in enumerate(names)),
        *(deliver(name, offset) for offset, name in enumerate(names)),
    ]


def found(events: Sequence[Event]) -> set[tuple[int, str, str | None]]:
    return {
        (each.number, violation.what, violation.message_id)
        for each in judge(events).properties
        for violation in each.violations
    }


def test_a_good_run_is_read_back_whole() -> None:
    """A run may have repeated deliveries, a group that begins late, and an unanswered send."""
    events = [*good(4), deliver("m1", 1), deliver("m2", 2), deliver("m3", 3, group="h")]
    events += [send("?"), deliver("?", 4), Fail(4, "p", "no", True, "x")]

    verdict = judge(events)

    assert verdict.holds
    assert found(events) == set()
    assert verdict.counts["lost"] == 0
    assert [each.number for each in verdict.properties] == list(NUMBERS)
    assert {each.number for each in verdict.properties if each.unjudged} == {
        *(5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
    }


@pytest.mark.parametrize(
    ("events", "finding"),
    [
        ([*good(2), send("x"), ack("x", 2)], (1, "lost", "x")),
        ([*good(2), send("x"), ack("x", 3), deliver("x", 2)], (1, "moved", "x")),
        ([*good(2), deliver("x", 2)], (2, "phantom", "x")),
        ([*good(2), send("x"), deliver("x", 2, crc=7)], (2, "altered", "x")),
        (
            [*good(2), send("x"), Fail(2, "p", "x", True, "no"), deliver("x", 2)],
            (2, "refused", "x"),
        ),
        ([*good(2), send("x"), deliver("x", 1)], (3, "contested", None)),
        ([*good(2), send("x"), deliver("x", 3)], (4, "skipped", "x")),
        ([*good(2), send("x"), deliver("x", 3), send("y"), deliver("y", 2)], (4, "late", "y")),
        ([*good(2), deliver("m0", 2)], (9, "duplicate", "m0")),
    ],
)
def test_each_lie_of_a_cluster_is_read_back(
    events: list[Event], finding: tuple[int, str, str | None]
) -> None:
    """A planted lie is read back: lost, moved, changed, refused, contested, late, twice."""
    assert finding in found(events)
    assert not judge(events).holds
