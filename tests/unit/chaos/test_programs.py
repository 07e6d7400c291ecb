"""Loads that are programs: their output is the history, and a line ends them."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
import trio

from dledger.errors import ConfigError
from mqchaos.cluster.processes import ClusterError
from mqchaos.history.events import End, Event
from mqchaos.limits import STOCK_SENDERS
from mqchaos.run import again
from mqchaos.run.load.workload import WORKLOADS, caught_up
from mqchaos.run.others import stock
from mqchaos.run.others.programs import Program
from mqchaos.run.planned import checked
from mqchaos.run.scenarios import SCENARIOS, planned_of

PROGRAM = """
import sys, time
def say(kind, **members):
    import json
    print(json.dumps({"kind": kind, "t": time.monotonic_ns(), **members}), flush=True)
stored = {"topic": "T", "broker": "b", "queue_id": 0}
print("log4j: a line that is none", flush=True)
print('{"kind":"again","t":1}', flush=True)
for number in range(3):
    name = f"m{number}"
    say("send", client="c", id=name, topic="T", key="", crc=1, size=1)
    if number < 2:
        say("ack", client="c", id=name, offset=number, position=0, **stored)
say("fail", client="c", id="m2", definite=False, error="no route")
say("deliver", client="c", group="g", offset=0, id="m0", crc=1, **stored)
sys.stdin.readline()
say("deliver", client="c", group="g", offset=1, id="m1", crc=1, **stored)
say("sent", client="c")
sys.stdin.readline()
"""


def program(folder: Path, text: str) -> Program:
    history, log = folder / "program.jsonl", folder / "log"
    return Program([sys.executable, "-c", text], history, log)


async def test_both_halves_are_followed_and_end_in_their_order(tmp_path: Path) -> None:
    """Senders end first; lines that are not events are passed over."""
    load = program(tmp_path, PROGRAM)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(load.reading.run)
            await nursery.start(load.sending.run)
            while not load.reading.progress.delivered:  # noqa: ASYNC110 - a process's
                await trio.sleep(0.01)
            sent, read = load.sending.progress, load.reading.progress
            assert (sent.sent, sent.acked, sent.failed, sent.error) == (3, 2, 1, "no route")
            assert not caught_up([sent], [read])
            await load.sending.finish()
            assert not load.reading.finished.is_set()
            assert caught_up([sent], [read])
            await load.reading.finish()
    lines = (tmp_path / "program.jsonl").read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=Event) for line in lines]
    assert len(events) == 9
    assert isinstance(events[-1], End)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit('no broker')", "ended with status 1(.|\n)*no broker"),
        ("print('x' * 2_000_000, flush=True); input()", "a line without an end"),
    ],
)
def test_a_program_that_fails_ends_the_run(tmp_path: Path, text: str, words: str) -> None:
    """A program that fails ends the run with its output: without a load it proves nothing."""
    load = program(tmp_path, text)
    with pytest.raises(ClusterError, match=words):
        trio.run(load.reading.run)


def test_what_is_cancelled_is_ended(tmp_path: Path) -> None:
    """A cancelled run leaves no process."""
    load = program(tmp_path, "import os; print(os.getpid(), flush=True); input()")

    async def run() -> int:
        async with trio.open_nursery() as nursery:
            await nursery.start(load.reading.run)
            assert load._process is not None
            nursery.cancel_scope.cancel()
        return load._process.pid

    assert not Path(f"/proc/{trio.run(run)}").exists()


def built(folder: Path, name: str) -> None:
    home = folder / ".cache" / "conformance" / name
    (home / "classes").mkdir(parents=True)
    (home / "classes" / "Steady.class").touch()
    (home / "lib").mkdir()
    for jar in ("rocketmq-client", "rocketmq-tools"):
        (home / "lib" / f"{jar}-4.9.8.jar").touch()


def test_a_stock_client_is_found_where_the_suite_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stock client's command has the driver and the rate, and leaves out a jar that prints."""
    built(tmp_path, "java4-4.9.8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stock.shutil, "which", lambda name: "/usr/bin/java")

    argv = stock.argv_of("java4-4.9.8", "a:1;b:2", "Lines", 1000.0)

    assert argv[argv.index("Steady") :][1:5] == ["a:1;b:2", "java4", "Lines", str(STOCK_SENDERS)]
    assert argv[argv.index("Steady") + 5] == str(STOCK_SENDERS)
    assert "rocketmq-client" in argv[argv.index("-cp") + 1]
    assert "rocketmq-tools" not in argv[argv.index("-cp") + 1]


def test_a_stock_client_that_is_not_there_is_named_with_what_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing stock client is an error that says what builds it, before any start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stock, "_CLONE", tmp_path)
    planned = planned_of(SCENARIOS["leader-kill"], 1, 1, "java4")
    monkeypatch.setattr(stock.shutil, "which", lambda name: "/usr/bin/java")
    with pytest.raises(ConfigError, match="java4 is not available here.*./dev test tests/conform"):
        again.order_of(planned, tmp_path / "run")
    monkeypatch.setattr(stock.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="java is not installed"):
        again.order_of(planned, tmp_path / "run")


def test_stock_clients_send_until_they_are_told(tmp_path: Path) -> None:
    """Stock clients count no messages, so a plan with a number of them is refused."""
    planned = planned_of(SCENARIOS["leader-kill"], 1, 1, "java5")
    assert not WORKLOADS["java5"].paused_by_faults_alone
    assert checked(planned, tmp_path) == planned
    with pytest.raises(ConfigError, match="stock clients don't count"):
        checked(msgspec.structs.replace(planned, messages=100), tmp_path)
