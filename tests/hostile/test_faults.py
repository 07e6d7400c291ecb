"""Planted bugs: each costs the connection that met it, and is counted."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from replicas import Group

from dledger.errors import StorageError
from dledger.remoting.bodies import KVTable, decode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import encode_header
from dledger.testing.logs import capture_logs
from mqbroker.flow.rates import Rates
from mqbroker.leader.definitions import Definitions
from mqbroker.requests.held_pulls import HeldPulls
from mqbroker.requests.reading import pull
from mqbroker.testing.requests import (
    TOPIC,
    commit_request,
    oneway,
    produce_request,
    pull_request,
    send_request,
    topic_request,
)


def broken(*_: object, **__: object) -> object:
    raise RuntimeError("planted")


def noted(found: Group, logs: list[dict[str, object]], event: str) -> None:
    """A single fault is counted, and the log names it."""
    assert found.core.faults.count == 1
    (line,) = (log for log in logs if log["event"] == event)
    assert line["log_level"] == "error"
    assert str(line["exc_info"]) == "planted"


async def test_a_held_pull_that_fails_costs_its_connection(
    found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held pull that fails closes its own connection; the broker's loop runs the others."""
    unlucky, lucky = found.connect(), found.connect()
    await unlucky.ask(topic_request())
    for stranger, queue_id in ((unlucky, 0), (lucky, 1)):
        held = pull_request(queue_id, 0, 2 | 4, suspendTimeoutMillis=10_000)
        assert await stranger.tell(held) is None
    original = pull.read_queue
    monkeypatch.setattr(pull, "read_queue", broken)
    with capture_logs() as logs:
        await found.connect().ask(send_request(b"x", e="0"))
        monkeypatch.setattr(pull, "read_queue", original)
        await found.connect().ask(send_request(b"y", e="1"))
    assert unlucky.connection.closed
    (answer,) = await lucky.answers()
    assert answer.code == 0
    noted(found, logs, "request handler failed")


async def test_an_answer_that_fails_after_the_append_costs_its_connection(
    found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is stored, although its answer fails, and the log goes on."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    with capture_logs() as logs, monkeypatch.context() as patched:
        patched.setattr("mqbroker.requests.sending.send.encode_header", broken)
        answer = await stranger.ask(send_request(b"x"))
    assert (answer.code, answer.remark) == (1, "RuntimeError: planted")
    assert stranger.connection.closed
    assert found.machine.queues.end(TOPIC, 1) == 1
    noted(found, logs, "request handler failed")


async def test_commits_that_can_not_be_written_hold_up_no_others(
    found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that can't be written is to be tried again, and the next ones are written."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.ask(produce_request("in", runs=((0, 9),)))
    await stranger.ask(commit_request(1))
    with capture_logs() as logs, monkeypatch.context() as patched:
        patched.setattr(Definitions, "_append", broken)
        answer = await stranger.ask(commit_request(3))
    assert answer.code == 14
    await found.pass_time(1.1)
    await stranger.tell(oneway(commit_request(4)))
    await found.pass_time(0.1)
    assert found.machine.offsets.get("C", TOPIC, 0) == 4
    noted(found, logs, "loop failed")


@pytest.mark.parametrize(("owner", "name"), [(HeldPulls, "arrived"), (Rates, "put")])
async def test_a_watcher_that_fails_stops_no_replica(
    found: Group, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """A watcher that raises leaves what was applied as it is."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    with capture_logs() as logs, monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        await stranger.do(send_request(b"x"))
    noted(found, logs, "messages not told")


async def test_a_fault_is_shown(
    found: Group,
) -> None:
    """Faults are shown by GROUP_INFO and the broker's runtime info."""
    found.core.faults.note("tried", RuntimeError("planted"))
    stranger = found.connect()
    assert (await stranger.ask(Command(RequestCode.GROUP_INFO))).ext["faults"] == 1
    runtime = await stranger.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert b'"unforeseenFaults":"1"' in bytes(runtime.payload)


async def test_what_the_port_turned_away_is_shown(
    found: Group,
) -> None:
    """An operator sees how full the port is, and who was refused, without reading logs."""
    quota = found.core.quota
    quota.places_max, quota.per_address_max = 2, 1
    closed: list[str] = []
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"):
        quota.enter(address, closed.append)

    runtime = await found.connect().ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))

    figures = decode_body(KVTable, runtime.payload).table
    shown = {name: int(figures[f"connections{name}"]) for name in ("", "Max")}
    shown |= {name: int(figures[f"connections{name}"]) for name in ("Refused", "Evicted")}
    assert shown == {"": 2, "Max": 2, "Refused": 1, "Evicted": 1}
    assert len(closed) == 1


@pytest.mark.parametrize("kind", [StorageError, OSError, TypeError])
async def test_no_exception_of_a_loop_ends_the_process(
    kind: type[Exception], found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed disk fences the ledger, which ends it; a loop that meets one has nothing to add."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.ask(produce_request("in", runs=((0, 9),)))
    with capture_logs() as logs, monkeypatch.context() as patched:
        flush = Mock(side_effect=kind("planted"))
        patched.setattr("mqbroker.leader.offset_commits.OffsetCommits.flush", flush)
        await stranger.tell(oneway(commit_request(3)))
        await found.pass_time(0.2)
    noted(found, logs, "loop failed")
    await found.pass_time(1.1)
    await stranger.tell(oneway(commit_request(4)))
    await found.pass_time(0.1)
    assert found.machine.offsets.get("C", TOPIC, 0) == 4


def test_the_planted_fault_is_what_it_says() -> None:
    """A plant that does nothing would prove nothing."""
    with pytest.raises(RuntimeError, match="planted"):
        broken(encode_header)
