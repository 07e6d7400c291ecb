"""Clients that asyncio cancels at any moment leave nothing behind; some steps are tried."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqclient import Admin, Consumer, Message, PopConsumer, Producer, ReceivedMessage
from mqclient.connection.lifetime import Living
from mqclient.consuming.sharing.offsets import FileOffsets
from mqlocal.threaded import ThreadedCluster, local_cluster_in_thread

STEPS_MAX = 40
STEPS_TRIED = 10
SOON_S = 60.0


class CancelAt(Coroutine[Any, Any, None]):
    """A task's work, which is cancelled as it goes on for the `step`-th time."""

    def __init__(self, work: Coroutine[Any, Any, None], step: int) -> None:
        self._work = work
        self._left = step

    def send(self, value: Any, /) -> Any:
        """Run one step, as asyncio asks for each; cancel the task at the chosen one."""
        self._left -= 1
        if not self._left:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()


async def send(producer: Producer) -> None:
    await producer.send(Message("T", b"x"))


async def read(consumer: Consumer) -> None:
    await consumer.poll(3, timeout_s=5)
    await consumer.commit()


async def handle(consumer: Consumer | PopConsumer) -> None:
    async def slow(_: ReceivedMessage) -> None:
        await asyncio.sleep(0.01)

    with suppress(TimeoutError):
        await asyncio.wait_for(consumer.run(slow, 2), 0.1)


async def pop(consumer: PopConsumer) -> None:
    await consumer.ack(*await consumer.poll(2, timeout_s=5))


async def list_topics(admin: Admin) -> None:
    await admin.topics.list()


MakeAndUse = tuple[Callable[[str, Path], Living], Callable[..., Awaitable[None]]]
CLIENTS: dict[str, MakeAndUse] = {
    "producer": (lambda address, _: Producer(address, "P"), send),
    "poll": (lambda address, _: Consumer(address, "C", {"T": "*"}), read),
    "run": (lambda address, _: Consumer(address, "C", {"T": "*"}), handle),
    "ordered": (lambda address, _: Consumer(address, "C", {"T": "*"}, ordered=True), read),
    "file": (
        lambda address, path: Consumer(
            address, "C", {"T": "*"}, assign="all", offsets=path / "offsets"
        ),
        read,
    ),
    "pop": (lambda address, _: PopConsumer(address, "C", {"T": "*"}), pop),
    "pop run": (lambda address, _: PopConsumer(address, "C", {"T": "*"}), handle),
    "admin": (lambda address, _: Admin(address), list_topics),
}


async def cancelled_at(
    step: int, make: Callable[[], Living], use: Callable[..., Any]
) -> tuple[Living, bool]:
    """The client, after its task was cancelled there, or ended; and whether it was cancelled."""
    face = make()

    async def work() -> None:
        async with face:
            await use(face)

    others = asyncio.all_tasks()
    task = asyncio.create_task(CancelAt(work(), step))
    await asyncio.wait([task], timeout=SOON_S)
    assert task.done(), "it does not end"
    assert task.cancelled() or task.exception() is None
    left = asyncio.all_tasks() - others
    if left:
        await asyncio.wait(left, timeout=SOON_S)
    assert asyncio.all_tasks() <= others, "a task was left behind"
    return face, task.cancelled()


@pytest.mark.parametrize("kind", CLIENTS)
def test_what_asyncio_cancels_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """A cancelled client leaves no connection, task, file lock or member of its group."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    make, use = CLIENTS[kind]
    cancelled = 0
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer("P") as producer:
            producer.send_many("T", [b"x"] * 200)
        for step in [1, *sorted(random.Random(seed).sample(range(2, STEPS_MAX), STEPS_TRIED))]:
            face, was_cancelled = asyncio.run(
                cancelled_at(step, lambda: make(cluster.namesrv_addr, tmp_path), use)
            )
            cancelled += was_cancelled
            expect_nothing_left(face, tmp_path)
        expect_no_member(cluster)
    assert cancelled


def expect_nothing_left(face: Living, directory: Path) -> None:
    """Assert that a client outside of its block holds no connection or lock."""
    session = face._requests if isinstance(face, Admin) else face._session
    pool = session._pool if isinstance(face, Admin) else session.pool
    assert all(slot.peer is None or slot.peer.closed for slot in pool._slots.values())
    kept = FileOffsets(directory / "offsets")
    kept.open()  # BadInput while the file is locked
    kept.close()


def expect_no_member(cluster: ThreadedCluster) -> None:
    """Brokers have heard that all members left, or that their connections have closed."""
    with cluster.admin() as admin:
        for _ in range(100):
            members = sum(progress.members for progress in admin.groups.list())
            if not members:
                return
    raise AssertionError(f"{members} members have stayed")
