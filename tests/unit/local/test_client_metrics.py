"""Metrics of clients: they count what happened, if they are given."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mqclient import (
    BadMessage,
    BufferFull,
    Message,
    Metrics,
    Nack,
    NoRoute,
    PopConsumer,
    ReceivedMessage,
    SendFailed,
    SendUnknown,
    blocking,
    limits,
)
from mqclient.contrib.opentelemetry_metrics import opentelemetry_metrics
from mqclient.contrib.prometheus import prometheus_metrics
from mqclient.metrics import FIGURES, Counted, Labels, Samples
from mqlocal import LocalCluster, local_cluster_in_thread

one = pytest.mark.mq_cluster(replicas=1)


def numbers(metrics: Metrics, name: str) -> dict[Labels, float]:
    """The values of one figure."""
    (found,) = [each for each in metrics.collect() if each.name == name]
    return dict(found.numbers)


def samples(metrics: Metrics, name: str, labels: Labels) -> int:
    """How many samples a histogram has."""
    (found,) = [each for each in metrics.collect() if each.name == name]
    return sum(found.distributions[labels].counts)


@one
async def test_each_way_of_sending_is_counted(mq_cluster: LocalCluster) -> None:
    """Sends are counted by messages, their time by batches."""
    metrics = Metrics()
    async with mq_cluster.producer("P", metrics=metrics) as producer:
        await producer.send(Message("T", b"1"))
        await producer.send(Message("T", b"2"), key="k", alone=True)
        await (await producer.send_soon(Message("T", b"3"))).wait()
        await producer.send_soon(Message("T", b"4"), key="k")
        producer.send_nowait(Message("T", b"5"))
        producer.send_oneway(Message("T", b"6"))
        await producer.send_batch([Message("T", b"7"), Message("T", b"8")])
        await producer.send_many("T", [b"x"] * 100)
        await producer.send(Message("T", b"late", delay_s=10))
        assert numbers(metrics, "pending_messages") == {("P",): producer.pending}
        assert numbers(metrics, "pending_limit") == {("P",): limits.PENDING_BYTES_MAX}
        await producer.flush()
        assert numbers(metrics, "sends") == {("P", "T"): 109}
    assert samples(metrics, "send_duration", ("P", "T")) >= 7
    assert numbers(metrics, "send_failures") == {}
    assert numbers(metrics, "pending_messages") == {}, "a closed producer has no buffer"
    assert numbers(metrics, "sends") == {("P", "T"): 109}, "what it has sent it has sent"


@one
async def test_each_failure_is_counted_by_its_error_once(mq_cluster: LocalCluster) -> None:
    """A failure is counted once by its error, at the call or on its way."""
    metrics = Metrics()
    expected: dict[Labels, float] = {}

    def failed(topic: str, error: type[Exception], times: int = 1) -> None:
        expected["P", topic, error.__name__] = expected.get(("P", topic, error.__name__), 0) + times

    async with mq_cluster.producer("P", pending_max=3, metrics=metrics) as producer:
        await producer.send(Message("T", b"ok"))
        for call in (producer.send, producer.send_soon):
            with pytest.raises(BadMessage):
                await call(Message("T", bytes(5 << 20)))
            failed("T", BadMessage)
        with pytest.raises(BadMessage):
            await producer.send_many("T", [bytes(5 << 20)])
        failed("T", BadMessage)
        await mq_cluster.kill("leader")
        async with trio.open_nursery() as nursery:

            async def fails(error: tuple[type[Exception], ...]) -> None:
                with pytest.raises(error):
                    await producer.send(Message("T", b"no"), timeout_s=2)

            for _ in range(3):
                nursery.start_soon(fails, (SendFailed, SendUnknown))
            await trio.sleep(0.5)
            with pytest.raises(BufferFull):
                producer.send_nowait(Message("T", b"no"))
            failed("T", BufferFull)
            with pytest.raises(BufferFull):
                await producer.send(Message("T", b"no"), timeout_s=0.5)
            failed("T", BufferFull)
        with pytest.raises(NoRoute):
            await producer.send(Message("U", b"no"), timeout_s=0.5)
        failed("U", NoRoute)
        found = numbers(metrics, "send_failures")
        on_the_way = [found.pop(("P", "T", each), 0) for each in ("SendFailed", "SendUnknown")]
        assert sum(on_the_way) == 3
        assert found == expected
    assert numbers(metrics, "sends") == {("P", "T"): 1}


async def test_a_batch_that_is_sent_again_is_counted(mq_cluster: LocalCluster) -> None:
    """A batch is counted as sent again when a leader dies, and its send once."""
    metrics = Metrics()
    async with mq_cluster.producer("P", metrics=metrics) as producer:
        await producer.send(Message("T", b"1"))
        leader = await mq_cluster.leader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, Message("T", b"2"))
            await trio.lowlevel.checkpoint()
            await mq_cluster.kill(leader)
    assert numbers(metrics, "sends") == {("P", "T"): 2}
    assert numbers(metrics, "send_retries").get(("P", "T"), 0) >= 1
    assert numbers(metrics, "send_failures") == {}


@one
@pytest.mark.parametrize("kind", ["pull", "pop"])
async def test_what_a_consumer_receives_and_handles_is_counted(
    kind: str, mq_cluster: LocalCluster
) -> None:
    """Received and handled messages are counted, with failures by error, and repeats."""
    metrics, given = Metrics(), {"retry_delays_s": [1.0]}
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        await trio.sleep(0.2)
        if message.body == b"fails" and seen.count(b"fails") == 1:
            raise LookupError("once")
        if message.body == b"nack" and seen.count(b"nack") == 1:
            raise Nack(delay_s=1)

    consumer: Any = (
        mq_cluster.consumer("G", {"T": "*"}, metrics=metrics, **given)
        if kind == "pull"
        else PopConsumer(mq_cluster.namesrv_addr, "G", {"T": "*"}, metrics=metrics, **given)
    )
    async with mq_cluster.producer("P") as producer, consumer:
        for body in (b"a", b"b", b"fails", b"nack"):
            await producer.send(Message("T", body))
        with trio.move_on_after(60):
            await consumer.run(handle)
        lag = numbers(metrics, "lag")
    labels = ("G", "T")
    assert numbers(metrics, "handled") == {labels: 4}
    failures = numbers(metrics, "handler_failures")
    assert failures == {(*labels, "LookupError"): 1, (*labels, "Nack"): 1}
    assert samples(metrics, "handler_duration", labels) == 6
    (taken,) = [each for each in metrics.collect() if each.name == "handler_duration"]
    by_bucket = dict(
        zip((*limits.METRIC_BUCKETS_S, None), taken.distributions[labels].counts, strict=True)
    )
    assert by_bucket[0.25] == 6, "each took 0.2 s"
    assert sum(numbers(metrics, "received").values()) == 6
    assert sum(numbers(metrics, "redeliveries").values()) == 2
    if kind == "pull":
        assert lag[labels] == 0


@one
async def test_lag_is_what_is_not_processed(mq_cluster: LocalCluster) -> None:
    """The lag counts messages that are not processed, in the buffer, too."""
    metrics = Metrics()
    async with (
        mq_cluster.producer("P") as producer,
        mq_cluster.consumer("G", {"T": "*"}, auto_commit=False, metrics=metrics) as consumer,
    ):
        await producer.send_many("T", [b"x"] * 10, queue_id=0)
        (first,) = await consumer.poll(1, timeout_s=30)
        assert numbers(metrics, "lag")["G", "T"] == 10
        assert numbers(metrics, "buffered_messages") == {("G",): 9}
        await consumer.commit(first)
        assert numbers(metrics, "lag")["G", "T"] == 9
        assert sum(consumer.lag().values()) == 9


@one
async def test_batches_and_hooks_are_within_a_handlers_time(mq_cluster: LocalCluster) -> None:
    """A batch is one sample, and as many messages as it has."""
    metrics = Metrics()

    async def slow(messages: Sequence[ReceivedMessage], handle: Any) -> None:
        await trio.sleep(2)
        await handle()

    async with (
        mq_cluster.producer("P") as producer,
        mq_cluster.consumer("G", {"T": "*"}, metrics=metrics, interceptors=[slow]) as consumer,
    ):
        await producer.send_many("T", [b"x"] * 10, queue_id=0)
        with trio.move_on_after(30):
            await consumer.run_batches(lambda messages: None, 10)
    assert numbers(metrics, "handled") == {("G", "T"): 10}
    (taken,) = [each for each in metrics.collect() if each.name == "handler_duration"]
    assert taken.distributions["G", "T"].total == pytest.approx(2 * 1, abs=0.1)


def test_blocking_clients_count_alike() -> None:
    """Blocking clients count alike, in any thread."""
    with local_cluster_in_thread(replicas=1) as cluster:
        metrics = Metrics()
        with cluster.producer("P", metrics=metrics) as producer:
            for number in range(20):
                producer.send(Message("T", b"%d" % number))
        handled: list[bytes] = []
        for threads in (1, 2):
            consumer = cluster.consumer(f"G{threads}", {"T": "*"}, metrics=metrics)
            with consumer:
                enough = threading.Event()

                def handle(message: ReceivedMessage, enough: threading.Event = enough) -> None:
                    handled.append(message.body)
                    if len(handled) % 20 == 0:
                        enough.set()

                def stop(consumer: blocking.Consumer, enough: threading.Event = enough) -> None:
                    assert enough.wait(60)
                    consumer.drain()

                stopping = threading.Thread(target=stop, args=[consumer])
                stopping.start()
                consumer.run(handle, threads)
                stopping.join()
            assert numbers(metrics, "handled")[f"G{threads}", "T"] == 20
        assert numbers(metrics, "sends") == {("P", "T"): 20}


@one
async def test_prometheus_is_told_all_of_it(mq_cluster: LocalCluster) -> None:
    """Prometheus's parser reads all metrics under names that begin alike."""
    registry = CollectorRegistry()
    metrics = prometheus_metrics(registry)
    async with (
        mq_cluster.producer("P", metrics=metrics) as producer,
        mq_cluster.consumer("G", {"T": "*"}, metrics=metrics) as consumer,
    ):
        for _ in range(3):
            await producer.send(Message("T", b"x"))
        with trio.move_on_after(30):
            await consumer.run(lambda message: None)
        text = generate_latest(registry).decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert {name.removeprefix("mqclient_").removesuffix("_seconds") for name in families} == {
        name if figure.unit != "bytes" else f"{name}_bytes" for name, figure in FIGURES.items()
    }
    assert registry.get_sample_value("mqclient_sends_total", {"group": "P", "topic": "T"}) == 3
    handled = {"group": "G", "topic": "T"}
    assert registry.get_sample_value("mqclient_handled_total", handled) == 3
    assert registry.get_sample_value("mqclient_handler_duration_seconds_count", handled) == 3
    most = {**handled, "le": "30.0"}
    assert registry.get_sample_value("mqclient_handler_duration_seconds_bucket", most) == 3
    with pytest.raises(ValueError, match="Duplicated"):
        prometheus_metrics(registry)


@one
async def test_opentelemetry_is_told_all_of_it(mq_cluster: LocalCluster) -> None:
    """OpenTelemetry's reader collects all metrics, with durations as counters."""
    reader = InMemoryMetricReader()
    metrics = opentelemetry_metrics(MeterProvider([reader]).get_meter("test"))
    async with mq_cluster.producer("P", metrics=metrics) as producer:
        await producer.send(Message("T", b"x"))
        collected = reader.get_metrics_data()
    assert collected is not None
    (resource,) = collected.resource_metrics
    (scope,) = resource.scope_metrics
    shown = {each.name: each for each in scope.metrics}
    (sends,) = shown["mqclient.sends"].data.data_points
    assert (sends.value, dict(sends.attributes)) == (1, {"group": "P", "topic": "T"})
    (count,) = shown["mqclient.send_duration.count"].data.data_points
    assert count.value == 1
    buckets = shown["mqclient.send_duration.bucket"].data.data_points
    assert len(buckets) == len(limits.METRIC_BUCKETS_S) + 1
    assert shown["mqclient.pending"].unit == "By"


def test_very_many_labels_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that sends to ever new topics keeps a bounded number of series."""
    monkeypatch.setattr(limits, "METRIC_SERIES_MAX", 3)
    counted = Counted(lambda: ())
    for number in range(10):
        counted.add("sends", ("P", f"T{number}"), 1)
        counted.observe("send_duration", ("P", f"T{number}"), 0.1)
    counted.add("sends", ("P", "T0"), 1)
    assert {labels: each.amount for labels, each in counted.numbers["sends"].items()} == {
        ("P", "T0"): 2,
        ("P", "T1"): 1,
        ("P", "T2"): 1,
        ("others", "others"): 7,
    }
    samples = counted.samples["send_duration"].values()
    assert [sum(each.distribution().counts) for each in samples] == [1, 1, 1, 7]


@pytest.mark.parametrize("waiting_max", [1, 7, 1000])
def test_samples_are_in_their_buckets_whenever_somebody_looks(
    waiting_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are in their buckets at any look, also at a bucket's end or while they wait."""
    monkeypatch.setattr(limits, "METRIC_SAMPLES_WAITING_MAX", waiting_max)
    bounds = limits.METRIC_BUCKETS_S
    taken = [0.0, *bounds, *(bound * 1.001 for bound in bounds), 1e9]
    kept = Samples()
    for number, seconds in enumerate(taken, 1):
        kept.add(seconds)
        assert len(kept.waiting) <= waiting_max
        counts, total = kept.distribution()
        assert sum(counts) == number
        assert total == pytest.approx(sum(taken[:number]))
    expected = [0] * (len(bounds) + 1)
    for seconds in taken:
        expected[bisect_left(bounds, seconds)] += 1
    assert [*kept.distribution().counts] == expected
