"""Load on Kafka by confluent-kafka (librdkafka). Arguments and output: see the package's page.

Runs with an interpreter of its own, which has that package.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from timing import PACED, one_outstanding, paced

WARM_UP_S = 0.5
FETCHED = 1000
LINGER_MS = 5
BATCH_BYTES = 256 << 10

failed = 0


def answered(error: object, _: object) -> None:
    """Count a send that failed."""
    global failed  # noqa: PLW0603 - a program of one page
    failed += error is not None


def produce_for(producer: Producer, topic: str, body: bytes, seconds: float) -> int:
    """Produce for a while, and wait for the acknowledgements."""
    count, end = 0, time.monotonic() + seconds
    while count % 64 or time.monotonic() < end:
        try:
            producer.produce(topic, body, on_delivery=answered)
            count += 1
        except BufferError:
            producer.poll(0.01)
        if not count % 64:
            producer.poll(0)
    producer.flush()
    return count


def pipelined(producer: Producer, topic: str, body: bytes, seconds: float) -> dict[str, float]:
    """Send with as many outstanding as the client's buffer takes."""
    global failed  # noqa: PLW0603
    before = produce_for(producer, topic, body, WARM_UP_S)
    failed = 0
    began, cpu = time.monotonic(), time.process_time()
    count = produce_for(producer, topic, body, seconds)
    took, spent = time.monotonic() - began, time.process_time() - cpu
    return {
        "count": count - failed,
        "seconds": took,
        "cpu_s": spent,
        "sent": before + count,
        "failed": failed,
    }


def at_a_pace(producer: Producer, topic: str, body: bytes, seconds: float) -> dict[str, float]:
    """Messages are sent at a rate, in messages a second."""
    count, began, cpu = 0, time.monotonic(), time.process_time()
    for wait_s in paced(seconds):
        time.sleep(wait_s)
        for _ in range(PACED):
            producer.produce(topic, body, on_delivery=answered)
        count += PACED
        producer.poll(0)
    producer.flush()
    took, spent = time.monotonic() - began, time.process_time() - cpu
    return {"count": count - failed, "seconds": took, "cpu_s": spent, "sent": count}


def single(producer: Producer, topic: str, body: bytes, seconds: float) -> dict[str, float]:
    """The next send begins when the last is acknowledged."""

    async def send() -> None:
        producer.produce(topic, body, on_delivery=answered)
        while len(producer):
            producer.poll(1.0)

    return asyncio.run(one_outstanding(send, seconds))


def read(address: str, topic: str, seconds: float, count: int) -> dict[str, float]:
    """Read from the first message on, by batches."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    got, first, cpu = 0, 0.0, time.process_time()
    end = time.monotonic() + seconds + 5
    while got < count and time.monotonic() < end:
        got += len(consumer.consume(FETCHED, timeout=1.0))
        first = first or (time.monotonic() if got else 0.0)
    took = time.monotonic() - first
    return {"count": got, "seconds": took, "cpu_s": time.process_time() - cpu}


def main() -> None:
    """Do the work that the command line names, and print its figures as JSON."""
    address, topic, work, size, seconds, count = sys.argv[1:]
    if work == "read":
        print(json.dumps(read(address, topic, float(seconds), int(count))), flush=True)
        return
    linger = {"linger.ms": 0} if work == "single" else {"linger.ms": LINGER_MS}
    producer = Producer(
        {"bootstrap.servers": address, "acks": "all", "batch.size": BATCH_BYTES, **linger}
    )
    does = {"single": single, "paced": at_a_pace}.get(work, pipelined)
    print(json.dumps(does(producer, topic, bytes(int(size)), float(seconds))), flush=True)


main()
