"""Clients that are cancelled at any moment leave nothing behind; each checkpoint is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from mqclient import (
    Admin,
    BulkWriter,
    Columns,
    Consumer,
    Decision,
    Message,
    NoReply,
    PopConsumer,
    Producer,
    RangeReader,
    ReceivedMessage,
)
from mqclient.connection.lifetime import Living
from mqclient.consuming.sharing.offsets import FileOffsets
from mqlocal import LocalCluster, local_cluster

STEPS_MAX = 400
SOON_S = 5.0


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when its task runs for the `step`-th time."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, step: int) -> None:
        self._task = task
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Cancel at the chosen step; trio calls this."""
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def commit(_: ReceivedMessage) -> Decision:
    return Decision.COMMIT


async def send(producer: Producer) -> None:
    await producer.send(Message("T", b"x"))
    await producer.send_soon(Message("T", b"x"))
    async with producer.transaction(Message("T", b"x")):
        pass


async def read(consumer: Consumer) -> None:
    await consumer.poll(3, timeout_s=5)
    await consumer.commit()
    await consumer.poll(3, timeout_s=5)


async def handle(consumer: Consumer | PopConsumer) -> None:
    async def slow(_: ReceivedMessage) -> None:
        await trio.sleep(0.1)

    with trio.move_on_after(0.5):
        await consumer.run(slow, 2)


async def pop(consumer: PopConsumer) -> None:
    await consumer.ack(*await consumer.poll(2, timeout_s=5))
    await consumer.poll(2, timeout_s=5)


async def drain(consumer: Consumer | PopConsumer) -> None:
    """Handlers are at work while it drains."""

    async def slow(_: ReceivedMessage) -> None:
        await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, slow, 2)
        await trio.sleep(0.1)
        await consumer.drain(2)


async def ask(producer: Producer) -> None:
    with suppress(NoReply):
        await producer.request(Message("T", b"who?"), timeout_s=0.5)


async def write_columns(writer: BulkWriter) -> None:
    await writer.write("T", Columns([b"x"] * 100))
    await writer.flush()


async def read_ranges(reader: RangeReader) -> None:
    ((queue, bounds), *_) = (await reader.bounds("T")).queues.items()
    await reader.read(queue, bounds.begin, bounds.end)


async def process_once(consumer: Consumer) -> None:
    async with Producer(";".join(consumer._session.name_servers), "P", name="once") as producer:
        await consumer.poll(3, timeout_s=5, one_group=True)
        async with consumer.transaction(producer) as transaction:
            await transaction.send(Message("Out", b"x"))


async def list_topics(admin: Admin) -> None:
    await admin.topics.list()


MakeAndUse = tuple[Callable[[LocalCluster, Path], Living], Callable[..., Awaitable[None]]]
CLIENTS: dict[str, MakeAndUse] = {
    "producer": (lambda cluster, _: cluster.producer("P", checker=commit), send),
    "named": (
        lambda cluster, _: cluster.producer("P", name="n"),
        lambda producer: producer.send(Message("T", b"x")),
    ),
    "poll": (lambda cluster, _: cluster.consumer("C", {"T": "*"}), read),
    "run": (lambda cluster, _: cluster.consumer("C", {"T": "*"}), handle),
    "ordered": (lambda cluster, _: cluster.consumer("C", {"T": "*"}, ordered=True), handle),
    "file": (
        lambda cluster, path: cluster.consumer(
            "C", {"T": "*"}, assign="all", offsets=path / "offsets"
        ),
        read,
    ),
    "pop": (lambda cluster, _: PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}), pop),
    "pop run": (lambda cluster, _: PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}), handle),
    "pop ordered": (
        lambda cluster, _: PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}, ordered=True),
        handle,
    ),
    "drain": (lambda cluster, _: cluster.consumer("C", {"T": "*"}), drain),
    "pop drain": (lambda cluster, _: PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}), drain),
    "once": (lambda cluster, _: cluster.consumer("C", {"T": "*"}, auto_commit=False), process_once),
    "request": (lambda cluster, _: cluster.producer("P"), ask),
    "bulk": (lambda cluster, _: BulkWriter(cluster.namesrv_addr, "P"), write_columns),
    "ranges": (lambda cluster, _: RangeReader(cluster.namesrv_addr), read_ranges),
    "admin": (lambda cluster, _: cluster.admin(), list_topics),
}


@pytest.mark.parametrize("kind", CLIENTS)
async def test_what_is_cancelled_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """A cancelled client leaves no connection, file lock or waiter, and raises only Cancelled."""
    make, use = CLIENTS[kind]
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            await producer.send_many("T", [b"x"] * 2000)
        step, ended = 1, False
        while not ended:
            face = make(cluster, tmp_path)
            with trio.CancelScope() as scope:
                instrument = CancelAt(trio.lowlevel.current_task(), scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    async with face:
                        await use(face)
                        await trio.lowlevel.checkpoint()
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            ended = not scope.cancel_called
            expect_nothing_left(face, tmp_path)
            step += 1 if step < 40 else 3
            assert step < STEPS_MAX
        assert step > 5
        await trio.sleep(SOON_S)
        async with cluster.admin() as admin:
            for progress in await admin.groups.list():
                assert progress.members == 0, "a member has stayed"
        if kind == "ordered":  # its locks are given up
            async with Consumer(cluster.namesrv_addr, "C", {"T": "*"}, ordered=True) as other:
                await trio.sleep(SOON_S)
                held = {*other._locks.leases.queues()}
                assert {*other.queues} == held
                assert held


def expect_nothing_left(face: Living, directory: Path) -> None:
    """Assert that a client outside of its block holds no connection, message or lock."""
    session = face._requests if isinstance(face, Admin | RangeReader) else face._session
    pool = session._pool if isinstance(face, Admin | RangeReader) else session.pool
    assert all(slot.peer is None or slot.peer.closed for slot in pool._slots.values())
    if isinstance(face, Producer):
        assert face.pending == 0
    kept = FileOffsets(directory / "offsets")
    kept.open()  # BadInput while the file is locked
    kept.close()


@pytest.mark.parametrize("kind", ["run", "ordered", "pop run"])
async def test_what_was_handled_before_a_cancellation_does_not_come_again(
    kind: str, tmp_path: Path
) -> None:
    """Brokers are told over connections that outlive it; only what was in a hand comes again."""
    make, _ = CLIENTS[kind]
    begun: list[bytes] = []
    ended: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await trio.sleep(0.01)
        ended.append(message.body)

    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            await producer.send_many("T", [b"%d" % number for number in range(60)])
        for moment_s in (0.11, 0.155, 0.201):
            face = make(cluster, tmp_path)
            with trio.CancelScope() as scope:
                async with face, trio.open_nursery() as nursery:
                    nursery.start_soon(face.run, handle)  # type: ignore[attr-defined]
                    await trio.sleep(moment_s)
                    scope.cancel()
            await trio.sleep(61)  # as long as a lost message would be hidden
        async with make(cluster, tmp_path) as face:
            with trio.move_on_after(5):
                await face.run(handle)  # type: ignore[attr-defined]
    assert sorted(map(int, ended)) == [*range(60)]
    assert len(begun) <= 60 + 3
