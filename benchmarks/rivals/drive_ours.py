"""Load on ours by its Python client. Arguments and output: see the package's page."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import anyio
from timing import PACED, one_outstanding, paced, tell_gaps

from dledger.program.logs import configure_logging
from mqclient import Consumer, Message, Producer
from mqclient.errors import ClientError

WARM_UP_S = 0.5
BATCH = 64
MANY = 2048


def given() -> dict[str, str | None]:
    """The certificates and the user of this client."""
    user, password = os.environ.get("OURS_USER"), os.environ.get("OURS_PASSWORD_FILE")
    secret = None if password is None else Path(password).read_text().strip()
    return {"user": user, "secret": secret, "tls": os.environ.get("OURS_CA")}


GIVEN = given()


async def hand_over(producer: Producer, topic: str, body: bytes, seconds: float) -> int:
    """Send for a while, and wait for the acknowledgements."""
    count, end = 0, time.monotonic() + seconds
    pending = []
    while count % 64 or time.monotonic() < end:
        pending.append(await producer.send_soon(Message(topic, body)))
        count += 1
    await producer.flush()
    for each in pending:
        each.result()
    return count


async def many(producer: Producer, topic: str, body: bytes, seconds: float) -> int:
    """Calls of many bodies each, six of them under way."""
    count, end = 0, time.monotonic() + seconds
    bodies = [body] * MANY

    async def send() -> None:
        nonlocal count
        while time.monotonic() < end:
            sent = await producer.send_many(topic, bodies)
            count += len(sent)  # not before the others' counts of meanwhile are in it

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(send)
    return count


async def in_batches(producer: Producer, topic: str, body: bytes, seconds: float) -> int:
    """Batches of 64, four under way."""
    count, end = 0, time.monotonic() + seconds

    async def send() -> None:
        nonlocal count
        while time.monotonic() < end:
            await producer.send_batch([Message(topic, body) for _ in range(BATCH)])
            count += BATCH

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(send)
    return count


async def at_a_pace(producer: Producer, topic: str, body: bytes, seconds: float) -> int:
    """Messages are sent at a rate, in messages a second."""
    count = 0
    for wait_s in paced(seconds):
        await anyio.sleep(wait_s)
        for _ in range(PACED):
            await producer.send_soon(Message(topic, body))
        count += PACED
    await producer.flush()
    return count


SENDING = {"pipelined": hand_over, "many": many, "batches": in_batches, "paced": at_a_pace}


async def some(consumer: Consumer, size: int) -> int:
    """Poll; each body and its check, and its place in the queue, are seen. Returns how many."""
    messages = await consumer.poll(4096)
    for message in messages:
        if len(message.body) != size or message.queue_offset < 0:
            raise SystemExit(f"{message!r} is not as it was sent")
    return len(messages)


async def some_by_column(consumer: Consumer, size: int) -> int:
    """Poll by `poll_many`; each body's size and each place are seen. Returns how many messages
    came."""
    messages = await consumer.poll_many(4096)
    if {*map(len, messages.bodies())} - {size} or (messages.queue_offsets < 0).any():
        raise SystemExit(f"{messages!r} are not as they were sent")
    return len(messages)


READING = {"read": some, "read-many": some_by_column}


async def read(
    work: str, address: str, topic: str, size: int, seconds: float, count: int
) -> dict[str, float]:
    """Read from the first message on."""
    take = READING[work]
    got, first, cpu = 0, 0.0, time.process_time()
    end = time.monotonic() + seconds + 5
    async with Consumer(address, f"reader-{time.time_ns()}", {topic: "*"}) as consumer:
        while got < count and time.monotonic() < end:
            got += await take(consumer, size)
            first = first or (time.monotonic() if got else 0.0)
        took = time.monotonic() - first
    return {"count": got, "seconds": took, "cpu_s": time.process_time() - cpu}


async def gaps(producer: Producer, topic: str, body: bytes) -> None:
    """See `tell_gaps`."""

    async def send() -> bool:
        try:
            await producer.send(Message(topic, body))
        except ClientError:
            await anyio.sleep(0.005)
            return False
        return True

    await tell_gaps(send)


async def main() -> None:
    """Do the work that the command line names, and print its figures as JSON."""
    address, topic, work, size, seconds, count = sys.argv[1:]
    body = bytes(int(size))
    if work in READING:
        found = await read(work, address, topic, int(size), float(seconds), int(count))
        print(json.dumps(found))
        return
    async with Producer(address, "Benchmark", timeout_s=30.0, **GIVEN) as producer:
        await producer.send(Message(topic, body))
        if work == "gaps":
            await gaps(producer, topic, body)
        elif work == "single":
            single = await one_outstanding(
                lambda: producer.send(Message(topic, body)), float(seconds)
            )
            print(json.dumps(single))
        else:
            send = SENDING[work]
            before = await send(producer, topic, body, WARM_UP_S)
            began, cpu = time.monotonic(), time.process_time()
            done = await send(producer, topic, body, float(seconds))
            took, spent = time.monotonic() - began, time.process_time() - cpu
            said = {"count": done, "seconds": took, "cpu_s": spent, "sent": before + done + 1}
            print(json.dumps(said))


configure_logging("console", "error")
anyio.run(main, backend="trio")
