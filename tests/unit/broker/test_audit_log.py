"""The audit log: for each change and each refusal the user, the address, the request and its
outcome.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.limits import AUDIT_FILE_BYTES, AUDIT_FILES_MAX, AUDIT_FOLD_S, AUDIT_FOLDED_MAX
from dledger.net import Peer
from dledger.program import audit_log, audit_pages
from dledger.program.audit_log import AuditLog
from dledger.program.audit_pages import page_of
from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.slices import drained
from dledger.testing.logs import capture_logs
from dledger.trust.audit import AuditLine, AuditPage, Trail
from mqbroker.config import BrokerConfig
from mqbroker.testing.memory import MemoryBroker, served
from mqbroker.testing.requests import TOPIC, send_request, topic_request

ANSWER_S = 5.0
CLUSTER = "Cluster:DefaultCluster"


@asynccontextmanager
async def audited(
    folder: Path, **settings: str
) -> AsyncIterator[tuple[MemoryBroker, Peer, AuditLog]]:
    """A broker with an audit log, and a connection to it."""
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    async with served(folder / "store", config) as (broker, peer):
        log = AuditLog(folder / "audit")
        broker.broker.core.auditor.log = log
        try:
            yield broker, peer, log
        finally:
            log.close()


def said(log: AuditLog) -> list[tuple[str, str, str, tuple[str, ...], int]]:
    """Lines of the log, without times and servers."""
    return [(line.user, line.name, line.verdict, line.objects, line.times) for line in log.read(0)]


async def test_each_change_is_noted_with_its_outcome_and_nothing_else(tmp_path: Path) -> None:
    """Changes are noted with their outcome, failed ones too; sends and questions are not noted."""
    async with audited(tmp_path) as (_, peer, log):
        for request in (
            topic_request(TOPIC),
            send_request(),
            Command(Code.GET_BROKER_CONFIG),
            Command(Code.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}),
            Command(Code.UPDATE_BROKER_CONFIG, body=b"listenPort=1\n"),
        ):
            await peer.request(request, ANSWER_S)

        assert said(log) == [
            ("", "UPDATE_AND_CREATE_TOPIC", "done", (f"Topic:{TOPIC}",), 1),
            ("", "DELETE_TOPIC_IN_BROKER", "done", (f"Topic:{TOPIC}",), 1),
            ("", "UPDATE_BROKER_CONFIG", "failed", (CLUSTER, "listenPort"), 1),
        ]
        assert {line.source for line in log.read(0)} == {"127.0.0.1"}
        assert "listenPort can't change" in log.read(0)[-1].reason


async def test_a_refusal_is_noted_at_once_and_its_repeats_are_counted(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The first refusal is noted at once, and its repeats are counted in one line."""
    async with audited(tmp_path, admin_addresses="10.0.0.1") as (_, peer, log):
        delete = {"topic": TOPIC}
        for _ in range(50):
            answer = await peer.request(Command(Code.DELETE_TOPIC_IN_BROKER, delete), ANSWER_S)
            assert answer.code == ResponseCode.NO_PERMISSION
        (first,) = said(log)
        assert first == ("", "DELETE_TOPIC_IN_BROKER", "refused", (f"Topic:{TOPIC}",), 1)
        await trio.sleep(AUDIT_FOLD_S + 1)
        await peer.request(Command(Code.DELETE_TOPIC_IN_BROKER, delete), ANSWER_S)
        assert said(log) == [first, ("", "DELETE_TOPIC_IN_BROKER", "refused", (), 49), first]


def change(code: Code, ext: dict[str, ExtValue], body: object = None) -> Command:
    """A request whose body is JSON."""
    return Command(code, ext, b"" if body is None else msgspec.json.encode(body))


ENTRY = {"resource": "Topic:Orders", "actions": ["Pub"], "decision": "Allow"}
ACL = {"policies": [{"policyType": "Custom", "entries": [ENTRY]}]}
LIFE: tuple[tuple[Command, tuple[str, ...]], ...] = (
    (
        change(
            Code.CREATE_USER,
            {"username": "ann"},
            {"username": "ann", "password": "the-word", "userType": "Super"},
        ),
        ("User:ann", "a password", "userType=Super"),
    ),
    (
        change(Code.UPDATE_USER, {"username": ""}, {"username": "ann", "userStatus": "disable"}),
        ("User:ann", "userStatus=disable"),
    ),
    (
        change(Code.CREATE_ACL, {"subject": "User:ann"}, ACL),
        ("User:ann", "Custom: Allow Pub on Topic:Orders"),
    ),
    (
        change(Code.DELETE_ACL, {"subject": "User:ann", "resource": "Topic:Orders"}),
        ("User:ann", "Topic:Orders"),
    ),
    (change(Code.DELETE_USER, {"username": "ann"}), ("User:ann",)),
    (
        Command(Code.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=4096\nbrokerPermission=6\n"),
        ("maxMessageSize=4096", "brokerPermission=6"),
    ),
)


async def test_a_line_says_which_user_which_rights_and_which_settings(tmp_path: Path) -> None:
    """A line that named the cluster alone would not tell who was made a super user."""
    async with audited(tmp_path, d_leger_secret="a secret of sixteen") as (_, peer, log):  # noqa: S106
        for request, _ in LIFE:
            answer = await peer.request(request, ANSWER_S)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert [line.objects for line in log.read(0)] == [(CLUSTER, *named) for _, named in LIFE]
        assert {line.verdict for line in log.read(0)} == {"done"}


async def test_a_setting_that_can_not_change_is_noted_without_its_value(tmp_path: Path) -> None:
    """A value may be a secret."""
    async with audited(tmp_path) as (_, peer, log):
        asked = Command(Code.UPDATE_BROKER_CONFIG, body=b"dLegerSecret=the-word\n")
        await peer.request(asked, ANSWER_S)
        (line,) = log.read(0)
        assert line.objects == (CLUSTER, "dLegerSecret")
        assert "the-word" not in (tmp_path / "audit" / "audit.jsonl").read_text()


async def test_no_line_has_a_secret(tmp_path: Path) -> None:
    """The audit log holds neither the password of a new user nor the value of a setting."""
    secret = "a secret of sixteen"  # noqa: S105 - a test's
    async with audited(tmp_path, d_leger_secret=secret) as (_, peer, _):
        user = b'{"username": "u", "password": "the-word", "userType": "Normal"}'
        answer = await peer.request(Command(Code.CREATE_USER, {"username": "u"}, user), ANSWER_S)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        text = (tmp_path / "audit" / "audit.jsonl").read_text()
        assert "CREATE_USER" in text
        assert "the-word" not in text
        assert secret not in text


def line(time_ms: int, reason: str = "") -> AuditLine:
    """A line of that time."""
    return Trail("n0").changed(time_ms, "u", "127.0.0.1", 17, "X", "done", ["Topic:T"], reason)


def test_files_are_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    """The log's files are bounded and private; the youngest lines stay."""
    log = AuditLog(tmp_path)
    size = len(line(1, "x" * 300).reason) + 150
    lines = (AUDIT_FILES_MAX + 2) * AUDIT_FILE_BYTES // size
    log.write(line(number, "x" * 300) for number in range(lines))
    log.close()

    files = sorted(tmp_path.iterdir())
    assert len(files) == AUDIT_FILES_MAX
    assert all(file.stat().st_size <= AUDIT_FILE_BYTES for file in files)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    times = [each.time_ms for each in AuditLog(tmp_path).read(0)]
    assert times == [*range(times[0], lines)]


def test_a_line_that_a_crash_has_cut_spoils_no_other(tmp_path: Path) -> None:
    """The lines before and after a line that a crash has cut are read."""
    log = AuditLog(tmp_path)
    log.write([line(1), line(2)])
    log.close()
    path = tmp_path / "audit.jsonl"
    os.truncate(path, path.stat().st_size - 10)
    log = AuditLog(tmp_path)
    log.write([line(3)])
    log.close()

    assert [each.time_ms for each in log.read(0)] == [1, 3]
    assert [each.time_ms for each in log.read(2)] == [3]


def test_a_disk_that_takes_no_line_is_told_once_and_stops_nobody(tmp_path: Path) -> None:
    """Lost lines are counted; writing goes on when it can."""
    (tmp_path / "audit").write_text("a file where the folder should be")
    log = AuditLog(tmp_path / "audit")
    with capture_logs() as logs:
        log.write([line(1), line(2)])
        (tmp_path / "audit").unlink()
        log.write([line(3)])
    log.close()

    assert [each["event"] for each in logs] == ["audit log not written"]
    assert log.lost == 2
    assert [each.time_ms for each in log.read(0)] == [3]


@pytest.mark.parametrize("seed", range(3))
def test_no_flood_of_names_is_remembered(seed: int) -> None:
    """Refusals under ever new names are noted up to a bound, and counted beyond it."""
    trail = Trail("n0")
    written = 0
    for number in range(5 * AUDIT_FOLDED_MAX):
        name = f"{seed}-{number}-" + "n" * 1000
        found = [*trail.refused(number, name, "10.0.0.1", 17, "X", "r" * 10_000)]
        assert all(len(each.reason) <= 300 and len(each.user) <= 300 for each in found)
        written += len(found)
    assert written <= AUDIT_FOLDED_MAX + 1
    after = [*trail.due(int(2 * AUDIT_FOLD_S * 1000))]
    assert sum(each.times for each in after) + written == 5 * AUDIT_FOLDED_MAX


@pytest.mark.parametrize("body", [b"{", b"[]", b"x" * 100_000])
async def test_what_can_not_be_read_is_answered_as_without_an_audit_log(
    body: bytes, tmp_path: Path
) -> None:
    """The line has no objects then, or the size of a body that is too long to look at."""
    async with audited(tmp_path) as (broker, peer, log):
        request = Command(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        answer = await peer.request(request, ANSWER_S)
        (line,) = log.read(0)
        assert line.verdict == "failed"
        assert line.objects == (("a body of 100000 bytes",) if len(body) > 1000 else ())
        served = broker.broker.handler.table[Code.UPDATE_AND_CREATE_TOPIC_LIST]
        assert answer.code != ResponseCode.SUCCESS
        assert served.rights.changes


LINE = AuditLine(1, "s", "ann", "10.0.0.9", 17, "UPDATE_AND_CREATE_TOPIC", "done")


def paged(folder: Path, after: str = "") -> AuditPage:
    """All lines of the log on one page."""
    return drained(page_of(folder, after, lambda _: True))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_pages_have_each_line_once_over_full_files(writes: list[int], pages: int) -> None:
    """A reader asks for some pages after each burst of writes; files are full after a few lines,
    and the oldest ones go. A cursor whose file is gone says that lines are missing; else none is,
    and none comes twice."""
    with (
        tempfile.TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(audit_log, "AUDIT_FILE_BYTES", 700)
        patch.setattr(audit_log, "AUDIT_FILES_MAX", 3)
        patch.setattr(audit_pages, "AUDIT_PAGE_BYTES", 900)
        log, written, after = AuditLog(Path(name)), 0, ""
        read: list[int] = []
        for count in [*writes, 0]:
            log.write(
                msgspec.structs.replace(LINE, time_ms=number)
                for number in range(written + 1, written + count + 1)
            )
            written += count
            for _ in range(pages if count else 100):
                page = paged(Path(name), after)
                new = [line.time_ms for line in page.lines]
                begins = read[-1] + 1 if read else 1
                if new and not page.missed and after:
                    assert new[0] == begins
                assert new == [*range(new[0], new[-1] + 1)] if new else True
                read += new
                after = page.next
                if not page.more:
                    assert not read or read[-1] == written
                    break
        log.close()
        assert read == sorted(set(read))
        assert not written or read[-1] == written


def test_a_line_that_is_being_written_waits_for_the_next_page(tmp_path: Path) -> None:
    """A page ends before an unfinished line, and leaves out damaged ones."""
    log = AuditLog(tmp_path)
    log.write([LINE])
    log.close()
    whole = paged(tmp_path)
    assert (len(whole.lines), whole.more) == (1, False)
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b"no line\n{" + b'"time_ms":2')
    assert paged(tmp_path, whole.next).lines == []
    log.write([LINE])
    assert len(paged(tmp_path, whole.next).lines) == 1
    with pytest.raises(BadInput, match="is not a place in an audit log"):
        paged(tmp_path, "../../etc/passwd")
    assert paged(tmp_path / "none") == AuditPage([], "", more=False, missed=False)


async def test_a_tool_reads_the_log_over_the_network(tmp_path: Path) -> None:
    """LIST_AUDITED finds lines by user, refusal and time; a server without a log says so."""
    async with audited(tmp_path) as (_, peer, log):
        await peer.request(topic_request(TOPIC), ANSWER_S)
        log.write([msgspec.structs.replace(LINE, verdict="refused", time_ms=5)])

        async def asked(**header: ExtValue) -> list[str]:
            answer = await peer.request(Command(Code.LIST_AUDITED, header), ANSWER_S)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            page = msgspec.json.decode(answer.payload, type=AuditPage)
            return [line.verdict for line in page.lines]

        assert await asked() == ["done", "refused"]
        assert await asked(refused=True) == ["refused"]
        assert await asked(user="ann") == ["refused"]
        assert await asked(beginMs=6) == ["done"]
    async with served(tmp_path / "other", BrokerConfig()) as (_, peer):
        answer = await peer.request(Command(Code.LIST_AUDITED), ANSWER_S)
        assert "keeps no audit log: set auditLogDir" in str(answer.remark)
