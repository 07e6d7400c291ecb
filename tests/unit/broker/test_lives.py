"""A topic that is deleted and made again has nothing of its earlier life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import HeartbeatData, ProducerData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import WriteOnceHeader, encode_header
from dledger.remoting.message import properties_encode
from mqbroker.leader.waiting.deliveries import Old
from mqbroker.state.machine import Machine
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.leading import save
from mqbroker.testing.pictured import saved_state_of
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ack_request,
    ask,
    commit,
    commit_request,
    heartbeat,
    make_topic,
    oneway,
    pop_request,
    produce_request,
    pull_request,
    records,
    send_request,
)

Code = ResponseCode
PLACE: dict[str, ExtValue] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}


@dataclass
class Scene:
    """A broker, a connection, and a wall clock that the test moves on."""

    broker: MemoryBroker
    peer: Peer
    later_ms: int = 0

    async def send(self, key: str, count: int) -> None:
        await self.peer.request(produce_request(key, runs=[(0, count)]), TIMEOUT_S)

    async def delete(self) -> None:
        gone = await ask(self.peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        assert gone.code == Code.SUCCESS

    async def make_again(self) -> None:
        await self.delete()
        await make_topic(self.peer)

    @property
    def life(self) -> int:
        return self.broker.machine.topics.life(TOPIC).entry

    def bodies(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        queue = self.broker.machine.queues.get(topic, queue_id)
        units = queue.read(0, 99) if queue is not None else []
        core = self.broker.broker.core
        return [bytes(core.record_at(int(unit["position"])).body) for unit in units]

    def committed(self) -> int | None:
        return self.broker.machine.offsets.get(GROUP, TOPIC, 0)


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    scenes: list[Scene] = []

    def clock_ms() -> int:
        return int(trio.current_time() * 1000) + sum(each.later_ms for each in scenes)

    async with served(directory, clock_ms=clock_ms) as (broker, peer):
        here = Scene(broker, peer)
        scenes.append(here)
        await make_topic(peer)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        yield here


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as found:
        yield found


async def pull(peer: Peer, offset: int, **changed: ExtValue) -> tuple[int, ExtValue]:
    answer = await peer.request(pull_request(0, offset, **changed), TIMEOUT_S)
    return answer.code, answer.ext["nextBeginOffset"]


async def test_a_held_pull_ends_with_its_topic(here: Scene) -> None:
    """A held pull is answered at once when its topic is deleted."""
    async with trio.open_nursery() as nursery:
        await here.send("a", 4)
        answers: list[int] = []

        @nursery.start_soon
        async def wait() -> None:
            answers.append((await here.peer.request(pull_request(0, 4, 6), TIMEOUT_S)).code)

        await until(lambda: len(here.broker.broker._held) == 1)
        await here.delete()
        await until(lambda: answers == [Code.TOPIC_NOT_EXIST])


@pytest.mark.parametrize("sent", [1, 4, 9])
async def test_a_stock_consumer_is_sent_to_the_first_message_of_the_new_life(
    here: Scene, sent: int
) -> None:
    """A stock consumer is sent to the new life's first message, wherever its old position is.

    Its old commits don't count until it has followed; then it may pull from where it likes.
    """
    await here.send("old", 4)
    assert await pull(here.peer, 0) == (Code.SUCCESS, 4)
    assert await commit(here.peer, 3) == Code.SUCCESS
    await here.make_again()
    await here.send("new", sent)
    refused = Code.SYSTEM_ERROR if sent < 3 else Code.SUCCESS
    assert await commit(here.peer, 3) == refused
    assert here.committed() is None
    assert await pull(here.peer, 4) == (Code.PULL_OFFSET_MOVED, 0)
    assert await commit(here.peer, 3) == refused
    assert here.committed() is None
    assert await pull(here.peer, 0) == (Code.SUCCESS, sent)
    assert await commit(here.peer, sent) == Code.SUCCESS
    assert here.committed() == sent
    assert await pull(here.peer, sent) == (Code.PULL_NOT_FOUND, sent)


async def test_every_member_of_a_broadcasting_group_is_sent_there(here: Scene) -> None:
    """Members of a broadcasting group are each sent to the new life's first message."""
    async with connect_peer("127.0.0.1", here.broker.port) as other:
        await here.send("old", 4)
        for peer in (here.peer, other):
            assert await pull(peer, 2) == (Code.SUCCESS, 4)
        await here.make_again()
        await here.send("new", 9)
        for peer in (here.peer, other):
            assert await pull(peer, 4) == (Code.PULL_OFFSET_MOVED, 0)
            assert await pull(peer, 0) == (Code.SUCCESS, 9)


async def test_a_pull_beyond_the_end_goes_on_where_its_group_is(here: Scene) -> None:
    """A pull beyond the end is sent to its group's offset, also over a new connection."""
    await here.send("old", 4)
    await here.make_again()
    await here.send("new", 3)
    async with connect_peer("127.0.0.1", here.broker.port) as stranger:
        assert await pull(stranger, 4) == (Code.PULL_OFFSET_MOVED, 0)
        assert await pull(here.peer, 0) == (Code.SUCCESS, 3)
        assert await commit(here.peer, 2) == Code.SUCCESS
        assert await pull(stranger, 4) == (Code.PULL_OFFSET_MOVED, 2)


async def test_our_clients_name_the_life_of_their_positions(here: Scene) -> None:
    """A client of ours learns a topic's life by a pull; an ended life's commits are refused."""
    await here.send("old", 4)
    first = await here.peer.request(pull_request(life=0), TIMEOUT_S)
    old = first.ext["life"]
    assert old == here.life
    again = await here.peer.request(pull_request(0, 4, life=old), TIMEOUT_S)
    assert again.ext.get("life") is None, "it is known"
    await here.make_again()
    await here.send("new", 9)
    moved = await here.peer.request(pull_request(0, 4, life=old), TIMEOUT_S)
    assert moved.code == Code.PULL_OFFSET_MOVED
    assert (moved.ext["nextBeginOffset"], moved.ext["life"]) == (0, here.life)
    assert await commit(here.peer, 4, life=old) == Code.OFFSET_MOVED_ON
    assert here.committed() is None
    assert await commit(here.peer, 4, life=here.life) == Code.SUCCESS


async def test_a_commit_on_its_way_ends_with_its_topic(here: Scene) -> None:
    """A commit that was gathered is not written if its topic is deleted first."""
    await here.send("old", 4)
    here.peer.send_oneway(oneway(commit_request(4)))
    await here.make_again()
    await here.send("new", 9)
    await trio.sleep(0.2)
    assert here.committed() is None
    found = await ask(here.peer, RequestCode.QUERY_CONSUMER_OFFSET, **PLACE)
    assert found.ext["offset"] == 0


@pytest.mark.parametrize("renewed", [False, True])
async def test_what_waits_for_its_time_ends_with_its_topic(here: Scene, renewed: bool) -> None:
    """Messages that wait by timer, level or retry go with their topic; later ones come."""
    await here.send("old", 1)
    (first,) = records(await here.peer.request(pull_request(), TIMEOUT_S))
    back: dict[str, ExtValue] = {"group": GROUP, "delayLevel": 3}
    position = first.physical_offset
    for name in ("old", "new"):
        for delay in ("TIMER_DELAY_MS\x0186400000\x02", "DELAY\x013\x02"):
            sent = await here.peer.request(send_request(name.encode(), i=delay, e="0"), TIMEOUT_S)
            assert sent.code == Code.SUCCESS, sent.remark
        await ask(here.peer, RequestCode.CONSUMER_SEND_MSG_BACK, offset=position, **back)
        if name == "old":
            await here.make_again()
    if renewed:
        core = here.broker.broker.core
        deliveries = here.broker.broker._delivering._deliveries
        assert deliveries.renew(Old(1 << 62, 1 << 62), lambda _: None)
        assert len(core.machine.timers) == 1
    here.later_ms += 90_000_000
    await until(lambda: len(here.bodies()) == 2)
    await trio.sleep(0.1)
    assert here.bodies() == [b"new", b"new"]
    assert here.bodies(f"%RETRY%{GROUP}") == []


async def test_a_transaction_ends_with_its_topic(here: Scene) -> None:
    """A half message of the old life is not committed into the new one."""
    tran = properties_encode({"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "K"}).decode()
    sent = await here.peer.request(send_request(i=tran, f="4"), TIMEOUT_S)
    assert sent.code == Code.SUCCESS, sent.remark
    await here.make_again()
    ended = await ask(
        here.peer,
        RequestCode.END_TRANSACTION,
        producerGroup="P",
        tranStateTableOffset=0,
        commitLogOffset=int(str(sent.ext["msgId"])[-16:], 16),
        commitOrRollback=8,
        msgId="K",
    )
    assert ended.code != Code.SUCCESS
    assert here.bodies(TOPIC, 1) == []


@pytest.mark.parametrize("again", [False, True])
async def test_nobody_is_asked_about_a_transaction_whose_topic_is_gone(
    here: Scene, again: bool
) -> None:
    """A half message of a deleted topic is dropped without a check; a new life's is checked."""
    asked: list[Command] = []
    async with connect_peer("127.0.0.1", here.broker.port, on_request=asked.append) as producer:
        data = HeartbeatData("p1", [ProducerData("P")], [])
        await ask(producer, RequestCode.HEART_BEAT, encode_body(data))
        tran = properties_encode({"TRAN_MSG": "true", "PGROUP": "P"}).decode()
        sent = await producer.request(send_request(b"old", i=tran, f="4"), TIMEOUT_S)
        assert sent.code == Code.SUCCESS, sent.remark
        await here.delete()
        if again:
            await make_topic(here.peer)
            sent = await producer.request(send_request(b"new", i=tran, f="4"), TIMEOUT_S)
            assert sent.code == Code.SUCCESS, sent.remark
        here.later_ms += 6_000
        halves = here.broker.machine.halves
        await until(lambda: len(halves) == int(again))
        await until(lambda: len(asked) == int(again))
        here.later_ms += 20 * 60_000
        await until(lambda: len(halves) == 0)
    given_up = here.bodies("TRANS_CHECK_MAX_TIME_TOPIC")
    assert given_up == [b"new"] * again


async def test_a_send_that_is_repeated_in_the_new_life_is_stored_there(here: Scene) -> None:
    """A repeated send is stored once in the new life, though the old life had a copy."""
    request = produce_request("k", runs=[(0, 1)])
    await here.peer.request(request, TIMEOUT_S)
    await here.send("more", 3)
    await here.make_again()
    for is_repeat in (False, True, True):
        stored = await here.peer.request(produce_request("k", runs=[(0, 1)]), TIMEOUT_S)
        assert stored.ext["duplicate"] is is_repeat
    assert here.bodies() == [b"k 0 0"]


async def test_a_stock_retry_is_stored_in_the_new_life(here: Scene) -> None:
    """A stock client's retry is stored in the new life, though the old one had its first try."""
    retried = send_request(b"x", i="UNIQ_KEY\x01K\x02", e="0")
    await here.peer.request(retried, TIMEOUT_S)
    here.broker.ledger.follow("n1")
    here.broker.ledger.lead()
    await here.make_again()
    again = await here.peer.request(send_request(b"x", i="UNIQ_KEY\x01K\x02", e="0"), TIMEOUT_S)
    assert again.code == Code.SUCCESS
    assert here.bodies() == [b"x"]


async def pop(peer: Peer, count: int = 9) -> Command:
    return await peer.request(pop_request(count=count), TIMEOUT_S)


async def test_a_handle_of_an_earlier_life_acknowledges_nothing(tmp_path: Path) -> None:
    """A handle of an earlier life acknowledges nothing, even within one millisecond."""
    async with served(tmp_path, clock_ms=lambda: 1_000_000, clock_s=lambda: 1.0) as (broker, peer):
        here = Scene(broker, peer)
        await make_topic(peer)
        await here.send("old", 4)
        fences = [int(str((await pop(peer, 1)).ext["popTime"])) for _ in range(3)]
        await here.make_again()
        await here.send("new", 4)
        new = await pop(peer)
        assert int(str(new.ext["popTime"])) > max(fences)
        for fence in fences:
            await peer.request(ack_request((0, 0), fence), TIMEOUT_S)
        assert broker.machine.popped.count == 4


async def test_nothing_is_popped_behind_the_end_of_a_topic(here: Scene) -> None:
    """A pop behind a deletion in the log would be of the next life, and gets nothing."""
    await here.send("old", 4)
    here.broker.ledger.auto = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.make_again)
        await until(lambda: here.broker.broker.core.definitions.lasting(TOPIC) is None)
        assert (await pop(here.peer)).code == Code.TOPIC_NOT_EXIST
        assert await commit(here.peer, 4) == Code.TOPIC_NOT_EXIST
        here.broker.ledger.auto = True
        here.broker.ledger.commit()


async def test_outputs_are_not_stored_with_offsets_of_an_earlier_life(here: Scene) -> None:
    """A transaction with offsets of an earlier life is refused: it would skip messages."""
    await here.send("old", 4)
    life = here.life
    registered = await ask(here.peer, RequestCode.REGISTER_PRODUCER, producerName="n", instance="i")
    await here.make_again()
    await here.send("new", 9)
    for lives, code in (([life], Code.OFFSET_MOVED_ON), ([here.life], Code.SUCCESS)):
        header = WriteOnceHeader(
            producer_name="n",
            epoch=int(str(registered.ext["epoch"])),
            stream=0,
            sequence=1,
            parts=[],
            group=GROUP,
            moves=[(TOPIC, 0, 0, 4, None)],
            lives=lives,
        )
        request = Command(RequestCode.WRITE_ONCE, encode_header(header))
        assert (await here.peer.request(request, TIMEOUT_S)).code == code


async def test_a_life_is_kept_by_snapshots_and_unknown_to_older_ones(tmp_path: Path) -> None:
    """A replica that starts from an older snapshot believes what a client says of the life."""
    async with scene(tmp_path) as here:
        await here.make_again()
        save(here.broker.machine)
        life, begun = here.life, here.broker.machine.groups.beginning(GROUP)
    machine = Machine(tmp_path)
    machine.restore()
    assert machine.topics.life(TOPIC).entry == life
    assert machine.groups.beginning(GROUP) == begun
    state = saved_state_of(machine)
    state.births, state.begun = {}, None
    machine.take_memory(state)
    assert machine.topics.life(TOPIC).entry == 0
    assert machine.groups.beginning(GROUP) is not None
    machine.close()
