"""Scenes of strangers at a broker's client port, a function each.

A scene is given the port, the scale of its numbers, and what to keep open for as long as it lasts.
"""

from __future__ import annotations

import itertools
import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from stranger_requests import (
    MIB,
    TOPIC,
    Client,
    Flooding,
    closed_perhaps,
    commit,
    heartbeat,
    message,
    message_v2,
    pull,
    topic,
)

from dledger.limits import FRAME_BYTES_MAX
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import FLAG_ONEWAY, Command, ExtValue
from dledger.trust.signatures import Key

MESSAGES = 600
BROKER = "broker-a"
GROUPS = tuple(f"made-up-{number}" for number in range(20))
GUARDED = ("signatures",)
"""The scenes of a group that enforces rights."""
HOLDER = Path(__file__).with_name("strangers")


def half_frames(port: int, scale: float, held: ExitStack) -> None:
    """Sixty connections, each with a frame of 16 MiB that lacks its last byte."""
    for _ in range(int(60 * scale)):
        client = Client(port)
        held.enter_context(client.socket)
        with closed_perhaps():
            client.socket.sendall(struct.pack(">I", FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX - 1))


def heartbeats_for_ever(port: int, scale: float, held: ExitStack) -> None:
    """Join more groups with every heartbeat of one connection."""
    client = Client(port)
    held.enter_context(client.socket)
    with closed_perhaps():
        for number in range(int(100 * scale)):
            client.ask(heartbeat(40, 100, f"ever{number}"))


def large_heartbeats(port: int, scale: float, held: ExitStack) -> None:
    """Heartbeats of 1.9 MB each, on one connection."""
    client = Client(port)
    held.enter_context(client.socket)
    request = heartbeat(1000, 18, "large")
    with closed_perhaps():
        for _ in range(int(5 * scale)):
            client.ask(request)


def filters(port: int, scale: float, held: ExitStack) -> None:
    """Pulls with a legal SQL92 filter of 8,186 characters, over messages that have to be read."""
    expression = " OR ".join(["a>9"] * 2000)[:8186].rpartition(" OR ")[0]
    client = Client(port)
    held.enter_context(client.socket)
    with closed_perhaps():
        for _ in range(int(5 * scale)):
            client.ask(pull(0, 0, 0, expression, "SQL92"))


def readers(port: int, scale: float, held: ExitStack) -> None:
    """Four hundred connections that pull, and pull, and read nothing."""
    clients = [Client(port) for _ in range(int(400 * scale))]
    for client in clients:
        held.enter_context(client.socket)
        client.socket.settimeout(0.2)
    for round_number in range(5):
        for client in clients:
            with closed_perhaps():
                client.send(*(pull(n + round_number, 0, 0, "*", "TAG") for n in range(2)))


def waiting_readers(port: int, scale: float, held: ExitStack) -> None:
    """Four hundred connections with fifty pulls each that wait for one message; then it comes."""
    end = MESSAGES + 1
    for _ in range(int(400 * scale)):
        client = Client(port)
        held.enter_context(client.socket)
        client.send(*(pull(n, end - 1, 2, "*", "TAG") for n in range(50)))
    time.sleep(1)
    Client(port).ask(message(0, bytes(1 << 16)))


def waiting_locks(port: int, scale: float, held: ExitStack) -> None:
    """Forty connections with 2,500 requests each for a queue's lock, which wait until the member
    that has it gives it up; it does."""

    def body(member: str) -> bytes:
        queue = {"topic": TOPIC, "brokerName": BROKER, "queueId": 0}
        asked = {"consumerGroup": GROUPS[0], "clientId": member, "mqSet": [queue]}
        return json.dumps(asked | {"waitsMs": 60_000}).encode()

    Client(port).ask(Command(RequestCode.LOCK_BATCH_MQ, body=body("owner")))
    for number in range(40):
        client = Client(port)
        held.enter_context(client.socket)
        asking = body(f"stranger-{number}")
        some = range(int(2_500 * scale))
        client.send(*(Command(RequestCode.LOCK_BATCH_MQ, body=asking, opaque=n) for n in some))
    time.sleep(3)
    Client(port).ask(Command(RequestCode.UNLOCK_BATCH_MQ, body=body("owner")))


def topics(port: int, scale: float, held: ExitStack) -> None:
    """Creation of 20,000 topics by first sends, a hundred under way at a time."""
    client = Client(port)
    held.enter_context(client.socket)
    count = int(19_900 * scale)
    for first in range(0, count, 100):
        batch = [message(0, b"x") for _ in range(first, min(first + 100, count))]
        for number, each in enumerate(batch, first):
            each.ext = {**each.ext, "topic": f"made-{number}"}
        client.send(*batch)
        for _ in batch:
            client.receive()


def idle(port: int, scale: float, held: ExitStack) -> None:
    """Connections that say nothing, 1,200 of them, at a broker that may have 1,024 descriptors."""
    for _ in range(3):
        command = [
            sys.executable,
            str(HOLDER),
            "--hold",
            str(port),
            "--count",
            str(int(400 * scale)),
        ]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        held.callback(holder.kill)
        assert holder.stdout is not None
        holder.stdout.readline()


def questions(port: int, scale: float, held: ExitStack) -> None:
    """Ask everything about everything: 400 groups with offsets in a topic of 1,024 queues."""
    client = Client(port)
    held.enter_context(client.socket)
    client.ask(topic("Wide", 1024))
    for group in range(int(400 * scale)):
        client.send(*(commit(f"asking-{group}", "Wide", queue_id) for queue_id in range(1024)))
        client.ask(Command(RequestCode.GROUP_INFO))
    codes: tuple[tuple[RequestCode, dict[str, ExtValue]], ...] = (
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "asking-0"}),
        (RequestCode.GET_ALL_PRODUCER_INFO, {}),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "Wide", "group": "asking-0"}),
    )
    with closed_perhaps():
        for _ in range(5):
            for code, ext in codes:
                client.ask(Command(code, ext))


def resets(port: int, scale: float, held: ExitStack) -> None:
    """A reset of 1,024 queues with three hundred members to be told."""
    client = Client(port)
    held.enter_context(client.socket)
    client.ask(topic("Wide", 1024))
    for number in range(int(300 * scale)):
        member = Client(port)
        held.enter_context(member.socket)
        body = {"clientID": f"member-{number}", "consumerDataSet": [{"groupName": "reset"}]}
        member.ask(Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))
    ext: dict[str, ExtValue] = {"topic": "Wide", "group": "reset", "timestamp": -1, "isForce": True}
    for _ in range(5):
        client.ask(Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))


def long_texts(port: int, scale: float, held: ExitStack) -> None:
    """Settings, bodies and batches that take long to read, and to quote in an error."""
    largest = FRAME_BYTES_MAX - 64 * 1024
    loose = b'{"x":{1:[' + b",".join([b"1"] * 1_000_000) + b"]}}"
    batch = b"\0\0\0\x17" + bytes(15) + b"\x01x\0\0"
    requests = (
        Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"x" * (largest - 2) + b"=1"),
        Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=loose),
        Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=loose),
        Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=loose),
        Command(RequestCode.SEND_BATCH_MESSAGE, message_v2(), batch * 400_000),
    )
    for _ in range(max(1, int(5 * scale))):
        for request in requests:
            client = Client(port)
            held.enter_context(client.socket)
            with closed_perhaps():
                client.ask(request)


def pops(port: int, scale: float, held: ExitStack) -> None:
    """POPs of twenty groups with filters that nothing passes, of queues with very many messages."""
    client = Client(port)
    held.enter_context(client.socket)
    client.ask(topic("Popped", 8))
    batch = (b"\0\0\0\x17" + bytes(15) + b"\x01x\0\0") * 10_000
    for queue_id in range(8):
        ext = message_v2() | {"b": "Popped", "e": queue_id}
        client.ask(Command(RequestCode.SEND_BATCH_MESSAGE, ext, batch))
    asked: dict[str, ExtValue] = {"topic": "Popped", "queueId": -1, "maxMsgNums": 32}
    asked |= {"invisibleTime": 1000}
    asked |= {"pollTime": 0, "bornTime": 0, "initMode": 0, "expType": "SQL92", "exp": "x = 1"}
    others = [Client(port) for _ in range(int(20 * scale))]
    for number, other in enumerate(others):
        held.enter_context(other.socket)
        other.send(
            Command(RequestCode.POP_MESSAGE, {**asked, "consumerGroup": f"popping-{number}"})
        )
    for other in others:
        with closed_perhaps():
            other.receive()


def one_way(port: int, scale: float, held: ExitStack) -> None:
    """Send one-way requests with large bodies, two hundred on each of forty connections.

    They are pulls that are held, and questions to consumers that are passed on.
    """
    for number in range(int(40 * scale)):
        client = Client(port)
        held.enter_context(client.socket)
        asked = pull(0, MESSAGES + 1, 2, "*", "TAG")
        if number % 2:
            ext: dict[str, ExtValue] = {"consumerGroup": "nobody", "clientId": "nobody"}
            asked = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
        asked.body, asked.flag = bytes(64 * 1024), FLAG_ONEWAY
        with closed_perhaps():
            for opaque in range(200):
                asked.opaque = opaque
                client.send(asked)


def large_waits(port: int, scale: float, held: ExitStack) -> None:
    """Pulls that are held, each with a body of 1 MiB: on sixty connections, twenty each."""
    for _ in range(int(60 * scale)):
        client = Client(port)
        held.enter_context(client.socket)
        with closed_perhaps():
            for opaque in range(20):
                asked = pull(opaque, MESSAGES + 1, 2, "*", "TAG")
                asked.body = bytes(MIB)
                client.send(asked)


def rows(port: int, scale: float, held: ExitStack) -> None:
    """Rows of the replicated state by made-up names: locks, offsets, messages that are popped and
    never acknowledged, messages with a timer, and transactions that nobody ends."""
    client = Client(port)
    held.enter_context(client.socket)
    client.ask(topic("Wide", 1024))
    client.ask(topic("Popped", 8))
    batch = (b"\0\0\0\x17" + bytes(15) + b"\x01x\0\0") * 1000
    for queue_id in range(8):
        ext = message_v2() | {"b": "Popped", "e": queue_id}
        client.ask(Command(RequestCode.SEND_BATCH_MESSAGE, ext, batch))
    queues = [{"topic": "Wide", "brokerName": BROKER, "queueId": each} for each in range(1024)]
    popped: dict[str, ExtValue] = {"topic": "Popped", "queueId": -1, "maxMsgNums": 32}
    popped |= {"invisibleTime": 10_000, "pollTime": 0, "bornTime": 0, "initMode": 0}
    for number, name in enumerate(GROUPS[: max(1, int(len(GROUPS) * scale))]):
        body = {"clientID": f"stranger-{number}", "consumerDataSet": [{"groupName": name}]}
        client = Client(port)
        held.enter_context(client.socket)
        client.ask(Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))
        lock = {"consumerGroup": name, "clientId": "c" * 200, "mqSet": queues}
        client.ask(Command(RequestCode.LOCK_BATCH_MQ, body=json.dumps(lock).encode()))
        client.send(*(commit(name, "Wide", queue_id) for queue_id in range(1024)))
        for _ in range(100):
            client.ask(Command(RequestCode.POP_MESSAGE, popped | {"consumerGroup": name}))
        for kind in (f"TRAN_MSG\x01true\x02PGROUP\x01{name}\x02", "TIMER_DELAY_SEC\x015\x02"):
            some = [message(0, b"x") for _ in range(100)]
            for each in some:
                each.ext = {**each.ext, "properties": kind}
                each.ext["sysFlag"] = 4 if kind.startswith("TRAN") else 0
            client.send(*some)
            for _ in some:
                client.receive()


def signatures(port: int, scale: float, held: ExitStack) -> None:
    """Forty connections from another address, each with one wrong signature after the other, of
    users that are there and that are not, over small and large bodies; closed, they come again."""
    wrong = Key("a wrong password")
    requests = []
    for name, size in (("root", 1_000), ("nobody", 1_000), ("clients", 1 << 20)):
        request = message(0, bytes(size))
        wrong.sign_as_stock(request, name)
        requests.append(memoryview(b"".join(encode_frame(request))))
    numbers = itertools.count(1)
    flooding = [Flooding(port) for _ in range(40)]
    over = time.monotonic() + 10 * scale
    while time.monotonic() < over:
        for each in flooding:
            number = next(numbers)
            each.send(requests[2] if number % 50 == 0 else requests[number % 2])
    for each in flooding:
        held.enter_context(each.client.socket)


def tidy_up(port: int) -> None:
    """Delete the groups and topics of the last scene, as an operator would."""
    client = Client(port)
    for name in GROUPS:
        ext: dict[str, ExtValue] = {"groupName": name, "removeOffset": True}
        client.ask(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext))
    for name in ("Wide", "Popped", *(f"%RETRY%{name}" for name in GROUPS)):
        client.ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}))


SCENES: dict[str, Callable[[int, float, ExitStack], None]] = {
    scene.__name__: scene
    for scene in (
        half_frames,
        heartbeats_for_ever,
        large_heartbeats,
        filters,
        readers,
        waiting_readers,
        waiting_locks,
        topics,
        idle,
        questions,
        resets,
        long_texts,
        pops,
        one_way,
        large_waits,
        signatures,
        rows,
    )
}
