"""How long requests, transactions and timers take, as RocketMQ's dashboards ask for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.bodies import SubscriptionGroupConfig, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, Command
from dledger.remoting.headers import SendMessageResponseHeader, decode_header
from dledger.remoting.message import offset_message_id_decode
from mqbroker.config import BrokerConfig
from mqbroker.flow.latencies import FAILED, NOT_WRITTEN, Latencies
from mqbroker.metrics.page import BrokerFigures
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.requests import (
    GROUP,
    TOPIC,
    ask,
    heartbeat,
    make_topic,
    produce_request,
    pull_request,
    send_request,
    topic_request,
)
from mqbroker.upkeep.alarm import Signal

from .test_metrics import Scrape

LATENCY = "rocketmq_rpc_latency_milliseconds"
STORED = {"storage_type": "local", "storage_medium": "disk"}


class Clocks:
    """Both clocks of a broker, set by the test."""

    def __init__(self) -> None:
        self.s = 1000.0

    def ms(self) -> int:
        return int(self.s * 1000)


@asynccontextmanager
async def broker(
    directory: Path, clocks: Clocks
) -> AsyncIterator[tuple[MemoryBroker, Peer, BrokerFigures]]:
    config = BrokerConfig(store_path_root_dir=str(directory))
    async with served(directory, config, clock_ms=clocks.ms) as (running, peer):
        await make_topic(peer, queues=4)
        yield running, peer, BrokerFigures(running.broker.sources, None)


def test_a_request_is_counted_by_what_became_of_it() -> None:
    """A request is counted by its code, its answer's code, a wait, and the answer's fate."""
    clocks = Clocks()
    latencies = Latencies(lambda: clocks.s)

    def request(
        code: int = RequestCode.PULL_MESSAGE, flag: int = 0, *, held: bool = False
    ) -> Command:
        return Command(code, flag=flag, arrived_s=clocks.s - 0.005, held=held)

    latencies.answered(request(), ResponseCode.SUCCESS)
    latencies.answered(request(held=True), ResponseCode.PULL_NOT_FOUND)
    latencies.answered(request(flag=FLAG_ONEWAY), ResponseCode.SUCCESS)
    latencies.answered(request(), ResponseCode.SUCCESS, NOT_WRITTEN)
    latencies.failed(request())
    rows = latencies.rows()
    common = {"protocol_type": "remoting", "request_code": "pull_message"}
    plain, done = {"is_long_polling": "false"}, {"response_code": "success"}
    wanted = [
        common | plain | done | {"result": "success"},
        common
        | {"is_long_polling": "true", "response_code": "pull_not_found", "result": "success"},
        common | plain | done | {"result": "oneway"},
        common | plain | done | {"result": NOT_WRITTEN},
        common | plain | {"result": FAILED},
    ]
    assert [labels for labels, _ in rows] == wanted
    for _, times in rows:
        assert times.bounds == (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
        assert sum(times.counts) == 1
        assert times.total == pytest.approx(5)


def test_codes_that_nobody_knows_share_one_series() -> None:
    """Unknown codes share one series, however many a client makes up."""
    latencies = Latencies(lambda: 0.0)
    for number in range(100_000, 101_000):
        latencies.answered(Command(number), ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        latencies.answered(Command(RequestCode.PULL_MESSAGE), number)
    assert len(latencies.rows()) == 2
    assert len(latencies._new) == 2


async def test_each_answer_of_a_broker_is_timed(tmp_path: Path) -> None:
    """Answers are timed, whether given at once, after an append, after a wait, or refused."""
    async with broker(tmp_path, Clocks()) as (_, peer, figures):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await peer.request(send_request(b"m"), 5)
        await peer.request(produce_request("a"), 5)
        await peer.request(pull_request(0, topic="Nowhere"), 5)
        await ask(peer, RequestCode.PULL_MESSAGE)
        await ask(peer, 99_999)
        await peer.request(topic_request("Another"), 5)
        page = Scrape(figures.pieces())

    def count(request: str, **labels: str) -> list[float]:
        return page.values(f"{LATENCY}_count", request_code=request, **labels)

    assert count("heart_beat", response_code="success", result="success") == [1]
    assert count("send_message_v2", response_code="success", is_long_polling="false") == [1]
    assert count("produce", response_code="success", protocol_type="remoting") == [1]
    assert count("pull_message", response_code="topic_not_exist") == [1]
    assert count("pull_message", result="process_request_failed") == [1]
    assert count("-1", response_code="request_code_not_supported") == [1]
    assert count("update_and_create_topic", response_code="success") == [2]
    assert page.values(f"{LATENCY}_bucket", request_code="heart_beat", le="+Inf") == [1]


async def test_a_pull_that_was_held_is_told_apart(tmp_path: Path) -> None:
    """A held pull is counted apart, so that its wait does not spoil the others' times."""
    async with (
        broker(tmp_path, Clocks()) as (running, peer, figures),
        trio.open_nursery() as nursery,
    ):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        nursery.start_soon(peer.request, pull_request(0, sys_flag=6), 30)
        await until(lambda: len(running.broker._held) == 1)
        await peer.request(produce_request("a"), 5)
        await peer.request(pull_request(0), 5)
        await until(lambda: not running.broker._held)
        page = Scrape(figures.pieces())
    counts = {
        held: page.values(f"{LATENCY}_count", request_code="pull_message", is_long_polling=held)
        for held in ("true", "false")
    }
    assert counts == {"true": [1], "false": [1]}


async def test_making_topics_and_groups_is_timed(tmp_path: Path) -> None:
    """Requests that make topics and groups are timed, by success and by kind of topic."""
    async with broker(tmp_path, Clocks()) as (_, peer, figures):
        await peer.request(topic_request("no topic!"), 5)
        await peer.request(topic_request("broker-a"), 5)
        group = SubscriptionGroupConfig(GROUP)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await ask(peer, code, encode_body(group))
        await ask(peer, code, encode_body(SubscriptionGroupConfig("no group!")))
        page = Scrape(figures.pieces())
    name = "rocketmq_topic_create_execution_time_milliseconds"
    told = {(each["invocation_status"], each["is_system"]) for each in page.labels(f"{name}_count")}
    assert told == {("success", "false"), ("failure", "false"), ("success", "true")}
    assert page.value(f"{name}_count", invocation_status="success", is_system="false") == 1
    name = "rocketmq_consumer_group_create_execution_time_milliseconds"
    assert page.labels(f"{name}_count") == [
        {"invocation_status": "success"},
        {"invocation_status": "failure"},
    ]
    bounds = [each["le"] for each in page.labels(f"{name}_bucket")[:6]]
    assert bounds == ["10.0", "100.0", "1000.0", "3000.0", "5000.0", "+Inf"]


async def test_a_transaction_is_timed_until_its_end(tmp_path: Path) -> None:
    """A commit is timed from its message's birth in whole seconds, as in RocketMQ."""
    clocks = Clocks()
    async with broker(tmp_path, clocks) as (_, peer, figures):
        for key, how in (("a", 8), ("b", 12)):
            text = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01{key}\x02"
            born_ms = clocks.ms() - 2500
            answer = await peer.request(send_request(b"m", f="4", i=text, g=born_ms), 5)
            sent = decode_header(SendMessageResponseHeader, answer)
            clocks.s += 4.25
            done = await ask(
                peer,
                RequestCode.END_TRANSACTION,
                producerGroup="P",
                tranStateTableOffset=sent.queue_offset,
                commitLogOffset=offset_message_id_decode(sent.msg_id)[-1],
                commitOrRollback=how,
            )
            assert done.code == ResponseCode.SUCCESS, done.remark
        page = Scrape(figures.pieces())
    name = "rocketmq_finish_message_latency_milliseconds"
    assert page.labels(f"{name}_count") == [{"topic": TOPIC}]
    assert page.value(f"{name}_sum", topic=TOPIC) == 6
    assert page.value(f"{name}_bucket", topic=TOPIC, le="5.0") == 0
    assert page.value(f"{name}_bucket", topic=TOPIC, le="60.0") == 1
    for end in ("commit", "rollback"):
        assert page.value("dledger_transaction_finish_seconds_sum", end=end) == 4.25


async def test_timers_are_told_by_when_they_are_due(tmp_path: Path) -> None:
    """Between the bound before and this one, not up to it; a late one is behind."""
    clocks = Clocks()
    async with broker(tmp_path, clocks) as (running, peer, figures):
        for delay_s in (3, 30, 40, 7200):
            text = f"TIMER_DELAY_MS\x01{delay_s * 1000}\x02"
            await peer.request(send_request(b"m", i=text, g=clocks.ms() - 30_000), 5)
        page = Scrape(figures.pieces())
        snapshot = {
            each["timer_bound_s"]: page.value("rocketmq_timer_message_snapshot", **each)
            for each in page.labels("rocketmq_timer_message_snapshot")
        }
        assert page.labels("rocketmq_timing_messages") == [{"topic": TOPIC, **STORED}]
        assert page.value("rocketmq_timer_enqueue_total", topic=TOPIC, **STORED) == 4
        assert page.value("rocketmq_timer_dequeue_lag", **STORED) == 0
        name = "rocketmq_delay_message_latency_seconds"
        assert page.value(f"{name}_sum", topic=TOPIC, **STORED) == 33 + 60 + 70 + 7230
        assert page.value(f"{name}_bucket", topic=TOPIC, le="60.0") == 2
        running.broker._delivering.due = Signal()
        running.ledger.follow("n1")
        clocks.s += 35
        late = Scrape("".join(figures._timers.pieces(figures._writer)))
        assert late.value("rocketmq_timer_dequeue_lag") == 2
        assert late.value("rocketmq_timer_dequeue_latency_milliseconds") == 32_000
        running.ledger.lead()
        await until(lambda: len(running.machine.timers) == 2)
        page = Scrape(figures.pieces())
        assert page.value("rocketmq_timer_dequeue_total", topic=TOPIC, **STORED) == 2
        assert page.value("rocketmq_timer_enqueue_total", topic=TOPIC, **STORED) == 4
    wanted = {"5": 1, "60": 2, "300": 0, "900": 0, "3600": 0, "14400": 1, "28800": 0, "86400": 0}
    assert snapshot == wanted


async def test_what_a_replica_has_not_synced_is_told(tmp_path: Path) -> None:
    """The bytes that are not synced are told, and the sends that wait to be appended."""
    async with broker(tmp_path, Clocks()) as (_, _, figures):
        page = Scrape(figures.pieces())
    assert page.value("rocketmq_storage_flush_behind_bytes", **STORED) == 0
    assert page.labels("rocketmq_processor_watermark") == [{"processor": "send"}]
    assert page.values("rocketmq_storage_message_reserve_time_milliseconds") == []
