"""What a message costs, in instructions of Python, beside a control in the same run.

Time would fail on a busy machine; instructions don't. All of a cluster runs in this process: what
is counted is the client, the leader, two followers and the event loop. The control is a fixed
piece of work, counted alike, so that another version of Python, with other instructions, changes
both. What C does (copies, checksums, numpy) is not seen: `benchmarks/produce` and
`benchmarks/peers` see it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from trio.testing import MockClock

from mqclient import Consumer, Message, Producer
from mqclient.producing.stretches.gathering import Gathering
from mqlocal import LocalCluster, local_cluster

GROWTH_MAX = 1.2
BODY = bytes(100)
TRIES = 3


class Counter:
    """How many instructions of Python this thread has run while it was on."""

    def __init__(self) -> None:
        self.count = 0

    def _called(self, frame: FrameType, _event: str, _argument: object) -> object:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._ran

    def _ran(self, _frame: FrameType, event: str, _argument: object) -> object:
        self.count += event == "opcode"
        return self._ran

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count within the block; a debugger's or a coverage's own tracing rests meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)


def control() -> float:
    """The control: calls, loops, dicts, text and bytes, as they come in the code of a broker."""

    def piece(number: int) -> bytes:
        fields = {f"field-{each}": each * number for each in range(4)}
        parts = [f"{name}={value}" for name, value in fields.items() if value % 3]
        return ",".join(parts).encode()

    def work() -> int:
        return sum(len(piece(number)) for number in range(100))

    counter = Counter()
    with counter.on():
        work()
    return counter.count / 100


async def cheapest(work: Callable[[], Awaitable[int]]) -> float:
    """Instructions a message, beside the control: the least of a few tries."""
    costs = []
    for _ in range(TRIES):
        counter = Counter()
        with counter.on():
            messages = await work()
        costs.append(counter.count / messages / control())
    return min(costs)


async def pipelined(producer: Producer) -> int:
    """A thousand messages, as fast as they are taken."""
    for _ in range(1000):
        await producer.send_soon(Message("T", BODY))
    await producer.flush()
    return 1000


async def many(producer: Producer) -> int:
    """A thousand messages in one call."""
    return len(await producer.send_many("T", [BODY] * 1000))


async def one_at_a_time(producer: Producer) -> int:
    """One outstanding: what is counted are the turns that a send takes."""
    for _ in range(10):
        await producer.send(Message("T", BODY))
    return 10


async def read(consumer: Consumer) -> int:
    """A thousand messages, whose body and place are looked at."""
    count = 0
    while count < 1000:
        found = await consumer.poll(1000 - count, timeout_s=5)
        for message in found:
            assert message.body == BODY
            assert message.queue_offset >= 0
        count += len(found)
    return count


async def sent(cluster: LocalCluster, work: Callable[[Producer], Awaitable[int]]) -> float:
    """The cost of sending so, once all is warm."""
    async with cluster.producer("P") as producer:
        await work(producer)
        return await cheapest(lambda: work(producer))


async def received(cluster: LocalCluster) -> float:
    """The cost of reading."""
    async with cluster.producer("P") as producer:
        for _ in range(TRIES + 1):
            await pipelined(producer)
    async with cluster.consumer("C", {"T": "*"}) as consumer:
        await read(consumer)
        return await cheapest(lambda: read(consumer))


COSTS: dict[str, tuple[Callable[[LocalCluster], Awaitable[float]], float]] = {
    "pipelined": (lambda cluster: sent(cluster, pipelined), 3.6),
    "many": (lambda cluster: sent(cluster, many), 0.65),
    "one at a time": (lambda cluster: sent(cluster, one_at_a_time), 275.0),
    "read": (received, 1.8),
}
"""What is measured, and what it costs, give or take 5 %. Who has earned it writes a lower one."""


@pytest.mark.parametrize("what", COSTS)
async def test_a_message_costs_no_more_than_it_did(what: str, autojump_clock: MockClock) -> None:
    """A fifth more fails: find what has become dear, or say in the commit what it pays for."""
    measure, noted = COSTS[what]
    async with local_cluster() as cluster:
        cost = await measure(cluster)

    print(f"{what}: {cost:.2f} controls a message, noted are {noted:.2f}")
    assert cost <= GROWTH_MAX * noted


async def test_a_dearer_message_is_noticed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were there a few steps more for each message, that test would fail."""
    add = Gathering.add

    def wasteful(gathering: Gathering, body: bytes) -> object:
        for _ in range(10):
            gathering.takes(body, 0.0, 0.0)
            sum(range(10))
            len(str(body))
        return add(gathering, body)

    monkeypatch.setattr(Gathering, "add", wasteful)
    measure, noted = COSTS["pipelined"]
    async with local_cluster() as cluster:
        assert await measure(cluster) > GROWTH_MAX * noted
