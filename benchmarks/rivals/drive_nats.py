"""Load on NATS JetStream by nats-py. Arguments and output: see the package's page.

Two works more are for the harness: `make` makes the stream on three replicas, in files; `state`
prints its leader, and whether all of its replicas are level. Runs with nats-py's own interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time

import nats
import nats.js
from nats.errors import Error
from nats.js.api import StorageType, StreamConfig
from timing import one_outstanding, tell_gaps

PENDING_MAX = 4096
WARM_UP_S = 0.5
PATIENCE_S = 60.0


async def publish_for(
    js: nats.js.JetStreamContext, subject: str, body: bytes, seconds: float
) -> int:
    """Publish for a while, and wait for the acknowledgements."""
    count, end = 0, time.monotonic() + seconds
    while count % 64 or time.monotonic() < end:
        # With `wait_stall` each call would make a task, for the time limit: a third of the speed.
        await js.publish_async(subject, body)
        count += 1
    await js.publish_async_completed()
    return count


async def pipelined(
    js: nats.js.JetStreamContext, subject: str, body: bytes, seconds: float
) -> dict[str, float]:
    """Send with as many outstanding as the client allows."""
    before = await publish_for(js, subject, body, WARM_UP_S)
    began, cpu = time.monotonic(), time.process_time()
    count = await publish_for(js, subject, body, seconds)
    took = time.monotonic() - began
    spent = time.process_time() - cpu
    return {"count": count, "seconds": took, "cpu_s": spent, "sent": before + count}


async def read(
    js: nats.js.JetStreamContext, subject: str, seconds: float, count: int
) -> dict[str, float]:
    """Read from the first message on."""
    got, first, over = 0, 0.0, asyncio.Event()

    async def take(_: object) -> None:
        nonlocal got, first
        first = first or time.monotonic()
        got += 1
        if got == count:
            over.set()

    cpu = time.process_time()
    await js.subscribe(
        subject, cb=take, ordered_consumer=True, pending_msgs_limit=-1, pending_bytes_limit=-1
    )
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds + 5)
    took = time.monotonic() - first
    return {"count": got, "seconds": took, "cpu_s": time.process_time() - cpu}


async def gaps(js: nats.js.JetStreamContext, subject: str, body: bytes) -> None:
    """See `tell_gaps`."""

    async def send() -> bool:
        try:
            await js.publish(subject, body, timeout=1.0)
        except (Error, TimeoutError, OSError):
            await asyncio.sleep(0.005)
            return False
        return True

    await tell_gaps(send)


async def make(js: nats.js.JetStreamContext, subject: str) -> dict[str, object]:
    """Make the stream; a cluster that has just started needs a while."""
    config = StreamConfig(
        name=subject, subjects=[subject], num_replicas=3, storage=StorageType.FILE
    )
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            await js.add_stream(config)
            return await state(js, subject)
        except (Error, TimeoutError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.3)


async def state(js: nats.js.JetStreamContext, subject: str) -> dict[str, object]:
    """The stream's leader, and whether the others are level."""
    cluster = (await js.stream_info(subject)).cluster
    replicas = (cluster.replicas if cluster else None) or []
    level = len(replicas) == 2 and all(each.current for each in replicas)
    return {"leader": cluster.leader if cluster else None, "level": level}


async def main() -> None:
    """Do the work that the command line names, and print its figures as JSON."""
    address, subject, work, size, seconds, count = sys.argv[1:]

    async def quiet(_: Exception) -> None:
        pass

    ca = os.environ.get("NATS_CA")
    connection = await nats.connect(
        address.split(","),
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.02,
        error_cb=quiet,
        tls=None if ca is None else ssl.create_default_context(cafile=ca),
    )
    js = connection.jetstream(publish_async_max_pending=PENDING_MAX, timeout=10.0)
    body = bytes(int(size))
    said: object = None
    if work == "pipelined":
        said = await pipelined(js, subject, body, float(seconds))
    elif work == "single":
        said = await one_outstanding(lambda: js.publish(subject, body), float(seconds))
    elif work == "read":
        said = await read(js, subject, float(seconds), int(count))
    elif work == "make":
        said = await make(js, subject)
    elif work == "state":
        said = await state(js, subject)
    else:
        await gaps(js, subject, body)
    if said is not None:
        print(json.dumps(said), flush=True)
    with contextlib.suppress(Error, TimeoutError):
        await asyncio.wait_for(connection.close(), 2)


asyncio.run(main())
