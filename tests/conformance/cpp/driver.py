"""Driver of the stock C++ client, through its Python binding: tries features, prints events.

JSON lines; it judges nothing. The binding tells less than other clients: a send returns an id and
an offset, and a message does not say which broker it came from. Each scenario has a process of its
own, since producers in one disturb each other's routes, and a shutdown may hang.

Arguments: name servers, the client's name, how many at a time, features.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.ffi import MessageModel

COUNT = 10
# The client rebalances every 20 s and looks for routes every 30 s. A consumer whose first look fell
# between two others' sees half of the queues until then.
WAIT_S = 60.0
# The client's first look at all routes comes 10 ms after a start, and replaces those that are in
# use: a send at that moment finds "No route info of this topic". An application is not that quick.
SETTLE_S = 0.2
JOIN_S = 3.0


class Scenario:
    """A feature, tried with stock classes: its own topic and group, its clients, its lines."""

    def __init__(self, namesrv: str, client: str, feature: str) -> None:
        self.namesrv, self.feature = namesrv, feature
        self.topic = self.group = f"{client}_{feature}"
        self.received = 0
        self.clients: list[Any] = []  # kept: what is collected is shut down

    def producer(self) -> Producer:
        producer = Producer(f"{self.group}_producer{len(self.clients)}")
        producer.set_namesrv_addr(self.namesrv)
        sign(producer)
        producer.start()
        time.sleep(SETTLE_S)
        self.clients.append(producer)
        return producer

    def consumer(
        self,
        name: str,
        tags: str = "*",
        accept: Callable[[RecvMessage], bool] = lambda _: True,
        *,
        orderly: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> PushConsumer:
        """A started consumer of the group; what `accept` refuses is asked for again."""
        consumer = PushConsumer(self.group, orderly=orderly, message_model=model)
        consumer.set_namesrv_addr(self.namesrv)
        sign(consumer)
        consumer.set_instance_name(f"{self.group}_{name}")
        consumer.set_thread_count(2)

        def callback(message: RecvMessage) -> None:
            self.got(name, message)
            if not accept(message):
                raise RuntimeError("once more, please")

        consumer.subscribe(self.topic, callback, tags)
        consumer.start()
        self.clients.append(consumer)
        return consumer

    def message(self, text: str) -> Message:
        message = Message(self.topic)
        message.set_body(text)
        return message

    def sent(self, text: str, result: Any) -> None:
        self.say("sent", id=result.msg_id, status=f"SEND_{result.status.name}", **about(text))

    def send(self, producer: Producer, text: str) -> None:
        self.sent(text, producer.send_sync(self.message(text)))

    def got(self, name: str, message: RecvMessage) -> None:
        self.say(
            "received",
            id=message.id,
            topic=message.topic,
            queue=message.queue_id,
            offset=message.queue_offset,
            tags=(message.tags or b"").decode(),
            reconsumed=message.reconsume_times,
            consumer=name,
            **about(message.body.decode()),
        )
        self.received += 1

    def until(self, count: int) -> None:
        """Wait until `count` were received, or the deadline; the judge sees which it was."""
        deadline = time.monotonic() + WAIT_S
        while self.received < count and time.monotonic() < deadline:
            time.sleep(0.02)

    def read_back(self, count: int) -> None:
        self.consumer("reader")
        self.until(count)

    def say(self, what: str, **values: Any) -> None:
        event = {"feature": self.feature, "what": what, "t": time.time_ns() // 1_000_000, **values}
        # In one piece: other processes write to the same file.
        os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")


def sign(client: Any) -> None:
    """Make a client sign its requests, if the environment says as whom."""
    if "SIGN_AS" in os.environ:
        client.set_session_credentials(os.environ["SIGN_AS"], os.environ["PASSWORD"], "ALIYUN")


def about(text: str) -> dict[str, Any]:
    """Fields of an event about a body."""
    body = text.encode()
    return {"size": len(body), "crc": zlib.crc32(body), "body": text if len(text) <= 200 else ""}


def send_sync(s: Scenario) -> None:
    producer = s.producer()
    for number in range(COUNT):
        s.send(producer, f"sync {number}")
    s.read_back(COUNT)


def send_oneway(s: Scenario) -> None:
    producer = s.producer()
    for number in range(COUNT):
        producer.send_oneway(s.message(f"oneway {number}"))
    s.read_back(COUNT)


def send_selector(s: Scenario) -> None:
    producer = s.producer()
    for number in range(COUNT):
        for key, name in enumerate("abc"):
            text = f"{name} {number}"
            s.sent(text, producer.send_orderly(s.message(text), key))
    s.read_back(3 * COUNT)


def send_compressed(s: Scenario) -> None:
    producer = s.producer()
    for size in (4 << 10, 20 << 10, 100 << 10):
        s.send(producer, "compressible " * (size // 13))
    s.read_back(3)


def auto_topic(s: Scenario) -> None:
    s.send(s.producer(), "makes its topic")
    s.read_back(1)


def send_again(s: Scenario) -> None:
    """Send one message object several times.

    The binding can't send what was consumed. The client says `batch` by "1", which brokers read as
    no: they store its batches as one message.
    """
    for body in ("consumed", "batched 0", "batched 1"):
        s.say("left_out", body=body)
    producer = s.producer()
    twice = s.message("twice")
    queues, oneway = s.message("two queues"), s.message("one-way")
    for queue in range(2):
        s.sent("twice", producer.send_sync(twice))
        s.sent("two queues", producer.send_orderly(queues, queue))
    for _ in range(3):
        producer.send_oneway(oneway)
    changed = s.message("one body")
    s.sent("one body", producer.send_sync(changed))
    changed.set_body("another body")
    s.sent("another body", producer.send_sync(changed))
    delayed = s.message("delayed")
    delayed.set_delay_time_level(1)
    for _ in range(2):
        producer.send_sync(delayed)
    at_once = s.message("at once")
    for _ in range(3):
        producer.send_async(at_once, lambda result: s.sent("at once", result), None)
    s.read_back(14)
    time.sleep(1)


def push_clustering_alone(s: Scenario) -> None:
    s.consumer("one")
    time.sleep(JOIN_S)
    producer = s.producer()
    for number in range(4 * COUNT):
        s.send(producer, f"message {number}")
    s.until(4 * COUNT)


def push_orderly_alone(s: Scenario) -> None:
    s.consumer("one", orderly=True)
    producer = s.producer()
    for number in range(4 * COUNT):
        s.sent(str(number), producer.send_orderly(s.message(str(number)), number % 8))
    s.until(4 * COUNT)


def push_broadcast(s: Scenario) -> None:
    s.consumer("one", model=MessageModel.BROADCASTING)
    s.consumer("two", model=MessageModel.BROADCASTING)
    time.sleep(JOIN_S)
    producer = s.producer()
    for number in range(COUNT):
        s.send(producer, f"message {number}")
    s.until(2 * COUNT)


def tag_filter(s: Scenario) -> None:
    producer = s.producer()
    for _ in range(3):
        # "Aa" and "BB" have the same Java hash: the broker can't tell them apart, the client must.
        for tag in ("TagA", "TagB", "TagC", "Aa", "BB", None):
            message = s.message(str(tag))
            if tag is not None:
                message.set_tags(tag)
            s.sent(str(tag), producer.send_sync(message))
    s.consumer("reader", "TagA || TagC || Aa")
    s.until(9)
    time.sleep(0.5)


def delay(s: Scenario) -> None:
    s.consumer("reader")
    producer = s.producer()
    for level in (0, 1, 2):
        text = f"level {level}"
        message = s.message(text)
        if level:
            message.set_delay_time_level(level)
        s.sent(text, producer.send_sync(message))
    s.until(3)


def retry(s: Scenario) -> None:
    s.consumer("reader", accept=lambda message: message.reconsume_times >= 1)
    producer = s.producer()
    for number in range(3):
        s.send(producer, f"message {number}")
    s.until(6)


FEATURES: dict[str, Callable[[Scenario], None]] = {
    each.__name__: each
    for each in (
        send_sync,
        send_oneway,
        send_selector,
        send_compressed,
        auto_topic,
        send_again,
        push_clustering_alone,
        push_orderly_alone,
        push_broadcast,
        tag_filter,
        delay,
        retry,
    )
}


def run(namesrv: str, client: str, feature: str) -> None:
    """Run one feature; an exception that leaves it is an event, too."""
    scenario = Scenario(namesrv, client, feature)
    try:
        FEATURES[feature](scenario)
        scenario.say("done")
    except Exception as error:
        scenario.say("error", error=repr(error))
    os._exit(0)


def main() -> None:
    """Run the features of the command line, each in a child, or the one of this child."""
    namesrv, client, at_once, *features = sys.argv[1:]
    if at_once == "0":
        run(namesrv, client, features[0])
    start = [*sys.orig_argv[: -len(features) - 1], "0"]
    with ThreadPoolExecutor(int(at_once)) as pool:
        for feature in features:
            pool.submit(subprocess.run, [*start, feature], check=False, timeout=2 * WAIT_S)


if __name__ == "__main__":
    main()
