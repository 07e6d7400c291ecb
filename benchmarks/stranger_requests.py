"""Connections of strangers to a broker's client port, and the requests that they send."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import FLAG_ONEWAY, Command, ExtValue
from dledger.remoting.framing import FrameDecoder

MIB = 1 << 20
PATIENCE_S = 60.0
TOPIC = "Strangers"
FLOODING = "127.0.0.2"
"""Where wrong signatures come from: others are at another address."""


class Client:
    """A connection that asks one thing at a time, or only sends."""

    #: Signs each request, where rights are enforced.
    sign: ClassVar[Callable[[Command], None] | None] = None

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        place = ("127.0.0.1", port)
        self.socket = socket.create_connection(place, PATIENCE_S, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._answers: list[Command] = []

    def send(self, *commands: Command) -> None:
        """Send requests; nobody waits for answers."""
        self.socket.sendall(b"".join(bytes(p) for c in commands for p in encode_frame(c)))

    def ask(self, command: Command) -> Command:
        """Send a request and wait for an answer."""
        if Client.sign is not None:
            Client.sign(command)
        self.send(command)
        return self.receive()

    def receive(self) -> Command:
        """The next answer; waits until it has come."""
        while True:
            while not self._answers:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise ConnectionError("closed by the broker")
                self._decoder.feed(data)
                self._answers += self._decoder.frames()
            answer = self._answers.pop(0)
            if answer.is_response:
                return answer


def message(queue_id: int, body: bytes) -> Command:
    """A stock send to the topic."""
    ext: dict[str, ExtValue] = {
        "producerGroup": "strangers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 1,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        "properties": "a\x015\x02",
        "reconsumeTimes": 0,
    }
    return Command(RequestCode.SEND_MESSAGE, ext, body)


def pull(opaque: int, offset: int, flag: int, expression: str | None, kind: str) -> Command:
    """A pull with its own subscription."""
    ext: dict[str, ExtValue] = {
        "consumerGroup": "strangers",
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 16_384,
        "sysFlag": 4 | flag,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subVersion": 0,
        "subscription": expression,
        "expressionType": kind,
        "maxMsgBytes": 6 * MIB,
    }
    return Command(RequestCode.PULL_MESSAGE, ext, opaque=opaque)


def heartbeat(groups: int, topics: int, label: str) -> Command:
    """A heartbeat of many consumer groups, each with some topics."""
    body = {
        "clientID": f"stranger@{label}",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": f"{label}-{group}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": f"{TOPIC}-{topic}", "subString": "*", "tagsSet": [], "codeSet": []}
                    for topic in range(topics)
                ],
            }
            for group in range(groups)
        ],
    }
    return Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


class Flooding:
    """A connection that sends whole requests without waiting, and comes again when it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._left = memoryview(b"")
        self.client = self._dialled()

    def _dialled(self) -> Client:
        client = Client(self._port, FLOODING)
        client.socket.setblocking(False)
        return client

    def send(self, request: memoryview) -> None:
        """Send the rest of the last request, or else this one; answers are read, and dropped."""
        self._left = self._left or request
        try:
            self._left = self._left[self.client.socket.send(self._left) :]
            self.client.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            self.client.socket.close()
            self.client, self._left = self._dialled(), memoryview(b"")


def topic(name: str, queues: int) -> Command:
    """A topic, made as tools make it."""
    ext: dict[str, ExtValue] = {"topic": name, "defaultTopic": "TBW102", "perm": 6}
    ext |= {"topicFilterType": "SINGLE_TAG", "order": False}
    ext |= {"readQueueNums": queues, "writeQueueNums": queues}
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def commit(group: str, name: str, queue_id: int) -> Command:
    """A one-way commit of the first offset."""
    ext: dict[str, ExtValue] = {"consumerGroup": group, "topic": name, "queueId": queue_id}
    ext |= {"commitOffset": 0}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext, flag=FLAG_ONEWAY)


def message_v2() -> dict[str, ExtValue]:
    """The fields of a stock batch."""
    values: tuple[ExtValue, ...] = ("strangers", TOPIC, "TBW102", 1, 0, 0, 1, 0, "")
    return dict(zip("abcdefghi", values, strict=True)) | {"m": True}


def hold(port: int, count: int) -> None:
    """Keep connections open until killed."""
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    print(len(connections), flush=True)
    time.sleep(3600)


@contextmanager
def closed_perhaps() -> Iterator[None]:
    """A stranger that is shown the door leaves."""
    try:
        yield
    except OSError:
        return
