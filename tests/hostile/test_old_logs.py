"""Entries that can't be applied: their senders' answers, and logs that hold them.

Leaders of older versions wrote some of these for a stranger, and every replica died of them at each
start.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
import pytest
from replicas import CANARY, Group, group, state_of
from trio.testing import MockClock

from dledger.buffers import Buffer
from dledger.errors import WrittenByNewer
from dledger.ledger.config import LedgerConfig
from dledger.ledger.ledger import Ledger, open_ledger
from dledger.log.entry import HEADER_BYTES, Entry, Kind
from dledger.raft.replication.base_state import Hold
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import GroupInfoResponseHeader, decode_header
from dledger.remoting.record import encode_record
from dledger.remoting.record.layout import SYS_FLAG_AT
from dledger.slices import drained
from dledger.testing.logs import capture_logs
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.state import control
from mqbroker.state.machine import Machine
from mqbroker.testing import until
from mqbroker.testing.leading import HOST, LeadingMachine, save
from mqbroker.testing.requests import TOPIC, send_request, topic_request


def record(position: int, queue_offset: int, *, flags: int = 0, properties: bytes = b"") -> bytes:
    """A record of "Orders", queue 0; `flags` are written over what the hosts say."""
    made = bytearray(
        encode_record(
            topic=TOPIC.encode(),
            queue_id=0,
            body=b"old",
            properties=properties,
            born_timestamp_ms=1,
            born_host=HOST,
            store_host=HOST,
            queue_offset=queue_offset,
            physical_offset=position,
            store_timestamp_ms=1_790_000_000_000,
        )
    )
    struct.pack_into(">i", made, SYS_FLAG_AT, flags)
    return bytes(made)


def tags_that_are_no_text(position: int, offset: int) -> bytes:
    first = record(position, offset, properties=b"TAGS\x01A\x02")
    return first + record(position + len(first), offset + 1, properties=b"TAGS\x01\xff\x02")


#: Bodies that old leaders wrote, as functions of (position, end), and how far the end moved.
OLD: dict[str, tuple[Callable[[int, int], bytes], int]] = {
    "an offset left out": (lambda at, end: record(at, end + 1), 0),
    "an IPv6 bit over an IPv4 host": (lambda at, end: record(at, end, flags=0x10), 0),
    "both IPv6 bits": (lambda at, end: record(at, end, flags=0x30), 0),
    "no text for tags": (tags_that_are_no_text, 2),
    "nothing": (lambda at, end: b"", 0),
    "half a record": (lambda at, end: record(at, end)[:95], 0),
}


@pytest.mark.parametrize("name", OLD)
async def test_an_entry_that_ended_groups_is_set_aside_or_applied(found: Group, name: str) -> None:
    """All replicas set the entry aside, with an alarm, or apply it, and the group serves on."""
    make, added = OLD[name]
    await found.serves()
    end = found.machine.queues.end(TOPIC, 0)
    position = found.ledger.status.end_position + HEADER_BYTES
    with capture_logs() as logs:
        entry = found.commit_raw(Kind.MESSAGES, make(position, end))
    found.ledger.lead()
    assert found.machine.queues.end(TOPIC, 0) == end + added
    assert found.machine.aside.count == (0 if added else 1)
    if not added:
        (alarm,) = (log for log in logs if log["event"] == "entry set aside")
        assert (alarm["log_level"], alarm["index"]) == ("error", entry.index)
        await shown(found, entry.index, alarm["reason"])
    found.agree()
    await found.serves()
    found.agree()


async def shown(found: Group, index: int, reason: str) -> None:
    """GROUP_INFO, which `mqadmin raftStatus` asks for, tells of the entry."""
    answer = await found.connect().ask(Command(RequestCode.GROUP_INFO))
    info = decode_header(GroupInfoResponseHeader, answer)
    assert (info.set_aside, info.set_aside_last) == (1, ((index, reason),))


@pytest.mark.parametrize("value", [2**31, 2**40, 2**64 - 1, -(2**63)])
async def test_a_topic_of_an_old_log_has_the_nearest_numbers_that_there_are(
    tmp_path: Path, mock_clock: MockClock, value: int
) -> None:
    """A topic's numbers are cut to the nearest that exist, from a log and from a snapshot."""
    async with group(tmp_path) as found:
        made = topic_request("Odd")
        await found.connect().ask(made)
        odd = found.machine.topics.get("Odd")
        assert odd is not None
        body = control.encode_control(
            control.PutTopics([msgspec.structs.replace(odd, perm=value)], 1_790_000_000_000)
        )
        found.commit_raw(Kind.CONTROL, body)
        kept = found.machine.topics.get("Odd")
        assert kept is not None
        assert kept.perm == (2**31 - 1 if value > 0 else -(2**31))
        found.machine.topics.put([msgspec.structs.replace(odd, perm=value)], 1)
        payload = drained(found.machine.capture())[1]
        other = Machine(tmp_path / "other")
        drained(other.install(found.machine.applied_index, payload, 1))
        assert other.topics.get("Odd") == kept


def test_an_operation_of_a_newer_version_stops_only_who_is_older(tmp_path: Path) -> None:
    """A newer version's operation stops this replica, whose state would else be another."""
    leader = LeadingMachine(tmp_path)
    for kind, body in (
        (Kind.CONTROL, msgspec.msgpack.encode(("put_acls", {}))),
        (Kind.CONTROL, msgspec.msgpack.encode(("x" * 64, [1]))),
    ):
        entry = Entry(leader.machine.applied_index + 1, 1, kind, 4096, memoryview(body))
        before = state_of(leader.machine)
        with pytest.raises(WrittenByNewer, match="upgrade this node"):
            leader.machine.apply(entry)
        assert state_of(leader.machine) == before


async def test_who_sent_what_is_set_aside_is_told_and_the_offsets_are_given_again(
    found: Group,
) -> None:
    """A sender is told that its entry was set aside, and no later entry behind it counts."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.ask(send_request(b"0", e="0"))
    found.ledger.auto = False
    # A bug's doing: an offset is taken, and no message comes for it.
    found.core.assignments.take(TOPIC, 0, 1)
    entries = limits.SENDS_TOGETHER_FROM
    for number in range(entries):
        request = send_request(b"%d" % number, e="0")
        request.opaque = 100 + number
        found.broker.handler(request, stranger.connection)
    found.ledger.commit(1)
    later = send_request(b"later", e="0")
    later.opaque = 200
    found.broker.handler(later, stranger.connection)
    found.ledger.auto = True
    found.ledger.commit()
    answers = {answer.opaque: answer for answer in await stranger.answers()}
    for opaque in range(100, 100 + entries):
        assert answers[opaque].code == ResponseCode.SYSTEM_ERROR
        assert "set aside" in (answers[opaque].remark or "")
    assert (answers[200].code, answers[200].ext["queueOffset"]) == (0, "1")
    assert found.machine.queues.end(TOPIC, 0) == 2
    assert found.machine.aside.count == entries
    await found.serves()
    found.agree()


def test_the_book_of_entries_set_aside_goes_with_the_state(tmp_path: Path) -> None:
    """Entries that were set aside are kept in snapshots and in a state for another replica."""
    leader = LeadingMachine(tmp_path / "a")
    note = NewRecord(b"x", b"", 1, HOST)
    leader.append(CANARY, 0, [note])
    # A move of what does not wait, with an arrival that would fit the queue.
    position = leader.ledger.status.end_position + HEADER_BYTES
    moved = encode_record(
        topic=b"RMQ_SYS_MOVE_OP_TOPIC",
        queue_id=0,
        body=b"rmq_sys_wheel_timer 0 0-1",
        properties=b"",
        born_timestamp_ms=1,
        born_host=HOST,
        physical_offset=position,
    )
    arrival = encode_record(
        topic=CANARY.encode(),
        queue_id=0,
        body=b"never",
        properties=b"",
        born_timestamp_ms=1,
        born_host=HOST,
        queue_offset=1,
        physical_offset=position + len(moved),
    )
    leader.ledger.append_nowait(moved + arrival, Kind.MESSAGES, lambda _: None)
    leader.append(CANARY, 0, [note])
    assert leader.machine.aside.count == 1
    expected = state_of(leader.machine)
    save(leader.machine)
    again = Machine(tmp_path / "a")
    assert again.restore() is None
    assert state_of(again) == expected
    given = Machine(tmp_path / "b")
    drained(given.install(*drained(leader.machine.capture()), 1))
    for entry in leader.ledger.entries(1):
        given.apply(entry)
    found = state_of(given)
    assert found["units"] == expected["units"]
    assert found["aside"] == expected["aside"]


class Scribe:
    """A state machine that takes everything: with it a log is written as an old version did."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.saved_index = 0

    def apply(self, entry: object) -> object:
        return None

    def leading(self, term: int) -> None:
        pass

    def following(self, leader: str | None, term: int) -> None:
        pass

    def capture(self) -> Generator[Hold, None, tuple[int, bytes]]:
        yield Hold.APPLYING
        return self.applied_index, b""

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        yield
        self.applied_index = first_index - 1


async def test_a_log_on_disk_that_holds_such_entries_starts(tmp_path: Path) -> None:
    """A node of one starts twice on a log with such entries on disk."""
    config = LedgerConfig(
        group="g", node_id="n0", peers={"n0": ("127.0.0.1", 0)}, directory=tmp_path
    )
    async with open_ledger(config, Scribe()) as ledger:
        await until_leading(ledger)
        for make, _ in OLD.values():
            at = ledger.status.end_position + HEADER_BYTES
            await ledger.append(make(at, 0), Kind.MESSAGES)
        at = ledger.status.end_position + HEADER_BYTES
        await ledger.append(record(at, 2), Kind.MESSAGES)
        last = ledger.status.last_index
    states = []
    for _ in range(2):
        machine = Machine(tmp_path / "state")
        machine.restore()
        async with open_ledger(config, machine) as ledger:
            await until_leading(ledger)
            await ledger.wait_applied(last)
            assert ledger.status.fenced is None
        states.append((machine.queues.end(TOPIC, 0), machine.aside.count))
        save(machine)
        machine.close()
    assert states == [(3, 5), (3, 5)]


async def until_leading(ledger: Ledger) -> None:
    """A node of one elects itself."""
    await until(lambda: ledger.status.role == "leader")
