"""Random lives of a group that pops, each from a seed: members, failures, failovers, retention.

Every answer is held against the promises: a message in flight is not given to another member before
its time, an acknowledged one never comes again, none is lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.state.machine import Machine
from mqbroker.state.saved.snapshot import State
from mqbroker.testing import MemoryBroker, served
from mqbroker.testing.leading import save
from mqbroker.testing.pictured import memory_of
from mqbroker.testing.requests import (
    GROUP,
    POP_HIDDEN_MS,
    TIMEOUT_S,
    TOPIC,
    Place,
    ack_request,
    ask,
    give_up_request,
    heartbeat,
    hide_request,
    make_topic,
    pop_request,
    produce_request,
    records,
)

pytestmark = pytest.mark.usefixtures("autojump_clock")

QUEUES = 3


@dataclass
class Have:
    """A message that a member has."""

    pop_time: int
    until_ms: int
    position: int


@dataclass
class Scene:
    """Messages by place: sent, in flight, done."""

    rng: random.Random
    broker: MemoryBroker
    peer: Peer
    sent: set[Place] = field(default_factory=set)
    have: dict[Place, Have] = field(default_factory=dict)
    done: set[Place] = field(default_factory=set)
    unsure: set[Place] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    failovers: int = 0
    dead: int = 0

    @staticmethod
    def now_ms() -> int:
        return int(trio.current_time() * 1000)

    async def send(self) -> None:
        queue_id, count = self.rng.randrange(QUEUES), self.rng.randrange(1, 6)
        key = f"k{len(self.sent)}-{self.rng.random()}"
        await self.peer.request(produce_request(key, runs=[(queue_id, count)]), TIMEOUT_S)
        end = self.ends.get(queue_id, 0)
        self.sent |= {(queue_id, at) for at in range(end, end + count)}
        self.ends[queue_id] = end + count

    async def pop(self) -> bool:
        """Pop up to 32 messages; whether any came."""
        queue_id, count = self.rng.choice([-1, -1, -1, 0, 1]), self.rng.choice([1, 3, 32])
        asked_ms = self.now_ms()
        answer = await self.peer.request(pop_request(queue_id, count), TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
            return False
        for record in records(answer):
            place = (record.queue_id, record.queue_offset)
            held = self.have.get(place)
            assert held is None or held.until_ms <= self.now_ms(), f"{place} is somebody's"
            assert place not in self.done, f"{place} was acknowledged"
            self.have[place] = Have(
                int(str(answer.ext["popTime"])), asked_ms + POP_HIDDEN_MS, record.physical_offset
            )
        return True

    async def ack(self) -> None:
        if not self.have:
            return
        place = self.rng.choice(sorted(self.have))
        await self.settle(place, self.have[place])
        del self.have[place]

    async def settle(self, place: Place, have: Have) -> None:
        """Acknowledge what a member has for sure."""
        answer = await self.peer.request(ack_request(place, have.pop_time), TIMEOUT_S)
        assert (answer.code, answer.ext["late"]) == (ResponseCode.SUCCESS, 0), answer.remark
        self.done.add(place)

    async def hide(self) -> None:
        if not self.have:
            return
        place = self.rng.choice(sorted(self.have))
        for_ms = self.rng.choice([0, 1000, 9000])
        request = hide_request(place, self.have[place].pop_time, for_ms)
        asked_ms = self.now_ms()
        answer = await self.peer.request(request, TIMEOUT_S)
        assert (answer.code, answer.ext["late"]) == (ResponseCode.SUCCESS, 0)
        have = self.have[place]
        self.have[place] = Have(int(str(answer.ext["popTime"])), asked_ms + for_ms, have.position)

    async def give_up(self) -> None:
        """Make a dead letter of a message; sometimes by two requests, of which one stores it."""
        if not self.have:
            return
        place = self.rng.choice(sorted(self.have))
        await self.bury(self.have.pop(place))
        self.done.add(place)

    async def bury(self, have: Have) -> None:
        command = give_up_request(have.position, have.pop_time)
        for late in range(self.rng.choice([1, 1, 2])):
            answer = await self.peer.request(command, TIMEOUT_S)
            assert (answer.code, answer.ext["late"]) == (ResponseCode.SUCCESS, late)
        self.dead += 1

    async def fail_over(self) -> None:
        self.failovers += 1
        self.broker.ledger.follow()
        self.broker.ledger.lead()

    async def wait(self) -> None:
        await trio.sleep(self.rng.choice([0.1, 1.0, 5.0]))

    async def drain(self) -> None:
        """Settle messages until every one is acknowledged."""
        while self.sent - self.done:
            while self.have:
                await self.ack()
            if not await self.pop():
                await trio.sleep(1)


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_or_given_to_two(seed: int, tmp_path: Path) -> None:
    """No message is lost or given to two, however members, time and leaders play together."""
    rng = random.Random(seed)
    async with served(tmp_path / "a") as (broker, peer):
        await make_topic(peer)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        scene = Scene(rng, broker, peer)
        steps = [scene.send, scene.pop, scene.pop, scene.ack, scene.ack, scene.hide, scene.wait]
        steps.append(scene.give_up)
        for _ in range(150):
            await rng.choice(steps)()
            if rng.random() < 0.03:
                await scene.fail_over()
        await scene.drain()
        assert scene.done == scene.sent
        assert broker.machine.queues.end(f"%DLQ%{GROUP}", 0) == scene.dead > 0
        for queue_id, end in scene.ends.items():
            assert broker.machine.offsets.get(GROUP, TOPIC, queue_id) == end
        assert broker.machine.popped.count == 0
        (tmp_path / "b").mkdir()
        replica = Machine(tmp_path / "b")
        replica.restore()
        for entry in broker.ledger.entries(1):
            if rng.random() < 0.05 and replica.applied_index:
                save(replica)
                replica.close()
                replica = Machine(tmp_path / "b")
                assert replica.restore() is None
            replica.apply(entry)
        assert memory_of(replica) == memory_of(broker.machine)
        replica.close()


async def test_members_at_the_same_time_never_share_a_message(tmp_path: Path) -> None:
    """Concurrent members never share a message, though their requests overtake each other."""
    async with served(tmp_path, auto=False) as (broker, peer):

        async def commit() -> None:
            rng = random.Random(1)
            while True:
                await trio.sleep(rng.choice([0.001, 0.02, 0.1]))
                broker.ledger.commit(rng.choice([None, 1, 2]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await make_topic(peer)
            await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
            scene = Scene(random.Random(7), broker, peer)
            for _ in range(20):
                await scene.send()

            async def member() -> None:
                while scene.sent - scene.done:
                    if not await scene.pop():
                        await trio.sleep(0.2)
                    await drop_or_settle(scene)

            async with trio.open_nursery() as members:
                for _ in range(6):
                    members.start_soon(member)
            nursery.cancel_scope.cancel()
        assert scene.done == scene.sent
        assert broker.machine.queues.end(f"%DLQ%{GROUP}", 0) == scene.dead > 0


async def drop_or_settle(scene: Scene) -> None:
    """Acknowledge or give up some messages that are surely still ours; leave the others."""
    for place in sorted(scene.have):
        held = scene.have.get(place)
        if held is None or held.until_ms - scene.now_ms() < POP_HIDDEN_MS // 2:
            continue
        if scene.rng.random() < 0.3:
            continue
        del scene.have[place]
        if scene.rng.random() < 0.2:
            await scene.bury(held)
            scene.done.add(place)
        else:
            await scene.settle(place, held)


def test_a_snapshot_of_an_older_version_has_nothing_popped(tmp_path: Path) -> None:
    """A snapshot of an older version has offsets and no popped messages."""
    machine = Machine(tmp_path)
    machine.take_memory(State(offsets=[(GROUP, TOPIC, 0, 5)]))
    assert (machine.popped.count, len(machine.modes)) == (0, 0)
    assert machine.offsets.get(GROUP, TOPIC, 0) == 5
