"""Blocking calls that a signal's exception ends, as of Ctrl-C or a time limit, in programs that go
on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from mqclient.blocking import Consumer, PopConsumer
from mqclient.models import ReceivedMessage
from mqlocal.threaded import ThreadedCluster, local_cluster_in_thread

SOON_S = 0.5
WAIT_S = 60.0
HANDLED: list[bytes] = []
"""Bodies that handlers were called with; empty while none runs."""


class TimeIsUp(Exception):
    """The exception of the program's time limit."""


@contextmanager
def limited_to(seconds: float) -> Iterator[None]:
    """The block is ended by TimeIsUp, in the main thread."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(TimeIsUp):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def poll(consumer: Consumer | PopConsumer) -> None:
    consumer.poll(timeout_s=WAIT_S)


def poll_many(consumer: Consumer) -> None:
    consumer.poll_many(timeout_s=WAIT_S)


def iterate(consumer: Consumer | PopConsumer) -> None:
    next(iter(consumer))


def run(consumer: Consumer | PopConsumer) -> None:
    consumer.run(handled)


def run_by_threads(consumer: Consumer | PopConsumer) -> None:
    consumer.run(handled, 2)


def run_batches(consumer: Consumer) -> None:
    consumer.run_batches(lambda messages: handled(*messages))


def handled(*messages: ReceivedMessage) -> None:
    HANDLED.extend(message.body for message in messages)


WAYS: list[tuple[type[Consumer] | type[PopConsumer], Callable[..., None]]] = [
    *((Consumer, way) for way in (poll, poll_many, iterate, run, run_by_threads, run_batches)),
    *((PopConsumer, way) for way in (poll, iterate, run, run_by_threads)),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    """A cluster for all ways."""
    with local_cluster_in_thread(replicas=1) as cluster:
        yield cluster


@pytest.mark.parametrize(("kind", "way"), WAYS, ids=lambda each: each.__name__)
def test_an_interrupted_wait_takes_no_message(
    kind: type[Consumer], way: Callable[..., None], cluster: ThreadedCluster
) -> None:
    """Messages that come after an interrupted wait are the next poll's, all and at once."""
    topic = f"T-{kind.__name__}-{way.__name__}"
    bodies = {b"%d" % number for number in range(8)}
    with cluster.producer() as producer:
        producer.send_many(topic, [b"first"])
        with kind(cluster.namesrv_addr, f"G-{topic}", {topic: "*"}) as consumer:
            first = consumer.poll(timeout_s=WAIT_S)
            assert [message.body for message in first] == [b"first"]
            if isinstance(consumer, PopConsumer):
                consumer.ack(*first)
            with limited_to(SOON_S):
                way(consumer)
            producer.send_many(topic, [*bodies])
            got: list[bytes] = []
            while len(got) < len(bodies):
                some = consumer.poll(timeout_s=WAIT_S / 2)
                assert some, "the others went to nobody"
                got += [message.body for message in some]
            assert {*got} == bodies
            assert len(got) == len(bodies)
            assert HANDLED == []


@pytest.mark.parametrize("kind", [Consumer, PopConsumer])
def test_an_interrupted_run_has_ended(kind: type[Consumer], cluster: ThreadedCluster) -> None:
    """No handler begins after an interrupted run."""
    topic = f"Run-{kind.__name__}"
    begun = threading.Semaphore(0)

    def release(_: ReceivedMessage) -> None:
        begun.release()

    with cluster.producer() as producer:
        producer.send_many(topic, [b"x"])
        with kind(cluster.namesrv_addr, f"G-{topic}", {topic: "*"}) as consumer:
            with limited_to(4 * SOON_S):
                consumer.run(release, 2)
            while begun.acquire(blocking=False):
                pass
            producer.send_many(topic, [b"x"] * 20)
            assert not begun.acquire(timeout=2 * SOON_S)
