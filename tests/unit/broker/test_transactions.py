"""Transactions: when messages are seen, which producers are asked, and that each ends once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import HeartbeatData, ProducerData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, Command, ExtValue
from dledger.remoting.headers import (
    CheckTransactionStateHeader,
    SendMessageResponseHeader,
    decode_header,
)
from dledger.remoting.message import offset_message_id_decode, properties_decode
from dledger.remoting.record import Record
from mqbroker.config import BrokerConfig
from mqbroker.testing import MemoryBroker, memory_broker, until
from mqbroker.testing.leading import save
from mqbroker.testing.pictured import rows_in
from mqbroker.testing.requests import ask, pull_request, records, send_request

Code = ResponseCode
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HEARTBEAT = encode_body(HeartbeatData("p1", [ProducerData("P")], []))


@dataclass
class Scene:
    """A broker with a wall clock in the test's hands, and a producer."""

    broker: MemoryBroker
    producer: Peer
    checks: list[Command] = field(default_factory=list)
    later_ms: int = 0

    async def send(self, key: str = "k", **properties: str) -> SendMessageResponseHeader:
        wanted = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key} | properties
        text = "".join(f"{name}\x01{value}\x02" for name, value in wanted.items())
        answer = await self.producer.request(send_request(key.encode(), f="4", i=text), 5)
        assert answer.code == Code.SUCCESS, answer.remark
        return decode_header(SendMessageResponseHeader, answer)

    async def end(self, sent: SendMessageResponseHeader, how: int, **changed: ExtValue) -> Command:
        """END_TRANSACTION, two-way, so that the test sees what a one-way request is told."""
        ext: dict[str, ExtValue] = {
            "producerGroup": "P",
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": offset_message_id_decode(sent.msg_id)[-1],
            "commitOrRollback": how,
        }
        return await ask(self.producer, RequestCode.END_TRANSACTION, **ext | changed)

    async def visible(self) -> list[Record]:
        """Messages that a consumer sees."""
        return records(await self.producer.request(pull_request(1), 5))


@asynccontextmanager
async def scene(directory: Path, config: BrokerConfig | None = None) -> AsyncIterator[Scene]:
    """A broker, its producer, the checks that it got, and a clock in the test's hands."""
    checks: list[Command] = []
    held: list[Scene] = []

    def clock_ms() -> int:
        return int(trio.current_time() * 1000) + (held[0].later_ms if held else 0)

    async with (
        memory_broker(directory, config, clock_ms=clock_ms) as broker,
        connect_peer("127.0.0.1", broker.port, on_request=checks.append) as producer,
    ):
        held.append(Scene(broker, producer, checks))
        await ask(producer, RequestCode.HEART_BEAT, HEARTBEAT)
        yield held[0]


@pytest.fixture
async def its(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as its:
        yield its


async def test_a_message_is_seen_when_its_transaction_is_committed(its: Scene) -> None:
    """A committed message is seen in its topic and queue, and not before."""
    sent = await its.send(DELAY="3")
    assert sent.queue_id == 1
    assert await its.visible() == []
    assert (await its.end(sent, COMMIT)).code == Code.SUCCESS
    (record,) = await its.visible()
    position = offset_message_id_decode(sent.msg_id)[-1]
    assert (bytes(record.body), record.sys_flag, record.prepared_offset) == (b"k", 8, position)
    properties = properties_decode(record.properties)
    assert properties["UNIQ_KEY"] == "k"
    assert properties["TRAN_MSG"] == "true"
    assert not properties.keys() & {"REAL_TOPIC", "REAL_QID", "DELAY"}
    assert len(its.broker.machine.halves) == 0


async def test_a_message_is_never_seen_when_its_transaction_is_rolled_back(its: Scene) -> None:
    """A rolled back message is never seen, and an ended transaction can't be ended again."""
    rolled_back, committed = await its.send("a"), await its.send("b")
    assert (await its.end(rolled_back, ROLLBACK)).code == Code.SUCCESS
    assert (await its.end(committed, COMMIT)).code == Code.SUCCESS
    for sent, how in ((rolled_back, COMMIT), (committed, ROLLBACK), (committed, COMMIT)):
        assert (await its.end(sent, how)).code == Code.SYSTEM_ERROR
    assert [bytes(record.body) for record in await its.visible()] == [b"b"]


async def test_a_request_that_names_another_message_ends_nothing(its: Scene) -> None:
    """A request must have the half message's position, offset and producer group."""
    sent = await its.send()
    for changed in (
        {"producerGroup": "Q"},
        {"tranStateTableOffset": 7},
        {"commitLogOffset": 0},
    ):
        assert (await its.end(sent, COMMIT, **changed)).code == Code.SYSTEM_ERROR
    assert (await its.end(sent, UNKNOWN)).code == Code.SUCCESS
    assert len(its.broker.machine.halves) == 1
    nobodys = send_request(f="4", i="TRAN_MSG\x01true\x02")
    assert (await its.producer.request(nobodys, 5)).code == Code.MESSAGE_ILLEGAL


async def test_a_committed_message_that_is_tried_again_begins_no_transaction(its: Scene) -> None:
    """A committed message keeps TRAN_MSG for consumers, and begins no transaction again."""
    again = send_request(b"k", j="1", i="TRAN_MSG\x01true\x02PGROUP\x01P\x02")
    assert (await its.producer.request(again, 5)).code == Code.SUCCESS
    assert len(await its.visible()) == 1


async def test_two_ends_at_once_are_one(its: Scene) -> None:
    """A second move of the same message must never come into the log."""
    sent = await its.send()
    async with trio.open_nursery() as nursery:
        codes: list[int] = []

        async def end() -> None:
            codes.append((await its.end(sent, COMMIT)).code)

        nursery.start_soon(end)
        nursery.start_soon(end)
    assert sorted(codes) == [Code.SUCCESS, Code.SYSTEM_ERROR]
    assert len(await its.visible()) == 1


async def test_a_silent_producer_is_asked_and_its_answer_ends_the_transaction(its: Scene) -> None:
    """A producer is asked after the time-out, with its record, and again at intervals."""
    sent = await its.send()
    await trio.sleep(1.1)
    assert its.checks == []
    its.later_ms += 6000
    await until(lambda: len(its.checks) == 1)
    (check,) = its.checks
    assert check.code == RequestCode.CHECK_TRANSACTION_STATE
    assert check.flag & FLAG_ONEWAY
    header = decode_header(CheckTransactionStateHeader, check)
    assert (header.tran_state_table_offset, header.transaction_id) == (sent.queue_offset, "k")
    assert header.commit_log_offset == offset_message_id_decode(sent.msg_id)[-1]
    record = Record(check.payload)
    assert (record.topic, record.queue_id, bytes(record.body)) == ("Orders", 1, b"k")
    assert properties_decode(record.properties)["PGROUP"] == "P"
    its.later_ms += 60_000
    await until(lambda: len(its.checks) == 2)
    assert (await its.end(sent, COMMIT, fromTransactionCheck=True)).code == Code.SUCCESS
    assert len(await its.visible()) == 1


async def test_a_producer_that_is_just_being_disconnected_is_asked_over_its_next_connection(
    its: Scene,
) -> None:
    """Within a second, not after the interval: the question would be lost with the old one."""
    await its.send()
    broker = its.broker.broker
    (connection,) = broker._clients.producers("P")
    its.later_ms += 6000
    connection.close("by the test")
    broker._transactions.check()
    async with connect_peer("127.0.0.1", its.broker.port, on_request=its.checks.append) as later:
        await ask(later, RequestCode.HEART_BEAT, HEARTBEAT)
        await until(lambda: len(its.checks) == 1)


async def test_a_new_leader_goes_on_asking(its: Scene) -> None:
    """A new leader asks about the transactions that have not ended, which are replicated state."""
    sent = await its.send()
    its.later_ms += 6000
    await until(lambda: len(its.checks) == 1)
    its.broker.ledger.follow("n1")
    its.broker.ledger.lead()
    await until(lambda: len(its.checks) == 2)
    assert (await its.end(sent, ROLLBACK)).code == Code.SUCCESS
    assert await its.visible() == []


async def test_what_nobody_can_tell_is_given_up(tmp_path: Path) -> None:
    """A transaction is given up after the config's number of checks, and stays readable."""
    config = BrokerConfig(transaction_check_max=2)
    async with scene(tmp_path, config) as its:
        await its.send()
        its.later_ms += 6000 + 2 * 60_000
        queues = its.broker.machine.queues
        await until(lambda: queues.end("TRANS_CHECK_MAX_TIME_TOPIC", 0) == 1)
        assert len(its.broker.machine.halves) == 0
        assert await its.visible() == []
        given_up = pull_request(0, topic="TRANS_CHECK_MAX_TIME_TOPIC")
        (record,) = records(await its.producer.request(given_up, 5))
        assert properties_decode(record.properties)["REAL_TOPIC"] == "Orders"


async def test_half_messages_outlive_a_restart(its: Scene, tmp_path: Path) -> None:
    """Half messages are restored from a snapshot."""
    await its.send("a")
    ended = await its.send("b")
    await its.end(ended, ROLLBACK)
    save(its.broker.machine)
    again = type(its.broker.machine)(tmp_path)
    assert again.restore() is None
    assert rows_in(again.halves.picture()[0]) == rows_in(its.broker.machine.halves.picture()[0])
    assert [offset for offset, _ in again.halves.items()] == [0]
