"""Programs that make their clients and fork then, as real processes with a real broker."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.context import BaseContext

import pytest

from mqclient import ClientClosed, MessageQueue
from mqclient.blocking import Admin, Consumer, Message, PopConsumer, Producer

CHILDREN = 2
MESSAGES = 150
WAIT_S = 60


def send_equal_bodies(producer: Producer, topic: str) -> None:
    """Open and use the parent's producer, as a worker does after its fork."""
    with producer:
        for _ in range(MESSAGES):
            producer.send(Message(topic, b"equal"))


def by_multiprocessing(context: BaseContext, producer: Producer, topic: str) -> list[int]:
    """Fork by a pool of workers; their statuses."""
    workers = [
        context.Process(target=send_equal_bodies, args=(producer, topic))  # type: ignore[attr-defined]
        for _ in range(CHILDREN)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_S)
    return [worker.exitcode for worker in workers]


def by_os_fork(producer: Producer, topic: str) -> list[int]:
    """Fork by `os.fork`, as gunicorn with `--preload` and Celery's prefork do; the statuses."""
    children = []
    for _ in range(CHILDREN):
        child = os.fork()
        if not child:
            status = 1
            try:
                send_equal_bodies(producer, topic)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


FORK = multiprocessing.get_context("fork")


@pytest.mark.parametrize(
    "run",
    [
        lambda producer, topic: by_multiprocessing(FORK, producer, topic),
        by_os_fork,
    ],
)
@pytest.mark.parametrize("name", [None, "named"])
def test_what_the_children_of_one_program_send_is_stored_once_each(
    run: Callable[[Producer, str], list[int]], name: str | None, namesrv_addr: str, topic: str
) -> None:
    """Equal bodies at the same time by copies of one producer: no broker takes them for retries.

    Copies of a named producer are two instances: the later one fences the earlier.
    """
    producer = Producer(namesrv_addr, topic, name=name and f"{name}-{topic}")
    with Admin(namesrv_addr) as admin:
        admin.topics.update(topic, read_queues=1, write_queues=1)
        codes = run(producer, topic)
        stored = sum(queue.max_offset for queue in admin.topics.status(topic).queues)
    if name is None:
        assert codes == [0] * CHILDREN
        assert stored == CHILDREN * MESSAGES
    else:
        assert 0 in codes
        assert stored >= MESSAGES


def test_a_worker_that_is_spawned_is_told_to_make_its_own(namesrv_addr: str, topic: str) -> None:
    """A client can't be pickled: the parent hears why, and of the remedy."""
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=print, args=(Producer(namesrv_addr, topic),))
    with pytest.raises(TypeError, match="Make one where it is used"):
        worker.start()


def test_members_that_are_forked_share_the_queues(namesrv_addr: str, topic: str) -> None:
    """Copies of one consumer are two members of the group: no message comes twice."""
    consumer = Consumer(namesrv_addr, topic, {topic: "*"})
    reading, writing = os.pipe()
    with Producer(namesrv_addr, topic) as producer:
        for number in range(40):
            producer.send(Message(topic, str(number).encode()))
    children = []
    for _ in range(CHILDREN):
        child = os.fork()
        if not child:
            try:
                with consumer:
                    until_s = time.monotonic() + WAIT_S
                    # Half of the topic's 8, and maybe the one for retries.
                    while len(consumer.queues) not in (4, 5) and time.monotonic() < until_s:
                        time.sleep(0.02)
                    got = []
                    while messages := consumer.poll(timeout_s=2):
                        got += [message.body.decode() for message in messages]
                    os.write(writing, " ".join([*got, ""]).encode())
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert sorted(map(int, told.read().split())) == [*range(40)]


def test_clients_that_are_open_refuse_at_once_in_a_child(namesrv_addr: str, topic: str) -> None:
    """A blocking send in a child would wait for an event loop that is not there."""
    with (
        Producer(namesrv_addr, topic) as producer,
        Consumer(namesrv_addr, topic, {topic: "*"}) as consumer,
        PopConsumer(namesrv_addr, f"{topic}-pop", {topic: "*"}) as pops,
        Admin(namesrv_addr) as admin,
    ):
        sent = producer.send(Message(topic, b"the parent's"))
        child = os.fork()
        if not child:
            refused = 0
            began_s = time.monotonic()
            for call in (
                lambda: producer.send(Message(topic, b"the child's"), timeout_s=3),
                lambda: producer.send_soon(Message(topic, b"the child's")),
                consumer.poll,
                lambda: consumer.seek(MessageQueue(topic, sent.broker_name, sent.queue_id), 0),
                pops.poll,
                admin.topics.list,
            ):
                try:
                    call()
                except ClientClosed:
                    refused += 1
            in_time = time.monotonic() - began_s < 3  # a call that waits does so for 3 s
            os._exit(0 if refused == 6 and in_time else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        again = producer.send(Message(topic, b"the parent's"))  # its connections are as they were
        assert again.message_id != sent.message_id
        got = []
        while messages := consumer.poll(timeout_s=2):
            got += [message.body for message in messages]
        assert got == [b"the parent's"] * 2
