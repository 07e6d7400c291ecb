"""Transactions and delays of our producer, against the broker's code on virtual days."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from dledger.errors import BadInput
from dledger.net import Connection, Handler, Peer, connect_peer, serve_remoting
from dledger.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from dledger.remoting.command import Command
from dledger.remoting.headers import EndTransactionHeader
from dledger.remoting.message import offset_message_id_decode, properties_decode
from dledger.remoting.record import Record
from mqbroker.requests.sending.transactions import TransactionHandler
from mqbroker.testing import MemoryBroker, memory_broker, until
from mqbroker.testing.requests import pull_request, records
from mqclient import (
    BadMessage,
    Consumer,
    Decision,
    Message,
    Producer,
    RecallTooLate,
    ReceivedMessage,
    Sql,
    TransactionEnded,
    TransactionUnknown,
)

TOPIC = "Orders"


class NameServer(Handler):
    """Knows one broker, which has every topic."""

    def __init__(self, broker: MemoryBroker) -> None:
        address = f"{broker.host}:{broker.port}"
        self._route = TopicRouteData(
            queue_datas=[QueueData("broker-a", 4, 4, 6)],
            broker_datas=[BrokerData("DefaultCluster", "broker-a", {0: address})],
        )

    def __call__(self, request: Command, connection: Connection) -> Command:
        return request.reply(body=encode_body(self._route))


@dataclass
class Scene:
    """A broker whose wall clock is in the test's hands; what a checker is asked and shall say."""

    broker: MemoryBroker
    namesrv: str
    consumer: Peer
    decision: Decision = Decision.UNKNOWN
    asked: list[ReceivedMessage] = field(default_factory=list)
    later_ms: int = 0

    async def checker(self, message: ReceivedMessage) -> Decision:
        self.asked.append(message)
        return self.decision

    def producer(self, group: str = "PG") -> Producer:
        return Producer(self.namesrv, group, checker=self.checker)

    async def visible(self) -> list[bytes]:
        """Bodies that a consumer of queue 1 sees."""
        pulled = records(await self.consumer.request(pull_request(1), 5))
        return [bytes(record.body) for record in pulled]

    async def comes_to_light(self, body: bytes) -> None:
        """Wait until a consumer sees a message."""
        with trio.fail_after(10):
            while body not in await self.visible():  # noqa: ASYNC110 -- it is not told to us
                await trio.sleep(0.02)


@pytest.fixture
async def its(tmp_path: Path) -> AsyncIterator[Scene]:
    held: list[Scene] = []

    def clock_ms() -> int:
        return int(trio.current_time() * 1000) + (held[0].later_ms if held else 0)

    async with (
        memory_broker(tmp_path, clock_ms=clock_ms) as broker,
        connect_peer(broker.host, broker.port) as consumer,
        trio.open_nursery() as nursery,
    ):
        port = await nursery.start(serve_remoting, NameServer(broker), "127.0.0.1", 0)
        held.append(Scene(broker, f"127.0.0.1:{port}", consumer))
        yield held[0]
        nursery.cancel_scope.cancel()


async def test_a_message_is_seen_once_its_block_is_left(its: Scene) -> None:
    """A message is seen once its block is left, and the checker is not asked."""
    async with its.producer() as producer:
        async with producer.transaction(Message(TOPIC, b"paid"), queue_id=1) as transaction:
            assert await its.visible() == []
            assert transaction.sent.topic == TOPIC
        assert await its.visible() == [b"paid"]
        assert transaction.ended is Decision.COMMIT
        assert its.asked == []


async def test_a_message_that_was_rolled_back_is_never_seen(its: Scene) -> None:
    """Leaving the block says nothing after that; to say it twice changes nothing."""
    async with its.producer() as producer:
        async with producer.transaction(Message(TOPIC, b"refused"), queue_id=1) as transaction:
            await transaction.rollback()
            await transaction.rollback()
        assert await its.visible() == []
        with pytest.raises(TransactionEnded, match="rolled back"):
            await transaction.commit()


async def test_a_commit_may_be_repeated(its: Scene) -> None:
    """A commit may be repeated, as its answer may be lost; a rollback comes too late."""
    async with its.producer() as producer:
        async with producer.transaction(Message(TOPIC, b"paid"), queue_id=1) as transaction:
            await transaction.commit()
            await transaction.commit()
        assert await its.visible() == [b"paid"]
        with pytest.raises(TransactionEnded, match="committed before"):
            await transaction.rollback()


async def test_after_an_exception_the_checker_decides(its: Scene) -> None:
    """An exception leaves the decision to the checker, which sees the message as it was sent."""
    async with its.producer() as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(TOPIC, b"paid", keys="o-1"), queue_id=1):
                raise ZeroDivisionError
        its.later_ms += 7_000
        await until(lambda: len(its.asked) == 1)
        assert await its.visible() == []  # the checker could not tell
        its.decision = Decision.COMMIT
        its.later_ms += 61_000
        await its.comes_to_light(b"paid")
        seen = {(one.topic, one.queue_id, one.body, one.keys) for one in its.asked}
        assert seen == {(TOPIC, 1, b"paid", "o-1")}


async def test_a_checker_that_fails_is_asked_again(its: Scene) -> None:
    """A checker that raises, or answers nonsense, is logged and asked again."""
    answers: list[object] = [None, ZeroDivisionError(), Decision.COMMIT]

    def checker(_: ReceivedMessage) -> Decision:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    async with Producer(its.namesrv, "PG", checker=checker) as producer:
        with pytest.raises(ValueError, match="mine"):
            async with producer.transaction(Message(TOPIC, b"x"), queue_id=1):
                raise ValueError("mine")
        for left in (2, 1, 0):
            its.later_ms += 61_000
            await until(lambda left=left: len(answers) == left)  # type: ignore[misc]
        await its.comes_to_light(b"x")
        assert await producer.send(Message(TOPIC, b"alive"))


async def test_nobody_is_asked_about_a_transaction_that_still_runs(its: Scene) -> None:
    """A checker that finds no trace of the work yet would roll it back."""
    async with its.producer() as producer:
        its.decision = Decision.ROLLBACK
        async with producer.transaction(Message(TOPIC, b"slow"), queue_id=1):
            its.later_ms += 7_000
            await trio.sleep(1.2)
        assert its.asked == []
        assert await its.visible() == [b"slow"]


async def test_a_message_can_put_the_question_off(its: Scene) -> None:
    """A property puts the first question off by its seconds, for work that takes long."""
    patient = Message(TOPIC, b"x", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
    async with its.producer() as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(patient, queue_id=1):
                raise ZeroDivisionError
        its.later_ms += 50_000
        await trio.sleep(2.2)
        assert its.asked == []
        its.later_ms += 61_000
        await until(lambda: len(its.asked) == 1)


async def test_another_producer_of_the_group_answers_for_one_that_died(its: Scene) -> None:
    """Another producer of the group is asked if it knows the topic; other groups' are not."""
    with pytest.raises(ZeroDivisionError):
        async with its.producer() as dead, dead.transaction(Message(TOPIC, b"x"), queue_id=1):
            raise ZeroDivisionError
    its.decision = Decision.COMMIT
    async with its.producer("Other") as stranger:
        await stranger.prepare(TOPIC)
        its.later_ms += 7_000
        await trio.sleep(1.2)
        assert its.asked == []
    async with its.producer() as heir:
        await heir.prepare(TOPIC)
        await its.comes_to_light(b"x")


async def test_an_end_that_nobody_hears_is_unknown(its: Scene) -> None:
    """The broker group lost its leader: the error says that the checker will be asked."""
    async with its.producer() as producer:
        with pytest.raises(TransactionUnknown, match="checker is asked") as failure:
            async with producer.transaction(Message(TOPIC, b"x"), queue_id=1, timeout_s=2):
                its.broker.ledger.follow("n1")
        assert not failure.value.definite


async def test_a_broker_that_fails_at_an_end_has_not_said_that_it_was_before(
    its: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is asked for again; if it goes on to fail, the outcome is unknown, and the checker is
    asked."""
    record, failures = TransactionHandler._record, iter(range(1))

    def failing(handler: TransactionHandler, header: EndTransactionHeader) -> Record:
        if next(failures, None) is not None:
            raise OSError(errno.ENOMEM, "no memory")
        return record(handler, header)

    monkeypatch.setattr(TransactionHandler, "_record", failing)
    async with its.producer() as producer:
        async with producer.transaction(Message(TOPIC, b"first"), queue_id=1):
            pass
        assert await its.visible() == [b"first"]
        failures = iter(range(100))
        with pytest.raises(TransactionUnknown, match="checker is asked"):
            async with producer.transaction(Message(TOPIC, b"x"), queue_id=1, timeout_s=0.7):
                pass
        failures = iter(())
        its.decision = Decision.COMMIT
        its.later_ms += 7_000
        await its.comes_to_light(b"x")


async def test_a_transaction_without_a_checker_is_refused(its: Scene) -> None:
    """A transaction without a checker is refused before anything is sent."""
    async with Producer(its.namesrv, "PG") as producer:
        with pytest.raises(BadMessage, match="checker"):
            async with producer.transaction(Message(TOPIC, b"x")):
                pass


async def test_delayed_messages_wait_and_can_be_taken_back(its: Scene) -> None:
    """Messages wait by a level, a delay or a time; those with a timer can be recalled meanwhile."""
    async with its.producer() as producer:
        soon = datetime.fromtimestamp(its.broker.broker.core.clock_ms() / 1000, UTC)
        soon += timedelta(seconds=30)
        level = await producer.send(Message(TOPIC, b"level", delay_level=4), queue_id=1)
        delay = await producer.send(Message(TOPIC, b"delay", delay_s=30), queue_id=1)
        time = await producer.send(Message(TOPIC, b"time", deliver_at=soon), queue_id=1)
        back = await producer.send(Message(TOPIC, b"back", delay_s=30), queue_id=1)
        await producer.recall(back)
        with pytest.raises(BadMessage, match="can't be taken back"):
            await producer.recall(level)
        its.later_ms += 25_000
        await trio.sleep(0.2)
        assert await its.visible() == []
        its.later_ms += 6_000
        for body in (b"level", b"delay", b"time"):
            await its.comes_to_light(body)
        assert b"back" not in await its.visible()
        for late in (delay, time):
            with pytest.raises(RecallTooLate, match="604"):
                await producer.recall(late)
        with pytest.raises(RecallTooLate, match="taken back already"):
            await producer.recall(back)


async def test_a_batch_and_a_send_without_an_answer_have_no_delay(its: Scene) -> None:
    """A delayed message in a batch, or one-way, is refused with the call to use."""
    async with its.producer() as producer:
        await producer.prepare(TOPIC)
        delayed = Message(TOPIC, b"", delay_s=1)
        with pytest.raises(BadMessage, match="one by one"):
            await producer.send_batch([Message(TOPIC, b""), delayed])
        with pytest.raises(BadMessage, match="use send"):
            producer.send_oneway(delayed)
        assert (await (await producer.send_soon(delayed)).wait()).recall_handle


async def test_a_result_of_a_half_message_leads_to_it(its: Scene) -> None:
    """A result has the half message's place and offset message id, so mqadmin finds it."""
    async with (
        its.producer() as producer,
        producer.transaction(Message(TOPIC, b"x"), queue_id=1) as transaction,
    ):
        sent = transaction.sent
        record = its.broker.broker.core.record_at(sent.position)
        assert record.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
        assert properties_decode(record.properties)["UNIQ_KEY"] == sent.message_id
        assert offset_message_id_decode(sent.offset_message_id)[2] == sent.position


@pytest.mark.parametrize("wrong", ["amount >", ""])
async def test_a_filter_that_no_broker_can_read_is_told_at_once(its: Scene, wrong: str) -> None:
    """Entering the block fails with the broker's words; a right one enters."""
    with pytest.raises(BadInput, match="group 'CG' for topic .*can't be read"):
        async with Consumer(its.namesrv, "CG", {TOPIC: Sql(wrong)}):
            pass
    async with Consumer(its.namesrv, "CG", {TOPIC: Sql("amount > 1")}):
        pass
